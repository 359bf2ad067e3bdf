// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"math"
	"time"
)

// Engines of a device.
const (
	engineCompute = iota
	engineIn
	engineOut
	engineNone // an event needs no engine
)

// piece is one entry of a stream: work for an engine, or an event.
type piece struct {
	engine   int
	kernel   bool
	d        time.Duration
	r        rates
	earliest int64 // host ns before which it cannot start: when the call that enqueued it reaches the device
	event    int   // index of the event, where engine is engineNone
	gen      uint32
}

// start is when the head of a stream could start: after what came before it on the stream, and when its engine is free.
func (d *device) start(st *stream) int64 {
	p := &st.queue[0]
	t := max(st.doneAt, p.earliest)
	if p.engine == engineNone {
		return t + int64(eventGap)
	}
	return max(t, d.engines[p.engine])
}

// next finds the head that starts first. Heads that wait for the same engine take turns: the stream that it served
// longest ago is next, so that two busy streams interleave piece by piece, as on hardware.
func (d *device) next() (best *stream, at int64) {
	at = math.MaxInt64
	for _, st := range d.streams {
		if len(st.queue) == 0 {
			continue
		}
		t := d.start(st)
		if t < at || t == at && st.served < best.served {
			best, at = st, t
		}
	}
	return best, at
}

// advance starts everything that starts until now. What starts later is not decided yet: another stream may come first.
func (g *GPU) advance(d *device, now int64) {
	for {
		st, at := d.next()
		if st == nil || at > now {
			break
		}
		p := st.queue[0]
		st.queue = st.queue[1:]
		if p.engine == engineNone {
			st.doneAt = at
			if e := &g.events[p.event]; e.gen == p.gen {
				e.stamp, e.truth, e.happened = g.gpuTime(at), at, true
			}
			continue
		}
		run := p.d
		if j := g.cfg.jitter; j > 0 {
			run = time.Duration(float64(run) * max(0.5, 1+j*g.rng.NormFloat64()))
		}
		end := at + int64(run)
		st.doneAt, d.engines[p.engine] = end, end
		d.turn++
		st.served = d.turn
		d.meter.add(segment{start: at, end: end, kernel: p.kernel, rates: p.r})
	}
	d.meter.advance(now)
}

// wake is when something changes on the device or the stream next, as far as is known now.
func (d *device) wake(st *stream) int64 {
	if len(st.queue) == 0 {
		return st.doneAt
	}
	_, at := d.next()
	return at
}
