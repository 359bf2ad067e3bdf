// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
)

// A section is placed when an anchor has been taken after it was read, so that it is between two. That takes up to 60
// ms.
const (
	PlaceLimit = 250 * time.Millisecond // after which it is placed by the anchors before it
	Crowded    = record.MaxInFlight / 4 // number of waiting sections of one stream that justify a separate anchor
	anchorGap  = 5 * time.Millisecond   // minimum time between two of those
	UsualQueue = 256                    // initial capacity of a stream's lists

	placeTogether = 8 // maximum number of passes while there is more to read: lists are passed on whole, with one wake-up
)

// placer places sections on the wall clock.
type placer struct {
	p         *record.Core
	CrowdedAt int64 // hostClock when a crowded stream last took a separate anchor
}

// Place places what it can on the wall clock and passes it to the emitter. all: also sections without a later anchor.
func (t *placer) Place(all bool) {
	now := t.p.Clock.Now()
	handed := false
	for _, s := range t.p.StreamList.All() {
		n := 0
		for n < len(s.Unplaced) {
			if !all && Awaits(s, n, nil) && !record.TooOld(s.Unplaced[n].Read, now, PlaceLimit) {
				break
			}
			t.placeQueued(s, n)
			n++
		}
		if n == 0 {
			if len(s.Unplaced) > Crowded && t.CrowdedAt+int64(anchorGap) < now {
				t.CrowdedAt = now
				t.AnchorNow()
			}
			continue
		}
		handed = true
		HandOver(s, n)
	}
	if handed {
		t.p.Exporting.Wake()
	}
}

// HandOver passes the first n unplaced sections to the emitter: usually all of them, and then the two lists are
// exchanged.
func HandOver(s *record.Stream, n int) {
	s.Stamps = append(s.Stamps[:0], s.Stamps[n:]...)
	s.EmitMu.Lock()
	defer s.EmitMu.Unlock()
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

// Awaits reports whether a section of the unplaced entry i is after the last anchor of a device; nil: its own.
func Awaits(s *record.Stream, i int, of *record.Device) bool {
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
func unbracketed(d *record.Device, x *clockmap.Stamps) bool {
	return d.Anchorer != nil && !d.Anchorer.Bracketed(x)
}

// placeQueued places the unplaced entry i on the wall clock.
func (t *placer) placeQueued(s *record.Stream, i int) {
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
		if !r.Timed || r.Flags&(record.FlagGiven|record.FlagHost) != 0 || r.Device == nil || r.Device.Anchorer == nil {
			continue
		}
		t.placeTimes(r.Device, &r.Stamps, &r.Times)
		r.GPU, r.Rate = float64(r.EndNs-r.StartNs), 1
		if ppm, ok := r.Device.Anchorer.Map().Drift(); ok {
			r.Rate = 1 + ppm*1e-6
		}
	}
}

func (t *placer) placeTimes(d *record.Device, stamps *clockmap.Stamps, x *record.Times) {
	at := d.Anchorer.Place(stamps)
	x.StartNs = t.p.Clock.At(at.Start-d.Axis, x.Offset)
	x.EndNs = x.StartNs + at.End - at.Start
	x.ErrorNs = at.HalfWidth
	d.HalfNs.Store(at.HalfWidth)
}

// AnchorNow takes an anchor on each device that sections wait for.
func (t *placer) AnchorNow() {
	defer t.p.Guard("a clock was anchored")
	for _, d := range t.p.DeviceList.All() {
		if d.Anchorer != nil && t.waitsFor(d) {
			d.Anchorer.Anchor()
		}
	}
}

func (t *placer) waitsFor(d *record.Device) bool {
	for _, s := range t.p.StreamList.All() {
		for i := range s.Unplaced {
			if Awaits(s, i, d) {
				return true
			}
		}
	}
	return false
}

// queue lets a nest wait for its anchor. The order within a stream is kept.
func (t *placer) queue(s *record.Stream, n *record.Nest) {
	s.InFlight.Add(int32(n.Count()))
	s.Unplaced = append(s.Unplaced, record.Stamped{Nest: n, Read: t.p.Polling.Passed.Load()})
	s.Stamps = append(s.Stamps, clockmap.Stamps{}) // its records have their own
}

// Unplaced counts the sections that were read by then and wait for an anchor.
func (t *placer) Unplaced(until int64) (n int) {
	for _, s := range t.p.StreamList.All() {
		for i := range s.Unplaced {
			if s.Unplaced[i].Read <= until {
				n++
			}
		}
	}
	return n
}
