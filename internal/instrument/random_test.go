// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
)

// The stated error holds for instruments of any period, also if the counter is refreshed far more
// rarely than its source is assumed to: its changes show that.
func TestTheStatedErrorHoldsForRandomInstruments(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	log := func(lo, hi float64) float64 { return lo * math.Exp(rng.Float64()*math.Log(hi/lo)) }
	specs := []instrumenttest.Spec{{Refresh: 2.6, Jitter: .09, Read: 3.94, Shake: .5, Window: .025, Power: .2, Assumed: .1}}
	for range 30 {
		s := instrumenttest.Spec{Read: log(.02, 5), Window: []float64{.025, .1, 1}[rng.IntN(3)], Power: log(.02, 1), Assumed: .1}
		if rng.IntN(4) > 0 {
			s.Refresh, s.Jitter = log(.01, 20), rng.Float64()*.3
		}
		s.Shake = s.Read * rng.Float64() * .3
		if rng.IntN(3) == 0 {
			s.Early = 10 * max(s.Read, s.Refresh)
		}
		specs = append(specs, s)
	}
	inside, known := 0, 0
	for i := range specs {
		here, of := 0, 0
		for k, kind := range instrumenttest.Kinds {
			for _, list := range replay(&specs[i], kind, uint64(100*i+k), 60, nothing, []float64{.01, .1, 1, 10}) {
				for _, o := range list {
					if !o.omitted() {
						of++
						if o.inside() {
							here++
						}
					}
				}
			}
		}
		inside, known = inside+here, known+of
		assert.GreaterOrEqual(t, percent(here, of), 85., "%+v, %d spans", specs[i], of)
	}
	assert.GreaterOrEqual(t, percent(inside, known), 97., "%d spans", known)
}
