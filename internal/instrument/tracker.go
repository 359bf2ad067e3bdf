// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import "math"

// Change is a reading of a counter that differs from the one before.
type Change struct {
	Time    int64   // when it was read
	Since   int64   // when the counter was read before, with the old value; 0: this is the first reading
	Value   float64 // unwrapped
	Covered bool    // the increase since the last change was counted without a gap or a reset
}

// knot is a change of a counter with its place in time: the value was true at some time in (hi −
// window, hi].
type knot struct {
	t      float64 // the estimate, s
	hi     float64
	window float64
	v      float64
	ok     bool // its increase is known
	second bool // the age of the first reading before it is unknown
	turned bool // only now it is known that the counter is refreshed more slowly than it is read
}

// tracker places the changes of a counter. If readings without a change exist, the refresh happened
// after the last of them, and the period is the mean time between changes. Otherwise the period
// cannot be observed, and one is assumed.
type tracker struct {
	assumed float64 // s; 0: each value is current when it is read

	n           int
	first, last float64 // hi of the changes that the period is measured from
	second      float64 // hi of the second change
	wasSlow     bool
	changes     float64
	repeats     float64 // share of the changes with a reading without a change before them
	missed      float64 // share of the changes that were not where the period predicts them
	lastHi      float64
	lastT       float64
}

const (
	leastChanges = 4
	mostChanges  = 1024
	mostMissed   = 0.3  // share from which a period is too irregular to predict changes
	leastRepeats = 0.13 // share from which readings without a change are the rule
)

// period returns the mean time between two changes; 0 while unknown.
func (k *tracker) period() float64 {
	if k.changes < 1 {
		return 0
	}
	return (k.last - k.first) / k.changes
}

// slow reports whether the counter is refreshed more slowly than it is read.
func (k *tracker) slow() bool { return k.changes >= leastChanges && k.repeats > leastRepeats }

// exact reports whether each value is current when it is read.
func (k *tracker) exact() bool { return k.assumed == 0 && !k.slow() }

// restart forgets the phase after a gap.
func (k *tracker) restart() { k.changes, k.n = 0, 0 }

// place returns the knot of a change read at hi. since is when the old value was read last.
func (k *tracker) place(hi, since, v float64, ok bool) knot {
	repeated := 0.0
	if k.n > 0 {
		if since > k.lastHi+1e-9 {
			repeated = 1
		}
		if k.changes == 0 {
			k.first = k.lastHi
		}
		k.last = hi
		if k.n == 1 && repeated > 0 { // the first reading was no refresh
			k.first, k.changes = hi, 0
		} else if k.changes++; k.changes > mostChanges {
			k.changes /= 2
			k.first = k.last - (k.last-k.first)/2
		}
		k.repeats += (repeated - k.repeats) / min(k.changes+1, 64)
	}
	k.n++
	if k.n == 2 {
		k.second = hi
	}
	turned := k.slow() && !k.wasSlow
	if k.wasSlow = k.slow(); turned && k.first < k.second { // the first reading was no refresh
		k.first = k.second
		k.changes--
	}
	lo := since
	switch period := k.period(); {
	case k.slow():
		lo = max(since, hi-1.5*period)
	case k.n == 1:
		lo = hi - min(k.assumed, longestAssumed)
	case repeated == 0:
		lo = hi - min(k.assumed, hi-since)
	}
	t := (lo + hi) / 2
	if k.slow() {
		p := k.period()
		predicted := k.lastT + max(1, math.Round((hi-k.lastT)/p))*p
		missed := 0.0
		if predicted < lo || predicted > hi {
			missed = 1
		}
		k.missed += (missed - k.missed) / min(k.changes, 64)
		if k.missed < mostMissed {
			t = min(max(predicted, lo+1e-6), hi)
		}
	}
	if k.n > 1 {
		t = max(t, k.lastT+1e-9)
	}
	k.lastHi, k.lastT = hi, t
	// A value can be as old as the time between two readings, which was unknown at the first one.
	second := k.n == 2 && (repeated > 0 || k.assumed > longestAssumed)
	return knot{t: t, hi: hi, window: hi - lo, v: v, ok: ok, second: second, turned: turned}
}
