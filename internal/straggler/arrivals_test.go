// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

func TestTheLastToArriveIsReported(t *testing.T) {
	const ms = 1_000_000
	run := func(rank, sequence, start, end int64) Collective {
		return Collective{Rank: rank, Sequence: sequence, Start: start * ms, End: end * ms}
	}
	got := Arrivals([]Collective{
		run(0, 0, 10, 31), run(1, 0, 28, 31), run(2, 0, 20, 31), // rank 1 last, 8 ms after rank 2
		run(0, 1, 50, 61), run(1, 1, 51, 61), run(2, 1, 58, 61), // rank 2 last, 7 ms after rank 1
		run(0, 2, 70, 71), run(1, 2, 70, 99), // ends far apart: not the same collective
		run(0, 5, 70, 99), run(1, 5, 70, 71), // likewise
		run(0, 3, 70, 71),                                       // alone
		run(0, 4, 80, 90), run(1, 4, 85, 90), run(1, 4, 85, 90), // twice on one rank: two collectives with the same number
	}, Context{})
	for i, want := range []Arrival{
		{Rank: 0, Collectives: 2, Waited: 0.026},
		{Rank: 1, Collectives: 2, Last: 1, Waited: 0.007, HeldUp: 0.026, Delay: 0.008},
		{Rank: 2, Collectives: 2, Last: 1, Waited: 0.008, HeldUp: 0.015, Delay: 0.007},
	} {
		assert.Equal(t, want.Rank, got[i].Rank)
		assert.Equal(t, want.Collectives, got[i].Collectives)
		assert.Equal(t, want.Last, got[i].Last)
		assert.InDelta(t, want.Waited, got[i].Waited, 1e-12)
		assert.InDelta(t, want.HeldUp, got[i].HeldUp, 1e-12)
		assert.InDelta(t, want.Delay, got[i].Delay, 1e-12)
	}
}

func TestTheCollectiveBeforeIsTheOneThatEndedLast(t *testing.T) {
	var h history
	for _, end := range []int64{5, 9, 7, 1} {
		h.add(meeting{end: end})
	}
	for at, want := range map[int64]int64{1: 1, 4: 1, 5: 5, 6: 5, 7: 7, 8: 7, 9: 9, 20: 9} {
		got, ok := h.before(at)
		assert.True(t, ok)
		assert.Equal(t, want, got.end, "at %d", at)
	}
	_, ok := h.before(0)
	assert.False(t, ok)
}

// Rank 2 meets only rank 1, whose clock is 100 ns ahead of rank 0's.
func TestClocksAreAlignedByWayOfOthers(t *testing.T) {
	got := align(match([]Collective{
		{Rank: 0, End: 1000},
		{Rank: 1, End: 1100},
		{Rank: 1, Sequence: 1, End: 2100},
		{Rank: 2, Sequence: 1, End: 2300},
	}))
	for rank, want := range map[int64]float64{0: -100, 1: 0, 2: 200} {
		assert.InDelta(t, want, got[rank].ahead, 1e-9)
		assert.Zero(t, got[rank].rate)
	}
}

// Hosts' clocks differ by more than the ranks' lateness.
func TestClocksAreAlignedByTheEnds(t *testing.T) {
	var all []Collective
	for k := range int64(20) {
		for rank := range int64(4) {
			at := 1_700_000_000_000_000_000 + k*1_000_000 + rank*3_600_000_000_000 // each an hour ahead of the previous one
			c := Collective{Rank: rank, Sequence: k, Start: at, End: at + 100_000}
			if rank == 2 {
				c.Start += 60_000
			}
			all = append(all, c)
		}
	}
	got := Arrivals(all, Context{})
	require.Len(t, got, 4)
	for _, a := range got {
		want := Arrival{Rank: a.Rank, Collectives: 20, Waited: 20 * 60e-6, Clock: a.Clock}
		if a.Rank == 2 {
			want = Arrival{Rank: 2, Collectives: 20, Last: 20, HeldUp: 20 * 3 * 60e-6, Delay: 20 * 60e-6, Clock: a.Clock}
		}
		assert.InDelta(t, want.Waited, a.Waited, 1e-12)
		assert.InDelta(t, want.HeldUp, a.HeldUp, 1e-12)
		assert.InDelta(t, want.Delay, a.Delay, 1e-12)
		assert.Equal(t, want.Last, a.Last)
		assert.InDelta(t, (float64(a.Rank)-1.5)*3600, a.Clock, 1e-6)
	}
}

// A real job of eight ranks; another program matched and evaluated its collectives.
func TestArrivalsOfARealJob(t *testing.T) {
	dir, lastAt, heldUp := recorded.Ranks(t)
	var all []Collective
	for rank := range int64(8) {
		f, err := os.Open(fmt.Sprintf("%s/worker%d.pt.trace.json.gz", dir, rank))
		require.NoError(t, err)
		z, err := gzip.NewReader(f)
		require.NoError(t, err)
		var trace struct {
			Events []struct {
				Cat, Name string
				TS, Dur   int64
			} `json:"traceEvents"`
		}
		b, err := io.ReadAll(z)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(b, &trace))
		require.NoError(t, f.Close())
		for _, e := range trace.Events {
			if e.Cat == "kernel" && strings.HasPrefix(e.Name, "nccl") {
				all = append(all, Collective{Rank: rank, Name: e.Name, Start: e.TS * 1000, End: (e.TS + e.Dur) * 1000})
			}
		}
	}
	Number(all)
	got := Arrivals(all, Context{})
	require.Len(t, got, 8)
	for _, a := range got {
		rank := strconv.FormatInt(a.Rank, 10)
		assert.Equal(t, 8, a.Collectives)
		assert.Equal(t, lastAt[rank], a.Last, "rank %s", rank)
		// They share one clock; the alignment shifts each rank by a few µs at most.
		assert.InDelta(t, 0, a.Clock, 5e-6)
		assert.InDelta(t, heldUp[rank], a.HeldUp*1e3, 0.2, "rank %s", rank)
	}
}

// A rank that arrives last because it waited for its partner is not the late rank, and ranks whose
// clocks are an hour apart are aligned even if they have only indirect common collectives.
func TestRankDelayedByAnotherIsNotBlamed(t *testing.T) {
	const hour, us = int64(3600e9), int64(1000)
	clock := []int64{0, hour, -hour, 5}
	var all []Collective
	run := func(rank int, group string, start, end int64) {
		all = append(all, Collective{
			Rank: int64(rank), Group: group, Name: "all_reduce", Start: start*us + clock[rank], End: end*us + clock[rank],
		})
	}
	for i := range int64(5) {
		at := i * 10_000
		run(0, "a", at+100, at+1100)
		run(1, "a", at+1000, at+1100)
		run(2, "b", at+100, at+200)
		run(3, "b", at+100, at+200)
		run(0, "all", at+1150, at+2000)
		run(1, "all", at+1140, at+2000)
		run(2, "all", at+240, at+2000)
		run(3, "all", at+240, at+2000)
	}
	Number(all)
	got := Arrivals(all, Context{})
	require.Len(t, got, 4)
	const exact = 1e-7 // s; clocks are aligned to the nanosecond
	assert.InDelta(t, 5*(910+910+10)*1e-6, got[0].HeldUp, exact, "at all five collectives of all")
	assert.InDelta(t, 5*900*1e-6, got[1].HeldUp, exact, "at the pair's collectives")
	assert.InDelta(t, 5*(10+10+10)*1e-6, got[0].Caused, exact, "what it did itself after the pair had met")
	assert.InDelta(t, 5*(900+900+900)*1e-6, got[1].Caused, exact)
	assert.Zero(t, got[2].Caused)
	assert.Empty(t, got[0].LastAt, "where it was last, it had been delayed")
	require.Len(t, got[1].LastAt, 5)
	assert.Equal(t, 1000*us+hour, got[1].LastAt[0].Start, "on the rank's own clock")
	assert.Equal(t, 1100*us+hour, got[1].LastAt[0].End)
	assert.InDelta(t, 900e-6, got[1].LastAt[0].Held, exact)
	assert.InDelta(t, 3600, got[1].Clock-got[0].Clock, exact)
}

func inMicroseconds(rank int, group string, sequence, start, end int64) Collective {
	return Collective{
		Rank: int64(rank), Group: group, Name: group, Sequence: sequence, Stated: true, Start: start * 1000, End: end * 1000,
	}
}

// Three collectives wait for rank 1 concurrently, partly while rank 0 computes.
func TestConcurrentWaitsCountOnceAndWithoutComputation(t *testing.T) {
	var all []Collective
	for i := range int64(3) {
		all = append(all, inMicroseconds(0, "a", i, 0+i, 1000), inMicroseconds(1, "a", i, 600+i, 1000))
	}
	got := Arrivals(all, Context{Computing: func(rank int64, v intervals.Interval) int64 {
		assert.Zero(t, rank)
		return max(0, min(v.End, 500_000)-max(v.Start, 0))
	}})
	require.Len(t, got, 2)
	assert.InDelta(t, 600e-6, got[0].Waited, 1e-12)
	assert.InDelta(t, 600e-6, got[1].HeldUp, 1e-12)
	assert.InDelta(t, 500e-6, got[1].Caused, 1e-12, "the collectives would have ended at 400 µs, and the computation at 500")
}

// A time in whole microseconds can make a collective end after the next one of the rank begins.
func TestDelaysAreInheritedAcrossRoundedTimes(t *testing.T) {
	var all []Collective
	for i := range int64(5) {
		at := i * 10_000
		all = append(
			all, inMicroseconds(0, "a", i, at+100, at+1101), inMicroseconds(1, "a", i, at+1000, at+1101),
			inMicroseconds(2, "b", i, at+100, at+201), inMicroseconds(3, "b", i, at+190, at+201),
			inMicroseconds(0, "c", i, at+1100, at+1200), inMicroseconds(2, "c", i, at+200, at+1200))
	}
	got := Arrivals(all, Context{})
	require.Len(t, got, 4)
	assert.InDelta(t, 5*(900+900)*1e-6, got[1].Caused, 1e-7)
	assert.Zero(t, got[0].Caused)
}

// Stages of a pipeline wait by nature, and what they wait is not the fault of a rank that was late
// by chance before.
func TestBubblesAreNotCausedByARank(t *testing.T) {
	stages := func(k Identity) bool { return k.Group == "p" }
	var all []Collective
	for i := range int64(5) {
		at := i * 10_000
		all = append(
			all, inMicroseconds(0, "a", i, at+1000, at+1100), inMicroseconds(1, "a", i, at+1001, at+1100),
			inMicroseconds(2, "b", i, at+100, at+200), inMicroseconds(3, "b", i, at+99, at+200),
			inMicroseconds(0, "p", i, at+1110, at+1200), inMicroseconds(2, "p", i, at+210, at+1200))
	}
	for _, a := range Arrivals(all, Context{Stages: stages}) {
		assert.Less(t, a.Caused, 5*3e-6, "rank %d", a.Rank)
		if a.Rank == 2 {
			assert.InDelta(t, 5*900e-6, a.Waited, 1e-7)
		}
	}
	got := Arrivals(all, Context{})
	assert.InDelta(t, 5*900e-6, got[0].Caused+got[1].Caused, 5*3e-6)
}

func TestTheLongestDelaysAreKept(t *testing.T) {
	var d delays
	for rank := range int64(maxDelays + 5) {
		d = d.plus(delay{rank, float64((rank + 7) % (maxDelays + 5))})
	}
	require.Len(t, d, maxDelays)
	for rank := range int64(maxDelays + 5) {
		want := float64((rank + 7) % (maxDelays + 5))
		if want < 5 {
			want = 0
		}
		assert.Equal(t, want, d.of(rank), "rank %d", rank)
	}
}

func TestAHistoryIsBounded(t *testing.T) {
	var h history
	for i := range int64(3 * maxHistory) {
		h.add(meeting{end: i})
	}
	assert.LessOrEqual(t, len(h), maxHistory)
	got, ok := h.before(3*maxHistory - maxHistory/2)
	assert.True(t, ok)
	assert.Equal(t, int64(3*maxHistory-maxHistory/2), got.end)
}
