// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import "time"

// A section is placed when an anchor has been made after it was read, so that it lies between two. That takes up to 60
// ms.
const (
	placeLimit = 250 * time.Millisecond // then it is placed by the anchors before it
	crowded    = maxInFlight / 4        // that many of one stream that wait are worth an anchor of their own
	anchorGap  = 5 * time.Millisecond   // between two of those, at least
)

// place puts what can be placed on the wall clock and hands it to the emitter. all: also what no anchor has come for.
func (t *poller) place(all bool) {
	now := t.p.clock.now()
	handed := false
	for _, s := range *t.p.streamList.Load() {
		n := 0
		for n < len(s.unplaced) && (all || t.canPlace(s.unplaced[n], now)) {
			for x, i := s.unplaced[n], 0; i < x.count(); i++ {
				t.placeRecord(x.record(i))
			}
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
		s.emitMu.Lock()
		s.emits = append(s.emits, s.unplaced[:n]...)
		s.emitMu.Unlock()
		s.unplaced = append(s.unplaced[:0], s.unplaced[n:]...)
		clear(s.unplaced[len(s.unplaced):cap(s.unplaced)])
	}
	if handed {
		t.p.emitter.wake()
	}
}

// canPlace reports whether all of a nest lies between anchors.
func (t *poller) canPlace(n *nest, now int64) bool {
	for i := range n.count() {
		if r := n.record(i); r.device != nil && r.timed && r.device.anchorer != nil &&
			!r.device.anchorer.Bracketed(&r.stamps) {
			return tooOld(n.read, now, placeLimit)
		}
	}
	return true
}

// placeRecord puts a section on the wall clock.
func (t *poller) placeRecord(r *record) {
	r.offset = t.p.clock.offset.Load()
	if !r.timed || r.flags&(flagGiven|flagHost) != 0 || r.device == nil || r.device.anchorer == nil {
		return
	}
	d := r.device
	at := d.anchorer.Place(&r.stamps)
	r.startNs = t.p.clock.at(at.Axis-d.axis, r.offset)
	r.endNs = r.startNs + at.End - at.Start
	r.gpu, r.errorNs, r.rate = float64(at.End-at.Start), at.HalfWidth, 1
	if ppm, ok := d.anchorer.Map().Drift(); ok {
		r.rate = 1 + ppm*1e-6
		d.drift.Store(-ppm)
	}
	d.halfNs.Store(at.HalfWidth)
	d.hasHalf.Store(true)
}

// anchorNow makes an anchor of each device that sections wait for.
func (t *poller) anchorNow() {
	defer t.p.guard("a clock was anchored")
	for _, d := range *t.p.devices.Load() {
		if d.anchorer != nil && t.waitsFor(d) {
			d.anchorer.Anchor()
		}
	}
}

func (t *poller) waitsFor(d *device) bool {
	for _, s := range *t.p.streamList.Load() {
		for _, n := range s.unplaced {
			for i := range n.count() {
				if r := n.record(i); r.device == d && r.timed && !d.anchorer.Bracketed(&r.stamps) {
					return true
				}
			}
		}
	}
	return false
}

func (t *poller) anyUnplaced() bool {
	for _, s := range *t.p.streamList.Load() {
		if len(s.unplaced) > 0 {
			return true
		}
	}
	return false
}
