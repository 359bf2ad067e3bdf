// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// report is one rank's report of a step.
type report struct {
	run, rank, index int64
	start, end       uint64
	comes            int64
}

// Jobs are restarted from checkpoints, ranks die, clocks differ, and reports arrive out of order
// and twice: each step of each run is compared once, with all ranks that reported it.
func TestEachStepOfARandomJobIsComparedOnceWithAllItsRanks(t *testing.T) {
	const ms = 1_000_000
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 21))
		world := int64(4 + r.IntN(1+int(seed)%60))
		skew, dies := make([]int64, world), make([]int64, world)
		for rank := range world {
			skew[rank] = r.Int64N(2000*ms) - 1000*ms
		}
		step := []int64{100, 5000, 25_000}[r.IntN(3)] * ms
		var all []report
		want := map[string]int{}
		at, from := int64(1e18), int64(1)
		for run := range int64(1 + r.IntN(3)) {
			to := from + r.Int64N(12)
			for rank := range world {
				if dies[rank] = to; rank > 0 && r.IntN(5) == 0 {
					dies[rank] = from + r.Int64N(to-from+1)
				}
			}
			for index := from; index <= to; index++ {
				var ranks []int64
				for rank := range world {
					if index > dies[rank] || rank > 0 && r.IntN(20) == 0 {
						continue
					}
					ranks = append(ranks, rank)
					x := report{run: run, rank: rank, index: index, start: uint64(at + skew[rank])}
					x.end, x.comes = x.start+uint64(step), at+step
					if rank > 0 { // rank 0 reports immediately, so each step has a report
						x.comes += r.Int64N(1000 * ms)
						if r.IntN(10) == 0 {
							x.comes += r.Int64N(20_000 * ms)
						}
					}
					all = append(all, x)
					if r.IntN(10) == 0 {
						x.comes += r.Int64N(5000 * ms)
						all = append(all, x)
					}
				}
				want[fmt.Sprint(index, ranks)]++
				at += step
			}
			from = max(1, to-r.Int64N(12))
			at += 15_000*ms + r.Int64N(30_000*ms) // reports are late by less than two of these
		}
		slices.SortStableFunc(all, func(x, y report) int { return int(x.comes - y.comes) })
		g := NewJobs[report](Limits{MaxWait: 30 * time.Second, MinRanks: 1, MaxWaiting: 1 << 20})
		got := map[string]int{}
		due := func(now int64, final bool) {
			g.Due(now, 0, final, func(c Compared[report]) {
				for i := range c.Steps {
					require.Equal(t, c.Steps[0].run, c.Steps[i].run, "seed %d: steps of two runs", seed)
				}
				got[fmt.Sprint(c.Index, c.Ranks)]++
			})
		}
		tick := int64(0)
		for _, x := range all {
			if x.comes > tick {
				due(x.comes, false)
				tick = x.comes + 1000*ms
			}
			s := Report{World: world, Rank: x.rank, Index: x.index, Start: x.start, End: x.end, Process: uint64(x.rank + 1 + world*x.run)}
			g.Add(train, s, x.comes, x)
		}
		due(tick, true)
		require.Equal(t, want, got, "seed %d: %d ranks, steps of %v", seed, world, time.Duration(step))
	}
}

// part is a section of a rank; in is nil if its content is unknown.
type part struct {
	time float64
	in   parts
}

type parts map[string]part

func random(r *rand.Rand, depth int) parts {
	if r.IntN(6) == 0 {
		return nil
	}
	x := parts{}
	for _, i := range r.Perm(6)[:r.IntN(7)] {
		p := part{time: r.Float64() * []float64{1, 1, 1, 10}[r.IntN(4)]}
		if depth > 1 {
			p.in = random(r, depth-1)
		}
		x[fmt.Sprint(i)] = p
	}
	return x
}

func (x parts) sections() *Sections {
	if x == nil {
		return nil
	}
	s := &Sections{}
	for name, p := range x {
		s.Add(name, "", p.time, Extent{}, p.in.sections())
	}
	return s
}

func half(values []float64) float64 {
	slices.Sort(values)
	return values[(len(values)-1)/2] // the lower middle, so that half of the ranks may be slow
}

// most returns the section in which a rank is furthest above the median of the known ones.
func most(all []parts, rank int) (worst string, above float64) {
	for name, p := range all[rank] {
		var values []float64
		for _, x := range all {
			if x != nil {
				values = append(values, x[name].time)
			}
		}
		if d := p.time - half(values); d > above {
			worst, above = name, d
		}
	}
	return worst, above
}

// lost returns the path to the deepest section that still has half of its parent's loss.
func lost(phases, loose []parts, rank int) (path, phase string, delay float64) {
	all := phases
	name, d := most(phases, rank)
	phase = name
	if other, more := most(loose, rank); more > d {
		all, name, d, phase = loose, other, more, ""
	}
	for name != "" && d >= delay/2 {
		path, delay = strings.TrimPrefix(path+"/"+name, "/"), d
		inside := make([]parts, len(all))
		for i, x := range all {
			inside[i] = x[name].in
		}
		all = inside
		name, d = most(all, rank)
	}
	return path, phase, delay
}

// Compares random ranks with random sections with the definition, including thousands of ranks of
// which nearly half are slow, as behind a slow switch: totals over all ranks must not be recomputed
// for each.
func TestStragglersMatchTheDefinition(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 22))
		n := 2 + r.IntN(12)
		if seed == 0 {
			n = 4096
		}
		own, phases, loose, ranks := make([]float64, n), make([]parts, n), make([]parts, n), make([]Rank, n)
		for i := range ranks {
			own[i], phases[i], loose[i] = 1+0.02*r.Float64(), random(r, 3), random(r, 2)
			if r.IntN(10) < 4 {
				own[i] += 4 * r.Float64()
			}
			ranks[i] = Rank{Rank: int64(i), Own: own[i], Phases: phases[i].sections(), Loose: loose[i].sections()}
		}
		median, away := half(slices.Clone(own)), make([]float64, n)
		for i, v := range own {
			away[i] = math.Abs(v - median)
		}
		sigma, looked := 1.4826*half(away), 0
		got, typical := Compare(ranks)
		require.Len(t, got, n)
		for i, v := range got {
			above := own[i] - median
			require.InEpsilon(t, own[i]/median, v.Score, 1e-12)
			require.LessOrEqual(t, math.Abs(own[typical]-median), math.Abs(above), "the typical rank")
			slow := above > 3.5*sigma && above > 0.05*median && 2*above >= slices.Max(own)-median
			require.Equal(t, slow, v.Slow, "seed %d: rank %d", seed, i)
			if looked++; !v.Slow || looked > 100 {
				continue
			}
			path, phase, delay := lost(phases, loose, i)
			if path == "" {
				delay = above
			}
			require.Equal(t, [2]string{path, phase}, [2]string{v.Section, v.Phase}, "seed %d: rank %d", seed, i)
			require.InDelta(t, delay, v.Delay, 1e-9, "seed %d: rank %d", seed, i)
		}
	}
}
