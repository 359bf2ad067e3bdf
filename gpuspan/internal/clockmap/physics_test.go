// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"math"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// physics is a device with known clock, latencies and rounding. Its host clock advances only when
// it is used and in sleep.
type physics struct {
	backend.Unimplemented
	rng  *rand.Rand
	base time.Time
	now  float64 // true host ns since base
	gpus []float64
	rate []float64 // GPU ns per host ns, per second of host time

	there    float64 // minimum latency of a submission, ns
	back     float64 // minimum latency of a completion, ns
	shortest float64 // shortest round trip of a probe so far
	tick     float64
	delayed  float64 // fraction of bursts that queue behind other work
	everyOne bool    // delay single probes, not whole bursts
	heavy    float64 // fraction of latencies with a long tail
	long     float64 // fraction of sections that take seconds
	queue    float64 // mean extra delay, ns
	oneWay   bool    // Elapsed returns an error for b before a
	stills   []still // periods when the host's clock stops
	fail     int32

	shift      float64 // ns by which the device's timestamp moves within the latencies of submission and completion
	simulated  bool    // the clock has no monotonic reading
	lost       event   // events up to this one are gone
	lostStatus status
	hang       bool // nothing completes
	burst      bool
	stamps     map[event]stamp
	next       event
	recorded   event   // the last one
	visible    float64 // when it becomes visible; cached, because the simulation polls it most
}

type (
	event  = backend.Event
	stream = backend.StreamHandle
	status = backend.Status
	stamp  struct{ host, visible float64 }
)

// newPhysics draws the GPU clock rate of every second: a constant drift, a random walk of walk ppb
// per √s, and a half-hour swing of 0.3 ppm.
func newPhysics(seed uint64, d time.Duration, ppm, walk float64) *physics {
	p := &physics{
		rng: rand.New(rand.NewPCG(seed, 7)), base: time.Now(), tick: 500, heavy: 0.05, queue: 400e3,
		there: 3500, back: 1800, shortest: math.Inf(1),
		stamps: map[event]stamp{}, next: 1,
	}
	n := int(d/time.Second) + 120
	g, w := 5.4e12, 0.0 // the GPU has run for 1.5 h
	for i := range n {
		p.gpus = append(p.gpus, g)
		w += walk * 1e-9 * p.rng.NormFloat64()
		r := 1 - ppm*1e-6 + w + 0.3e-6*math.Sin(2*math.Pi*float64(i)/1800)
		p.rate = append(p.rate, r)
		g += r * 1e9
	}
	return p
}

// step changes the rate from second at on.
func (p *physics) step(at int, ppm float64) {
	for i := at; i < len(p.rate); i++ {
		p.rate[i] += ppm * 1e-6
		p.gpus[i] = p.gpus[i-1] + p.rate[i-1]*1e9
	}
}

// ramp changes the rate by ppm in all, evenly from second at on, as a change of temperature does.
func (p *physics) ramp(at, seconds int, ppm float64) {
	for i := at; i < len(p.rate); i++ {
		p.rate[i] += ppm * 1e-6 * min(float64(i-at+1)/float64(seconds), 1)
		p.gpus[i] = p.gpus[i-1] + p.rate[i-1]*1e9
	}
}

// still is a period that the GPU's clock counts and the host's does not.
type still struct{ at, sum float64 }

// standStill stops the host's clock for d, at intervals of about every.
func (p *physics) standStill(every, d time.Duration) {
	sum := 0.0
	for at := float64(every); at < float64(len(p.gpus))*1e9; at += float64(every) * (0.7 + 0.6*p.rng.Float64()) {
		sum += float64(d)
		p.stills = append(p.stills, still{at, sum})
	}
}

// gpu returns the device's clock at a host time.
func (p *physics) gpu(host float64) float64 {
	i := int(host / 1e9)
	g := p.gpus[i] + (host-float64(i)*1e9)*p.rate[i]
	if n := sort.Search(len(p.stills), func(i int) bool { return p.stills[i].at > host }); n > 0 {
		g += p.stills[n-1].sum
	}
	return g
}

func (p *physics) latency(fixed, mean float64) float64 {
	l := fixed + mean*p.rng.ExpFloat64()
	if p.rng.Float64() < p.heavy {
		l += 300e3 * p.rng.Float64()
	}
	return l
}

func (p *physics) sleep(ns float64) {
	p.now += ns
	p.burst = !p.everyOne && p.rng.Float64() < p.delayed
}

// put creates an event that the GPU timestamped at a host time.
func (p *physics) put(host float64) event {
	p.next++
	p.stamps[p.next] = stamp{host, host}
	return p.next
}

func (p *physics) drop(e event) { delete(p.stamps, e) }

func (p *physics) Now() time.Time {
	p.now += 25
	return p.time(p.now)
}

func (p *physics) time(at float64) time.Time {
	t := p.base.Add(time.Duration(at))
	if p.simulated {
		return t.Round(0)
	}
	return t
}

func (p *physics) Bind(backend.Context) (func(), status)            { return func() {}, 0 }
func (p *physics) NewAnchorStream(backend.Context) (stream, status) { return 1, status(p.fail) }
func (p *physics) FreeStream(backend.Context, stream)               {}
func (p *physics) NewEvents(_ backend.Context, dst []event) status {
	for i := range dst {
		dst[i] = p.put(0)
	}
	return status(p.fail)
}

func (p *physics) FreeEvents(_ backend.Context, events []event) {
	for _, e := range events {
		p.drop(e)
	}
}

func (p *physics) Record(c *backend.Call) status {
	if p.fail != 0 {
		return status(p.fail)
	}
	if event(c.Args[0]) <= p.lost {
		return max(p.lostStatus, 1)
	}
	at := p.now + p.latency(p.there, 400)
	if p.burst || p.everyOne && p.rng.Float64() < p.delayed {
		at += p.queue * p.rng.ExpFloat64()
	}
	p.recorded, p.visible = event(c.Args[0]), at+p.latency(p.back, 300)
	p.shortest = min(p.shortest, p.visible-p.now)
	p.stamps[p.recorded] = stamp{at + p.shift, p.visible}
	p.now += 1500
	return 0
}

func (p *physics) Query(e event) status {
	p.now += 80
	visible := p.visible
	if e != p.recorded {
		visible = p.stamps[e].visible
	}
	if p.hang || p.now < visible {
		return backend.StatusNotReady
	}
	return 0
}

func (p *physics) Synchronize(e event) status {
	p.now = max(p.now, p.stamps[e].visible)
	return 0
}

// rest replaces time.Sleep on this clock.
func (p *physics) rest(d time.Duration) { p.now += p.latency(float64(d)+20e3, 20e3) }

func (p *physics) Elapsed(a, b event) (float64, status) {
	d := p.trunc(p.gpu(p.stamps[b].host)) - p.trunc(p.gpu(p.stamps[a].host))
	if p.oneWay && d < 0 {
		return 0, 1
	}
	return float64(float32(d/1e6)) * 1e6, 0
}

func (p *physics) trunc(g float64) float64 {
	if p.tick == 0 {
		return g
	}
	return math.Floor(g/p.tick) * p.tick
}
