// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ncclinspector

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

func dataFolder(t testing.TB, name string) string {
	return recorded.Path(t, filepath.Join("nccl-inspector", name))
}

// truth is what was planted in a folder.
type truth struct {
	LateRank *int64  `json:"late_rank"`
	LateUs   float64 `json:"late_us"`
	Slow     *string `json:"slow_communicator"`
}

func TestPlantedRanksAndCommunicatorsAreNamed(t *testing.T) {
	for _, name := range []string{"healthy-2.30", "late-2.30", "late-verbose-2.30", "late-16ranks-2.28", "slowlink-2.28"} {
		t.Run(name, func(t *testing.T) {
			folder := dataFolder(t, name)
			text, err := os.ReadFile(filepath.Join(folder, "truth.json"))
			require.NoError(t, err)
			var want truth
			require.NoError(t, json.Unmarshal(text, &want))
			devices, err := DevicesIn(folder)
			require.NoError(t, err)
			job, problems, err := ReadFiles(t.Context(), FilesIn(folder))
			require.NoError(t, err)
			require.Empty(t, problems)
			assert.Zero(t, job.Incomplete+job.Late+job.Repeated+job.Overflow)
			found := job.Findings(devices)
			switch {
			case want.LateRank != nil:
				require.Len(t, found, 1)
				rank := json.Number(strings.TrimPrefix(found[0].Subject, "rank "))
				n, err := rank.Int64()
				require.NoError(t, err)
				assert.Equal(t, *want.LateRank, n)
				assert.InDelta(t, 20*want.LateUs, float64(found[0].Gain.Microseconds()), 20*50, "half of 40 iterations")
			case want.Slow != nil:
				require.Len(t, found, 1)
				assert.Contains(t, found[0].Subject, *want.Slow)
			default:
				assert.Empty(t, found)
			}
		})
	}
}

// put adds collectives with the lateness in µs of each rank.
func put(t *testing.T, j *Job, id string, ranks []int, operation string, late func(i, rank int) uint64) {
	for i := range 200 {
		for k, rank := range ranks {
			r := Record{&Source{
				Comm: CommID{id, len(ranks)}, Rank: k, Process: Process{"n", int64(rank)}, Operation: operation, Peer: -1, Device: true,
			}, uint64(i), 1 << 20, 5000 - late(i, rank), 0}
			j.Add(&r)
		}
	}
	require.Empty(t, j.Overflow)
}

// jitter is a delay that no rank has more often than another.
func jitter(i, rank int) uint64 { return uint64((i*7919 + rank*104729 + i*rank*31) % 97) }

// Ranks that wait for a late rank of their tensor group arrive late at the collectives of other
// groups. Only the late rank is the cause.
func TestOnlyTheFirstCauseIsNamed(t *testing.T) {
	job := NewJob(true)
	tensor := func(late uint64) func(i, rank int) uint64 {
		return func(i, rank int) uint64 {
			if rank == 6 {
				return late + jitter(i, rank)
			}
			return jitter(i, rank)
		}
	}
	after := func(i, rank int) uint64 { // ranks 4 to 7 come late together
		if rank >= 4 {
			return 900 + jitter(i, rank)
		}
		return jitter(i, rank)
	}
	put(t, job, "0x1", []int{0, 1, 2, 3}, "all_reduce", tensor(0))
	put(t, job, "0x2", []int{4, 5, 6, 7}, "all_reduce", tensor(1000))
	for i := range 4 {
		put(t, job, fmt.Sprintf("0x1%d", i), []int{i, 4 + i}, "reduce_scatter", after)
	}
	put(t, job, "0x3", []int{0, 1, 2, 3, 4, 5, 6, 7}, "all_gather", after)
	found := job.Findings(Devices{{"0x2", 2}: {"10.0.0.1", 6, 3}})
	require.Len(t, found, 1)
	assert.Equal(t, "rank 6", found[0].Subject)
	assert.Contains(t, found[0].Evidence, "GPU 3 of 10.0.0.1")
}

func TestRanksAreNotJudgedWithoutEvidence(t *testing.T) {
	late := func(_, rank int) uint64 { return uint64(1000 * (rank / 3)) }
	for name, change := range map[string]func(*Job, *Record) bool{
		"timed by the host":                 func(_ *Job, r *Record) bool { r.Device = false; return true },
		"asymmetric":                        func(_ *Job, r *Record) bool { r.Operation = "broadcast"; return true },
		"too few ranks recorded":            func(_ *Job, r *Record) bool { return r.Rank > 0 },
		"in the noise":                      func(_ *Job, r *Record) bool { r.Micros = 100 + r.Micros%2*uint64(r.Rank); return true },
		"all ranks of a rank's lines twice": nil,
	} {
		t.Run(name, func(t *testing.T) {
			job := NewJob(true)
			for i := range 100 {
				for rank := range 4 {
					r := Record{&Source{
						Comm: CommID{"0x1", 4}, Rank: rank, Process: Process{"n", int64(rank)}, Operation: "all_reduce", Peer: -1, Device: true,
					}, uint64(i), 1, 5000 - late(i, rank), 0}
					if change == nil {
						job.Add(&r)
						job.Add(&r)
					} else if change(job, &r) {
						job.Add(&r)
					}
				}
			}
			job.Flush()
			found := job.Findings(nil)
			if change == nil {
				require.Len(t, found, 1)
				assert.EqualValues(t, 400, job.Repeated+job.Late)
				return
			}
			assert.Empty(t, found)
		})
	}
}

// Memory does not depend on the number of collectives, ranks that stop, or communicators.
func TestMemoryIsBounded(t *testing.T) {
	job := NewJob(true)
	r := Record{Source: &Source{Comm: CommID{"0x1", 64}, Process: Process{"n", 1}, Operation: "all_reduce", Peer: -1, Device: true}}
	for i := range 100_000 {
		r.Sequence = uint64(i)
		job.Add(&r)
	}
	assert.EqualValues(t, 100_000-maxWindow, job.Incomplete)
	for i := range 1000 {
		n := Record{Source: &Source{Comm: CommID{fmt.Sprint(i), 1024}, Process: Process{"n", 1}, Operation: "all_reduce", Peer: -1, Device: true}}
		job.Add(&n)
	}
	assert.LessOrEqual(t, job.members, maxMembers)
	assert.LessOrEqual(t, job.pending, maxPending)
	assert.Positive(t, job.Overflow)
}

// A live job names the late rank after some intervals, once, and forgets communicators.
func TestLiveJobsNameTheLateRankOnce(t *testing.T) {
	job := NewJob(false)
	now := time.Unix(1_790_000_000, 0)
	var found []Found
	var sums Sums
	var lateness, waited [4]float64
	for step := range 60 {
		for i := range 20 {
			for rank := range 4 {
				micros := uint64(2000) - jitter(20*step+i, rank)/10
				if rank != 2 && step >= 20 {
					micros += 500
				}
				job.Add(&Record{&Source{
					Comm: CommID{"0x1", 4}, Rank: rank, Process: Process{"n", int64(rank)}, Operation: "all_reduce", Peer: -1, Device: true,
				}, uint64(20*step + i), 1000, micros, 0})
			}
		}
		now = now.Add(10 * time.Second)
		r := job.Report(now, nil)
		if step == 19 {
			require.Empty(t, found)
		}
		found = append(found, r.Findings...)
		require.Len(t, r.Sums, 4)
		require.Len(t, r.Waits, 4)
		for _, w := range r.Waits {
			if step >= 20 {
				lateness[w.Rank] += w.Late
				waited[w.Rank] += w.Waited
			}
		}
		sums = r.Sums[0]
	}
	require.Len(t, found, 1)
	assert.Equal(t, "rank 2", found[0].Subject)
	assert.EqualValues(t, 2, found[0].JobRank)
	assert.InDelta(t, 40*20*500e-6, lateness[2], 0.01)
	assert.InDelta(t, 40*20*500e-6, waited[1], 0.01)
	assert.InDelta(t, 0, lateness[1], 0.01)
	assert.EqualValues(t, 20, sums.Count)
	assert.InDelta(t, 20*1000, sums.Bytes, 0)
	assert.InDelta(t, 20*1000*1.5, sums.BusBytes, 0, "twice three quarters")

	r := job.Report(now.Add(2*forget), nil)
	assert.Empty(t, r.Sums)
	assert.Zero(t, job.members+job.pending+len(job.streams)+len(job.comms)+len(job.order))
}
