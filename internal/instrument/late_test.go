// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
)

// Readings can arrive long after their time was attributed. What was attributed, the rest of the
// curve and the balance are always the counter's increase, and the curve has the energy of the time
// that was attributed without readings.
func TestReadingsThatArriveLateChangeNothingThatWasAttributed(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for i := range instrumenttest.Specs {
		for _, lack := range []without{nothing, noPower, noCounter} {
			for seed := range uint64(4) {
				spec := &instrumenttest.Specs[i]
				t.Run(fmt.Sprintf("%s/%d/%d", spec.Name, lack, seed), func(t *testing.T) {
					replayLate(t, spec, lack, seed)
				})
			}
		}
	}
}

func replayLate(t *testing.T, spec *instrumenttest.Spec, lack without, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	length := min(spec.Length(), 200)
	truth := instrumenttest.NewTruth(instrumenttest.Kinds[seed], dur(spec.Length()), rng)
	e := NewEnergy(Config{Settle: dur(settle), Assumed: dur(spec.Assumed), Window: dur(spec.Window)})
	type dealt struct {
		from, to int64
		joules   float64
	}
	var all []dealt
	var last instrumenttest.Reading
	var read int64
	settled, first, sum, start := ns(0), true, 0., math.NaN()
	begin, blocked := 20+20*rng.Float64(), 0. // from begin to blocked nothing arrives
	var pending []instrumenttest.Reading
	for _, r := range spec.Readings(truth, rng) {
		if r.Time > length {
			break
		}
		pending = append(pending, r)
		for r.Time > begin {
			blocked, begin = begin+12+18*rng.Float64(), begin+40
		}
		if to := ns(r.Time - maxWait); to > settled+5e8 {
			knots := e.Knots(settled, to, nil)
			sum += knots[len(knots)-1].Value
			all = append(all, dealt{settled, to, knots[len(knots)-1].Value})
			settled = to
			e.Settle(settled)
		}
		if r.Time < blocked {
			continue
		}
		for _, p := range pending {
			if lack != noCounter {
				if first || p.Energy > last.Energy {
					c := Change{Time: ns(p.Time), Value: p.Energy, Covered: !first}
					if !first {
						c.Since = ns(last.Time)
					}
					e.AddChange(c)
				}
				read = ns(p.Time)
			}
			if lack != noPower {
				e.AddPower(ns(p.Time), p.Power)
			}
			last, first = p, false
			e.Advance(read)
			if open := e.open(); open != nil && open.metered && e.number > 3 {
				off := sum + e.Energy(settled, e.nanos(open.k0)) + e.Balance() - e.Counted()
				if math.IsNaN(start) { // the age of the first reading is unknown
					start = off
				}
				require.InDelta(t, start, off, 1e-5+1e-9*e.Counted(), "J at %v s", p.Time)
			}
		}
		pending = pending[:0]
	}
	for i := 1; i < len(e.pieces); i++ {
		require.LessOrEqual(t, e.pieces[i-1].t0, e.pieces[i].t0, "pieces are in order of time")
		require.LessOrEqual(t, e.pieces[i-1].t1, e.pieces[i].t0+1e-9, "pieces do not overlap")
	}
	known := e.nanos(e.open().k0)
	if !e.open().metered {
		known = e.nanos(e.power.newest() - e.open().lag)
	}
	empty := 0
	for _, d := range all {
		if d.to >= known || e.seconds(d.from) < e.pieces[0].t0 {
			continue
		}
		now := e.Energy(d.from, d.to)
		require.GreaterOrEqual(t, now, d.joules*(1-1e-6)-1e-6, "%v to %v s", e.seconds(d.from), e.seconds(d.to))
		if d.joules == 0 && e.seconds(d.from) > 3*max(spec.Read, spec.Refresh) { // the first readings may show nothing
			empty++
			require.Positive(t, now, "%v to %v s", e.seconds(d.from), e.seconds(d.to))
		}
	}
	assert.Positive(t, empty, "no reading was late")
}
