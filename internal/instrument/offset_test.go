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
