// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package plausibility

import (
	"fmt"
	"math"
	"time"
)

// Thresholds of the comparison of an energy counter with the integral of power. Simulated healthy
// counters stay within them (see the tests).
const (
	longWindow  = time.Minute
	shortWindow = 2500 * time.Millisecond // of a contradiction beyond gross
	leastPower  = 20                      // readings of power in a window
	gross       = 2.5                     // factor that two short windows suffice for
	contradicts = 0.3
	deviates    = 0.1
	pairLength  = 5 * time.Second // of a pair of the regression
	leastPairs  = 12
	moduleWatts = 60.0
	stillGaps   = 4
	leastStill  = time.Second
	firstStill  = 90 * time.Second // of a counter with an unknown period
	stillJoules = 20.0
	leastAgreed = 4   // short windows that agree, from which the usual range of power is known
	rangeSlack  = 1.3 // factor by which one must have left it further than the other
	// hopeless is the share of the energy by which it can be wrong when power is: it is omitted.
	hopeless = 10
)

// Reading is an energy counter at one of its changes, and the integral of power there.
type Reading struct {
	Time           int64         // Unix ns
	Counter, Power float64       // J, each from any origin
	Gap            time.Duration // time between two readings of power
	Period         time.Duration // time between two changes of the counter; 0: unknown
}

// State is what an energy counter can be used for.
type State struct {
	Wrong      bool    // the counter must not be used
	Calibrated bool    // it was right until it stopped
	Deviation  float64 // share of the energy by which it can be wrong
}

// Counter compares an energy counter with the integral of power. The zero value trusts the counter.
type Counter struct {
	State
	reason       Reason
	frozen       bool
	short, long  Reading // starts of the windows
	grossly      int     // short windows in a row beyond gross, in one direction
	last         float64 // ratio of the last long window - 1
	judged       bool    // last is known
	agreed       int     // short windows in which counter and power agreed
	lo, hi       float64 // W, their range then
	pair         Reading // start
	n            float64 // pairs, with their sums for the regression of the counter on power
	x, y, xx, xy float64
}

// Restart forgets the windows, after the counter fell.
func (c *Counter) Restart() {
	*c = Counter{State: c.State, reason: c.reason, frozen: c.frozen, agreed: c.agreed, lo: c.lo, hi: c.hi}
}

// Add adds a change of the counter. It returns a contradiction if a window that ends here has one.
func (c *Counter) Add(r Reading) (found Contradiction, contradicts bool) {
	if c.frozen { // it counts again
		*c = Counter{}
	}
	if c.long.Time == 0 {
		c.short, c.long, c.pair = r, r, r
		return found, false
	}
	c.regress(r)
	if length := time.Duration(r.Time - c.short.Time); length >= max(shortWindow, leastPower*r.Gap, 10*r.Period) {
		ratio := (r.Counter - c.short.Counter) / (r.Power - c.short.Power)
		if math.Abs(ratio-1) < deviates {
			w := (r.Power - c.short.Power) / length.Seconds()
			if c.agreed++; c.agreed == 1 {
				c.lo, c.hi = w, w
			}
			c.lo, c.hi = min(c.lo, w), max(c.hi, w)
		}
		direction := 0
		switch {
		case ratio > gross:
			direction = 1
		case ratio < 1/gross:
			direction = -1
		}
		if c.grossly*direction <= 0 {
			c.grossly = 0
		}
		c.grossly += direction
		if found, contradicts = c.judge(ratio, c.grossly > 1 || c.grossly < -1, c.short, r); contradicts {
			c.grossly = 0
		}
		c.short = r
	}
	if length := time.Duration(r.Time - c.long.Time); length >= max(longWindow, leastPower*r.Gap, 4*r.Period) {
		if other, is := c.window(r); is {
			found, contradicts = other, true
		}
		c.long = r
	}
	return found, contradicts
}

func (c *Counter) judge(ratio float64, wrong bool, from, to Reading) (Contradiction, bool) {
	if !wrong || c.Wrong || c.Deviation == hopeless {
		return Contradiction{}, false
	}
	c.State, c.reason = c.factor(from, to)
	c.judged = false
	return c.report(from, to), true
}

// factor returns which of the two is wrong: the one that has left the range in which both agreed
// further. If that is not clear, it is the counter, and the error includes the difference.
func (c *Counter) factor(from, to Reading) (State, Reason) {
	left := func(joules float64) float64 {
		w := joules / (float64(to.Time-from.Time) * 1e-9)
		return max(c.lo/w, w/c.hi, 1)
	}
	power, counter := left(to.Power-from.Power), left(to.Counter-from.Counter)
	switch {
	case c.agreed < leastAgreed || counter > rangeSlack*power:
		return State{Wrong: true}, CounterFactor
	case power > rangeSlack*counter:
		return State{Deviation: hopeless}, PowerFactor
	}
	return State{Wrong: true, Deviation: math.Abs((to.Counter-from.Counter)/(to.Power-from.Power) - 1)}, CounterFactor
}

// window judges a long window together with the one before.
func (c *Counter) window(r Reading) (Contradiction, bool) {
	off := (r.Counter-c.long.Counter)/(r.Power-c.long.Power) - 1
	if math.IsNaN(off) || math.IsInf(off, 0) {
		return Contradiction{}, false
	}
	least := min(math.Abs(off), math.Abs(c.last))
	same := c.judged && off*c.last > 0
	c.last, c.judged = off, true
	switch {
	case c.module():
		c.State, c.reason = State{Wrong: true}, CounterModule
	case same && least > contradicts:
		c.State, c.reason = c.factor(c.long, r)
	case same && least > deviates && !c.Wrong:
		c.State, c.reason = State{Deviation: math.Abs(off)}, CounterDeviates
	case math.Abs(off) > deviates:
		return Contradiction{}, false // one window is no evidence
	default:
		c.State = State{}
		return Contradiction{}, false
	}
	return c.report(c.long, r), true
}

func (c *Counter) report(from, to Reading) Contradiction {
	seconds := float64(to.Time-from.Time) * 1e-9
	return Contradiction{
		Reason: c.reason,
		Found:  fmt.Sprintf("%.4g W of the counter over %.3g s", (to.Counter-from.Counter)/seconds, seconds),
		Other:  fmt.Sprintf("%.4g W of the power sensor", (to.Power-from.Power)/seconds),
	}
}

// regress adds a pair of mean powers.
func (c *Counter) regress(r Reading) {
	length := time.Duration(r.Time - c.pair.Time)
	if length < max(pairLength, 2*r.Period, 2*r.Gap) {
		return
	}
	x, y := (r.Power-c.pair.Power)/length.Seconds(), (r.Counter-c.pair.Counter)/length.Seconds()
	const keep = 0.99
	c.n, c.x, c.y = c.n*keep+1, c.x*keep+x, c.y*keep+y
	c.xx, c.xy = c.xx*keep+x*x, c.xy*keep+x*y
	c.pair = r
}

// module reports whether the counter exceeds the sensor by a constant, which is judged only if
// power varies.
func (c *Counter) module() bool {
	if c.n < leastPairs {
		return false
	}
	x, y := c.x/c.n, c.y/c.n
	variance := c.xx/c.n - x*x
	if variance < 0.01*x*x {
		return false
	}
	slope := (c.xy/c.n - x*y) / variance
	return slope > 0.85 && slope < 1.15 && y-slope*x > moduleWatts
}

// Still judges a counter that has not changed for a time in which power integrates to joules. usual
// is the time between two changes; 0 if it is unknown.
func (c *Counter) Still(still time.Duration, joules float64, usual time.Duration) (Contradiction, bool) {
	limit := max(stillGaps*usual, leastStill)
	if usual == 0 {
		limit = firstStill
	}
	if c.frozen || still <= limit || joules < stillJoules {
		return Contradiction{}, false
	}
	c.State, c.frozen = State{Wrong: true, Calibrated: usual > 0 && !c.Wrong}, true
	return Contradiction{
		Reason: CounterFrozen,
		Found:  fmt.Sprintf("0 J of the counter in %.3g s", still.Seconds()),
		Other:  fmt.Sprintf("%.4g J of the power sensor", joules),
	}, true
}
