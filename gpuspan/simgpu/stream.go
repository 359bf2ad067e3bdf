// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// Graph is a sequence of captured work; see [GPU.EndCapture].
type Graph struct{ pieces []piece }

// on runs f with the stream of a handle, which must be valid.
func (g *GPU) on(s backend.StreamHandle, f func(*stream) backend.Status) backend.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok {
		return backend.StatusInvalidHandle
	}
	return f(st)
}

func (g *GPU) stream(s backend.StreamHandle) (*stream, bool) {
	if s == 0 || int(s) > len(g.streams) || g.streams[s-1].gone {
		return nil, false
	}
	return g.streams[s-1], true
}

// Launch enqueues a kernel and returns immediately.
func (g *GPU) Launch(s backend.StreamHandle, k Kernel) backend.Status {
	return g.on(s, func(st *stream) backend.Status {
		d, r := g.devices[st.device].spec.plan(k)
		return g.enqueue(st, piece{engine: engineCompute, kernel: true, d: d, r: r})
	})
}

// Copy enqueues a copy and returns immediately.
func (g *GPU) Copy(s backend.StreamHandle, c Copy) backend.Status {
	engine := engineIn
	switch c.Direction {
	case gpuspan.DeviceToHost:
		engine = engineOut
	case gpuspan.DeviceToDevice:
		engine = engineCompute
	}
	return g.on(s, func(st *stream) backend.Status {
		d, r := g.devices[st.device].spec.planCopy(c)
		return g.enqueue(st, piece{engine: engine, d: d, r: r})
	})
}

// enqueue appends pieces. The host's call takes a moment to reach the device.
func (g *GPU) enqueue(st *stream, pieces ...piece) backend.Status {
	if st.capturing {
		st.capture = append(st.capture, pieces...)
		return backend.StatusOK
	}
	now := g.now()
	for _, p := range pieces {
		p.earliest = now + int64(launchLatency)
		st.queue = append(st.queue, p)
	}
	g.advance(g.devices[st.device], now)
	return backend.StatusOK
}

// BeginCapture starts the capture of a graph on the stream.
func (g *GPU) BeginCapture(s backend.StreamHandle) backend.Status {
	return g.on(s, func(st *stream) backend.Status {
		if st.capturing {
			return backend.StatusInvalidHandle
		}
		st.capturing, st.capture = true, nil
		return backend.StatusOK
	})
}

// EndCapture ends the capture and returns the captured work.
func (g *GPU) EndCapture(s backend.StreamHandle) (graph Graph, status backend.Status) {
	status = g.on(s, func(st *stream) backend.Status {
		if !st.capturing {
			return backend.StatusInvalidHandle
		}
		st.capturing, graph = false, Graph{pieces: st.capture}
		return backend.StatusOK
	})
	return graph, status
}

// LaunchGraph enqueues all work of a graph with one launch.
func (g *GPU) LaunchGraph(s backend.StreamHandle, graph Graph) backend.Status {
	return g.on(s, func(st *stream) backend.Status {
		if st.capturing {
			return backend.StatusInvalidHandle
		}
		return g.enqueue(st, graph.pieces...)
	})
}

// Wait sleeps on the clock until the stream's work is done.
func (g *GPU) Wait(s backend.StreamHandle) backend.Status {
	return g.on(s, func(st *stream) backend.Status {
		g.sleepUntil(st, func(now int64) bool { return len(st.queue) == 0 && st.doneAt <= now })
		return backend.StatusOK
	})
}

// sleepUntil sleeps on the clock, without the lock, from one change of the device to the next.
func (g *GPU) sleepUntil(st *stream, done func(now int64) bool) {
	d := g.devices[st.device]
	for {
		now := g.now()
		g.advance(d, now)
		if done(now) {
			return
		}
		wake := d.wake(st)
		g.mu.Unlock()
		g.clock.Sleep(time.Duration(max(wake-now, 1)))
		g.mu.Lock()
	}
}

// earliest returns when the head of a stream could start: after its predecessor on the stream, and
// when its engine is free.
func (d *device) earliest(st *stream) int64 {
	p := &st.queue[0]
	t := max(st.doneAt, p.earliest)
	if p.engine == engineNone {
		return t + int64(eventGap)
	}
	return max(t, d.engines[p.engine])
}

// next finds the head that starts first. Heads that wait for the same engine alternate: the stream
// that it served longest ago is next, so that two busy streams interleave piece by piece, as on
// hardware.
func (d *device) next() (best *stream, at int64) {
	at = math.MaxInt64
	for _, st := range d.streams {
		if len(st.queue) == 0 {
			continue
		}
		t := d.earliest(st)
		if t < at || t == at && st.served < best.served {
			best, at = st, t
		}
	}
	return best, at
}

// advance starts everything that starts by now. Later starts are not decided yet: another stream
// may be first.
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
		d.meter.pieces = append(d.meter.pieces, segment{start: at, end: end, kernel: p.kernel, rates: p.r})
	}
	d.streams = slices.DeleteFunc(d.streams, func(st *stream) bool { return st.gone && len(st.queue) == 0 })
	d.meter.advance(now)
}

// wake returns when something changes on the device or the stream next, as currently known.
func (d *device) wake(st *stream) int64 {
	if len(st.queue) == 0 {
		return st.doneAt
	}
	_, at := d.next()
	return at
}
