// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import (
	"cmp"
	"flag"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// integration reports whether make test-integration runs the tests: the simulations are then longer
// and more.
func integration() bool { return os.Getenv("OTELGPU_INTEGRATION") != "" }

var printSimulation = flag.Bool("clock.table", false, "print the error table of the simulation")

// withTick returns options with the given tick.
func withTick(d time.Duration) Options {
	opts := Defaults()
	opts.Tick = cmp.Or(d, opts.Tick)
	return opts
}

type result struct {
	errors, halves []float64 // µs
	outside        int       // errors beyond the reported half width
	worst          string
	duration       float64 // worst error of a duration, ns
	anomalies      int64
	drift          float64
}

func (r *result) quantile(v []float64, q float64) float64 {
	s := slices.Clone(v)
	slices.Sort(s)
	return s[min(int(q*float64(len(s))), len(s)-1)]
}

// simulate runs a busy application for d. Each second has some sections, which are read back up to
// 60 ms after their end and converted at the next anchor.
func simulate(t testing.TB, p *physics, d time.Duration, opts Options,
	check func(host, err, half float64) bool,
) result {
	return simulateMany(t, p, d, opts, 3, check)
}

// simulateMany runs many sections in a row.
func simulateMany(t testing.TB, p *physics, d time.Duration, opts Options, inRow int,
	check func(host, err, half float64) bool,
) result {
	a, st := NewAnchorer(p, 0, opts)
	require.Zero(t, st)
	defer a.Close()
	a.rest = p.rest
	var r result
	type waiting struct {
		start, length float64
		stamps        Stamps
	}
	var list []waiting
	settle := func() {
		for len(list) > 0 && a.Bracketed(&list[0].stamps) {
			w := &list[0]
			start, length := w.start, w.length
			at := a.Place(&w.stamps)
			list = list[1:]
			err := float64(at.Start - p.time(start).UnixNano())
			if e := float64(at.End - p.time(start+length).UnixNano()); math.Abs(e) > math.Abs(err) {
				err = e
			}
			half := float64(at.HalfWidth)
			if check != nil && !check(start, err, half) {
				continue
			}
			r.errors = append(r.errors, math.Abs(err)/1e3)
			r.halves = append(r.halves, half/1e3)
			if math.Abs(err) > half {
				r.outside++
				r.worst = fmt.Sprintf("at %.3f s: error %.0f ns, half width %.0f ns", start/1e9, err, half)
			}
			if len(p.stills) == 0 {
				r.duration = max(r.duration, math.Abs(float64(at.End-at.Start)-length))
			}
		}
	}
	run := func(ns float64) { // the polling thread's work during the wait
		for until := p.now + ns; p.now < until; {
			wait, st := a.Maintain(true)
			require.Zero(t, st)
			settle()
			p.sleep(max(min(float64(wait), until-p.now), 1))
		}
	}
	for p.now < float64(d) {
		for range inRow {
			submitted := p.now
			start := submitted + p.latency(3500, 5e3)
			length := math.Exp(math.Log(1e3) + p.rng.Float64()*math.Log(1e5)) // 1 µs … 100 ms
			if inRow > 3 {
				length = math.Exp(math.Log(1e3) + p.rng.Float64()*math.Log(1e3)) // 1 µs … 1 ms
			}
			if p.rng.Float64() < p.long {
				length *= 200 // up to 20 s
			}
			late := 60e6
			if inRow > 3 {
				late = 1e6
			}
			run(start - submitted + length + late*p.rng.Float64())
			s, e := p.put(start), p.put(start+length)
			stamps, ok := a.Read(s, e, a.Axis(p.time(submitted)), a.Axis(p.Now()))
			require.True(t, ok)
			p.drop(s)
			p.drop(e)
			list = append(list, waiting{start, length, stamps})
		}
		run(1e9 * p.rng.Float64() / float64(inRow))
	}
	r.anomalies = a.Map().Anomalies()
	r.drift, _ = a.Map().Drift()
	return r
}

type clockCase struct {
	name     string
	ppm      float64
	walk     float64
	tick     time.Duration // 0: the default
	set      func(*physics)
	p99, p50 float64 // limits of the error in µs
	jumps    bool    // which are anomalies
}

// clockCases are the simulated cases, some of which docs/clock.md shows: its table is the output of
// -run Hours -clock.table, its number of placements is from -run Million -clock.placements 10000000.
var clockCases = []clockCase{
	{name: "25 ppm", ppm: 25, walk: 1, p50: 1.2, p99: 2},
	{name: "100 ppm", ppm: 100, walk: 1, p50: 1.2, p99: 2},
	{name: "minus 100 ppm", ppm: -100, walk: 1, p50: 1.2, p99: 2},
	{
		name: "100 ppm, tick 32 ns", ppm: 100, walk: 1, tick: 32, set: func(p *physics) { p.tick = 32 },
		p50: 1.2, p99: 2,
	},
	{
		name: "25 ppm, tick 1 µs", ppm: 25, walk: 1, tick: 1000, set: func(p *physics) { p.tick = 1000 },
		p50: 1.4, p99: 2.5,
	},
	{
		name: "elapsed refuses the wrong order", ppm: 25, walk: 1, set: func(p *physics) { p.oneWay = true }, p50: 1.2,
		p99: 2,
	},
	{name: "some sections of seconds", ppm: 100, walk: 1, set: func(p *physics) { p.long = 0.1 }, p50: 1.2, p99: 2},
	{name: "30 % of bursts delayed", ppm: 25, walk: 1, set: func(p *physics) { p.delayed = 0.3 }, p50: 1.2, p99: 2},
	{name: "80 % of bursts delayed", ppm: 25, walk: 1, set: func(p *physics) { p.delayed = 0.8 }, p50: 1.5, p99: 3},
	{name: "90 % of bursts delayed", ppm: 100, walk: 1, set: func(p *physics) { p.delayed = 0.9 }, p50: 2, p99: 20},
	{
		name: "80 % of probes delayed", ppm: 25, walk: 1, set: func(p *physics) { p.delayed, p.everyOne = 0.8, true },
		p50: 1.5, p99: 3,
	},
	{
		name: "90 % of probes delayed", ppm: 25, walk: 1, set: func(p *physics) { p.delayed, p.everyOne = 0.9, true },
		p50: 1.5, p99: 3,
	},
	{
		name: "host pauses for 100 µs every 3 s", ppm: 25, walk: 1,
		set: func(p *physics) { p.standStill(3*time.Second, 100*time.Microsecond) }, p50: 1.3, p99: 60, jumps: true,
	},
	{
		name: "host pauses for 1 ms every 3 s", ppm: 25, walk: 1,
		set: func(p *physics) { p.standStill(3*time.Second, time.Millisecond) }, p50: 1.3, p99: 600, jumps: true,
	},
}

func TestErrorStaysWithinTheReportedBoundForHours(t *testing.T) {
	length := 2 * time.Hour
	switch {
	case *printSimulation:
		length = 4 * time.Hour
	case testing.Short() || !integration():
		length = 20 * time.Minute
	}
	for i, c := range clockCases {
		t.Run(c.name, func(t *testing.T) {
			if raceEnabled && i >= 2 {
				t.Skip("one goroutine: the race detector only makes it slow")
			}
			if i >= 2 && i%3 != 0 && !integration() && !*printSimulation {
				t.Skip("takes long: set OTELGPU_INTEGRATION")
			}
			length := length
			if i >= 2 { // the first two take the whole length
				length = max(length/8, 15*time.Minute) // a shorter run is mostly start-up, too little for a p99
			}
			p := newPhysics(1, length, c.ppm, c.walk)
			if c.set != nil {
				c.set(p)
			}
			r := simulate(t, p, length, withTick(c.tick), nil)
			if *printSimulation {
				fmt.Printf("| %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f | %d | %d |\n", c.name, len(r.errors),
					r.quantile(r.errors, 0.5), r.quantile(r.errors, 0.99),
					slices.Max(r.errors), r.quantile(r.halves, 0.5), r.quantile(r.halves, 0.99), slices.Max(r.halves), r.outside,
					r.anomalies)
			}
			require.Zero(t, r.outside, r.worst)
			require.LessOrEqual(t, r.quantile(r.errors, 0.5), c.p50)
			require.LessOrEqual(t, r.quantile(r.errors, 0.99), c.p99)
			require.Equal(t, c.jumps, r.anomalies > 0)
			require.InDelta(t, c.ppm, r.drift, 1.5)
		})
	}
}

// Three devices that differ only in which latency is long: submission, completion, or both as in
// the table. The host reads the same times from all of them, so no valid bound can be narrower than
// the distance between their true times.
func TestNoMethodSeparatesSubmissionFromCompletionLatency(t *testing.T) {
	const earliest, latest = -3500, 1500 // of 3500 and 1800; whole ticks, so that the differences of timestamps are equal
	var first []Placement
	for _, shift := range []float64{0, earliest, latest} {
		p := newPhysics(1, time.Minute, 0, 0)
		for i := range p.rate {
			p.rate[i], p.gpus[i] = 1, 5.4e12+float64(i)*1e9
		}
		p.shift = shift
		a := newAnchorer(t, p)
		drive(t, p, a, 10*time.Second, true)
		var placed []Placement
		for i := range 100 {
			submitted := p.now
			start := submitted + 3500 + float64(i)
			s, e := p.put(start+shift), p.put(start+shift+100e3)
			p.now = start + 100e3 + 1800
			stamps, ok := a.Read(s, e, a.Axis(p.time(submitted)), a.Axis(p.Now()))
			require.True(t, ok)
			drive(t, p, a, 70*time.Millisecond, true)
			at := a.Place(&stamps)
			require.LessOrEqual(t, math.Abs(float64(at.Start-p.time(start+shift).UnixNano())), float64(at.HalfWidth))
			at.Start, at.End = at.Start-p.base.UnixNano(), at.End-p.base.UnixNano()
			placed = append(placed, at)
			require.GreaterOrEqual(t, 2*at.HalfWidth, int64(latest-earliest))
		}
		if first == nil {
			first = placed
		}
		require.Equal(t, first, placed)
	}
}

// The half width depends on the shortest round trip of a probe. No bound can be narrower than half
// of it plus half a tick, as the previous test shows; the map adds the random parts of the
// latencies and the possible change of rate.
func TestTheHalfWidthFollowsTheShortestRoundTrip(t *testing.T) {
	length := 10 * time.Minute
	if testing.Short() || raceEnabled {
		length = 3 * time.Minute
	}
	for _, c := range []struct{ there, back float64 }{{7000, 3600}, {3500, 1800}, {2000, 1000}, {1000, 500}} {
		p := newPhysics(1, length, 25, 1)
		p.there, p.back = c.there, c.back
		r := simulate(t, p, length, Defaults(), nil)
		require.Zero(t, r.outside, r.worst)
		floor, half := (p.shortest+p.tick)/2e3, r.quantile(r.halves, 0.5)
		if *printSimulation {
			fmt.Printf("| %.1f + %.1f | %.2f | %.2f | %.2f |\n", c.there/1e3, c.back/1e3, p.shortest/1e3, floor, half)
		}
		require.GreaterOrEqual(t, half, floor)
		require.LessOrEqual(t, half, floor+0.6)
	}
}

// seeds returns n with the integration tests, otherwise a tenth of it.
func seeds(n uint64) uint64 {
	if integration() && !raceEnabled {
		return n
	}
	return max(1, n/10)
}

func TestErrorIsSmallFromTheFirstSecondsOn(t *testing.T) {
	var errors []float64
	for seed := range seeds(200) {
		p := newPhysics(seed, time.Minute, 80, 1)
		r := simulate(t, p, 10*time.Second, Defaults(), nil)
		require.Zero(t, r.outside, r.worst)
		errors = append(errors, r.errors...)
	}
	r := result{}
	require.LessOrEqual(t, r.quantile(errors, 0.5), 1.2)
	require.LessOrEqual(t, r.quantile(errors, 0.99), 2.0)
}

// The assumptions are a step of 5 ppm plus 3 ppm per second.
func TestChangeOfDriftWithinTheAssumptionKeepsTheBound(t *testing.T) {
	if raceEnabled {
		t.Skip("one goroutine: the race detector only makes it slow")
	}
	const restless = 200 // ppb per √s: two hundred times as much as in the other simulations
	for _, c := range []struct {
		name   string
		walk   float64
		change func(*physics)
	}{
		{"wander", restless, func(*physics) {}},
		{"wander and a swing from 25 to 100 ppm in a minute", restless, func(p *physics) { p.ramp(60, 60, -75) }},
		{"small steps", 1, func(p *physics) { p.step(100, 0.6); p.step(200, -0.6) }},
		{"steps of 5 ppm", 1, func(p *physics) { p.step(100, 5); p.step(200, -5) }},
		{"from 25 to 100 ppm in ten minutes", 1, func(p *physics) { p.ramp(60, 600, -75) }},
		{"from 25 to 100 ppm in a minute and back", 1, func(p *physics) { p.ramp(60, 60, -75); p.ramp(180, 60, 75) }},
		{"from 25 to 100 ppm in 25 s and back", 1, func(p *physics) { p.ramp(60, 25, -75); p.ramp(120, 25, 75) }},
		{"a step in a swing", 1, func(p *physics) { p.ramp(60, 50, -75); p.step(80, -5) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			for seed := range seeds(8) {
				p := newPhysics(seed, 12*time.Minute, 25, c.walk)
				c.change(p)
				r := simulate(t, p, 11*time.Minute, Defaults(), nil)
				require.Zero(t, r.outside, r.worst)
				require.Zero(t, r.anomalies)
				if c.walk == 1 {
					require.LessOrEqual(t, r.quantile(r.errors, 0.99), 4.0)
				}
			}
		})
	}
}

// A step beyond MaxRateChange cannot be detected before the next anchor. Until then, the error is
// at most the step times the age of the last accepted anchor; afterwards it is counted, and the
// bound holds again.
func TestStepOfDriftIsDetectedAndRecovered(t *testing.T) {
	for _, step := range []float64{20, -20, 100, -100} {
		for seed := range seeds(10) {
			p := newPhysics(seed, 5*time.Minute, 25, 1)
			p.step(100, step)
			noticed := 0.0
			r := simulate(t, p, 4*time.Minute, Defaults(), func(host, err, half float64) bool {
				if host > 99.89e9 && host < 106e9 { // sections last up to 100 ms
					if math.Abs(err) > half {
						noticed = host
						require.LessOrEqual(t, math.Abs(err), half+math.Abs(step)*1e-6*0.25e9)
					}
					return false
				}
				return true
			})
			require.Zero(t, r.outside, r.worst)
			if math.Abs(step) > 50 { // smaller steps are within the assumed rate change
				require.Positive(t, r.anomalies)
			}
			require.Less(t, noticed, 101.5e9)
			require.InDelta(t, 25-step, r.drift, 2)
		}
	}
}

func TestDurationsAreGoodToTheTick(t *testing.T) {
	p := newPhysics(4, 3*time.Minute, 100, 1)
	p.tick = 32
	r := simulate(t, p, 2*time.Minute, withTick(32), func(host, _, _ float64) bool { return host > 10e9 })
	require.Less(t, r.duration, 32+4+3.0) // tick, float32 of 100 ms, error of the rate over 100 ms
}

var placements = flag.Int("clock.placements", 200_000,
	"how many sections TestPlacementsByTheMillion places, over all cases")

// Tests many sections between every two anchors, so that a wrong limit is found.
func TestPlacementsByTheMillion(t *testing.T) {
	each := *placements / len(clockCases)
	if testing.Short() || raceEnabled {
		each = min(each, 2000)
	}
	for _, c := range clockCases {
		t.Run(c.name, func(t *testing.T) {
			for seed, left := uint64(100), each; left > 0; seed++ {
				const length = 10 * time.Minute
				p := newPhysics(seed, length+time.Minute, c.ppm, c.walk)
				if c.set != nil {
					c.set(p)
				}
				r := simulateMany(t, p, min(length, time.Duration(left)*2*time.Millisecond+5*time.Second), withTick(c.tick), 200, nil)
				require.Zero(t, r.outside, r.worst)
				left -= len(r.errors)
			}
		})
	}
}
