// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package simgpu is a simulated GPU: streams, events, copy and compute engines, clocks, power,
// temperature and counters, in pure Go.
//
// It implements [backend.Backend], so the library runs on it as on a driver, anchors and clock
// mapping included: the device has its own clock (offset, drift, tick), event times are float32
// milliseconds, and the true host time of every event can be queried, which no real device offers.
//
// Work is stated as bytes and FLOPs, and the device determines its time: a kernel runs for the
// longer of its memory and its arithmetic time at the clock that the power limit allows, on one
// compute engine shared by all streams; copies run on one engine per direction. Like hardware, the
// device has meters that only increase (joules, busy seconds, bytes) and that are independent of
// spans, so that tests of joins of samples with spans compare independent values.
//
// With a [ManualClock] the simulation is deterministic and never waits. Its values are not
// measurements; the vendor of its devices is "simulated".
package simgpu

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// GPU is a driver with one or more simulated devices. It implements [backend.Backend]. All methods
// are safe for concurrent use.
type GPU struct {
	clock Clock
	start time.Time
	cfg   config

	mu      sync.Mutex
	rng     *rand.Rand
	devices []*device
	streams []*stream // by StreamHandle - 1
	events  []event   // by Event - 1
	free    []int
}

type device struct {
	spec    Spec
	info    backend.Device
	meter   *meter
	engines [3]int64  // ns when the engine is free: compute, in, out
	streams []*stream // in order of creation
	turn    int64     // counts what engines have run, for fairness
	used    int64     // bytes allocated
}

type config struct {
	specs    []Spec
	driftPPM float64
	offset   time.Duration
	tick     time.Duration
	seed     uint64
	jitter   float64
}

// event is a recorded time: stamp on the device's clock, and the true host time of it.
type event struct {
	device   int
	gen      uint32  // of the newest record, so that an older one still in a queue is ignored
	stream   *stream // of the newest record; nil before the first
	captured bool
	happened bool
	stamp    int64 // ns on the device's clock
	truth    int64 // host ns
}

// Option configures [New].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithDevices sets the devices; the default is one [DefaultSpec].
func WithDevices(specs ...Spec) Option { return optionFunc(func(c *config) { c.specs = specs }) }

// WithClockError sets the drift of the device's clock relative to the host's, in parts per million,
// and its offset. The default is 12 ppm and an arbitrary offset.
func WithClockError(driftPPM float64, offset time.Duration) Option {
	return optionFunc(func(c *config) { c.driftPPM, c.offset = driftPPM, offset })
}

// WithTick sets the resolution of event times; the default is 32 ns, 0 means unlimited.
func WithTick(d time.Duration) Option { return optionFunc(func(c *config) { c.tick = d }) }

// WithSeed sets the seed of the random variation of run times; the default is 1.
func WithSeed(seed uint64) Option { return optionFunc(func(c *config) { c.seed = seed }) }

// WithJitter sets the relative standard deviation of run times; the default is 0.02, 0 makes them
// exact.
func WithJitter(share float64) Option { return optionFunc(func(c *config) { c.jitter = share }) }

// now returns the host's time in ns since the device's start.
func (g *GPU) now() int64 { return int64(g.clock.Now().Sub(g.start)) }

// gpuTime maps host ns to the device's own clock, truncated to its tick.
func (g *GPU) gpuTime(host int64) int64 {
	t := int64(g.cfg.offset) + host + int64(float64(host)*g.cfg.driftPPM*1e-6)
	if k := int64(g.cfg.tick); k > 1 {
		t -= t % k
	}
	return t
}

func (g *GPU) device(i int) (*device, bool) {
	if i < 0 || i >= len(g.devices) {
		return nil, false
	}
	return g.devices[i], true
}

// Clock is the clock of the simulated host.
type Clock interface {
	// Now returns the time of the clock.
	Now() time.Time
	// Sleep waits until d has passed on the clock.
	Sleep(d time.Duration)
}

type realClock struct{ base time.Time }

// Now keeps the monotonic reading of the base, so that a step of the wall clock does not reach the
// device.
func (c realClock) Now() time.Time { return c.base.Add(time.Since(c.base)) }

func (c realClock) Sleep(d time.Duration) { time.Sleep(d) }

// readCost is the default time that a reading of a manual clock takes, similar to a real one.
// Without it, code that polls until a time is reached would poll forever.
const readCost = 40 * time.Nanosecond

// ManualClock is a [Clock] that advances on request, and by a step at each reading.
type ManualClock struct {
	mu   sync.Mutex
	now  time.Time
	step time.Duration
}

// NewManualClock returns a clock that starts at a time; its step is 40 ns.
func NewManualClock(start time.Time) *ManualClock { return &ManualClock{now: start, step: readCost} }

// SetStep sets the step by which a reading advances the clock; 0 stops the clock between calls of
// Advance and Sleep.
func (c *ManualClock) SetStep(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.step = max(d, 0)
}

// Now advances the clock by the step and returns its time.
func (c *ManualClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(c.step)
	return c.now
}

// Advance advances the clock by d; a negative d does nothing.
func (c *ManualClock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(max(d, 0))
}

// Sleep advances the clock by d.
func (c *ManualClock) Sleep(d time.Duration) { c.Advance(d) }

type stream struct {
	device    int
	queue     []piece
	doneAt    int64 // host ns at which everything that has left the queue is done
	served    int64 // the device's turn at which an engine last ran a piece of it
	capture   []piece
	capturing bool
	gone      bool
}

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
