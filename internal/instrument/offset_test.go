// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// At steady power each shape predicts a regular counter, and nothing shows the age of its values.
// At the first step the energy must follow power, up to the time between two readings, and the
// error must have the unknown age.
func TestAStepAfterSteadyPowerFollowsPower(t *testing.T) {
	for _, age := range []float64{0, .03, .06, .09} {
		truth := func(s float64) float64 { return 200*s + 400*min(max(s-60, 0), 30) }
		e := NewEnergy(Config{Settle: time.Hour, Assumed: 100 * time.Millisecond, Window: 100 * time.Millisecond})
		var since int64
		for i := range 1000 {
			s := float64(i) / 10
			e.AddPower(ns(s), (truth(s)-truth(s-.1))/.1)
			e.AddChange(Change{Time: ns(s), Since: since, Value: truth(s - age), Covered: i > 0})
			e.Advance(ns(s))
			since = ns(s)
		}
		for _, at := range []float64{60, 90} {
			for _, length := range []float64{.1, .2, .4, 1, 2} {
				for _, from := range []float64{at - length, at - length/2, at} {
					energy := e.Energy(ns(from), ns(from+length))
					bound := max(e.Bound(ns(from), ns(from+length), energy), .05*energy)
					wrong := math.Abs(energy - (truth(from+length) - truth(from)))
					assert.LessOrEqual(t, wrong, 400*.1, "age %v s, %v s from %v s on", age, length, from)
					assert.LessOrEqual(t, wrong, 1.1*bound, "age %v s, %v s from %v s on, %v J", age, length, from, energy)
				}
			}
		}
	}
}

// Power that changes smoothly hardly steps between two readings, but the values of all readings
// have the same unknown age: the error of a span grows with the difference of power at its ends.
func TestTheStatedErrorCoversTheAgeOfAllValues(t *testing.T) {
	const period = 4.0
	truth := func(s float64) float64 { return 100*s + 90*period/(2*math.Pi)*(1-math.Cos(2*math.Pi*s/period)) }
	for _, age := range []float64{0, .03, .07, .09} {
		e := NewEnergy(Config{Settle: time.Second, Assumed: 100 * time.Millisecond, Window: 25 * time.Millisecond})
		var since int64
		inside, all := 0, 0
		for i := range 600 {
			s := float64(i) / 10
			e.AddPower(ns(s), (truth(s)-truth(s-.001))/.001)
			e.AddChange(Change{Time: ns(s), Since: since, Value: truth(s - age), Covered: i > 0})
			e.Advance(ns(s))
			since = ns(s)
			if s < 10 {
				continue
			}
			for _, length := range []float64{.05, .15, .3, .5} {
				from := s - 2 - length
				energy := e.Energy(ns(from), ns(from+length))
				bound := max(e.Bound(ns(from), ns(from+length), energy), .05*energy)
				if all++; math.Abs(energy-(truth(from+length)-truth(from))) <= bound {
					inside++
				}
			}
		}
		assert.GreaterOrEqual(t, float64(inside), .95*float64(all), "age %v s: %d of %d", age, inside, all)
	}
}
