// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// A section is placed when an anchor has been made after it was read, so that it lies between two. That takes up to 60
// ms.
const (
	placeLimit = 250 * time.Millisecond // then it is placed by the anchors before it
	crowded    = maxInFlight / 4        // that many of one stream that wait are worth an anchor of their own
	anchorGap  = 5 * time.Millisecond   // between two of those, at least
	usualQueue = 256                    // what a stream's lists have room for, though there is less

	placeTogether = 8 // passes, at most, while there are more to read: lists are handed over whole, with one wake-up
)

// place puts what can be placed on the wall clock and hands it to the emitter. all: also what no anchor has come for.
func (t *poller) place(all bool) {
	now := t.p.clock.now()
	handed := false
	for _, s := range t.p.streamList.all() {
		n := 0
		for n < len(s.unplaced) {
			if !all && s.awaits(n, nil) && !tooOld(s.unplaced[n].read, now, placeLimit) {
				break
			}
			t.placeQueued(s, n)
			n++
		}
		if n == 0 {
			if len(s.unplaced) > crowded && t.crowdedAt+int64(anchorGap) < now {
				t.crowdedAt = now
				t.anchorNow()
			}
			continue
		}
		handed = true
		s.handOver(n)
	}
	if handed {
		t.p.emitter.wake()
	}
}

// handOver passes the first n of what was unplaced to the emitter: mostly all, and then the two lists change places.
func (s *Stream) handOver(n int) {
	s.stamps = append(s.stamps[:0], s.stamps[n:]...)
	s.emitMu.Lock()
	defer s.emitMu.Unlock()
	if len(s.emits) == 0 && n == len(s.unplaced) {
		s.emits, s.unplaced = s.unplaced, s.emits
		if cap(s.unplaced) > max(4*n, usualQueue) {
			s.unplaced, s.stamps = nil, nil // a burst need not cost memory for ever
		}
		return
	}
	s.emits = append(s.emits, s.unplaced[:n]...)
	s.unplaced = append(s.unplaced[:0], s.unplaced[n:]...)
	clear(s.unplaced[len(s.unplaced):cap(s.unplaced)])
}

// awaits reports whether a section of what is unplaced at i lies after the last anchor of a device; nil: of its own.
func (s *Stream) awaits(i int, of *device) bool {
	q := &s.unplaced[i]
	if q.nest == nil {
		return (of == nil || of == s.device) && s.device.awaits(&s.stamps[i])
	}
	for i := range q.nest.count() {
		r := q.nest.record(i)
		if r.timed && r.device != nil && (of == nil || of == r.device) && r.device.awaits(&r.stamps) {
			return true
		}
	}
	return false
}

// awaits reports whether no anchor was made since stamps were read.
func (d *device) awaits(x *clockmap.Stamps) bool {
	return d.anchorer != nil && !d.anchorer.Bracketed(x)
}

// placeQueued puts what is unplaced at i on the wall clock.
func (t *poller) placeQueued(s *Stream, i int) {
	q, offset := &s.unplaced[i], t.p.clock.offset.Load()
	if q.nest == nil {
		q.offset = offset
		if s.device.anchorer != nil {
			t.placeTimes(s.device, &s.stamps[i], &q.times)
		}
		return
	}
	for i := range q.nest.count() {
		r := q.nest.record(i)
		r.offset = offset
		if !r.timed || r.flags&(flagGiven|flagHost) != 0 || r.device == nil || r.device.anchorer == nil {
			continue
		}
		t.placeTimes(r.device, &r.stamps, &r.times)
		r.gpu, r.rate = float64(r.endNs-r.startNs), 1
		if ppm, ok := r.device.anchorer.Map().Drift(); ok {
			r.rate = 1 + ppm*1e-6
		}
	}
}

func (t *poller) placeTimes(d *device, stamps *clockmap.Stamps, x *times) {
	at := d.anchorer.Place(stamps)
	x.startNs = t.p.clock.at(at.Start-d.axis, x.offset)
	x.endNs = x.startNs + at.End - at.Start
	x.errorNs = at.HalfWidth
	d.halfNs.Store(at.HalfWidth)
}

// anchorNow makes an anchor of each device that sections wait for.
func (t *poller) anchorNow() {
	defer t.p.guard("a clock was anchored")
	for _, d := range t.p.devices.all() {
		if d.anchorer != nil && t.waitsFor(d) {
			d.anchorer.Anchor()
		}
	}
}

func (t *poller) waitsFor(d *device) bool {
	for _, s := range t.p.streamList.all() {
		for i := range s.unplaced {
			if s.awaits(i, d) {
				return true
			}
		}
	}
	return false
}
