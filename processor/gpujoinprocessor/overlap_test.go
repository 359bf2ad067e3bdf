// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// trueMeter is a device whose energy is known exactly.
type trueMeter struct{ *instrumenttest.Truth }

const simulatedStart = int64(1e18)

func (m trueMeter) at(t int64) float64 { return m.At(float64(t-simulatedStart) * 1e-9) }

func (m trueMeter) Knots(from, to int64, dst []attribution.Knot) []attribution.Knot {
	dst = append(dst, attribution.Knot{Time: from})
	for t := from - from%1e6 + 1e6; t < to; t += 1e6 {
		dst = append(dst, attribution.Knot{Time: t, Value: m.at(t) - m.at(from), Covered: t - from})
	}
	return append(dst, attribution.Knot{Time: to, Value: m.at(to) - m.at(from), Covered: to - from})
}

func (trueMeter) Levels(_ uint64, _, _ int64, dst []attribution.Level) []attribution.Level {
	return dst
}

func (trueMeter) Windows(_, _ int64, dst []attribution.Window) []attribution.Window { return dst }

// sharedSpan is a span of a simulated device that others share.
type sharedSpan struct{ truth, energy, whole, bound float64 }

// share simulates a device with overlapping spans of several processes: requests that begin at any
// time, and steps with phases and kernels below.
func share(spec *instrumenttest.Spec, kind string, seed uint64) (list []sharedSpan) {
	rng := rand.New(rand.NewPCG(seed, 3))
	length := max(min(spec.Length(), 200), 6*spec.Refresh)
	truth := trueMeter{instrumenttest.NewTruth(kind, time.Duration(spec.Length()*1e9), rng)}
	second := func(s float64) int64 { return simulatedStart + int64(s*1e9) }
	var spans []attribution.Span
	add := func(process uint64, parent [8]byte, from, to float64) [8]byte {
		id := spanID(uint64(len(spans) + 1))
		spans = append(spans, attribution.Span{
			Key: attribution.Key{Trace: [16]byte{1}, Span: id}, Parent: parent, Process: process,
			Start: second(from), End: second(to),
		})
		return id
	}
	log := func(lo, hi float64) float64 { return lo * math.Exp(rng.Float64()*math.Log(hi/lo)) }
	for p := range uint64(3) {
		for t := length * .25; t < length*.6; {
			l := log(.003, 5)
			switch p {
			case 0: // a trainer
				step := add(p, [8]byte{}, t, t+l)
				for at := t; at < t+l; {
					k := log(.003, 1)
					end := min(at+k, t+l)
					phase := add(p, step, at, end)
					if rng.IntN(2) == 0 && end-at > .003 {
						add(p, phase, at+(end-at)*.2, at+(end-at)*.7)
					}
					at = end
				}
			default: // requests that overlap
				for range rng.IntN(4) {
					from := t + rng.Float64()*l
					add(p, [8]byte{}, from, from+log(.003, 5))
				}
			}
			t += l * (1 + .3*rng.Float64())
		}
	}
	var budget attribution.Budget
	budget.Max = 1 << 20
	limits := attribution.Limits{Remember: time.Hour}
	ours, exact := attribution.New(limits, &budget), attribution.New(limits, &budget)
	handles, others := make([]attribution.Handle, len(spans)), make([]attribution.Handle, len(spans))
	for i, s := range spans {
		budget.Hash(&s)
		_, handles[i], _ = ours.Add(s, 0, truth)
		_, others[i], _ = exact.Add(s, 0, truth)
	}
	order := make([]int, len(spans))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(spans[a].End - spans[b].End) })
	e := instrument.NewEnergy(instrument.Config{
		Settle: 6 * time.Second, Assumed: time.Duration(spec.Assumed * 1e9), Window: time.Duration(spec.Window * 1e9),
	})
	m := &meter{energy: e, loads: &loads{}}
	b := &board{dev: ours, meter: *m}
	var last instrumenttest.Reading
	settled := second(0)
	for i, r := range spec.Readings(truth.Truth, rng) {
		if r.Time > length {
			break
		}
		t := second(r.Time)
		e.Settle(settled)
		if i == 0 || r.Energy > last.Energy {
			c := instrument.Change{Time: t, Value: r.Energy, Covered: i > 0}
			if i > 0 {
				c.Since = second(last.Time)
			}
			e.AddChange(c)
		}
		e.AddPower(t, r.Power)
		last = r
		e.Advance(t)
		ready, _ := e.Ready()
		settled = max(settled, min(ready, second(r.Time-6)), second(r.Time-10))
		ours.Settle(settled, m)
		exact.Settle(settled, truth)
		for len(order) > 0 && spans[order[0]].End <= settled {
			s := &spans[order[0]]
			got, ok := ours.Share(s.Key, handles[order[0]])
			want, _ := exact.Share(s.Key, others[order[0]])
			order = order[1:]
			if !ok || got.Covered < s.End-s.Start {
				continue
			}
			whole, bound := e.Energy(s.Start, s.End), b.boundOf(s.Start, s.End, got.Value)
			list = append(list, sharedSpan{want.Value, got.Value, whole, bound})
		}
	}
	return list
}

// The true energy of spans that share a device is inside the stated error for at least 95 % of
// them, whatever their share, and the stated error is no multiple of the real one.
func TestTheStatedErrorHoldsForSpansThatShareADevice(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for i := range instrumenttest.Specs {
		spec := &instrumenttest.Specs[i]
		var byShare [3][]sharedSpan
		for k, kind := range instrumenttest.Kinds {
			for seed := range uint64(2) {
				for _, s := range share(spec, kind, uint64(100*i+10*k)+seed) {
					switch f := s.energy / s.whole; {
					case f < .3:
						byShare[0] = append(byShare[0], s)
					case f < .6:
						byShare[1] = append(byShare[1], s)
					case f < wholeShare:
						byShare[2] = append(byShare[2], s)
					}
				}
			}
		}
		for j, list := range byShare {
			var errs, stated []float64
			inside := 0.
			for _, s := range list {
				if s.bound > s.energy {
					continue
				}
				wrong := math.Abs(s.energy - s.truth)
				if wrong <= max(s.bound, leastError*s.energy) {
					inside++
				}
				errs, stated = append(errs, wrong/s.truth), append(stated, s.bound/s.truth)
			}
			n := len(errs)
			if n < 100 || n < len(list)*2/5 { // too few are left to judge
				continue
			}
			slices.Sort(errs)
			slices.Sort(stated)
			assert.GreaterOrEqual(t, inside/float64(n), .95, "%s, share %d, %d of %d spans", spec.Name, j, n, len(list))
			assert.LessOrEqual(t, stated[n/2], 3*max(errs[n*95/100], leastError/3), "%s, share %d: median", spec.Name, j)
		}
	}
}
