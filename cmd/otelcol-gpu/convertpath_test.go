// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/criticalpath"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// pathsOf converts a file alone, and returns its text and the critical paths of its page.
func pathsOf(t *testing.T, path string) (text string, paths []*criticalpath.Path) {
	t.Helper()
	out := t.TempDir()
	text, err := convertOutput(t, "--html", "--out", out, path)
	require.NoError(t, err)
	s, size := reportState(t, filepath.Join(out, "report.html"))
	assert.Less(t, size, 2_000_000)
	return text, s.Profiles[0].Paths
}

func partOf(p *criticalpath.Path, kind criticalpath.Kind, name string) time.Duration {
	for _, x := range p.Parts {
		if x.Kind == kind && x.Name == name {
			return x.Time
		}
	}
	return 0
}

// The totals were summed up by a script over the steps, calls and activities of each file: a step
// takes until its range and all work that it launched have ended, and begins when the step before
// is complete.
func TestCriticalPathsOfRecordingsAddUpToTheirSteps(t *testing.T) {
	for path, want := range map[string]struct{ steps, total int64 }{
		"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz":          {5, 483_517_602},
		"hta/nccl_parser_config/nccl_data.json.gz":                                      {3, 667_105_339},
		"hta/trace_diff/test/test.json.gz":                                              {6, 745_277_000},
		"pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": {6, 1_065_553_000},
		"pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz": {6, 846_408_000},
		"tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz":                        {1, 49_378_903},
		"param/dlrm_8ranks/worker3.pt.trace.json.gz":                                    {1, 19_313_000},
	} {
		t.Run(strings.ReplaceAll(path, "/", " "), func(t *testing.T) {
			_, paths := pathsOf(t, recorded.Path(t, "kineto", path))
			require.Len(t, paths, 1)
			p := paths[0]
			assert.Equal(t, want.steps, p.Steps)
			assert.EqualValues(t, want.total, p.Length)
			var kinds, median time.Duration
			for _, k := range p.Kinds {
				kinds += k.Time
			}
			parts := p.Rest
			for _, x := range p.Parts {
				parts += x.Time
			}
			for _, s := range p.Median.Segments {
				median += time.Duration(s[0])
			}
			assert.Equal(t, p.Length, kinds)
			assert.Equal(t, p.Length, parts)
			assert.Equal(t, p.Median.Length, median)
			assert.Zero(t, p.Dropped)
			assert.Zero(t, p.Merged)
		})
	}
}

// The same job without and with processes that load data: the loader leaves the path.
func TestTheLoaderLeavesTheCriticalPathWithWorkers(t *testing.T) {
	const loader = "enumerate(DataLoader)#_%sIter.__next__"
	text, without := pathsOf(t, recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz"))
	_, with := pathsOf(t, recorded.Path(t, "kineto", "pytorch/samples/resnet50_num_workers_4/worker0.1623212756351.pt.trace.json.gz"))
	before := partOf(without[0], criticalpath.Host, fmt.Sprintf(loader, "SingleProcessDataLoader"))
	assert.InDelta(t, 0.33, without[0].Share(before), 0.01)
	assert.Less(t, with[0].Share(partOf(with[0], criticalpath.Host, fmt.Sprintf(loader, "MultiProcessingDataLoader"))), 0.02)
	assert.Contains(t, text, "critical path of 6 steps, mean: 177.59ms = host ")
	assert.Contains(t, text, "at most saved per step if it took no time, less if another path is nearly as long: "+
		"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__ on thread 25738 58.7")
}

// An export of two processes has a path for each.
func TestProcessesOfAnExportHaveTheirOwnCriticalPaths(t *testing.T) {
	text, paths := pathsOf(t, recorded.Path(t, "nsys", "nsys-ai/mfu_2gpu_before.sqlite"))
	require.Len(t, paths, 2)
	assert.Contains(t, text, "critical path of process 144, the profile: ")
	assert.Contains(t, text, "critical path of process 145, the profile: ")
	for _, p := range paths {
		assert.Zero(t, p.Steps)
		assert.Less(t, p.Share(partOf(p, criticalpath.Unexplained, "")), 0.001)
		assert.Equal(t, p.Length, p.Median.Length)
	}
}

// Of a folder, the lines of each file would bury the findings.
func TestCriticalPathsOfAFolderAreInThePageOnly(t *testing.T) {
	out := t.TempDir()
	text, err := convertOutput(t, "--html", "--out", out,
		recorded.Path(t, "kineto", "param/dlrm_8ranks/worker3.pt.trace.json.gz"),
		recorded.Path(t, "kineto", "param/dlrm_8ranks/worker4.pt.trace.json.gz"))
	require.NoError(t, err)
	assert.NotContains(t, text, "critical path of")
	s, _ := reportState(t, filepath.Join(out, "report.html"))
	for _, p := range s.Profiles {
		assert.Len(t, p.Paths, 1)
	}
}

// A stream waits for an event of stream 7, although stream 8 ended later. PyTorch states the wait
// with enable_cuda_sync_events.
func TestStatedWaitsOfStreamsAreOnTheCriticalPath(t *testing.T) {
	const events = `
{"ph":"X","cat":"cpu_op","name":"forward","pid":1,"tid":1,"ts":0,"dur":60,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":10,"dur":2,"args":{"correlation":1}},
{"ph":"X","cat":"cuda_runtime","name":"cudaEventRecord","pid":1,"tid":1,"ts":15,"dur":1,"args":{"correlation":2}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":20,"dur":2,"args":{"correlation":3}},
{"ph":"X","cat":"cuda_runtime","name":"cudaStreamWaitEvent","pid":1,"tid":1,"ts":30,"dur":1,"args":{"correlation":4}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":40,"dur":2,"args":{"correlation":5}},
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":16,"dur":184,"args":{"device":0,"stream":7,"correlation":1}},
{"ph":"X","cat":"kernel","name":"cat","pid":0,"tid":8,"ts":26,"dur":179,"args":{"device":0,"stream":8,"correlation":3}},
{"ph":"X","cat":"kernel","name":"relu","pid":0,"tid":9,"ts":206,"dur":44,"args":{"device":0,"stream":9,"correlation":5}}`
	const stated = `,
{"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":9,"ts":30,"dur":1,"args":{"cuda_sync_kind":"Stream Wait Event",
"stream":9,"correlation":4,"device":0,"context":1,"wait_on_stream":7,"wait_on_cuda_event_record_corr_id":2,"wait_on_cuda_event_id":0}}`
	for _, c := range []struct {
		sync     string
		kernel   string
		us       time.Duration
		stated   int64
		inferred int64
	}{{stated, "gemm", 184, 1, 0}, {"", "cat", 179, 0, 1}} {
		file := writeFile(t, t.TempDir(), "trace.json", `{"schemaVersion":1,"traceEvents":[`+events+c.sync+`]}`)
		_, paths := pathsOf(t, file)
		require.Len(t, paths, 1)
		assert.Equal(t, c.us*time.Microsecond, partOf(paths[0], criticalpath.Kernel, c.kernel))
		assert.Equal(t, c.stated, paths[0].Stated)
		assert.Equal(t, c.inferred, paths[0].Inferred)
	}
}
