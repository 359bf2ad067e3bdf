// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
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
	return r.Add(train, 4, rank, index, 1e18+start*step, 1e18+(start+1)*step, 0, rank)
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

// Reports of a previous run do not mix with the new run's, and do not exclude a rank that was behind.
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
		return g.Add(Loop{Service: service}, 0, rank, 1, 1, 2, 0, rank)
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
