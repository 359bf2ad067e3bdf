// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// TestPartsOfTheWindowAddUp verifies invariants of findings on every recorded trace: parts add up
// to the window and causes to the idle time, to the nanosecond, and no nanosecond of the window is
// in two gains.
func TestPartsOfTheWindowAddUp(t *testing.T) {
	for path, ref := range references(t, "kineto") {
		if ref.Kineto != nil && !*ref.Kineto {
			continue
		}
		t.Run(filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path), func(t *testing.T) {
			for _, extent := range []Extent{ExtentAll, ExtentStepsButLast} {
				_, st := read(t, path, Options{Detail: DetailSteps, Extent: extent})
				for _, d := range st.Devices {
					checkReport(t, d)
					if len(d.Findings) > 0 {
						t.Logf("%s %s: %s", d.Window, extent, d.Findings[0])
					}
				}
			}
		})
	}
}

func checkReport(t *testing.T, d facts.Report) {
	p := d.Parts
	assert.Zero(t, d.Window-p.Computing-p.CommExposed-p.CopyExposed-p.Idle-p.NotRecorded, "residual of the window")
	idle := p.Idle
	for _, c := range d.Idle {
		assert.Positive(t, c.Time)
		idle -= c.Time
	}
	assert.Zero(t, idle, "residual of idle time")
	var alone, gains time.Duration
	for _, o := range d.Operators {
		alone += o.Alone
	}
	assert.Equal(t, p.Computing, alone, "of computing, each nanosecond is of one operator")
	for i, v := range d.Findings {
		if !v.Outside {
			gains += v.Gain
		}
		assert.GreaterOrEqual(t, v.Gain, time.Duration(0))
		weight := func(v finding.Finding) time.Duration { // a cause without a name counts for half, the profiler's own cost not
			if v.Kind == semconv.GPUFindingKindLaunchBound && strings.Contains(v.Evidence, "the profiler itself costs the host") {
				assert.Less(t, v.Weight, v.Gain)
				return v.Weight
			}
			if v.Certainty == finding.Low && (v.Kind == semconv.GPUFindingKindHostWork || v.Kind == semconv.GPUFindingKindUnexplainedIdle) {
				return v.Gain / 2
			}
			return v.Gain
		}
		if i > 0 && d.Findings[i-1].Kind != semconv.GPUFindingKindNoLoad && !nothingToGain(d) {
			assert.LessOrEqual(t, weight(v), weight(d.Findings[i-1]), "sorted by gain")
		}
		assert.NotEmpty(t, v.Chain)
		assert.NotEmpty(t, v.Certainty)
	}
	assert.LessOrEqual(t, gains, d.Window, "no nanosecond is claimed twice")
	assert.NotEmpty(t, d.Findings, "a device has a finding, if only that it is healthy")
}

// TestCausesOfRecordedTraces checks the first finding of traces with an independently known cause:
// the tutorial of the ResNet pair, and the evaluation cases of TraceLens.
func TestCausesOfRecordedTraces(t *testing.T) {
	for file, want := range map[string]string{
		"pytorch/samples/resnet50_num_workers_0/worker0.1623143089861.pt.trace.json.gz": semconv.GPUFindingKindLoader,
		"tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz":                  semconv.GPUFindingKindLaunchBound,
		"tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz":                 semconv.GPUFindingKindLaunchBound,
		"tracelens/b200/eager_trace.json.gz":                                            semconv.GPUFindingKindLaunchBound,
		"hta/ns_resolution_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz":          semconv.GPUFindingKindNotJudged,
	} {
		_, st := read(t, recorded.Path(t, "kineto", file), Options{Detail: DetailSteps})
		require.Len(t, st.Devices, 1)
		assert.Equal(t, want, st.Devices[0].Findings[0].Kind, file)
	}
}

func host(cat, name string, start, duration int64) string {
	return fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":9,"tid":9,"ts":%d,"dur":%d}`, cat, name, start, duration)
}

// launchedEvery returns n kernels of the given length, launched by calls at intervals of every
// microseconds.
func launchedEvery(n, every, length int64) string {
	var parts []string
	for i := range n {
		parts = append(parts, gpu(1000+i, 10+every*i, 15+every*i, 15+every*i+length, 7, "k", ""))
	}
	return strings.Join(parts, ",")
}

// TestIdleTimeHasItsCause: one device gap for each cause, with a manually computed time. Launches
// take 1 µs.
func TestIdleTimeHasItsCause(t *testing.T) {
	first, second := gpu(1, 90, 100, 200, 7, "a", ""), gpu(2, 5000, 5010, 5100, 7, "b", "") // idle from 200 to 5010
	for name, c := range map[string]struct {
		events string
		causes map[timeline.Cause]int64 // µs
		kind   string
		says   string
	}{
		"loader": {
			first + "," + host("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 250, 4650) +
				"," + host("cpu_op", "aten::stack", 400, 4000) + "," + second,
			map[timeline.Cause]int64{timeline.CauseLoader: 4650, timeline.CauseDispatch: 151, timeline.CauseLatency: 9},
			semconv.GPUFindingKindLoader, "aten::stack in enumerate(DataLoader)",
		},
		"operator that ends the gap": { // the loader's time is not charged to it
			first + "," + host("cpu_op", "aten::copy_", 200, 4900) + "," + host("user_annotation", "dataloader", 250, 4550) +
				"," + second,
			map[timeline.Cause]int64{timeline.CauseLoader: 4550, timeline.CauseDispatch: 251, timeline.CauseLatency: 9},
			semconv.GPUFindingKindLoader, "dataloader",
		},
		"named range": {
			first + "," + host("user_annotation", "tokenize", 150, 4800) + "," + second,
			map[timeline.Cause]int64{timeline.CauseHost: 4800, timeline.CauseLatency: 9, timeline.CauseDispatch: 1},
			semconv.GPUFindingKindHostWork, "the host was in tokenize",
		},
		"frame of a call stack": {
			first + "," + host("python_function", "train.py(12): main", 0, 9000) + "," + host("python_function",
				"<built-in function sleep>", 150, 4800) + "," + second,
			map[timeline.Cause]int64{timeline.CauseHost: 4800, timeline.CauseLatency: 9, timeline.CauseDispatch: 1},
			semconv.GPUFindingKindHostWork, "the host was in train.py(12): main",
		},
		"nothing named": {
			first + "," + second,
			map[timeline.Cause]int64{timeline.CauseHost: 4800, timeline.CauseDispatch: 1, timeline.CauseLatency: 9},
			semconv.GPUFindingKindHostWork, "no named range",
		},
		"start-up": {
			first + "," + host("cuda_runtime", "cudaFuncGetAttributes", 190, 4800) + "," + second,
			map[timeline.Cause]int64{timeline.CauseCall: 4790, timeline.CauseDispatch: 11, timeline.CauseLatency: 9},
			semconv.GPUFindingKindSlowRuntimeCalls, "cudaFuncGetAttributes",
		},
		"launch that begins before the gap and outlasts it": {
			first + `,{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":9,"ts":195,"dur":4810,"args":{"correlation":2}},` +
				`{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":5010,"dur":90,"args":{"device":0,"stream":7,"correlation":2}}`,
			map[timeline.Cause]int64{timeline.CauseCall: 4805, timeline.CauseLatency: 5},
			semconv.GPUFindingKindSlowRuntimeCalls, "cudaLaunchKernel",
		},
		"allocation": {
			first + "," + host("cuda_runtime", "cudaMalloc", 190, 4800) + "," + second,
			map[timeline.Cause]int64{timeline.CauseAllocation: 4790, timeline.CauseDispatch: 11, timeline.CauseLatency: 9},
			semconv.GPUFindingKindAllocation, "cudaMalloc",
		},
		"wait that ends with the work": { // 110 µs long: the host returns at 210, and would have been 110 µs earlier
			first + "," + host("cpu_op", "aten::item", 95, 120) + "," + host("cuda_runtime", "cudaStreamSynchronize", 100, 110) +
				"," + gpu(2, 360, 370, 450, 7, "b", ""),
			map[timeline.Cause]int64{
				timeline.CauseSynchronization: 10 + 110, timeline.CauseDispatch: 41, timeline.CauseLatency: 9,
			},
			semconv.GPUFindingKindSynchronization, "cudaStreamSynchronize in aten::item",
		},
		"wait, then a long unnamed time": { // in which the program may have needed the result
			gpu(1, 90, 100, 3200, 7, "a", "") + "," + host("cpu_op", "aten::item", 95, 3120) + "," +
				host("cuda_runtime", "cudaStreamSynchronize", 100, 3110) + "," + gpu(2, 8000, 8010, 8100, 7, "b", ""),
			map[timeline.Cause]int64{
				timeline.CauseSynchronization: 10, timeline.CauseAfterWait: 4790, timeline.CauseDispatch: 1, timeline.CauseLatency: 9,
			},
			semconv.GPUFindingKindHostWork, "the host waited for the device in cudaStreamSynchronize, then did something in no named range",
		},
		"another rank": {
			first + "," + host("user_annotation", "gloo:all_gather", 200, 4790) + "," + second,
			map[timeline.Cause]int64{timeline.CausePeer: 4790, timeline.CauseDispatch: 11, timeline.CauseLatency: 9},
			semconv.GPUFindingKindWaitingForRank, "gloo:all_gather",
		},
		"launched before": {
			gpu(1, 90, 100, 200, 7, "a", "") + "," + gpu(2, 95, 5010, 5100, 7, "b", ""),
			map[timeline.Cause]int64{timeline.CauseDependency: 4810},
			semconv.GPUFindingKindDependency, "launched work waited",
		},
		"no launch in the file": {
			first + `,{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":5010,"dur":90,"args":{"device":0,"stream":7,"correlation":2}}`,
			map[timeline.Cause]int64{timeline.CauseUnknown: 4810},
			semconv.GPUFindingKindUnexplainedIdle, "no call in the file",
		},
		"backward on a separate thread": { // the main thread explains time in which the launching one did nothing
			host("user_annotation", "augment", 200, 4000) + "," + first +
				`,{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":9,"tid":10,"ts":5000,"dur":1,"args":{"correlation":2}},` +
				`{"ph":"X","cat":"kernel","name":"b","pid":0,"tid":7,"ts":5010,"dur":90,"args":{"device":0,"stream":7,"correlation":2}}`,
			map[timeline.Cause]int64{timeline.CauseHost: 4800, timeline.CauseDispatch: 1, timeline.CauseLatency: 9},
			semconv.GPUFindingKindHostWork, "augment",
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, st := convert(t, "["+c.events+"]", Options{})
			require.Len(t, st.Devices, 1)
			d := st.Devices[0]
			checkReport(t, d)
			have := map[timeline.Cause]int64{}
			for _, i := range d.Idle {
				have[i.Cause] = i.Time.Microseconds()
			}
			assert.Equal(t, c.causes, have)
			assert.Equal(t, c.kind, d.Findings[0].Kind)
			assert.Contains(t, d.Findings[0].String(), c.says)
		})
	}
}

func TestManyShortKernelsAreLaunchBound(t *testing.T) {
	_, st := convert(t, "["+launchedEvery(1000, 12, 4)+"]", Options{})
	d := st.Devices[0]
	checkReport(t, d)
	v := d.Findings[0]
	assert.Equal(t, semconv.GPUFindingKindLaunchBound, v.Kind)
	assert.Equal(t, 999*8*time.Microsecond, v.Gain)
	assert.Contains(t, v.String(), "1000 of 1000 kernels are shorter than 10µs")
	assert.Contains(t, v.Remedy, "graphs")
}

// Calls that wait while the device works cost nothing, regardless of their length.
func TestWaitingForABusyDeviceIsNoFinding(t *testing.T) {
	_, st := convert(t, "["+gpu(1, 1, 10, 1000, 7, "a", "")+","+host("cuda_runtime", "cudaDeviceSynchronize", 5, 996)+","+
		host("cuda_runtime", "cudaDeviceSynchronize", 1100, 9000)+"]", Options{})
	require.Len(t, st.Devices[0].Findings, 1)
	assert.Equal(t, semconv.GPUFindingKindNotJudged, st.Devices[0].Findings[0].Kind, "nothing else stands out")
}

func TestCopiesInTheCriticalPath(t *testing.T) {
	copied := func(name string, start, dur, bytes int64) string {
		return fmt.Sprintf(
			`{"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":9,"tid":9,"ts":1,"dur":1,"args":{"correlation":%d}},`+
				`{"ph":"X","cat":"gpu_memcpy","name":%q,"pid":0,"tid":8,"ts":%d,"dur":%d,"args":{"device":0,"stream":8,"bytes":%d,"correlation":%d}}`, start, name, start, dur, bytes, start)
	}
	text := `{"deviceProperties":[{"id":0,"name":"NVIDIA A100-SXM4-80GB"}],"traceEvents":[` + gpu(1, 1, 10, 110, 7, "a",
		"") + "," +
		copied("Memcpy HtoD (Pinned -> Device)", 60, 850, 8_500_000) + "," + copied("Memcpy DtoH (Device -> Pageable)", 910,
		100, 300_000) + "]}"
	_, st := convert(t, text, Options{})
	d := st.Devices[0]
	checkReport(t, d)
	require.Len(t, d.Findings, 2)
	assert.Equal(t, semconv.GPUFindingKindExposedCopies, d.Findings[0].Kind)
	assert.Equal(t, 800*time.Microsecond, d.Findings[0].Gain, "50 of 850 µs run beside the kernel")
	assert.Contains(t, d.Findings[0].Evidence, "1 copy host to device of 8.5 MB at 10 GB/s (31.7 % of 31.5 GB/s)")
	assert.Equal(t, semconv.GPUFindingKindPageableCopies, d.Findings[1].Kind)
	assert.Equal(t, 100*time.Microsecond, d.Findings[1].Gain)
}

// Among collectives of one kind, the shortest measures the transfer; the rest is waiting for a late
// rank. Kinds are distinguished by size; without recorded sizes and steps, waiting is not reported.
func TestExposedCommunicationIsWaitingAndMoving(t *testing.T) {
	const all = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)"
	four := func(sizes string, lengths ...int64) string {
		at, list := int64(100), gpu(1, 1, 0, 100, 7, "a", "")
		for i, length := range lengths {
			list += "," + gpu(int64(2+i), int64(2+i), at, at+length, 20, all, sizes)
			at += length
		}
		return "[" + list + "," + gpu(9, 9, at-100, at, 7, "a", "") + "]"
	}
	const size = `,"Collective name":"allreduce","In msg nelems":1000,"dtype":"Float","Group size":4`
	_, st := convert(t, four(size, 100, 300, 500), Options{})
	d := st.Devices[0]
	checkReport(t, d)
	require.Len(t, d.Findings, 2)
	// Exposed: 100, 300 and 400 µs; waiting: 0, 200 and 4/5 of 400.
	assert.Equal(t, semconv.GPUFindingKindLateRank, d.Findings[0].Kind)
	assert.Equal(t, 520*time.Microsecond, d.Findings[0].Gain)
	assert.Equal(t, semconv.GPUFindingKindExposedCommunication, d.Findings[1].Kind)
	assert.Equal(t, 280*time.Microsecond, d.Findings[1].Gain)

	_, st = convert(t, four("", 100, 300, 500), Options{})
	d = st.Devices[0]
	require.Len(t, d.Findings, 1)
	assert.Equal(t, semconv.GPUFindingKindExposedCommunication, d.Findings[0].Kind)
	assert.Equal(t, 800*time.Microsecond, d.Findings[0].Gain)
	assert.Contains(t, d.Findings[0].Evidence, "sizes are not recorded")
}

// Collectives without sizes are of one kind if they have the same position in their steps.
func TestCollectivesWithoutSizesAreComparedByTheirPlaceInTheStep(t *testing.T) {
	const all = "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)"
	var list []string
	at := int64(0)
	for i, long := range []int64{1000, 1000, 4000, 1000} { // a large one each time, and a small one that waits once
		list = append(list, host("user_annotation", fmt.Sprintf("ProfilerStep#%d", i), at, 9000),
			gpu(3*int64(i)+1, at+10, at+20, at+1020, 7, "a", ""),
			gpu(3*int64(i)+2, at+11, at+1020, at+4020, 20, all, ""), gpu(3*int64(i)+3, at+12, at+4020, at+4020+long, 20, all,
				""))
		at += 9000
	}
	_, st := convert(t, "["+strings.Join(list, ",")+"]", Options{})
	d := st.Devices[0]
	i := slices.IndexFunc(d.Findings, func(v finding.Finding) bool { return v.Kind == semconv.GPUFindingKindLateRank })
	require.GreaterOrEqual(t, i, 0, "%v", d.Findings)
	assert.Equal(t, 3*time.Millisecond, d.Findings[i].Gain, "as against the shortest of all: 12 ms")
}

// nothingToGain reports whether the first finding names no loss: simulated kernels have no work to
// analyze.
func nothingToGain(d facts.Report) bool {
	k := d.Findings[0].Kind
	return k == semconv.GPUFindingKindHealthy || k == semconv.GPUFindingKindNotJudged
}

// Tests each threshold just below, at and just above.
func TestThresholds(t *testing.T) {
	kinds := func(text string) (list []string) {
		_, st := convert(t, "["+text+"]", Options{Device: "NVIDIA A100-SXM4-80GB"})
		for _, v := range st.Devices[0].Findings {
			list = append(list, v.Kind)
		}
		return list
	}
	for _, c := range []struct {
		kind string
		text func(thousandths int64) string
		at   int64
	}{
		{semconv.GPUFindingKindMemorySpike, func(n int64) string { // grows by n of 1,000 parts of 40 GB, half of the device
			return gpu(1, 1, 10, 1000, 7, "a",
				"") + fmt.Sprintf(
				`,{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":5,"args":{"Bytes":%d,"Device Id":0,"Total Allocated":40000000000}}`, n*40_000_000)
		}, 250},
		{semconv.GPUFindingKindNotJudged, func(n int64) string { // n of 1,000 µs in a compiled region
			const dims = `"Input Dims":[[67108864],[67108864]],"Input type":["c10::Half","c10::Half"]`
			return host("cpu_op", "Torch-Compiled Region: 0/0", 1, 3) + "," + gpu(1, 2, 10, 10+n, 7, "a", "") + "," +
				operator("aten::add", 5, 3, dims) + "," + gpu(2, 6, 10+n, 1010, 7, "a", "")
		}, 500},
		// n of 1,000 µs by a kernel with half as many blocks as the device has multiprocessors, which leaves half empty
		{semconv.GPUFindingKindLowParallelism, func(n int64) string {
			return gpu(1, 2, 10, 10+n, 7, "a", `,"grid":[54,1,1],"block":[128,1,1]`) + "," + gpu(2, 3, 10+n, 1010, 7, "b",
				`,"grid":[216,1,1],"block":[128,1,1]`)
		}, 200},
		{semconv.GPUFindingKindDataMovement, func(n int64) string { // n of 1,000 µs in a kernel that transposes
			return gpu(1, 1, 10, 10+n, 7, "transpose_kernel", "") + "," + gpu(2, 3, 10+n, 1010, 7, "b", "")
		}, 100},
		{semconv.GPUFindingKindLaunchBound, func(n int64) string { // idle for n of 1,000 µs
			return gpu(1, 1, 10, 510, 7, "a", "") + "," + gpu(2, 505+n, 510+n, 1010, 7, "b", "")
		}, 50},
	} {
		assert.NotContains(t, kinds(c.text(c.at-1)), c.kind, "below")
		assert.Contains(t, kinds(c.text(c.at)), c.kind, "at")
		assert.Contains(t, kinds(c.text(c.at+1)), c.kind, "above")
	}
}

// A library operator identifies its work, even within a compiled region or a graph's range: only
// the rest of the region is opaque.
func TestOperatorsWithinCompiledRegionsAreVisible(t *testing.T) {
	for name, tt := range map[string]struct{ inner, says, not string }{
		"hidden":   {"triton_poi_fused_0", "compiled regions and graphs do not show their operators", "record_shapes"},
		"operator": {"aten::mm", "no operator's work is known", "compiled regions"},
	} {
		for _, region := range []string{"Torch-Compiled Region: 0/0", "## Call CompiledFxGraph f3 ##", "cudaGraphLaunch"} {
			_, st := convert(t, "["+host("cpu_op", region, 1, 8)+","+host("cpu_op", tt.inner, 2, 4)+","+
				gpu(1, 3, 10, 1010, 7, "a", "")+"]", Options{})
			i := slices.IndexFunc(st.Devices[0].Findings, func(v finding.Finding) bool { return v.Kind == semconv.GPUFindingKindNotJudged })
			require.GreaterOrEqual(t, i, 0, "%s in %s: %v", name, region, st.Devices[0].Findings)
			said := fmt.Sprintf("%+v", st.Devices[0].Findings[i])
			assert.Contains(t, said, tt.says, "%s in %s", name, region)
			assert.NotContains(t, said, tt.not, "%s in %s", name, region)
		}
	}
}

// Slow calls before the first activity are outside of the window, but are reported.
func TestStartUpBeforeTheWindow(t *testing.T) {
	_, st := convert(t, "["+host("cuda_runtime", "cudaFree", 0, 3000)+","+gpu(1, 3010, 3020, 4020, 7, "a", "")+"]",
		Options{})
	v := st.Devices[0].Findings[0]
	assert.Equal(t, semconv.GPUFindingKindSlowRuntimeCalls, v.Kind)
	assert.Equal(t, 3*time.Millisecond, v.Gain)
	assert.InDelta(t, 0.75, v.Share, 1e-12, "of the window and what was before it")
}

func TestStepsFindTheCauseOfTheirOwnIdleTime(t *testing.T) {
	b, _ := convert(t, "["+host("user_annotation", "ProfilerStep#4", 0, 1000)+","+host("user_annotation", "parse", 100,
		390)+","+gpu(1, 500, 510, 900, 7, "a", "")+
		","+host("user_annotation", "ProfilerStep#5", 1000, 1000)+","+host("user_annotation", "decode", 1100, 590)+","+gpu(2,
		1700, 1710, 1990, 7, "a", "")+"]", Options{})
	for name, want := range map[string]string{
		"ProfilerStep#4": "the host was in parse",
		"ProfilerStep#5": "the host was in decode",
	} {
		events := find(t, b, name).Events()
		require.Positive(t, events.Len(), name)
		a := events.At(0).Attributes().AsRaw()
		assert.Equal(t, "host_work", a["gpu.finding.kind"])
		assert.Contains(t, a["gpu.finding.chain"], want)
	}
	a := attrs(t, b, "GPU 0")
	assert.Equal(t, 0.00081, a["gpu.window.idle.duration"])
	assert.NotContains(t, a, "gpu.window.cause.duration.loader", "a cause without time is absent")
}

// A tool may have reordered the file: among two frames with equal bounds, the one with the higher
// number is the inner one.
func TestOfFramesWithEqualBoundsTheInnerOneIsNamed(t *testing.T) {
	outer := `{"ph":"X","cat":"python_function","name":"train.py(1): main","pid":1,"tid":1,"ts":1100,"dur":7000,
		"args":{"Python id": 1,"Python parent id": null}}`
	inner := `{"ph":"X","cat":"python_function","name":"train.py(9): log","pid":1,"tid":1,"ts":1100,"dur":7000,
		"args":{"Python parent id": 1, "Python id": 2}}`
	kernel := func(at, corr int) string {
		return fmt.Sprintf(`{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":1,"tid":1,"ts":%d,"dur":5,"args":{"correlation":%d}},
			{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%d,"dur":1000,"args":{"device":0,"stream":7,"correlation":%d}}`,
			at, corr, at+10, corr)
	}
	for _, frames := range []string{outer + "," + inner, inner + "," + outer} {
		_, st := convert(t, `{"traceEvents":[`+kernel(0, 1)+","+frames+","+kernel(8500, 2)+`]}`, Options{})
		first := st.Devices[0].Findings[0]
		assert.Equal(t, semconv.GPUFindingKindHostWork, first.Kind)
		assert.Contains(t, first.Chain[0], "train.py(9): log")
	}
}
