// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

func statsOf(t *testing.T, path string) Stats {
	t.Helper()
	st, err := ReadFile(t.Context(), path, Options{Detail: DetailSteps, Paths: true},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	require.Len(t, st.Devices, 1)
	return st
}

func publicCase(t *testing.T, name string) string {
	t.Helper()
	return recorded.Path(t, "cases", "profiles", name+".pt.trace.json")
}

// 30 of 32 graph launches lack their kernels: the device was busy for 93 % of the time.
func TestWorkWithoutARecordIsNotIdle(t *testing.T) {
	st := statsOf(t, publicCase(t, "graph_kernels_unrecorded"))
	d, path := st.Devices[0], st.Paths[0]
	for _, k := range path.Kinds {
		assert.True(t, k.Kind == criticalpath.NotRecorded || path.Share(k.Time) < 0.1, "%s takes %v", k.Kind, k.Time)
	}
	v := d.Findings[0]
	assert.Equal(t, semconv.GPUFindingKindNotRecorded, v.Kind)
	assert.Contains(t, v.Chain[0], "30 of 32 launches")
	assert.Less(t, d.Parts.Idle, d.Window/20)
	assert.InDelta(t, 1, float64(d.Parts.NotRecorded+d.Parts.Idle+d.Parts.Computing)/float64(d.Window), 1e-9)
	for _, v := range d.Findings {
		assert.False(t, v.Gain > 0 && v.Certainty == finding.High, v)
	}
}

// Five of 80 kernels are 27 hours before their launches.
func TestActivitiesBeforeTheirLaunchHaveNoTime(t *testing.T) {
	st := statsOf(t, publicCase(t, "clock_1e14ns"))
	d := st.Devices[0]
	assert.EqualValues(t, 75, d.Kernels)
	assert.EqualValues(t, 5, st.Skipped["activity of a device that starts before its launch"])
	assert.InDelta(t, 15.1, d.Window.Seconds()*1e3, 0.1)
	assert.Greater(t, float64(d.Parts.Computing)/float64(d.Window), 0.99)
}

// kernelsChanged is the trace of six healthy steps, each event changed.
func kernelsChanged(t *testing.T, change func(i int, e map[string]any)) string {
	t.Helper()
	text, err := os.ReadFile(publicCase(t, "healthy"))
	require.NoError(t, err)
	var trace map[string]any
	require.NoError(t, json.Unmarshal(text, &trace))
	i := 0
	for _, x := range trace["traceEvents"].([]any) {
		if e := x.(map[string]any); e["cat"] == "kernel" {
			change(i, e)
			i++
		}
	}
	path := filepath.Join(t.TempDir(), "changed.json")
	text, err = json.Marshal(trace)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

// The profiler gave no time to most kernels.
func TestKernelsWithoutATimeAreNotIdleTime(t *testing.T) {
	d := statsOf(t, kernelsChanged(t, func(i int, e map[string]any) {
		if i%6 != 0 {
			e["ts"], e["dur"] = 0, 0
		}
	})).Devices[0]
	assert.EqualValues(t, 20, d.Kernels)
	assert.Less(t, d.Window, 25*time.Millisecond)
	assert.Equal(t, semconv.GPUFindingKindNotRecorded, d.Findings[0].Kind)
	assert.Less(t, d.Parts.Idle, d.Window/50)
}

// However far a few kernels are displaced, no finding claims more time than the host has.
func TestDisplacedKernelsAreOmitted(t *testing.T) {
	for _, by := range []float64{1e11, 5e10, 2e6} { // µs
		st := statsOf(t, kernelsChanged(t, func(i int, e map[string]any) {
			if i < 5 {
				e["ts"] = e["ts"].(float64) - by
			}
		}))
		assert.EqualValues(t, 115, st.Devices[0].Kernels)
		assert.Less(t, st.Devices[0].Window, 25*time.Millisecond)
	}
}

// Some kernels end long after the next kernels of their queue, in the order of the file or not, as
// ROCm records them.
func TestImpossibleEndsCountUntilTheNextKernel(t *testing.T) {
	st := statsOf(t, kernelsChanged(t, func(i int, e map[string]any) {
		if i%40 == 5 {
			e["dur"] = 9000.0
		}
	}))
	d := st.Devices[0]
	assert.EqualValues(t, 120, d.Kernels)
	assert.InDelta(t, 24.1, d.Window.Seconds()*1e3, 0.1)
	assert.InDelta(t, 24.0, d.Parts.Computing.Seconds()*1e3, 0.1)
	require.Len(t, st.Faults, 3)
	assert.Contains(t, st.Faults[0], "counts until the next kernel of its queue starts: its end is 8.8")
}

// Clocks that differ by more than the sweep allows for displace all kernels alike: no record is
// wrong by itself.
func TestDifferentClocksLoseNoKernel(t *testing.T) {
	st := statsOf(t, kernelsChanged(t, func(_ int, e map[string]any) { e["ts"] = e["ts"].(float64) - 30_000 }))
	assert.EqualValues(t, 120, st.Devices[0].Kernels)
}

// Each kernel starts 3 µs before the one before it ends.
func TestTheCriticalPathFollowsOverlappingKernels(t *testing.T) {
	p := statsOf(t, publicCase(t, "pdl_overlap")).Paths[0]
	assert.Greater(t, p.Share(p.Kinds[0].Time), 0.97)
	assert.Equal(t, "kernel", p.Kinds[0].Kind.String())
}

// Kernels of two streams overlap, and each second one has no launch, as it shares the correlation
// of another: it did not wait in a queue for 40 µs while the other one ran.
func TestTheCriticalPathPassesThroughTheKernelThatHeldTheDevice(t *testing.T) {
	p := statsOf(t, publicCase(t, "shared_correlation_64bit_stream")).Paths[0]
	assert.Equal(t, "kernel", p.Kinds[0].Kind.String())
	assert.Greater(t, p.Share(p.Kinds[0].Time), 0.95)
}

// The profiler states itself that it dropped records: what is concluded from idle time is less
// certain.
func TestTheProfilersOwnCountOfDroppedRecordsLowersCertainty(t *testing.T) {
	path := kernelsChanged(t, func(_ int, e map[string]any) { e["dur"] = 20.0 })
	before := statsOf(t, path).Devices[0]
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	text = bytes.Replace(text, []byte("{"), []byte(`{"WARNING":["Dropped 512 activity records","stack depth"],`), 1)
	require.NoError(t, os.WriteFile(path, text, 0o600))
	st := statsOf(t, path)
	assert.Contains(t, st.Faults, "Kineto: Dropped 512 activity records")
	require.NotEmpty(t, before.Findings)
	v := st.Devices[0].Findings[0]
	require.Equal(t, before.Findings[0].Kind, v.Kind)
	assert.Equal(t, before.Findings[0].Certainty.Lower(), v.Certainty)
	assert.Contains(t, v.Evidence, "the file lacks records: Dropped 512 activity records")
}

func TestONNXRuntimesKernelsAreOfDevice0(t *testing.T) {
	d := statsOf(t, publicCase(t, "onnxruntime")).Devices[0]
	assert.EqualValues(t, 20, d.Kernels)
	assert.Equal(t, 6*time.Millisecond, d.Parts.Computing)
}

func TestNanosecondsOfProtonAreReadAsSuch(t *testing.T) {
	assert.Empty(t, statsOf(t, publicCase(t, "proton_us")).Faults)
	st := statsOf(t, publicCase(t, "proton_ns"))
	require.Len(t, st.Faults, 1)
	assert.Contains(t, st.Faults[0], "were read as nanoseconds")
	assert.Equal(t, 120*time.Microsecond, st.Devices[0].Parts.Computing)
}

func TestControlBytesInTextsOfROCprofiler(t *testing.T) {
	st := statsOf(t, recorded.Path(t, "cases", "profiles", "rocprofv3_control_char_results.json"))
	assert.False(t, st.Partial)
	assert.EqualValues(t, 1, st.Devices[0].Kernels)
	assert.Equal(t, 2*time.Microsecond, st.Devices[0].Parts.Computing)
}

// mergedFile writes two ranks into one file. Each rank has the same correlations and, unless they
// are distinct, the same process and device.
func mergedFile(t *testing.T, distinct bool, pid func(rank int, pid any) any) string {
	t.Helper()
	text, err := os.ReadFile(publicCase(t, "healthy"))
	require.NoError(t, err)
	var trace map[string]any
	require.NoError(t, json.Unmarshal(text, &trace))
	trace["distributedInfo"] = map[string]any{"rank": 0, "world_size": 2}
	var all []any
	for rank, operator := range []string{"aten::mm", "aten::bmm"} {
		var one map[string]any
		require.NoError(t, json.Unmarshal(text, &one))
		for _, x := range one["traceEvents"].([]any) {
			e := x.(map[string]any)
			args, _ := e["args"].(map[string]any)
			if e["name"] == "aten::mm" {
				e["name"] = operator
				args["Input Dims"], args["Input type"] = []any{[]int{64, 64}, []int{64, 64}}, []string{"float", "float"}
			}
			if args["device"] != nil && distinct {
				args["device"] = rank
			}
			if e["pid"] == 4000.0 && distinct {
				e["pid"] = 4000.0 + float64(rank)
			}
			e["pid"], e["ts"] = pid(rank, e["pid"]), e["ts"].(float64)+float64(rank)*130
			all = append(all, e)
		}
	}
	trace["traceEvents"] = all
	text, err = json.Marshal(trace)
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "merged.json")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	return path
}

func TestPrefixesOfProcessIDs(t *testing.T) {
	m := mergedRanks{}
	for _, x := range []struct {
		pid, rest string
		rank      int64
	}{
		{`"[TP00] 4000"`, "4000", 1},
		{`"[TP01] 4000"`, "4000", 2},
		{`"[TP00] 0"`, "0", 1},
		{`"rank3_7"`, "7", 3},
		{"4000", "4000", 0},
		{`"GPU 0 stream 7"`, `"GPU 0 stream 7"`, 0},
		{`"gemm Core0 CTA1"`, `"gemm Core0 CTA1"`, 0},
		{`"python 4000"`, `"python 4000"`, 0},
		{`"4000"`, `"4000"`, 0},
		{`""`, `""`, 0},
		{`"`, `"`, 0},
		{`"[TP00] "`, `"[TP00] "`, 0},
		{`"Spans"`, `"Spans"`, 0},
	} {
		rank, rest := m.cut([]byte(x.pid))
		assert.Equal(t, x.rank, rank, x.pid)
		assert.Equal(t, x.rest, string(rest), x.pid)
	}
	rank, _ := m.cut([]byte(`"` + strings.Repeat("1:", 100) + `7"`))
	assert.Zero(t, rank, "too long")
	assert.Equal(t, map[int64]int64{1: 5, 2: 7}, mergedRanks{"[TP05-DP00] ": 1, "[TP07-DP00] ": 2}.names())
	assert.Equal(t, map[int64]int64{1: 0, 2: 1}, mergedRanks{"[TP00-DP00] ": 1, "[TP00-DP01] ": 2}.names())
	assert.Equal(t, map[int64]int64{1: 1, 2: 0}, mergedRanks{"b0 ": 1, "a0 ": 2}.names())
}

// SGLang's form, and another one.
func TestMergedRanksKeepTheirLaunches(t *testing.T) {
	for _, form := range []string{"[TP%02d] %v", "rank%d: %v", "node0-rank%d-%v"} {
		for _, distinct := range []bool{true, false} {
			path := mergedFile(t, distinct, func(rank int, pid any) any { return fmt.Sprintf(form, rank, pid) })
			pids := map[int64]bool{}
			st, err := ReadFile(t.Context(), path, Options{Detail: DetailSteps, Paths: true},
				func(_ context.Context, td ptrace.Traces) error {
					for _, r := range td.ResourceSpans().All() {
						_, ok := r.Resource().Attributes().Get(string(semconv.GPUJobRankKey))
						assert.False(t, ok, "the file is of two ranks")
						if pid, ok := r.Resource().Attributes().Get(string(semconv.ProcessPidKey)); ok {
							pids[pid.Int()] = true
						}
					}
					return nil
				})
			require.NoError(t, err)
			assert.Empty(t, st.Faults)
			if distinct {
				assert.Equal(t, map[int64]bool{4000: true, 4001: true}, pids)
			} else {
				assert.Empty(t, pids, "two ranks have the same one")
			}
			require.Len(t, st.Devices, 2, form)
			for i, operator := range []string{"aten::mm", "aten::bmm"} {
				assert.EqualValues(t, i, st.Devices[i].Ordinal)
				require.Len(t, st.Devices[i].Operators, 1, operator)
				assert.Equal(t, operator, st.Devices[i].Operators[0].Name)
				assert.EqualValues(t, 120, st.Devices[i].Operators[0].Kernels)
			}
		}
	}
}

func TestOneRankWithAPrefix(t *testing.T) {
	path := mergedFile(t, true, func(_ int, pid any) any { return fmt.Sprintf("[TP00] %v", pid) })
	st, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	require.Len(t, st.Devices, 2)
	assert.EqualValues(t, 0, st.Devices[0].Ordinal)
	assert.EqualValues(t, 1, st.Devices[1].Ordinal)
}

func TestMergedRanksWithHugeProcessIDsAreRead(t *testing.T) {
	path := mergedFile(t, false, func(rank int, pid any) any {
		if rank == 0 {
			return "[TP00] 9223372036854775807"
		}
		return fmt.Sprintf("[TP01] %v", pid)
	})
	_, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
}

// As public programs merge files: a number is added to the process ids of each rank, or all of them
// are the rank. Programs that sort the events leave only the first to tell ranks apart by.
func TestMergedRanksWithNumbers(t *testing.T) {
	added := func(rank int, pid any) any { return pid.(float64) + float64(100_000*(rank+1)) }
	replaced := func(rank int, _ any) any { return 2 - rank } // the first in the file is the second
	unchanged := func(rank int, pid any) any {
		if pid == 0.0 { // a device's
			return rank
		}
		return pid
	}
	for _, c := range []struct {
		name             string
		distinct, sorted bool
		pid              func(int, any) any
		operators        []string // by device; none: only a notice
	}{
		{"added, distinct", true, false, added, []string{"aten::mm", "aten::bmm"}},
		{"added, same", false, false, added, []string{"aten::mm", "aten::bmm"}},
		{"added, sorted", false, true, added, []string{"aten::mm", "aten::bmm"}},
		{"replaced", false, false, replaced, []string{"aten::bmm", "aten::mm"}},
		{"replaced, sorted", false, true, replaced, nil},
		{"unchanged", true, false, unchanged, []string{"aten::mm", "aten::bmm"}},
		{"unchanged, sorted", true, true, unchanged, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := mergedFile(t, c.distinct, c.pid)
			if c.sorted {
				sortEvents(t, path)
			}
			st, err := ReadFile(t.Context(), path, Options{Detail: DetailSteps}, func(context.Context, ptrace.Traces) error { return nil })
			require.NoError(t, err)
			if c.operators == nil {
				require.Len(t, st.Faults, 1)
				assert.Contains(t, st.Faults[0], "merged from several ranks, whose process IDs")
				return
			}
			assert.Empty(t, st.Faults)
			require.Len(t, st.Devices, 2)
			for i, operator := range c.operators {
				require.Len(t, st.Devices[i].Operators, 1)
				assert.Equal(t, operator, st.Devices[i].Operators[0].Name)
				assert.EqualValues(t, 120, st.Devices[i].Operators[0].Kernels)
			}
		})
	}
}

func sortEvents(t *testing.T, path string) {
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var trace map[string]any
	require.NoError(t, json.Unmarshal(text, &trace))
	slices.SortStableFunc(trace["traceEvents"].([]any), func(a, b any) int {
		return cmp.Compare(a.(map[string]any)["ts"].(float64), b.(map[string]any)["ts"].(float64))
	})
	text, err = json.Marshal(trace)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, text, 0o600))
}

// The driver of an MTIA device writes calls in the device's row.
func TestCallsInTheRowOfTheirDeviceAreNoOtherRank(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mtia.json")
	require.NoError(t, os.WriteFile(path, []byte(`{"traceEvents":[
		{"ph":"X","cat":"mtia_runtime","name":"synchronizeStream","pid":865,"tid":5,"ts":1,"dur":2,"args":{"correlation":1,"device":17}},
		{"ph":"X","cat":"mtia_runtime","name":"synchronize","pid":17,"tid":6,"ts":1,"dur":2,"args":{"correlation":1,"device":17}},
		{"ph":"X","cat":"mtia_ccp_events","name":"merge","pid":17,"tid":3,"ts":4,"dur":2,"args":{"correlation":9,"stream":3}}]}`), 0o600))
	assert.Empty(t, statsOf(t, path).Faults)
}

// A name with quotes loses its event only.
func TestReadingResumesAfterABrokenEvent(t *testing.T) {
	st := statsOf(t, publicCase(t, "unescaped_quotes_first"))
	assert.EqualValues(t, 60, st.Devices[0].Kernels)
	assert.Equal(t, 12*time.Millisecond, st.Devices[0].Parts.Computing)
	assert.Equal(t, map[string]int64{"event whose JSON is broken, as by quotes in a name": 1}, st.Skipped)
}

// Two processes wrote into one file at the same time.
func TestInterleavedFilesAreReadInPart(t *testing.T) {
	st, err := ReadFile(t.Context(), publicCase(t, "interleaved_ranks"), Options{Partial: true},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	assert.True(t, st.Partial)
}
