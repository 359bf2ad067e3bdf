// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package flightrecorder

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// readFolder reads the dumps of a folder whose names begin with a prefix.
func readFolder(t *testing.T, folder, prefix string) (dumps []*Dump) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, prefix+"*"))
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		d, err := Read(file, data)
		require.NoError(t, err, file)
		assert.Zero(t, d.Ignored, file)
		dumps = append(dumps, d)
	}
	return dumps
}

// truth is what the jobs were made to do, in the files beside the dumps.
type truth struct {
	Culprit *int
	Hung    bool
	Group   string
	Seq     int64
	Kind    string
	Without []int
}

func readTruth(t *testing.T, folder string) truth {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "truth.json"))
	require.NoError(t, err)
	var gloo struct {
		Scenario string `json:"scenario"`
		Culprit  *int   `json:"culprit"`
		Without  []int  `json:"ranks_without_dump"`
		Group    string `json:"hung_group"`
		Seq      int64  `json:"hung_seq"`
		Expect   *struct {
			Hung  bool   `json:"hung"`
			Group string `json:"root_group"`
			Seq   int64  `json:"root_seq"`
		} `json:"expect"`
	}
	require.NoError(t, json.Unmarshal(text, &gloo))
	kind, _, _ := strings.Cut(gloo.Scenario, "-")
	if e := gloo.Expect; e != nil {
		return truth{gloo.Culprit, e.Hung, e.Group, e.Seq, kind, gloo.Without}
	}
	return truth{gloo.Culprit, gloo.Group != "", gloo.Group, gloo.Seq, kind, nil}
}

// causeOf maps the planted faults to causes. From a dump, a rank that is busy elsewhere looks like
// one that left.
var causeOf = map[string]Cause{
	"dead": Dead, "missing": Missing, "mismatch": Mismatched, "order": Mismatched, "p2p": Missing,
}

func TestPlantedHangsOfRealAndCraftedJobs(t *testing.T) {
	folders, err := filepath.Glob(recorded.Path(t, "flight-recorder-*", "*"))
	require.NoError(t, err)
	require.Len(t, folders, 23)
	for _, folder := range folders {
		prefixes := []string{"fr_rank_", "json_rank_"}
		nccl := strings.Contains(folder, "nccl")
		if nccl {
			prefixes = []string{"nccl_trace_rank_"}
		}
		for _, prefix := range prefixes {
			t.Run(filepath.Base(filepath.Dir(folder))+"/"+filepath.Base(folder)+"/"+prefix, func(t *testing.T) {
				want := readTruth(t, folder)
				got := Analyze(readFolder(t, folder, prefix))
				assert.Empty(t, got.NotJudged)
				if !nccl {
					assert.Equal(t, append([]int{}, want.Without...), append([]int{}, got.Without...))
				}
				if !want.Hung {
					assert.Empty(t, got.Hangs)
					return
				}
				require.Len(t, got.Hangs, 1)
				h := got.Hangs[0]
				cause, ok := causeOf[want.Kind]
				if !ok {
					require.Equal(t, "stalled", want.Kind)
					if cause = Missing; nccl {
						cause = Stalled // NCCL reports that the device has not begun
					}
				}
				assert.Equal(t, cause, h.Cause)
				if want.Kind == "p2p" { // Gloo does not record point-to-point operations
					assert.Contains(t, h.Ranks, *want.Culprit)
					assert.False(t, h.Certain)
					return
				}
				assert.Equal(t, []int{*want.Culprit}, h.Ranks)
				assert.Equal(t, want.Group, h.Group.String())
				assert.Equal(t, want.Seq, h.Sequence)
				// With one of two ranks left, Gloo shows an operation that failed like one that
				// ended.
				assert.Equal(t, filepath.Base(folder) != "dead-w2", h.Certain)
				assert.NotContains(t, h.Waiting, *want.Culprit)
			})
		}
	}
}

// pair returns dumps of two ranks: rank 0 waits in the n-th collective, which rank 1 has not
// entered.
func pair(n int) []*Dump {
	at := time.Unix(1_790_000_000, 0).UTC()
	var dumps []*Dump
	for rank := range 2 {
		d := &Dump{Rank: rank, Version: "2.10"}
		for i := range n - rank {
			d.Entries = append(d.Entries, Entry{
				Group: GroupName{"0", "default_pg"}, Sequence: int64(i + 1), Backend: "nccl", Operation: "all_reduce", Peer: -1,
				State: Completed, Retired: true, Created: at.Add(time.Duration(i) * time.Second),
			})
		}
		dumps = append(dumps, d)
	}
	last := &dumps[0].Entries[n-1]
	last.State, last.Retired = Started, false
	return dumps
}

func TestARankOfARunningJobDoesNotHang(t *testing.T) {
	for waited, hangs := range map[time.Duration]int{time.Second: 0, time.Second + 1: 1} { // a second passes between operations
		dumps := pair(5)
		for _, d := range dumps {
			d.Written = dumps[0].Entries[4].Created.Add(waited)
		}
		got := Analyze(dumps)
		assert.Len(t, got.Hangs, hangs, waited)
		assert.Equal(t, hangs == 0, got.NotJudged != "", waited)
	}
	dumps := pair(5)
	dumps[0].Written = dumps[0].Entries[4].Created // the other's time is not known
	assert.Len(t, Analyze(dumps).Hangs, 1)
}

func TestADumpOfAnEarlierRunIsNone(t *testing.T) {
	for age, stale := range map[time.Duration][]int{restart: nil, restart + 1: {1}} {
		dumps := pair(5)
		newest := dumps[1].newest()
		for i := range dumps[1].Entries {
			e := &dumps[1].Entries[i]
			e.Created = e.Created.Add(dumps[0].oldest().Sub(newest) - age)
		}
		got := Analyze(dumps)
		assert.Equal(t, stale, got.Stale, age)
		require.Len(t, got.Hangs, 1)
		want := Missing
		if stale != nil {
			want = Dead
		}
		assert.Equal(t, want, got.Hangs[0].Cause, age)
		assert.Equal(t, []int{1}, got.Hangs[0].Ranks)
	}
}

func TestTheNewestDumpOfARankCounts(t *testing.T) {
	old := &Dump{Rank: 1, Version: "2.10"}
	dumps := pair(5)
	got := Analyze([]*Dump{dumps[1], old, dumps[0], old})
	assert.Equal(t, Analyze(dumps), got)
}

func TestRanksThatEnterGroupsInDifferentOrders(t *testing.T) {
	open := func(rank int, group string) *Dump {
		return &Dump{Rank: rank, Version: "2.10", Groups: map[GroupName][]int{{"1", "A"}: {0, 1}, {"2", "B"}: {0, 1}}, Entries: []Entry{{
			Group: GroupName{map[string]string{"A": "1", "B": "2"}[group], group}, Sequence: 1, Backend: "nccl", Operation: "all_reduce",
			State: Started, Peer: -1, Created: time.Unix(1_790_000_000, 0).UTC(),
		}}}
	}
	got := Analyze([]*Dump{open(0, "A"), open(1, "B")})
	require.Len(t, got.Hangs, 1)
	assert.Equal(t, Mismatched, got.Hangs[0].Cause)
	assert.Empty(t, got.Hangs[0].Ranks)
	assert.Equal(t, []int{0, 1}, got.Hangs[0].Waiting)
}

func TestAPairWithoutMajorityIsDecidedByWhatTheGroupCalledBefore(t *testing.T) {
	for _, before := range []int{0, 4} {
		dumps := pair(before + 1)
		odd := dumps[0].Entries[before]
		odd.InputSizes = [][]int64{{7}}
		dumps[1].Entries = append(dumps[1].Entries, dumps[0].Entries[before])
		dumps[0].Entries[before] = odd
		got := Analyze(dumps)
		require.Len(t, got.Hangs, 1)
		assert.Equal(t, Mismatched, got.Hangs[0].Cause)
		if before == 0 {
			assert.Equal(t, []int{0, 1}, got.Hangs[0].Ranks)
			assert.False(t, got.Hangs[0].Certain)
		} else {
			assert.Equal(t, []int{0}, got.Hangs[0].Ranks)
			assert.Equal(t, "size [[7]] instead of []", got.Hangs[0].Detail)
		}
	}
}

// glooJob returns dumps of 4 ranks with groups of two, in which each rank made calls, as "A6" for
// the sixth call of the group A. Calls are a second apart and older ones are finished; of the calls
// with *, the rank waits for the end. The dumps were written 10 s after the rank's last second.
func glooJob(calls ...string) (dumps []*Dump) {
	at := time.Unix(1_790_000_000, 0).UTC()
	for rank, text := range calls {
		d := &Dump{Rank: rank, Version: "2.10", Groups: map[GroupName][]int{}, Written: at.Add(10 * time.Second)}
		for name, members := range map[string][]int{"A": {0, 1}, "B": {2, 3}, "C": {0, 2}, "D": {1, 3}} {
			if slices.Contains(members, rank) {
				d.Groups[GroupName{name, name}] = members
			}
		}
		for i, call := range strings.Fields(text) {
			d.Entries = append(d.Entries, Entry{
				Group: GroupName{call[:1], call[:1]}, Sequence: int64(call[1] - '0'), Backend: "gloo", Operation: "all_reduce", Peer: -1,
				State: Scheduled, Retired: !strings.HasSuffix(call, "*"), Created: at.Add(time.Duration(i) * time.Second),
			})
		}
		dumps = append(dumps, d)
	}
	return dumps
}

// Gloo records a call that failed like one that ended, and no send and recv.
func TestHangsOfGlooThatShowOnlyInWhatOtherRanksDid(t *testing.T) {
	for name, test := range map[string]struct {
		calls   []string
		ended   time.Duration // when the dump of rank 2 was written, from its first call
		ranks   [][]int
		waiting []int
		certain bool
	}{
		"rank 2 raised an exception and left a dump, so that a call of rank 3 failed, for whom rank 1 waits": {
			calls: []string{"A1 C1 A2 C2", "A1 D1 A2 D2*", "B1 C1", "B1 D1 B2"}, ended: time.Second, ranks: [][]int{{2}},
			waiting: []int{3},
		},
		"all ranks wrote their dump after the timeout": {
			calls: []string{"A1 C1 A2 C2", "A1 D1 A2 D2", "B1 C1", "B1 D1 B2"}, ended: 10 * time.Second, ranks: [][]int{{2}},
			waiting: []int{3},
		},
		"rank 2 wrote its dump before the others went on": {
			calls: []string{"A1 C1 A2 C2", "A1 D1 A2 D2", "B1 C1", "B1 D1 B2 D2"}, ended: time.Second,
		},
		"ranks 2 and 3 may wait for each other in a transfer": {
			calls: []string{"A1 C1 A2 C2*", "A1 D1 A2 D2*", "B1 C1", "B1 D1"}, ended: 10 * time.Second, ranks: [][]int{{2}, {3}},
			waiting: []int{0},
		},
		"rank 2 is missing": {
			calls: []string{"A1 C1 A2 C2*", "A1 D1 A2 D2*", "B1 C1", "B1 D1 B2*"}, ended: 10 * time.Second, ranks: [][]int{{2}},
			waiting: []int{3}, certain: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dumps := glooJob(test.calls...)
			dumps[2].Written = dumps[2].oldest().Add(test.ended)
			var ranks [][]int
			for i, h := range Analyze(dumps).Hangs {
				ranks = append(ranks, h.Ranks)
				assert.Equal(t, Missing, h.Cause)
				assert.Equal(t, test.certain, h.Certain, "of ranks %v", h.Ranks)
				if i == 0 {
					assert.Equal(t, test.waiting, h.Waiting)
				}
			}
			assert.Equal(t, test.ranks, ranks)
		})
	}
}
