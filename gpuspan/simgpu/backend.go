// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/semconv"
)

// New returns a GPU on the given clock; nil means the host's real clock.
func New(clock Clock, opts ...Option) *GPU {
	clock = cmp.Or[Clock](clock, realClock{base: time.Now()})
	cfg := config{driftPPM: 12, offset: 1234567891 * time.Nanosecond, tick: 32 * time.Nanosecond, seed: 1, jitter: 0.02}
	options.All(opts, Option.apply)(&cfg)
	if len(cfg.specs) == 0 {
		cfg.specs = []Spec{DefaultSpec()}
	}
	g := &GPU{clock: clock, start: clock.Now(), cfg: cfg, rng: rand.New(rand.NewPCG(cfg.seed, 0x6f74656c677075))}
	for i, spec := range cfg.specs {
		info := Identity(0, i, spec)
		info.Peaks = spec.peaks()
		m := &meter{spec: spec, celsius: spec.Ambient, startUTC: g.start}
		g.devices = append(g.devices, &device{spec: spec, info: info, meter: m})
	}
	return g
}

// Telemetry returns the readings of a device's meters; ok is false if there is no such device.
func (g *GPU) Telemetry(ordinal int) (t Telemetry, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.device(ordinal)
	if !ok {
		return Telemetry{}, false
	}
	now := g.now()
	g.advance(d, now)
	t = d.meter.read(now)
	t.MemoryUsed = d.used
	return t, true
}

// Spec returns the specification of a device; ok is false if there is no such device.
func (g *GPU) Spec(ordinal int) (s Spec, ok bool) {
	d, ok := g.device(ordinal)
	if !ok {
		return Spec{}, false
	}
	return d.spec, true
}

// Allocate allocates device memory, or frees it if bytes is negative, and reports whether there was
// enough.
func (g *GPU) Allocate(ordinal int, bytes int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.device(ordinal)
	if !ok || d.used+bytes > d.spec.MemoryTotal || d.used+bytes < 0 {
		return false
	}
	d.used += bytes
	return true
}

// Stream creates a stream on a device and returns its handle; 0 if there is no such device.
func (g *GPU) Stream(device int) backend.StreamHandle {
	s, _ := g.NewStream(backend.Context(device))
	return s
}

var _ backend.Backend = (*GPU)(nil)

// Name returns "simulated".
func (g *GPU) Name() string { return semconv.GPUTimingSourceSimulated }

// Devices lists the simulated devices.
func (g *GPU) Devices() ([]backend.Device, error) {
	out := make([]backend.Device, len(g.devices))
	for i, d := range g.devices {
		out[i] = d.info
	}
	return out, nil
}

// Now returns the simulation's host time.
func (g *GPU) Now() time.Time { return g.clock.Now() }

// ThreadInit does nothing, because polling cannot invalidate captures.
func (g *GPU) ThreadInit() error { return nil }

// StreamInfo returns the device and kind of a stream, or an error if the handle is unknown. Handle
// 0 is the legacy stream of a device, for streams of gpuspan.ForeignEvents.
func (g *GPU) StreamInfo(s backend.StreamHandle, c backend.Context) (backend.StreamInfo, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if s == 0 {
		return backend.StreamInfo{Device: int(c), Context: c, Kind: backend.StreamLegacy}, nil
	}
	st, ok := g.stream(s)
	if !ok {
		return backend.StreamInfo{}, errors.New("simgpu: unknown stream (make it with GPU.Stream)")
	}
	return backend.StreamInfo{Device: st.device, Context: backend.Context(st.device)}, nil
}

// Bind does nothing: a simulated device needs no current context.
func (g *GPU) Bind(backend.Context) (func(), backend.Status) { return func() {}, backend.StatusOK }

// Current returns the first device, because threads have no current device.
func (g *GPU) Current() (backend.Context, backend.Status) { return 0, backend.StatusOK }

// NewAnchorStream is like NewStream.
func (g *GPU) NewAnchorStream(c backend.Context) (backend.StreamHandle, backend.Status) {
	return g.NewStream(c)
}

// NewStream creates a stream on a device.
func (g *GPU) NewStream(c backend.Context) (backend.StreamHandle, backend.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	device := int(c)
	if _, ok := g.device(device); !ok {
		return 0, backend.StatusInvalidValue
	}
	st := &stream{device: device}
	g.streams = append(g.streams, st)
	g.devices[device].streams = append(g.devices[device].streams, st)
	return backend.StreamHandle(len(g.streams)), backend.StatusOK
}

// FreeStream frees a stream, whose enqueued work still runs; its handle is not reused.
func (g *GPU) FreeStream(_ backend.Context, s backend.StreamHandle) {
	g.on(s, func(st *stream) backend.Status {
		st.gone = true
		g.advance(g.devices[st.device], g.now())
		return backend.StatusOK
	})
}

// NewEvents fills dst with new events.
func (g *GPU) NewEvents(c backend.Context, dst []backend.Event) backend.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	device := int(c)
	if _, ok := g.device(device); !ok {
		return backend.StatusInvalidValue
	}
	for i := range dst {
		if n := len(g.free); n > 0 {
			at := g.free[n-1]
			g.free = g.free[:n-1]
			g.events[at] = event{device: device, gen: g.events[at].gen + 1}
			dst[i] = backend.Event(at + 1)
			continue
		}
		g.events = append(g.events, event{device: device})
		dst[i] = backend.Event(len(g.events))
	}
	return backend.StatusOK
}

// FreeEvents frees events.
func (g *GPU) FreeEvents(_ backend.Context, events []backend.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, e := range events {
		if e > 0 && int(e) <= len(g.events) {
			g.free = append(g.free, int(e)-1)
		}
	}
}

// Capturing reports whether a graph is being captured on the stream.
func (g *GPU) Capturing(s backend.StreamHandle) (capturing bool, status backend.Status) {
	status = g.on(s, func(st *stream) backend.Status {
		capturing = st.capturing
		return backend.StatusOK
	})
	return capturing, status
}

// Record enqueues an event after the stream's work.
func (g *GPU) Record(c *backend.Call) backend.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	st, known := g.stream(c.Args[1])
	e, ok := g.event(backend.Event(c.Args[0]))
	if !known || !ok || e.device != st.device {
		return backend.StatusInvalidHandle
	}
	*e = event{device: e.device, gen: e.gen + 1, stream: st, captured: st.capturing}
	if st.capturing { // like a driver: a fork point, not a time
		return backend.StatusOK
	}
	now := g.now()
	st.queue = append(st.queue, piece{engine: engineNone, earliest: now, event: int(c.Args[0]) - 1, gen: e.gen})
	g.advance(g.devices[st.device], now)
	return backend.StatusOK
}

func (g *GPU) event(e backend.Event) (*event, bool) {
	if e == 0 || int(e) > len(g.events) {
		return nil, false
	}
	return &g.events[e-1], true
}

// Query returns StatusOK once the event's time has passed.
func (g *GPU) Query(ev backend.Event) backend.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.event(ev)
	if !ok {
		return backend.StatusInvalidHandle
	}
	return g.status(e)
}

// status brings the event's device up to date first.
func (g *GPU) status(e *event) backend.Status {
	switch {
	case e.captured:
		return backend.StatusCapturedEvent
	case e.stream == nil || e.happened:
		return backend.StatusOK
	}
	g.advance(g.devices[e.device], g.now())
	if !e.happened {
		return backend.StatusNotReady
	}
	return backend.StatusOK
}

// Synchronize sleeps on the clock until the event has happened.
func (g *GPU) Synchronize(ev backend.Event) backend.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.event(ev)
	switch {
	case !ok:
		return backend.StatusInvalidHandle
	case e.captured:
		return backend.StatusCapturedEvent
	case e.stream == nil:
		return backend.StatusOK
	}
	st, gen := e.stream, e.gen
	g.sleepUntil(st, func(int64) bool {
		e := &g.events[ev-1]
		return e.happened || e.gen != gen
	})
	return backend.StatusOK
}

// Elapsed returns the device's time between two events in nanoseconds, rounded like a driver's
// float32 milliseconds.
func (g *GPU) Elapsed(a, b backend.Event) (float64, backend.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	x, okA := g.event(a)
	y, okB := g.event(b)
	if !okA || !okB || x.stream == nil || y.stream == nil || x.device != y.device {
		return 0, backend.StatusInvalidHandle
	}
	for _, e := range []*event{x, y} {
		if st := g.status(e); st != backend.StatusOK {
			return 0, st
		}
	}
	return float64(float32(float64(y.stamp-x.stamp)/1e6)) * 1e6, backend.StatusOK
}

// TrueTime returns the host time at which the event happened, which no real device can report, and
// false if it has not happened.
func (g *GPU) TrueTime(ev backend.Event) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e, ok := g.event(ev)
	if !ok || !e.happened {
		return time.Time{}, false
	}
	return g.start.Add(time.Duration(e.truth)), true
}

// MemoryUsage returns the memory allocated with [GPU.Allocate], in bytes.
func (g *GPU) MemoryUsage(c backend.Context) (int64, backend.Status) {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, ok := g.device(int(c))
	if !ok {
		return 0, backend.StatusInvalidValue
	}
	return d.used, backend.StatusOK
}

// Close ends the simulation. It always returns nil.
func (g *GPU) Close() error { return nil }
