// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package instrumenttest simulates devices of known power, and the counters and sensors that report
// it, for tests.
package instrumenttest

import (
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"time"
)

// Kinds of power over time.
var Kinds = []string{"steady", "slow", "steps", "pulses"}

const (
	limit = 700.0 // W
	idle  = 60.0  // W
)

// Truth is the true energy of a device, on a grid of a millisecond.
type Truth struct{ energy []float64 }

// NewTruth returns the energy of a device whose power is of a kind: one of Kinds, or alternating
// between 500 and 200 W, each for the duration that the kind is.
func NewTruth(kind string, length time.Duration, rng *rand.Rand) *Truth {
	n := int(length / time.Millisecond)
	watts := make([]float64, n)
	dwell := func(lo, hi float64) int {
		return max(1, int(1000*math.Exp(math.Log(lo)+rng.Float64()*math.Log(hi/lo))))
	}
	between := func(lo, hi float64) float64 { return lo + rng.Float64()*(hi-lo) }
	switch kind {
	case "steady":
		w := between(80, 690)
		for i := range watts {
			watts[i] = w
		}
	case "slow":
		for i, w := 0, between(idle, limit); i < n; {
			k, next := int(1000*between(1, 5)), between(idle, limit)
			for j := 0; j < k && i+j < n; j++ {
				watts[i+j] = w + (next-w)*float64(j)/float64(k)
			}
			i, w = i+k, next
		}
	case "steps":
		for i := 0; i < n; {
			w := between(idle, limit)
			for k := dwell(.005, 5); k > 0 && i < n; k, i = k-1, i+1 {
				watts[i] = w
			}
		}
	case "pulses":
		low, high := between(idle, 150), between(300, limit)
		for i := 0; i < n; {
			for k := dwell(.02, 5); k > 0 && i < n; k, i = k-1, i+1 {
				watts[i] = low
			}
			for k := dwell(.005, 1); k > 0 && i < n; k, i = k-1, i+1 {
				watts[i] = high
			}
		}
	default: // alternates between two levels, each for the time that is its name
		each, _ := time.ParseDuration(kind)
		for i := range watts {
			watts[i] = []float64{500, 200}[time.Duration(i)*time.Millisecond/max(each, 1)%2]
		}
	}
	t := &Truth{energy: make([]float64, n+1)}
	noise := 1.0
	for i, w := range watts {
		if i%20 == 0 {
			noise = 1 + 0.005*rng.NormFloat64()
		}
		t.energy[i+1] = t.energy[i] + min(max(w*noise, idle), limit)/1000
	}
	return t
}

// At returns the energy in joules up to a time in seconds; power is constant inside of each
// millisecond.
func (t *Truth) At(s float64) float64 {
	x := min(max(s*1000, 0), float64(len(t.energy)-1))
	i := min(int(x), len(t.energy)-2)
	return t.energy[i] + (t.energy[i+1]-t.energy[i])*(x-float64(i))
}

// Spec is a counter and a power sensor, and how they are read. Times are in seconds.
type Spec struct {
	Name    string
	Refresh float64 // period of the counter; 0: each value is current
	Jitter  float64 // of that, relative
	Read    float64
	Shake   float64 // jitter of the reads
	Window  float64 // averaging window of power
	Power   float64 // refresh period of power; 0: the counter's, an exporter collects both
	Assumed float64 // refresh period assumed while readings do not show it
	Gain    float64 // of the counter; 0: 1
	Extra   float64 // W of other parts of the module
	Freeze  float64 // when the counter stops; 0: never
	Settle  float64 // how long after an instant its energy is attributed; 0: 6 s, as the default of gpu_join
	MaxWait float64 // how long spans wait; 0: 10 s, likewise
	Early   float64 // spans begin in the first seconds only; 0: after a quarter of the time
}

// Specs are the instruments of the table.
var Specs = []Spec{
	{Name: "exact, read 100 ms", Read: .1, Shake: .002, Window: .025, Power: .1, Assumed: .1},
	{Name: "exact, declared, read 100 ms", Read: .1, Shake: .002, Window: .025, Power: .1},
	{Name: "20 ms, read 100 ms", Refresh: .02, Read: .1, Shake: .002, Window: .1, Power: .1, Assumed: .1},
	{Name: "100 ms, read 10 ms", Refresh: .1, Read: .01, Shake: .0005, Window: .025, Power: .1, Assumed: .1},
	{
		Name: "100 ms ± 30 %, read 10 ms", Refresh: .1, Jitter: .3, Read: .01, Shake: .0005, Window: .025, Power: .1,
		Assumed: .1,
	},
	{Name: "100 ms, read 100 ms", Refresh: .1, Read: .1, Window: .1, Power: .1, Assumed: .1},
	{
		Name: "70–100 ms, read 100 ms", Refresh: .085, Jitter: .18, Read: .1, Shake: .002, Window: .1, Power: .1,
		Assumed: .1,
	},
	{
		Name: "70–100 ms, read 100 ms, mean 1 s", Refresh: .085, Jitter: .18, Read: .1, Shake: .002, Window: 1, Power: .1,
		Assumed: .1,
	},
	{Name: "100 ms, read 103 ms", Refresh: .1, Read: .103, Shake: .001, Window: .025, Power: .1, Assumed: .1},
	{Name: "100 ms, read 1 s", Refresh: .1, Read: 1, Shake: .01, Window: .025, Power: .1, Assumed: .1},
	{Name: "100 ms, read 1 s, mean 1 s", Refresh: .1, Read: 1, Shake: .01, Window: 1, Power: .1, Assumed: .1},
	{Name: "1 s, read 100 ms", Refresh: 1, Jitter: .02, Read: .1, Shake: .002, Window: .025, Power: .1, Assumed: .1},
	{Name: "1 s, read 1.01 s", Refresh: 1, Read: 1.01, Shake: .002, Window: .025, Power: .1, Assumed: 1.01},
	{Name: "exporter 1 s, scrape 1 s", Refresh: 1, Jitter: .02, Read: 1, Shake: .1, Window: .1, Assumed: 3600},
	{Name: "10 s, read 1 s", Refresh: 10, Jitter: .02, Read: 1, Shake: .01, Window: .025, Power: .1, Assumed: 1},
	{Name: "10 s, read 1 s, mean 1 s", Refresh: 10, Jitter: .02, Read: 1, Shake: .01, Window: 1, Power: .1, Assumed: 1},
	{Name: "30 s, read 1 s, mean 1 s", Refresh: 30, Jitter: .02, Read: 1, Shake: .01, Window: 1, Power: .1, Assumed: 1},
	{Name: "30 s, read 15 s, mean 1 s", Refresh: 30, Jitter: .02, Read: 15, Shake: .1, Window: 1, Power: .1, Assumed: 15},
	{Name: "exporter 30 s, scrape 1 s", Refresh: 30, Read: 1, Shake: .1, Window: .1, Assumed: 3600},
}

// Length returns how many seconds of a device are simulated.
func (s *Spec) Length() float64 { return min(1500, max(180, s.Read*150, s.Refresh*40)) }

// Reading is what one read of a device returns.
type Reading struct{ Time, Energy, Power float64 }

// Readings returns the readings of a device.
func (s *Spec) Readings(truth *Truth, rng *rand.Rand) []Reading {
	length := s.Length()
	counter := refreshes(length, s.Refresh, s.Jitter, rng)
	power := counter
	if s.Power > 0 {
		power = refreshes(length, s.Power, 0, rng)
	}
	const delay = 0.002
	var list []Reading
	window := max(s.Window, .001)
	for t := rng.Float64() * s.Read; t < length-s.Read; t += s.Read {
		r := Reading{Time: min(max(t+(rng.Float64()-.5)*s.Shake, 0), length)}
		at := refreshed(counter, r.Time-rng.Float64()*delay)
		if s.Freeze > 0 {
			at = min(at, s.Freeze)
		}
		gain := s.Gain
		if gain == 0 {
			gain = 1
		}
		r.Energy = math.Floor((truth.At(at)+s.Extra*max(at, 0))*gain*1000) / 1000
		at = refreshed(power, r.Time-rng.Float64()*delay)
		r.Power = math.Round((truth.At(at)-truth.At(at-window))/window*1000) / 1000
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b Reading) int {
		if a.Time < b.Time {
			return -1
		}
		return 1
	})
	return list
}

// refreshes returns when an instrument is refreshed; nil: always.
func refreshes(length, period, jitter float64, rng *rand.Rand) (list []float64) {
	if period == 0 {
		return nil
	}
	for t := -period * (rng.Float64()); t < length+period; {
		list = append(list, t)
		t += period * (1 + jitter*(2*rng.Float64()-1))
	}
	return list
}

// refreshed returns the newest refresh at t.
func refreshed(list []float64, t float64) float64 {
	if list == nil {
		return t
	}
	return list[max(sort.SearchFloat64s(list, t+1e-12)-1, 0)]
}
