// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

func attrs(t *testing.T, batches []ptrace.Traces, name string) map[string]any {
	return find(t, batches, name).Attributes().AsRaw()
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

func TestWindowAndStepsEqualTheReference(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto != nil && !*ref.Kineto {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			batches, _ := read(t, path, Options{Detail: DetailSteps})
			for id, want := range ref.Devices {
				a := attrs(t, batches, "GPU "+id)
				assert.Equal(t, seconds(want.Last-want.First), a["gpu.window.duration"])
				assert.Equal(t, seconds(want.Busy), a["gpu.window.busy.duration"])
				assert.Equal(t, seconds(want.Idle), a["gpu.window.idle.duration"])
				assert.Equal(t, want.Activities["kernel"], a["gpu.window.kernel.count"])
				assert.Equal(t, seconds(want.KernelSum), a["gpu.window.kernel.duration"])
				_, more := withoutLibrary(t, path) // which run alone, one after the other
				assert.Equal(t, seconds(want.Comm.Compute-more), a["gpu.window.compute.duration"])
				assert.InDelta(t, seconds(want.Busy-want.Comm.Compute+more), a["gpu.window.non_compute.duration"], 1e-12)
				if want.Memory > 0 {
					assert.Equal(t, seconds(want.Memory), a["gpu.window.memory.duration"])
				}
				if more > 0 {
					assert.Equal(t, seconds(want.Comm.Union+more), a["gpu.window.comm.duration"])
				} else if want.Comm.Kernels > 0 {
					assert.Equal(t, seconds(want.Comm.Union), a["gpu.window.comm.duration"])
					assert.Equal(t, seconds(want.Comm.Overlap), a["gpu.window.overlap.duration"])
					assert.Equal(t, seconds(want.Comm.Union-want.Comm.Overlap), a["gpu.window.comm.exposed.duration"])
				} else {
					assert.NotContains(t, a, "gpu.window.comm.duration")
				}
				for step, busy := range want.StepBusy {
					for _, s := range spansOf(batches) {
						if m := s.Attributes().AsRaw(); m["gpu.operation.type"] == "step" && fmt.Sprint(m["gpu.step.index"]) == step {
							if have, ok := m["gpu.step.busy.duration"]; ok {
								assert.Equal(t, seconds(busy), have, "step %s", step)
							} else {
								assert.Zero(t, busy, "step %s", step)
							}
						}
					}
				}
			}
		})
	}
}

// TestQueue has values that another program (Python, exact decimals: +1 at a launch and -1 at a
// start) computed from the files.
func TestQueue(t *testing.T) {
	for _, c := range []struct {
		file   string
		device int64
		queue  int64
	}{
		{"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0, 1022},
		{"hta/nccl_parser_config/nccl_data.json.gz", 0, 10},
		{"hta/trace_diff/test/test.json.gz", 1, 1338},
		{"hta/timeline_analysis/sampled_rank-0.json.gz", 0, 80},
		{"tracelens/b200/eager_trace.json.gz", 0, 2},
		{"tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", 0, 111},
		{"tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz", 2, 2},
		{"tracelens/inference/sglang_decode/sglang_Qwen3-8B_decode.json.gz", 9, 544},
		{"tracelens/inference/vllm_decode_full/graph_execution.json.gz", 2, 434},
	} {
		t.Run(filepath.Base(c.file), func(t *testing.T) {
			batches, _ := read(t, recorded.Path(t, "kineto", c.file), Options{Detail: DetailSteps})
			a := attrs(t, batches, "GPU "+strconv.FormatInt(c.device, 10))
			assert.Equal(t, c.queue, a["gpu.window.queue.max"])
		})
	}
}

// TestExtentsEqualHolisticTraceAnalysis has values that another program (Python, exact decimals)
// computed from the files by HTA's rule: an activity counts when a call with its correlation began
// by the end of the last ProfilerStep (include_last_profiler_step), or before its start (the
// default).
func TestExtentsEqualHolisticTraceAnalysis(t *testing.T) {
	for _, c := range []struct {
		file                                                 string
		device                                               int64
		extent                                               Extent
		kernelTime, idle, compute, nonCompute, comm, overlap int64
	}{
		{
			"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0, ExtentSteps, 480029179, 7574738,
			468153602, 4300839, 0, 0,
		},
		{
			"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz", 0, ExtentStepsButLast, 384634463, 6452701,
			374738006, 3443756, 0, 0,
		},
		{
			"hta/nccl_parser_config/nccl_data.json.gz", 0, ExtentSteps, 660551005, 503050991, 115655847, 41844167, 46876493,
			7317025,
		},
		{
			"hta/nccl_parser_config/nccl_data.json.gz", 0, ExtentStepsButLast, 435587561, 336419714, 76935828, 22232019,
			24289050, 3585679,
		},
		{"hta/trace_diff/test/test.json.gz", 1, ExtentSteps, 744514000, 51692000, 514576000, 178246000, 229034000, 158196000},
		{
			"hta/trace_diff/test/test.json.gz", 1, ExtentStepsButLast, 628371000, 46910000, 429216000, 152245000, 190234000,
			130876000,
		},
		{
			"hta/timeline_analysis/sampled_rank-0.json.gz", 0, ExtentStepsButLast, 600058000, 321378000, 106252000, 172428000,
			195327000, 23068000,
		},
		{
			"hta/trace_filter/sampled_rank-1.json.gz", 1, ExtentStepsButLast, 600674000, 328671000, 135548000, 136455000,
			168027000, 33691000,
		},
		{
			"pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz", 0, ExtentStepsButLast, 830494000,
			327463000, 492891000, 10140000, 0, 0,
		},
	} {
		t.Run(filepath.Base(c.file)+"/"+c.extent.String(), func(t *testing.T) {
			batches, _ := read(t, recorded.Path(t, "kineto", c.file), Options{Detail: DetailSteps, Extent: c.extent})
			a := attrs(t, batches, "GPU "+strconv.FormatInt(c.device, 10))
			assert.Equal(t, c.extent.String(), a["gpu.window.extent"])
			for key, want := range map[string]int64{
				"duration": c.kernelTime, "idle.duration": c.idle, "compute.duration": c.compute,
				"non_compute.duration": c.nonCompute,
			} {
				assert.Equal(t, seconds(want), a["gpu.window."+key], key)
			}
			if c.comm > 0 {
				assert.Equal(t, seconds(c.comm), a["gpu.window.comm.duration"])
				assert.InDelta(t, float64(c.overlap)/float64(c.comm), a["gpu.window.overlap.ratio"], 1e-12)
			}
		})
	}
}

func TestExtentReadsFilesWithOneStepCompletely(t *testing.T) {
	text := "[" + gpu(9, 500, 600, 700, 7, "before", "") + "," + step(1, 1000) + "]"
	for _, x := range []Extent{ExtentAll, ExtentSteps, ExtentStepsButLast} {
		b, _ := convert(t, text, Options{Extent: x})
		assert.Equal(t, int64(2), attrs(t, b, "GPU 0")["gpu.window.kernel.count"], x)
		assert.NotContains(t, attrs(t, b, "GPU 0"), "gpu.window.extent", x)
	}
	text = "[" + gpu(9, 500, 600, 700, 7, "before", "") + "," + step(1, 1000) + "," + step(2, 2000) + "," + gpu(8, 4000,
		5000, 5100, 7, "after", "") +
		`,{"ph":"X","cat":"kernel","name":"unknown launch","pid":0,"tid":7,"ts":900,"dur":1,"args":{"device":0,"stream":7}}]`
	for x, want := range map[Extent]int64{ExtentAll: 5, ExtentSteps: 3, ExtentStepsButLast: 2} {
		b, st := convert(t, text, Options{Extent: x, Detail: DetailKernels})
		assert.Equal(t, want, attrs(t, b, "GPU 0")["gpu.window.kernel.count"], x)
		assert.Equal(t, int64(5), st.Kernels)
		find(t, b, "after") // spans do not depend on it
	}
}

// gpu returns a kernel, from start to end on a stream, with its launch on the host.
func gpu(corr, launch, start, end, stream int64, name, args string) string {
	return fmt.Sprintf(
		`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":%d,"dur":1,"args":{"correlation":%d}},`+
			`{"ph":"X","cat":"kernel","name":"%s","pid":0,"tid":7,"ts":%d,"dur":%d,"args":{"device":0,"stream":%d,"correlation":%d%s}}`,
		launch, corr, name, start, end-start, stream, corr, args)
}

// A kernel that runs past the end of the step counts only up to there; otherwise it would hide
// communication outside the step.
func TestStepCountsOnlyItsPartOfAKernel(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		gpu(1, 120, 200, 400, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "")+","+gpu(2, 130, 950, 1100, 7, "gemm",
		"")+"]", Options{})
	a := attrs(t, b, "ProfilerStep#4")
	assert.Equal(t, seconds(200_000), a["gpu.step.comm.exposed.duration"])
}

func TestStepsCarryTheirPhasesAndMemory(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		`{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#x","pid":9,"tid":9,"ts":0,"dur":100},`+
		`{"ph":"X","cat":"user_annotation","name":"## forward ##","pid":9,"tid":9,"ts":100,"dur":300},`+
		`{"ph":"X","cat":"user_annotation","name":"Optimizer.step#SGD.step","pid":9,"tid":9,"ts":800,"dur":100},`+
		gpu(1, 120, 200, 600, 7, "gemm", "")+","+gpu(2, 130, 350, 700, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)",
		`,"Collective name":"allreduce","In msg nelems":1000,"dtype":"Float","Group size":4,"Process Group Name":"0"`)+","+
		`{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":110,"s":"t","args":{"Bytes":512,"Device Id":0,"Device Type":1,"Total Allocated":1024}},`+
		`{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":120,"s":"t","args":{"Bytes":-256,"Device Id":0,"Device Type":1,"Total Allocated":768}},`+
		`{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":120,"s":"t","args":{"Bytes":99,"Device Id":-1,"Device Type":0,"Total Allocated":99}}]`, Options{})
	a := attrs(t, b, "ProfilerStep#4")
	for k, want := range map[string]any{
		"gpu.step.index": int64(4), "gpu.step.duration": 1e-3, "gpu.step.busy.duration": 5e-4, "gpu.kernel.count": int64(2),
		"gpu.step.phase.duration.data": 1e-4, "gpu.step.phase.duration.forward": 3e-4,
		"gpu.step.phase.duration.optimizer": 1e-4,
		"gpu.step.phase.duration.comm":      3.5e-4, "gpu.step.comm.exposed.duration": 1e-4,
		"gpu.step.overlap.duration": 5e-5, "gpu.step.other.duration": 2e-4, // union: 0-400, 350-700, 800-900
		"gpu.memory.allocated.max": int64(1024), "gpu.memory.allocated.delta": int64(256),
	} {
		assert.Equal(t, want, a[k], k)
	}
	c := attrs(t, b, "ncclDevKernel_AllReduce_Sum_f32_RING_LL")
	for k, want := range map[string]any{
		"gpu.operation.type": "collective", "gpu.operation.category": "comm", "gpu.collective.name": "all_reduce",
		"gpu.io.size":               int64(4000),
		"gpu.collective.group.size": int64(4), "gpu.collective.group.name": "0", "gpu.collective.algorithm": "ring",
		"gpu.collective.protocol":     "ll",
		"gpu.collective.element.type": "Float",
	} {
		assert.Equal(t, want, c[k], k)
	}
}
