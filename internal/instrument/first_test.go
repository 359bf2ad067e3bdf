// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
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

// The first spans of a new device have energy, although nothing shows yet when its counter is
// refreshed: power shapes it. The stated error holds from the first one on.
func TestTheFirstSpansOfADeviceHaveEnergy(t *testing.T) {
	for i := range instrumenttest.Specs {
		spec := instrumenttest.Specs[i]
		if spec.Read > .11 || spec.Window > .1 || spec.Refresh == 1 { // as the gpu receiver reads
			continue
		}
		for _, early := range []float64{2, 12} {
			spec.Early = early
			tableOf([]instrumenttest.Spec{spec}, []float64{.01, .05, .1, 2}, 6, 20, nothing, func(_ *instrumenttest.Spec, list []summary) {
				for j, s := range list {
					assert.Less(t, s.omitted, 16., "%s, %v s, length %d", spec.Name, early, j)
					assert.Greater(t, s.inside, 92., "%s, %v s, length %d", spec.Name, early, j)
				}
			})
		}
	}
}

// The energy up to the last reading before a gap is known, although readings between distant knots
// are skipped.
func TestTheCounterIsKnownUpToAGap(t *testing.T) {
	for n := 30; n < 400; n += 37 { // readings before the gap
		e := NewEnergy(Config{Settle: time.Hour, Assumed: 100 * time.Millisecond, Window: 100 * time.Millisecond})
		var since int64
		for i := range 2 * n {
			s := float64(i)/10 + 60*float64(i/n)
			e.AddPower(ns(s), 300+float64(i%2))
			e.AddChange(Change{Time: ns(s), Since: since, Value: 300 * s, Covered: i != 0 && i != n})
			e.Advance(ns(s))
			since = ns(s)
		}
		assert.InDelta(t, 300*(float64(n-1)/10-1), e.Energy(ns(1), ns(float64(n)/10+50)), 300*.1, "%d readings", n)
	}
}
