// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/otelgpu/otelgpu/semconv"
)

// Bounds of what is kept; further devices and counters are drawn from the time of their points on.
const (
	maxDevices  = 1024
	maxCounters = 256 // of a device
)

// device is the process for the counters of a device, which viewers show once, whichever processes
// work on the device.
type device struct {
	process *process
	last    map[string]int64 // time of a counter's latest point
}

// WriteCounters writes counter points, which must be in time order for each counter. Viewers draw a
// value from its point on; a point describes the interval that ends at its time, so it is drawn
// from the start of that interval. Points that are not finite or exceed 1,024 devices are dropped.
// It returns ErrClosed after Close, and errors of the underlying writer.
func (w *Writer) WriteCounters(points []Counter) error {
	if w.closed {
		return ErrClosed
	}
	before := w.stats
	for i := range points {
		if d := w.device(&points[i]); d != nil && points[i].valid() {
			w.counter(&points[i], d)
		}
	}
	return w.flush(before)
}

func (c *Counter) valid() bool { return c.Time > 0 && !math.IsNaN(c.Value) && !math.IsInf(c.Value, 0) }

func (w *Writer) device(c *Counter) *device {
	d, ok := w.devices[c.Device]
	if !ok && len(w.devices) < maxDevices && c.valid() {
		p := w.newProcess(0)
		p.label, p.sort = "device "+c.Label, 1<<20+int64(len(w.devices))
		if c.Device != c.Label {
			p.label += " " + c.Device
		}
		d = &device{process: p, last: map[string]int64{}}
		w.devices[c.Device] = d
	}
	return d
}

func (w *Writer) counter(c *Counter, d *device) {
	from := c.Time
	switch last, known := d.last[c.Name]; {
	case c.Start > 0 && c.Start < c.Time:
		from = c.Start
	case known && last < c.Time:
		from = last
	}
	w.begin(from)
	if from = max(from, w.base); !w.holds(c.Time) || from > c.Time {
		return
	}
	if _, known := d.last[c.Name]; known || len(d.last) < maxCounters {
		d.last[c.Name] = c.Time
	}
	w.point(d, "", c.Name, c.Unit, from, c.Value)
	w.stats.Counters++
}

// point draws the value of a counter from a moment on.
func (w *Writer) point(d *device, category, name, unit string, at int64, value float64) {
	w.open("C")
	w.optional("cat", category)
	w.str("name", name)
	w.num("pid", d.process.pid)
	w.micros("ts", at-w.base)
	w.buf = append(appendString(append(w.buf, `,"args":{`...), unit), ':')
	w.buf = append(appendFloat(w.buf, value), "}}"...)
}

// Some counters are computed from the spans of a device: the rate of copies by direction, and how
// much work was launched and has not started. They are written at the end of the file, because
// spans arrive in any order.

// load is one such counter of a device: the sum of changes.
type load struct {
	label   string // of the device
	unit    string
	changes []change
	slot    int64 // ns: changes in one slot are joined; 0: only changes at one time are
	full    int   // length of changes at which they are joined
}

type loadKey struct{ device, name string }

// change is what happens from one moment to another: by how much the sum changes, and its maximum
// in between.
type change struct {
	at, last  int64
	net, peak int64
}

// catLoad marks counters that are computed from spans.
const catLoad = "load"

// Bounds. A counter has at most mostChanges changes, so that up to then it is exact; one of a file
// beyond mostLoads is not drawn.
const (
	mostChanges = 1 << 13
	mostLoads   = 64
)

// loads adds spans that are in the file.
func (w *Writer) loads(events []Event) {
	for i := range events {
		e := &events[i]
		if e.Track.Kind != Stream || e.Start < w.base || e.Category == catGPUAnnotation {
			continue
		}
		if e.Launched > w.base && e.Launched < e.Start {
			if l := w.load(e, "queue", "operations"); l != nil {
				l.add(e.Launched, e.Start, 1)
			}
		}
		if e.Category == catCopy && e.End > e.Start {
			bytes, direction := e.copied()
			rate := math.Round(float64(bytes) / float64(e.End-e.Start) * 1e9)
			if l := w.load(e, "copies"+direction, "By/s"); l != nil && rate > 0 && rate < 1<<53 {
				l.add(e.Start, e.End, int64(rate))
			}
		}
	}
}

func (e *Event) copied() (bytes int64, direction string) {
	bytes, _ = valueOf(e.Args, "bytes").AsInt()
	if d, _ := valueOf(e.Args, semconv.GPUCopyDirectionKey).AsString(); d != "" {
		direction = " " + d
	}
	return bytes, direction
}

func (w *Writer) load(e *Event, name, unit string) *load {
	k := loadKey{e.Device, name}
	label := "GPU " + strconv.FormatInt(e.Track.Device, 10)
	if k.device == "" { // devices without an identity belong to the process
		label = w.process(e.Process).label + " " + label
		k.device = label
	}
	l := w.loaded[k]
	if l == nil && len(w.loaded) < mostLoads {
		l = &load{label: label, unit: unit, full: mostChanges}
		w.loaded[k] = l
	}
	return l
}

// add raises the sum from one moment to another.
func (l *load) add(from, to, by int64) {
	l.changes = append(l.changes, change{from, from, by, by}, change{to, to, -by, 0})
	if len(l.changes) >= l.full {
		l.join()
		for len(l.changes) > mostChanges/2 {
			l.slot = max(2*l.slot, (l.changes[len(l.changes)-1].at-l.changes[0].at)/mostChanges, 1)
			l.join()
		}
	}
}

// join merges changes within one slot, in the order of time. At equal times decreases come before
// increases.
func (l *load) join() {
	slices.SortFunc(l.changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.net, b.net)) })
	joined := l.changes[:0]
	for _, c := range l.changes {
		if n := len(joined); n > 0 && (joined[n-1].at == c.at || l.slot > 0 && joined[n-1].at/l.slot == c.at/l.slot) {
			j := &joined[n-1]
			j.peak = max(j.peak, j.net+c.peak)
			j.net += c.net
			j.last = max(j.last, c.last)
			continue
		}
		joined = append(joined, c)
	}
	l.changes = joined
}

func (w *Writer) writeLoads() {
	for _, k := range slices.SortedFunc(maps.Keys(w.loaded), func(a, b loadKey) int {
		return cmp.Or(cmp.Compare(a.device, b.device), cmp.Compare(a.name, b.name))
	}) {
		l := w.loaded[k]
		l.join()
		d := w.device(&Counter{Device: k.device, Label: l.label, Time: 1})
		if d == nil {
			continue
		}
		sum := int64(0)
		for _, c := range l.changes {
			if c.last > c.at { // several moments: the highest that it was
				w.point(d, catLoad, k.name, l.unit, c.at, float64(sum+c.peak))
			}
			sum += c.net
			w.point(d, catLoad, k.name, l.unit, c.last, float64(sum))
		}
	}
}
