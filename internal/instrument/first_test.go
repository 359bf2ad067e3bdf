// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// The age of a scraped counter's first reading is unknown, also after a gap. The energy between it
// and the next one must not be spread over the longest possible age.
func TestTheFirstReadingOfAScrapedCounterIsNotOld(t *testing.T) {
	const watts, gap = 200, 40 // the gap is after reading 40
	for _, interval := range []float64{.1, 1, 5} {
		for _, power := range []bool{true, false} {
			e := NewEnergy(Config{Settle: time.Hour, Assumed: time.Hour, Window: time.Second})
			var since int64
			var begins []float64 // of the readings after which the counter is known
			for i, s := 0, 0.; i < 2*gap; i, s = i+1, s+interval {
				covered := i > 0 && i != gap
				if i == gap {
					s += 100 * interval
				}
				if !covered {
					begins = append(begins, s)
				}
				at := ns(s)
				e.AddChange(Change{Time: at, Since: since, Value: watts * s, Covered: covered})
				if power {
					e.AddPower(at, watts)
				}
				e.Advance(at)
				since = at
			}
			if power {
				assert.Zero(t, e.Energy(ns(-10*interval), ns(0)), "before the first reading, %v s", interval)
			}
			for _, begin := range begins {
				for from := 0.; from < 30; from += .5 {
					s, end := begin+from*interval, begin+(from+1.5)*interval
					if from == 0 && begin > 0 {
						continue // the interval with the end of the gap
					}
					energy, truth := e.Energy(ns(s), ns(end)), watts*(end-s)
					bound := e.Bound(ns(s), ns(end), energy)
					if from >= 2 {
						assert.LessOrEqual(t, bound, energy, "stated, power %v, from %v s", power, s)
					}
					if bound <= energy {
						assert.LessOrEqual(t, math.Abs(energy-truth), max(bound, .05*energy), "power %v, from %v s", power, s)
					}
				}
			}
		}
	}
}
