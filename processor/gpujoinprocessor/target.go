// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"cmp"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
	"github.com/otelgpu/otelgpu/semconv"
)

// outcome is where a device was found.
type outcome uint8

const (
	found outcome = iota
	unknownDevice
	noIdentity
	severalDevices
	noDevice
	outcomes
)

var outcomeNames = [outcomes]string{"", "unknown_device", "no_identity", "several_devices", "no_device"}

// targetName is a device as a span names it.
type targetName struct {
	res     *resourceInfo
	hwID    string
	bdf     string
	ordinal int64 // -1: none
	request bool  // timed on the host; it may be on several devices

	unreadable bool // hw.id is stated, but is no text
}

// target is a device that spans of a batch name.
type target struct {
	targetName
	outcome outcome
	board   *board
	// undecided means that the device is not known yet, see engine.undecided; arrived that its
	// spans take part in the energy attribution.
	undecided, arrived bool

	latest int64                    // end of its spans that are waited for; 0 if there is none
	dev    devicesamples.DeviceView // while the samples are locked
	cell   int64                    // ns; shorter spans have the values of their surroundings

	from, to int64    // of its spans, unix ns
	looked   bool     // ids are set
	ids      []string // devices of spans that name none, or several
	more     []spot   // those beyond the first

	// The process's clock, see spanClocks.offset and loads.behind.
	ahead  bool
	behind int64 // ns, negative if the server's clock is ahead by its own statement
}

// extend extends the target's time by a span's.
func (x *target) extend(s *attribution.Span) {
	if x.to == 0 {
		x.from = s.Start
	}
	x.from, x.to = min(x.from, s.Start), max(x.to, s.End)
}

// targets are the devices of a batch. A request has few of them and many spans, which refer to
// theirs by number.
type targets struct {
	list []target
	last int // of the last span
}

// recentTargets bounds the search for a target; one that was named longer ago gets a second number.
const recentTargets = 8

// number returns the number of a target. The search starts at the last span's: most follow one
// another on a device, or alternate between the devices.
func (p *targets) number(name *targetName) int32 {
	n := min(len(p.list), recentTargets)
	first := len(p.list) - n
	at := max(p.last, first)
	for range n {
		if p.list[at].targetName == *name {
			p.last = at
			return int32(at)
		}
		if at++; at == len(p.list) {
			at = first
		}
	}
	p.last = len(p.list)
	p.list = append(p.list, target{targetName: *name})
	return int32(p.last)
}

// sameDevice compares the targets of spans of one process and one ordinal.
func (p *targets) sameDevice(i, j int32) bool {
	a, b := &p.list[i], &p.list[j]
	return i == j || cmp.Or(a.hwID, a.bdf) == cmp.Or(b.hwID, b.bdf)
}

func (p *targets) reset() {
	clear(p.list)
	p.list, p.last = p.list[:0], 0
}

// search matches by hw.id, then by host and PCI address, then by the configured map of ordinals.
// Spans that name none of these are resolved by devicesOf.
func (e *engine) search(view devicesamples.View, p *targetName) (devicesamples.DeviceView, outcome) {
	if p.hwID != "" {
		if dev, ok := view.Lookup(p.hwID); ok {
			return dev, found
		}
	}
	if p.bdf != "" {
		for _, host := range [...]string{p.res.workload.HostID, p.res.workload.HostName} {
			if host != "" {
				if dev, ok := view.LookupPCI(host, p.bdf); ok {
					return dev, found
				}
			}
		}
	}
	if p.hwID != "" || p.bdf != "" { // a device of another host must not match by its number
		return devicesamples.DeviceView{}, unknownDevice
	}
	id, mapped := e.ordinals[p.ordinal]
	if !mapped {
		return devicesamples.DeviceView{}, noIdentity
	}
	if dev, ok := view.Lookup(id); ok {
		return dev, found
	}
	return devicesamples.DeviceView{}, unknownDevice
}

// find looks up the targets of a batch in the current view. A target that was not found stays so
// for the batch, unless it is undecided.
func (e *engine) find(view devicesamples.View, p *targets) {
	for i := range p.list {
		x := &p.list[i]
		if x.outcome != found && !x.undecided {
			continue
		}
		if !x.looked || x.undecided {
			x.ids, x.looked = e.devicesOf(view, x), true
		}
		if len(x.ids) > 0 {
			x.outcome = e.searchSeveral(view, x)
		} else if x.dev, x.outcome = e.search(view, &x.targetName); x.outcome == found {
			x.board = e.boardOf(x.dev)
		}
		if x.outcome != found && view.Empty() {
			x.outcome = noDevice // whatever the spans say
		}
		x.undecided = x.undecided && x.outcome != found
		if x.outcome == found {
			// A counter that is refreshed more rarely than maxCell affects the energy only, which
			// states its error.
			period := min(x.board.meter.dev.UpdatePeriod(devicesamples.Energy), maxCell)
			x.cell = int64(max(x.dev.Interval(), period))
		}
	}
}

const maxCell = time.Second

// method reports whether a span is long enough for its own values.
func (x *target) method(length int64) string {
	if length < x.cell {
		return semconv.GPUJoinMethodCell
	}
	return semconv.GPUJoinMethodInterval
}

// spot is a further device of spans on several devices, such as spans of a model that is divided
// among them.
type spot struct {
	board *board
	dev   devicesamples.DeviceView // while the samples are locked
	again bool                     // the physical GPU belongs to a device before it, too, another instance
	own   float64                  // J, of the span that is written
}

// devicesOf returns the devices of spans that do not name one: a list in hw.id, otherwise the
// devices of the span's process, pod or host (devicesamples.UseReader). nil: the target names a
// device, or it is unknown.
func (e *engine) devicesOf(view devicesamples.View, x *target) []string {
	switch {
	case strings.Contains(x.hwID, ","):
		return strings.FieldsFunc(x.hwID, func(r rune) bool { return r == ',' || r == ' ' })
	case x.hwID != "" || x.bdf != "" || x.unreadable || e.uses == nil:
		return nil
	}
	if _, mapped := e.ordinals[x.ordinal]; mapped {
		return nil
	}
	ids, by := e.uses.DevicesOf(nil, &x.res.workload, x.from, x.to)
	if by == devicesamples.FoundByHost {
		// Sources write samples after they have registered all devices and pods that they know:
		// until then the host may have others.
		if dev, ok := view.Lookup(ids[0]); ok && dev.Newest() == 0 {
			return nil
		}
	}
	return ids
}

// searchSeveral binds all devices of a target. Only a request may be on several: it is unknown
// which of them ran a section. All must have samples, because a sum over some of them would be
// mistaken for the whole.
func (e *engine) searchSeveral(view devicesamples.View, x *target) outcome {
	if len(x.ids) > 1 && !x.request {
		return severalDevices
	}
	x.more, x.board = x.more[:0], nil
	for _, id := range x.ids {
		dev, ok := view.Lookup(id)
		if !ok {
			return unknownDevice
		}
		b := e.boardOf(dev)
		if x.board == nil {
			x.dev, x.board = dev, b
			continue
		}
		same, again := x.dev == dev, x.board == b
		for _, s := range x.more {
			same, again = same || s.dev == dev, again || s.board == b
		}
		if !same {
			x.more = append(x.more, spot{board: b, dev: dev, again: again})
		}
	}
	return found
}

// arriveMore adds a span to the energy attribution of the target's further physical GPUs, and pins
// it there if pin is true.
func (x *target) arriveMore(b *batch, g *gpuSpan, share *attribution.Span, now int64, pin bool) {
	g.more, g.further = int32(len(b.more)), int32(len(x.more))
	for _, s := range x.more {
		var at attribution.Handle
		if !s.again {
			s.board.meter.sharing.add(share.Process, &x.res.workload, g.end)
			if _, at, _ = s.board.dev.Add(*share, now, &s.board.meter); pin {
				s.board.dev.Pin(g.Key, at)
			}
		}
		b.more = append(b.more, at)
	}
}
