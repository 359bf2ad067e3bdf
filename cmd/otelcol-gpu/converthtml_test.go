// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

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

	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// reportState is the data of a report that was written.
func reportState(t *testing.T, path string) (s page.State, size int) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(b), `id="state">`)
	require.True(t, ok)
	data, _, _ := strings.Cut(rest, "</script>")
	require.NoError(t, json.Unmarshal([]byte(data), &s))
	return s, len(b)
}

// The numbers of the page equal the reference computed from the same file.
func TestTheReportOfATraceHasItsNumbers(t *testing.T) {
	path := recorded.Path(t, "kineto", "hta/nccl_parser_config/nccl_data.json.gz")
	text, err := os.ReadFile(path + ".ref.json")
	require.NoError(t, err)
	var ref struct {
		Devices map[string]struct {
			Idle time.Duration `json:"idle_ns"`
			Comm struct {
				Union   time.Duration `json:"compute_union_ns"`
				Exposed time.Duration `json:"exposed_ns"`
			} `json:"comm"`
			Activities map[string]int64 `json:"activities"`
			TopKernels []struct {
				Name  string        `json:"name"`
				Count int64         `json:"count"`
				Sum   time.Duration `json:"sum_ns"`
			} `json:"top_kernels"`
		} `json:"devices"`
	}
	require.NoError(t, json.Unmarshal(text, &ref))
	out := t.TempDir()
	stdout, err := convertOutput(t, "--html", "--out", out, path)
	require.NoError(t, err, stdout)
	assert.Contains(t, stdout, filepath.Join(out, "report.html")+
		"\n    the report: open it in a browser; it needs nothing else\n")
	s, size := reportState(t, filepath.Join(out, "report.html"))
	assert.Less(t, size, 400_000)
	require.Len(t, s.Profiles, 1)
	p := s.Profiles[0]
	assert.Equal(t, "nccl_data.json.gz", p.Name)
	require.Len(t, p.Devices, 1)
	d, want := p.Devices[0], ref.Devices["0"]
	assert.Equal(t, want.Idle, d.Parts.Idle)
	assert.Equal(t, want.Comm.Union, d.Parts.Computing)
	assert.Equal(t, want.Comm.Exposed, d.Parts.CommExposed)
	assert.Equal(t, want.TopKernels[0].Sum, d.ByKernel[0].Time)
	assert.Equal(t, want.TopKernels[0].Count, d.ByKernel[0].Count)
	var sum time.Duration
	for _, c := range d.Idle {
		sum += c.Time
	}
	assert.Equal(t, d.Parts.Idle, sum)
	require.Len(t, d.ByStep, 3)
	for _, st := range d.ByStep[1:] { // the first step began before the first activity
		got := st.Parts.Computing + st.Parts.CommExposed + st.Parts.CopyExposed + st.Parts.Idle
		assert.InDelta(t, st.Time.Seconds(), got.Seconds(), 0.02*st.Time.Seconds(), st.Name)
	}
	require.NotNil(t, p.Timeline)
	var count, calls int64
	for _, r := range p.Timeline.Rows {
		if r.Host {
			calls += r.Count
		} else {
			count += r.Count
		}
	}
	assert.EqualValues(t, 3802, calls, "launches, copies, memsets and synchronizations among the file's calls, by Python")
	assert.Equal(t, want.Activities["kernel"]+want.Activities["memcpy"]+want.Activities["memset"], count)

	// Without --html, a report of an earlier run is removed with its other results; the user's own
	// files stay.
	_, err = convertOutput(t, "--out", out, path)
	require.NoError(t, err)
	assert.NoFileExists(t, filepath.Join(out, "report.html"))
	writeFile(t, out, "report.html", "<p>my own</p>")
	_, err = convertOutput(t, "--out", out, path)
	require.NoError(t, err)
	assert.FileExists(t, filepath.Join(out, "report.html"))
}

func TestTheReportOf100000EventsIsSmall(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const events = 100_000
	var b strings.Builder
	b.WriteString(`{"traceEvents":[`)
	for i := range events {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b,
			`{"ph":"X","cat":"kernel","name":"void kernel_%d<%s>(float*)","ts":%d,"dur":%d,"pid":0,"tid":7,"args":{"device":%d,"stream":%d}}`,
			i%5000, strings.Repeat("long_template_argument, ", 10), 3*i, 1+i%40, i%8, i%32)
	}
	b.WriteString(`]}`)
	out := t.TempDir()
	stdout, err := convertOutput(t, "--html", "--out", out, writeFile(t, t.TempDir(), "big.json", b.String()))
	require.NoError(t, err, stdout)
	s, size := reportState(t, filepath.Join(out, "report.html"))
	assert.LessOrEqual(t, size, 2_000_000)
	var count int64
	for _, r := range s.Profiles[0].Timeline.Rows {
		count += r.Count
	}
	assert.EqualValues(t, events, count)
	assert.Len(t, s.Profiles[0].Devices, 8)
}

func TestReportOfRanksNamesTheLateRank(t *testing.T) {
	dir := recorded.Path(t, "kineto", "param", "dlrm_8ranks")
	files, err := filepath.Glob(filepath.Join(dir, "worker?.pt.trace.json.gz"))
	require.NoError(t, err)
	out := t.TempDir()
	_, err = convertOutput(t, append([]string{"--html", "--out", out}, files...)...)
	require.NoError(t, err)
	s, size := reportState(t, filepath.Join(out, "report.html"))
	assert.LessOrEqual(t, size, 2_000_000)
	require.Len(t, s.Profiles, 8)
	for rank, p := range s.Profiles {
		assert.EqualValues(t, rank, p.Rank)
	}
	require.Len(t, s.Jobs, 1)
	assert.Contains(t, s.Jobs[0].Says, "8 ranks of one job of 8: not judged: 1 step of 8 ranks")
}

func TestTheComparisonAsAPage(t *testing.T) {
	without := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz")
	with := recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz")
	out := filepath.Join(t.TempDir(), "new")
	stdout, err := convertOutput(t, "--compare", "--html", "--out", out, without, with)
	require.NoError(t, err)
	assert.Contains(t, stdout, "a step is 36.5ms (20.6 %) shorter")
	s, _ := reportState(t, filepath.Join(out, "compare.html"))
	require.NotNil(t, s.Comparison)
	assert.Equal(t, "idle: loader", s.Comparison.Parts[0].Name, "the largest change first")
	assert.InDelta(t, -57.6, s.Comparison.Parts[0].Delta().Seconds()*1e3, 0.1)
	assert.Len(t, s.Profiles, 2)
}
