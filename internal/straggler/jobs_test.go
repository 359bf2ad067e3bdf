// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var train = Loop{Service: "s", Job: "j", Name: "train"}

// rig runs steps of 100 ms; a step's value is its rank.
type rig struct {
	*Jobs[int64]
	t *testing.T
}

func newRig(t *testing.T, maxWaiting int) rig {
	return rig{NewJobs[int64](Limits{MaxWait: 30 * time.Second, MinRanks: 3, MaxWaiting: maxWaiting}), t}
}

// at adds a step that starts at the given step time.
func (r rig) at(rank, index int64, start uint64) Outcome {
	const step = 100_000_000
	return r.Add(train, Report{World: 4, Rank: rank, Index: index, Start: 1e18 + start*step, End: 1e18 + (start+1)*step}, 0, rank)
}

func (r rig) due(now time.Duration, final bool) (indices []int64, ranks int) {
	r.Due(int64(now), -1, final, func(c Compared[int64]) {
		indices = append(indices, c.Index)
		ranks += len(c.Ranks)
		assert.Equal(r.t, c.Ranks, c.Steps)
		assert.Equal(r.t, len(c.Ranks) >= 3, c.Enough)
	})
	return indices, ranks
}

func TestACompleteStepIsDueImmediatelyAndAnIncompleteOneWaits(t *testing.T) {
	g := newRig(t, 100)
	for rank := range int64(4) {
		require.Equal(t, Taken, g.at(rank, 1, 0))
		if rank < 3 {
			require.Equal(t, Taken, g.at(rank, 2, 1))
		}
	}
	got, ranks := g.due(0, false)
	assert.Equal(t, []int64{1}, got)
	assert.Equal(t, 4, ranks)
	got, _ = g.due(30*time.Second-1, false)
	assert.Empty(t, got)
	got, ranks = g.due(30*time.Second, false)
	assert.Equal(t, []int64{2}, got)
	assert.Equal(t, 3, ranks)
	assert.Equal(t, Late, g.at(3, 2, 1))
	assert.Zero(t, g.Waiting())
}

// A job restarts from its checkpoint, at any distance: no later step is lost.
func TestAJobThatGoesBackIsComparedAgainHoweverFar(t *testing.T) {
	for _, back := range []int64{1, 50, 99, 100, 299} {
		g := newRig(t, 1000)
		compared := 0
		run := func(from, to, start int64) {
			for index := from; index <= to; index++ {
				for rank := range int64(4) {
					require.Equal(t, Taken, g.at(rank, index, uint64(start+index-from)), "step %d, back by %d", index, back)
				}
				got, _ := g.due(0, false)
				compared += len(got)
			}
		}
		run(1, 300, 0)
		run(301-back, 500-back, 400)
		assert.Equal(t, 500, compared, "back by %d", back)
	}
}

// Reports of a previous run do not mix with the new run's, and do not exclude a rank that was
// behind.
func TestRunsAreKeptApart(t *testing.T) {
	g := newRig(t, 1000)
	for rank := range int64(3) { // rank 3 died at step 5
		for index := int64(1); index <= 10; index++ {
			g.at(rank, index, uint64(index))
		}
	}
	for index := int64(1); index <= 5; index++ {
		g.at(3, index, uint64(index))
	}
	got, _ := g.due(0, false)
	assert.Equal(t, []int64{1, 2, 3, 4, 5}, got)
	require.Equal(t, Taken, g.at(0, 8, 100)) // the new run, from the checkpoint after 7
	require.Equal(t, Taken, g.at(1, 10, 10), "repeated: it still waits in the run before")
	require.Equal(t, Taken, g.at(1, 8, 100))
	require.Equal(t, Taken, g.at(2, 8, 100))
	require.Equal(t, Taken, g.at(3, 8, 100), "this rank does not go back: it had come to 5 only")
	got, ranks := g.due(0, false)
	assert.Equal(t, []int64{8}, got)
	assert.Equal(t, 4, ranks)
	got, ranks = g.due(0, true)
	assert.Equal(t, []int64{6, 7, 8, 9, 10}, got, "of the run before")
	assert.Equal(t, 15, ranks)
}

func TestARepeatedStepDoesNotStartANewRun(t *testing.T) {
	g := newRig(t, 100)
	for rank := range int64(4) {
		g.at(rank, 1, 0)
	}
	g.due(0, false)
	assert.Equal(t, Late, g.at(0, 1, 0))
	assert.Equal(t, Taken, g.at(0, 2, 1))
	assert.Equal(t, Taken, g.at(0, 2, 1))
	assert.Equal(t, 1, g.Waiting())
}

func TestLoopsAndRanksAreBounded(t *testing.T) {
	g := NewJobs[int64](Limits{MaxWaiting: 1 << 20})
	add := func(service string, rank int64) Outcome {
		return g.Add(Loop{Service: service}, Report{Rank: rank, Index: 1, Start: 1, End: 2}, 0, rank)
	}
	for i := range maxJobs {
		require.Equal(t, Taken, add(strconv.Itoa(i), 0))
	}
	assert.Equal(t, Full, add("one more", 0))
	for rank := range int64(maxRanks) {
		require.Equal(t, Taken, add("0", rank))
	}
	assert.Equal(t, Full, add("0", maxRanks))
}

func TestPendingDataIsBounded(t *testing.T) {
	g := newRig(t, 50)
	full := 0
	for index := range int64(30) {
		for rank := range int64(3) {
			if g.at(rank, index, uint64(index)) == Full {
				full++
			}
		}
	}
	assert.Equal(t, 50, g.Waiting())
	assert.Equal(t, 40, full)
	g.Due(0, -1, true, func(c Compared[int64]) {
		assert.EqualValues(t, 1e18+30*100_000_000, c.Newest, "the end of the last step that came")
	})
	assert.Zero(t, g.Waiting())
	g.Due(1, 1, false, nil)
	assert.Zero(t, len(g.loops), "silent loops are forgotten")
}

// A loop that restarts every few steps, as one loop for each epoch does. Ranks send batches at
// their own times, clocks differ by less than a step, ranks have different numbers of steps, and a
// rank loses batches.
func TestEachRanksEpochsAreItsOwn(t *testing.T) {
	const ms = 1_000_000
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 23))
		world, epochs := int64(2+r.IntN(5)), int64(2+r.IntN(8))
		length, pause := int64(20+r.IntN(200))*ms, r.Int64N(2)*r.Int64N(500*ms)
		every := 500*ms + r.Int64N(6000*ms)
		type sent struct {
			report Report
			epoch  int64
			at     int64
		}
		var all []sent
		want := map[string]int{}
		at := int64(1e18)
		skew := make([]int64, world)
		for rank := range world {
			skew[rank] = r.Int64N(length/2) - length/4
		}
		for epoch := range epochs {
			steps := 1 + r.Int64N(20)
			for index := int64(1); index <= steps; index++ {
				var ranks []int64
				for rank := range world {
					if rank > 0 && (index > 1 && r.IntN(30) == 0 || index == steps && steps > 2 && r.IntN(4) == 0) {
						continue // lost, or the rank has less input
					}
					ranks = append(ranks, rank)
					start := at + skew[rank]
					batch := (start + length + (rank+1)*every/(world+1)) / every
					all = append(all, sent{
						Report{World: world, Rank: rank, Index: index, Start: uint64(start), End: uint64(start + length)},
						epoch,
						(batch+1)*every - (rank+1)*every/(world+1),
					})
				}
				want[fmt.Sprint(epoch, index, ranks)]++
				at += length
			}
			at += pause
		}
		slices.SortStableFunc(all, func(x, y sent) int { return cmp.Compare(x.at, y.at) })
		g := NewJobs[sent](Limits{MaxWait: 30 * time.Second, MinRanks: 1, MaxWaiting: 1 << 20})
		got := map[string]int{}
		due := func(now int64, final bool) {
			g.Due(now, 0, final, func(c Compared[sent]) {
				for i := range c.Steps {
					require.Equal(t, c.Steps[0].epoch, c.Steps[i].epoch, "seed %d: steps of two epochs", seed)
				}
				got[fmt.Sprint(c.Steps[0].epoch, c.Index, c.Ranks)]++
			})
		}
		for _, x := range all {
			due(x.at, false)
			require.Equal(t, Taken, g.Add(train, x.report, x.at, x), "seed %d", seed)
		}
		due(all[len(all)-1].at, true)
		require.Equal(t, want, got, "seed %d: %d ranks, %d epochs, steps of %v, pause %v", seed, world, epochs,
			time.Duration(length), time.Duration(pause))
	}
}

// shared reports whether the loop's steps are refused: with the same ID, two processes are two
// jobs, or one that was restarted.
func shared(second, index, start, steps int64) bool {
	g := NewJobs[int64](Limits{MaxWait: 30 * time.Second, MinRanks: 1, MaxWaiting: 1 << 20})
	const step = 100_000_000
	add := func(process, index, at int64) Outcome {
		return g.Add(train, Report{
			World: 2, Rank: 1, Index: index, Start: uint64(1e18 + at), End: uint64(1e18 + at + step), Process: uint64(process),
		}, 0, 1)
	}
	refused := false
	for i := range int64(50) {
		refused = add(7, i+1, i*step) == Shared || refused
	}
	for i := range steps {
		refused = add(second, index+i, start+i*step) == Shared || refused
	}
	refused = add(7, 50, 49*step) == Shared || refused // sent twice
	g.Due(0, -1, true, func(c Compared[int64]) { refused = refused || c.Shared && !c.Enough })
	return refused
}

func TestTwoProcessesOfOneRankAreTwoJobs(t *testing.T) {
	const s = int64(time.Second)
	assert.True(t, shared(8, 1, s/2+s/20, 40), "at the same time")
	assert.True(t, shared(8, 1001, s/2+s/20, 40), "at the same time, with other indices")
	assert.True(t, shared(7, 1, s/2+s/20, 40), "two loops of one name in one process")
	assert.True(t, shared(0, 1, s/2+s/20, 40), "processes are unknown")
	assert.False(t, shared(8, 51, 5*s+s/20, 40), "restarted, and continued")
	assert.False(t, shared(8, 40, 5*s-4*s/10, 40), "restarted on a host whose clock is behind")
	assert.False(t, shared(8, 1, 5*s, 40), "restarted from the beginning")
	assert.False(t, shared(7, 1, 5*s, 40), "another epoch")
}
