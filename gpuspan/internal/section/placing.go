// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
)

// A section is placed when an anchor has been taken after it was read, so that it is between two.
// That takes up to 60 ms.
const (
	PlaceLimit = 250 * time.Millisecond // after which it is placed by the anchors before it
	Crowded    = MaxInFlight / 4        // number of waiting sections of one stream that justify a separate anchor
	anchorGap  = 5 * time.Millisecond   // minimum time between two of those
	UsualQueue = 256                    // initial capacity of a stream's lists

	placeTogether = 8 // maximum number of passes while there is more to read: lists are passed on whole, with one wake-up
)

// Place places what it can on the wall clock and passes it to the exporter. all: also sections
// without a later anchor.
func (t *Poller) Place(all bool) {
	now := t.p.Clock.Now()
	handed := false
	for _, s := range t.p.streamList.all() {
		n := 0
		for n < len(s.Unplaced) {
			if !all && Awaits(s, n, nil) && !TooOld(s.Unplaced[n].Read, now, PlaceLimit) {
				break
			}
			t.placeQueued(s, n)
			n++
		}
		if n == 0 {
			if len(s.Unplaced) > Crowded && t.crowdedAt+int64(anchorGap) < now {
				t.crowdedAt = now
				t.AnchorNow()
			}
			continue
		}
		handed = true
		HandOver(s, n)
	}
	if handed {
		worker.Wake(t.p.exporting)
	}
}

// HandOver passes the first n unplaced sections to the exporter: usually all of them, and then the
// two lists are exchanged.
func HandOver(s *Stream, n int) {
	s.Stamps = append(s.Stamps[:0], s.Stamps[n:]...)
	s.emitMu.Lock()
	defer s.emitMu.Unlock()
	if len(s.Emits) == 0 && n == len(s.Unplaced) {
		s.Emits, s.Unplaced = s.Unplaced, s.Emits
		if cap(s.Unplaced) > max(4*n, UsualQueue) {
			s.Unplaced, s.Stamps = nil, nil // a burst need not cost memory forever
		}
		return
	}
	s.Emits = append(s.Emits, s.Unplaced[:n]...)
	s.Unplaced = append(s.Unplaced[:0], s.Unplaced[n:]...)
	clear(s.Unplaced[len(s.Unplaced):cap(s.Unplaced)])
}

// Awaits reports whether a section of the unplaced entry i is after the last anchor of a device;
// nil: its own.
func Awaits(s *Stream, i int, of *Device) bool {
	q := &s.Unplaced[i]
	if q.Nest == nil {
		return (of == nil || of == s.Device) && unbracketed(s.Device, &s.Stamps[i])
	}
	for i := range q.Nest.Count() {
		r := q.Nest.Record(i)
		if r.Timed && r.Device != nil && (of == nil || of == r.Device) && unbracketed(r.Device, &r.Stamps) {
			return true
		}
	}
	return false
}

// unbracketed reports whether no anchor was taken since stamps were read.
func unbracketed(d *Device, x *clockmap.Stamps) bool {
	return d.Anchorer != nil && !d.Anchorer.Bracketed(x)
}

// placeQueued places the unplaced entry i on the wall clock.
func (t *Poller) placeQueued(s *Stream, i int) {
	q, offset := &s.Unplaced[i], t.p.Clock.Offset.Load()
	if q.Nest == nil {
		q.Offset = offset
		if s.Device.Anchorer != nil {
			t.placeTimes(s.Device, &s.Stamps[i], &q.Times)
		}
		return
	}
	for i := range q.Nest.Count() {
		r := q.Nest.Record(i)
		r.Offset = offset
		if !r.Timed || r.Flags&(FlagGiven|FlagHost) != 0 || r.Device == nil || r.Device.Anchorer == nil {
			continue
		}
		t.placeTimes(r.Device, &r.Stamps, &r.Times)
		r.GPU, r.Rate = float64(r.EndNs-r.StartNs), 1
		if ppm, ok := r.Device.Anchorer.Map().Drift(); ok {
			r.Rate = 1 + ppm*1e-6
		}
	}
}

func (t *Poller) placeTimes(d *Device, stamps *clockmap.Stamps, x *Times) {
	at := d.Anchorer.Place(stamps)
	x.StartNs = t.p.Clock.At(at.Start-d.axis, x.Offset)
	x.EndNs = x.StartNs + at.End - at.Start
	x.ErrorNs = at.HalfWidth
	d.halfNs.Store(at.HalfWidth)
}

// AnchorNow takes an anchor on each device that sections wait for.
func (t *Poller) AnchorNow() {
	defer t.p.Guard("a clock was anchored")
	for _, d := range t.p.deviceList.all() {
		if d.Anchorer != nil && t.waitsFor(d) {
			d.Anchorer.Anchor()
		}
	}
}

func (t *Poller) waitsFor(d *Device) bool {
	for _, s := range t.p.streamList.all() {
		for i := range s.Unplaced {
			if Awaits(s, i, d) {
				return true
			}
		}
	}
	return false
}

// queue lets a nest wait for its anchor. The order within a stream is kept.
func (t *Poller) queue(s *Stream, n *Nest) {
	s.InFlight.Add(int32(n.Count()))
	s.Unplaced = append(s.Unplaced, Stamped{Nest: n, Read: t.p.passed.Load()})
	s.Stamps = append(s.Stamps, clockmap.Stamps{}) // its records have their own
}

// CountUnplaced counts the sections that were read by then and wait for an anchor.
func (t *Poller) CountUnplaced(until int64) (n int) {
	for _, s := range t.p.streamList.all() {
		for i := range s.Unplaced {
			if s.Unplaced[i].Read <= until {
				n++
			}
		}
	}
	return n
}
