// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ranks work for different times and synchronize at the end of each step, on clocks that differ by
// seconds. A restart repeats steps with other times.
func TestWaitForOtherRanks(t *testing.T) {
	for seed := range uint64(8) {
		rng := rand.New(rand.NewPCG(seed, 3))
		ranks, update := 2+rng.IntN(7), 0.05
		var spans []Span
		var truth [Buckets]float64
		clock := make([]float64, ranks)
		for r := range clock {
			clock[r] = 3 * rng.Float64()
		}
		now := 1_790_000_000.0
		for attempt, steps := range [][2]int{{0, 40}, {30, 90}} {
			for i := steps[0]; i < steps[1]; i++ {
				own, slowest := make([]float64, ranks), 0.0
				for r := range own {
					own[r] = 1 + 0.3*rng.Float64()
					if r == 1 {
						own[r] += 0.5
					}
					slowest = max(slowest, own[r])
				}
				for r := range own {
					d, first := slowest+update, i == steps[0]
					spans = append(spans, Span{
						Rank: int64(r), Attempt: fmt.Sprint(attempt), Start: ns(now + clock[r]), End: ns(now + clock[r] + d), Step: true,
						Index: int64(i), Sync: ns(d - own[r]),
					})
					if lost := attempt == 0 && i >= 30; lost {
						truth[Lost] += d
					} else if !first {
						truth[RankWait] += slowest - own[r]
					}
				}
				now += slowest + update
			}
			now += 60
		}
		rng.Shuffle(len(spans), func(a, b int) { spans[a], spans[b] = spans[b], spans[a] })
		var j Job
		for range 2 {
			for _, s := range spans {
				require.True(t, j.Add(s))
			}
		}
		got, _ := j.Account()
		total := float64(ranks) * float64(j.End-j.Start) / 1e9
		assert.InDelta(t, truth[RankWait], got[RankWait], 1e-6*total)
		assert.InDelta(t, truth[Lost], got[Lost], 1e-6*total)
		assert.InDelta(t, total, sum(got), 1e-6*total)
	}
}

// A rank hangs for ten minutes with a busy device, is killed, and starts again after two minutes.
func TestABusyDeviceWithoutSpansHangs(t *testing.T) {
	var j Job
	at := 1_790_000_000.0
	train := func(attempt string, first, n int) {
		for i := range n {
			j.Add(Span{Attempt: attempt, Start: ns(at), End: ns(at + 1), Step: true, Index: int64(first + i)})
			at++
			j.Spin(0, ns(at+0.5)) // the next step runs
		}
	}
	train("a", 0, 20)
	check := func(hang, idle float64) {
		t.Helper()
		got, _ := j.Account()
		assert.InDelta(t, hang, got[Hang], 1e-3)
		assert.InDelta(t, idle, got[Idle], 1e-3)
		assert.InDelta(t, float64(j.End-j.Start)/1e9, sum(got), 1e-6)
	}
	hung := at
	j.Spin(0, ns(at+59))
	check(0, 0)
	j.Alive(0, ns(at+30))
	j.Spin(0, ns(at+80))
	check(0, 0)
	j.Spin(0, ns(at+600))
	check(600, 0)
	assert.Equal(t, ns(at+600), j.Busy(0))
	at += 720
	train("b", 15, 100)
	check(600, 120)
	for range 2 * maxSpins {
		j.Spin(0, j.End+ns(1))
		at++
		j.Add(Span{Attempt: "b", Start: ns(at), End: ns(at + 1), Step: true, Index: int64(at - hung)})
	}
	got, _ := j.Account()
	assert.InDelta(t, 600, got[Hang], 1e-3, "a hang is kept")
	j.Spin(7, j.End+1)
	j.Alive(7, j.End+1)
	assert.Zero(t, j.Busy(7), "a rank without spans")
}

// A step may arrive after two others of its index that it is between.
func TestWaitsDoNotDependOnTheOrderOfRanks(t *testing.T) {
	var want [Buckets]float64
	for i, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		var j Job
		for _, r := range order {
			at := 100 + 6*float64(r)
			j.Add(Span{Rank: int64(r), Attempt: "a", Start: ns(90), End: ns(91), Step: true}) // compiles
			j.Add(Span{Rank: int64(r), Attempt: "a", Start: ns(at), End: ns(at + 3), Step: true, Index: 1, Sync: ns(0.5 + float64(r))})
		}
		got, _ := j.Account()
		if i == 0 {
			want = got
		}
		assert.InDelta(t, 3, got[RankWait], 1e-6, "rank 0 works for 2.5 s, the others for 1 and 2 s less")
		assert.InDeltaSlice(t, want[:], got[:], 1e-6, order)
	}
}

func BenchmarkAccountOf1024Ranks(b *testing.B) {
	var j Job
	for i := range maxSteps {
		for r := range 1024 {
			at := 1_790_000_000 + float64(i)
			j.Add(Span{Rank: int64(r), Attempt: "a", Start: ns(at), End: ns(at + 0.9), Step: true, Index: int64(i), Sync: ns(0.1)})
		}
	}
	for b.Loop() {
		j.Account()
	}
}
