// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

type stream struct {
	device    int
	queue     []piece
	doneAt    int64 // host ns at which everything that has left the queue is done
	served    int64 // the device's turn at which an engine last ran a piece of it
	capture   []piece
	capturing bool
	gone      bool
}

// Graph is captured work; see [GPU.EndCapture].
type Graph struct{ pieces []piece }

// Stream makes a stream on a device; it is 0 when there is no such device.
func (g *GPU) Stream(device int) backend.StreamHandle {
	s, _ := g.NewStream(backend.Context(device))
	return s
}

// on runs f with a stream, which the handle must be of.
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

// Launch enqueues a kernel and returns at once.
func (g *GPU) Launch(s backend.StreamHandle, k Kernel) backend.Status {
	return g.on(s, func(st *stream) backend.Status {
		d, r := g.devices[st.device].spec.plan(k)
		return g.enqueue(st, piece{engine: engineCompute, kernel: true, d: d, r: r})
	})
}

// Copy enqueues a copy and returns at once.
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

// EndCapture ends it and returns the work as a graph.
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
