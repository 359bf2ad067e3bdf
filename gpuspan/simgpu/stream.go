// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// Engines of a device.
const (
	engineCompute = iota
	engineIn
	engineOut
)

type stream struct {
	device    int
	busyUntil int64 // host ns at which everything enqueued so far is done
	capture   []piece
	capturing bool
	gone      bool
}

// piece is work that is ready to be enqueued, also as a node of a captured graph.
type piece struct {
	engine int
	kernel bool
	d      time.Duration
	r      rates
}

// Graph is captured work; see [GPU.EndCapture].
type Graph struct{ pieces []piece }

// Stream makes a stream on a device; it is 0 when there is no such device.
func (g *GPU) Stream(device int) gpuspan.StreamHandle {
	s, _ := g.NewStream(device)
	return s
}

func (g *GPU) stream(s gpuspan.StreamHandle) (*stream, bool) {
	if s == 0 || int(s) > len(g.streams) || g.streams[s-1].gone {
		return nil, false
	}
	return g.streams[s-1], true
}

// Launch enqueues a kernel and returns at once.
func (g *GPU) Launch(s gpuspan.StreamHandle, k Kernel) gpuspan.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok {
		return gpuspan.StatusInvalidHandle
	}
	d, r := g.devices[st.device].spec.plan(k)
	return g.enqueue(st, piece{engine: engineCompute, kernel: true, d: d, r: r})
}

// Copy enqueues a copy and returns at once.
func (g *GPU) Copy(s gpuspan.StreamHandle, c Copy) gpuspan.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok {
		return gpuspan.StatusInvalidHandle
	}
	d, r := g.devices[st.device].spec.planCopy(c)
	engine := engineCompute
	switch c.Direction {
	case HostToDevice:
		engine = engineIn
	case DeviceToHost:
		engine = engineOut
	}
	return g.enqueue(st, piece{engine: engine, d: d, r: r})
}

// enqueue places a piece: after what the stream holds, when its engine is free, and not before the host's call
// could reach the device.
func (g *GPU) enqueue(st *stream, p piece) gpuspan.Status {
	if st.capturing {
		st.capture = append(st.capture, p)
		return gpuspan.StatusOK
	}
	g.place(st, p, g.now()+int64(launchLatency))
	return gpuspan.StatusOK
}

func (g *GPU) place(st *stream, p piece, earliest int64) {
	dev := g.devices[st.device]
	dev.meter.advance(g.now())
	begin := max(st.busyUntil, dev.engines[p.engine], earliest)
	d := p.d
	if j := g.cfg.jitter; j > 0 {
		d = time.Duration(float64(d) * max(0.5, 1+j*g.rng.NormFloat64()))
	}
	end := begin + int64(d)
	st.busyUntil, dev.engines[p.engine] = end, end
	dev.meter.add(segment{start: begin, end: end, kernel: p.kernel, rates: p.r})
}

// BeginCapture starts the capture of a graph on the stream.
func (g *GPU) BeginCapture(s gpuspan.StreamHandle) gpuspan.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok || st.capturing {
		return gpuspan.StatusInvalidHandle
	}
	st.capturing, st.capture = true, nil
	return gpuspan.StatusOK
}

// EndCapture ends it and returns the work as a graph.
func (g *GPU) EndCapture(s gpuspan.StreamHandle) (Graph, gpuspan.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok || !st.capturing {
		return Graph{}, gpuspan.StatusInvalidHandle
	}
	st.capturing = false
	return Graph{pieces: st.capture}, gpuspan.StatusOK
}

// LaunchGraph enqueues all work of a graph with one launch.
func (g *GPU) LaunchGraph(s gpuspan.StreamHandle, graph Graph) gpuspan.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, ok := g.stream(s)
	if !ok || st.capturing {
		return gpuspan.StatusInvalidHandle
	}
	earliest := g.now() + int64(launchLatency)
	for _, p := range graph.pieces {
		g.place(st, p, earliest)
	}
	return gpuspan.StatusOK
}

// Wait sleeps on the clock until the stream's work is done.
func (g *GPU) Wait(s gpuspan.StreamHandle) gpuspan.Status {
	g.mu.Lock()
	st, ok := g.stream(s)
	if !ok {
		g.mu.Unlock()
		return gpuspan.StatusInvalidHandle
	}
	until := st.busyUntil
	g.mu.Unlock()
	g.sleepUntil(until)
	return gpuspan.StatusOK
}

func (g *GPU) sleepUntil(ns int64) {
	for d := ns - g.now(); d > 0; d = ns - g.now() {
		g.clock.Sleep(time.Duration(d))
	}
}
