// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// rocRun is one run as tables in CSV and as a Perfetto trace, written by testdata/rocprofv3/pftrace.py with Perfetto's
// own messages. rocText is the same run as JSON.
const rocRun = "testdata/rocprofv3/"

func readFile(t *testing.T, path string, o Options) ([]ptrace.Traces, Stats, error) {
	t.Helper()
	var batches []ptrace.Traces
	st, err := ReadFile(t.Context(), path, o, func(_ context.Context, td ptrace.Traces) error {
		batches = append(batches, td)
		return nil
	})
	return batches, st, err
}

// spanFacts describes the spans of a run, parents by name.
func spanFacts(batches []ptrace.Traces) map[string]map[string]any {
	all, names := map[string]map[string]any{}, map[string]string{}
	for _, s := range spansOf(batches) {
		names[s.SpanID().String()] = s.Name()
	}
	for _, s := range spansOf(batches) {
		about := s.Attributes().AsRaw()
		about["start"], about["end"] = int64(s.StartTimestamp()), int64(s.EndTimestamp())
		about["parent"] = names[s.ParentSpanID().String()]
		all[s.Name()] = about
	}
	return all
}

func TestAllFormatsOfRocprofv3GiveTheSameSpans(t *testing.T) {
	o := Options{Detail: DetailKernels, Attributes: spanfacts.Full}
	fromJSON, _ := convert(t, rocText, o)
	want := spanFacts(fromJSON)
	require.Len(t, want, 7, "the root, the device's window, the range, two calls, the kernel and the copy")
	for name, unstated := range map[string]map[string][]string{
		"77_kernel_trace.csv": {"Memcpy HtoD": {"gpu.io.size"}},
		"77_results.pftrace": {"gemm": {
			"gpu.kernel.grid", "gpu.kernel.block", "gpu.kernel.registers",
			"gpu.kernel.shared_memory.size", "gpu.kernel.occupancy.estimate",
		}, "GPU 1": {"hw.model"}},
	} {
		t.Run(name, func(t *testing.T) {
			batches, st, err := readFile(t, rocRun+name, o)
			require.NoError(t, err)
			assert.Empty(t, st.Skipped)
			got := spanFacts(batches)
			assert.Len(t, got, len(want))
			for span, facts := range want {
				facts = maps.Clone(facts)
				for _, key := range unstated[span] {
					require.Contains(t, facts, key)
					delete(facts, key)
				}
				assert.Equal(t, facts, got[span], span)
			}
			resource := batches[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
			assert.Equal(t, int64(77), resource["process.pid"])
		})
	}
}

// A table of kernels alone is a profile, too; devices then have the numbers of the agents.
func TestATableOfKernelsAlone(t *testing.T) {
	text, err := os.ReadFile(rocRun + "77_kernel_trace.csv")
	require.NoError(t, err)
	batches, st := convert(t, string(text), Options{Detail: DetailKernels})
	assert.EqualValues(t, 1, st.Kernels)
	assert.Equal(t, int64(3), find(t, batches, "gemm").Attributes().AsRaw()["gpu.device.ordinal"])
	assert.Contains(t, strings.Join(st.Faults, "\n"), "the list of agents is missing")
	packed := filepath.Join(t.TempDir(), "x.csv.gz")
	require.NoError(t, os.WriteFile(packed, []byte(gz(t, string(text))), 0o600))
	_, st, err = readFile(t, packed, Options{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, st.Kernels)
}

func TestTablesThatAreOdd(t *testing.T) {
	text, err := os.ReadFile(rocRun + "77_kernel_trace.csv")
	require.NoError(t, err)
	header, row, _ := strings.Cut(strings.TrimSuffix(string(text), "\n"), "\n")
	quoted := strings.Replace(row, `"gemm(float*)"`, `"f<""a,b"", c>"`, 1)
	for name, c := range map[string]struct {
		rows    string
		kernels int64
		skipped map[string]int64
	}{
		"carriage returns":     {row + "\r\n", 1, nil},
		"no last newline":      {row, 1, nil},
		"quotes and commas":    {quoted + "\n", 1, nil},
		"too few columns":      {"1,2\n" + row + "\n", 1, map[string]int64{"row with too few columns": 1}},
		"no number":            {strings.Replace(row, ",2500,", ",x,", 1) + "\n", 0, map[string]int64{"start or end missing or no number": 1}},
		"ends before it began": {strings.Replace(row, ",4500,", ",2400,", 1) + "\n", 0, map[string]int64{"start or end missing or no number": 1}},
		"of a CPU":             {strings.Replace(row, "Agent 3", "CPU 0", 1) + "\n", 0, map[string]int64{"activity of an agent that is not a listed GPU": 1}},
		"of no agent":          {strings.Replace(row, "Agent 3", "", 1) + "\n", 0, map[string]int64{"activity of an agent that is not a listed GPU": 1}},
		"a huge row":           {strings.Repeat("x", 3<<20) + "\n" + row + "\n", 1, map[string]int64{"row of more than 1 MiB": 1}},
		"a huge last row":      {row + "\n" + strings.Repeat("x", 3<<20), 1, map[string]int64{"row of more than 1 MiB": 1}},
	} {
		t.Run(name, func(t *testing.T) {
			batches, st := convert(t, header+"\n"+c.rows, Options{Detail: DetailKernels})
			assert.Equal(t, c.kernels, st.Kernels)
			if c.skipped == nil {
				c.skipped = map[string]int64{}
			}
			assert.Equal(t, c.skipped, st.Skipped)
			if name == "quotes and commas" {
				for _, s := range spansOf(batches) {
					if full, ok := s.Attributes().Get("gpu.kernel.name"); ok {
						assert.Equal(t, `f<"a,b", c>`, full.Str())
					}
				}
			}
		})
	}
	_, err = Read(t.Context(), strings.NewReader(header+"\n"+row+"\n"+row[:40]), Options{}, nil)
	require.ErrorIs(t, err, ErrTruncated)
	_, st := convert(t, header+"\n"+row+"\n"+row[:40], Options{Partial: true})
	assert.EqualValues(t, 1, st.Kernels, "the beginning of a truncated table")
}

// A broken table beside the kernels costs itself only, and is named.
func TestABrokenTableBesideTheKernels(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile(rocRun + "77_kernel_trace.csv")
	require.NoError(t, err)
	path := filepath.Join(dir, "77_kernel_trace.csv")
	require.NoError(t, os.WriteFile(path, text, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "77_hip_api_trace.csv"), []byte("Name\nx\n"), 0o600))
	_, st, err := readFile(t, path, Options{})
	require.NoError(t, err)
	assert.EqualValues(t, 1, st.Kernels)
	assert.Contains(t, strings.Join(st.Faults, "\n"), "77_hip_api_trace.csv: rocprofv3 writes other columns")
}

func TestPerfettoTracesThatAreBroken(t *testing.T) {
	text, err := os.ReadFile(rocRun + "77_results.pftrace")
	require.NoError(t, err)
	at := func(content []byte) string {
		path := filepath.Join(t.TempDir(), "a.pftrace")
		require.NoError(t, os.WriteFile(path, content, 0o600))
		return path
	}
	for i := 1; i < len(text); i += 13 {
		_, st, err := readFile(t, at(text[:i]), Options{})
		if err == nil { // it ends after a packet
			assert.Positive(t, st.JSONEvents)
			continue
		}
		assert.True(t, strings.Contains(err.Error(), "truncated") || strings.Contains(err.Error(), "Perfetto trace of another"), err)
	}
	_, _, err = readFile(t, at([]byte("\x0a\x02\x08\x01")), Options{})
	require.ErrorIs(t, err, ErrNotTrace)
	assert.ErrorContains(t, err, "a Perfetto trace of another program")
	_, _, err = readFile(t, at(append(bytes.Clone(text), 0xff, 0xff)), Options{})
	require.ErrorIs(t, err, ErrTruncated)
	_, _, err = readFile(t, at(append(bytes.Clone(text), 0x12, 0x00)), Options{})
	require.ErrorIs(t, err, ErrSyntax)
	_, _, err = readFile(t, at(append(bytes.Clone(text), 0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f)), Options{})
	require.ErrorIs(t, err, ErrSyntax)
	_, st, err := readFile(t, at(append(bytes.Clone(text), 0x0a, 0x01, 0xff)), Options{})
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"broken packet": 1}, st.Skipped)
}

func FuzzRocprofv3Formats(f *testing.F) {
	for _, name := range []string{"77_results.pftrace", "77_kernel_trace.csv"} {
		text, err := os.ReadFile(rocRun + name)
		require.NoError(f, err)
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, name := range []string{"a.pftrace", "a_kernel_trace.csv"} {
			path := filepath.Join(t.TempDir(), name)
			require.NoError(t, os.WriteFile(path, text, 0o600))
			_, _, _ = readFile(t, path, Options{})
		}
	})
}
