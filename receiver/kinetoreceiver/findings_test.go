// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// found is the findings among the events of a span, as "value of threshold: evidence" by kind.
func found(t *testing.T, s ptrace.Span) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, e := range s.Events().All() {
		require.Equal(t, "finding", e.Name())
		a := e.Attributes().AsRaw()
		kind := a["gpu.finding.kind"].(string)
		require.NotContains(t, out, kind)
		out[kind] = fmt.Sprintf("%.3g of %.3g: %s", a["gpu.finding.value"], a["gpu.finding.threshold"], a["gpu.finding.evidence"])
	}
	return out
}

func pageable(dur int) string {
	return fmt.Sprintf(`{"ph":"X","cat":"cuda_runtime","name":"cudaMemcpyAsync","pid":9,"tid":9,"ts":1,"dur":1,"args":{"correlation":77}},`+
		`{"ph":"X","cat":"gpu_memcpy","name":"Memcpy HtoD (Pageable -> Device)","pid":0,"tid":7,"ts":10,"dur":%d,"args":{"bytes":1000000,"correlation":77}}`, dur)
}

// kernels are n of them one after the other.
func kernels(n, dur int64) string {
	var parts []string
	for i := range n {
		parts = append(parts, gpu(i+1, 1, 10+dur*i, 10+dur*(i+1), 7, "k", ""))
	}
	return strings.Join(parts, ",")
}

func memoryEvent(at, bytes, total int64) string {
	return fmt.Sprintf(`{"ph":"i","name":"[memory]","pid":9,"tid":9,"ts":%d,"s":"t","args":{"Bytes":%d,"Device Id":0,"Device Type":1,"Total Allocated":%d}}`, at, bytes, total)
}

// TestFindings has two cases of each kind, the second just below the threshold, within a step of 1 ms. Findings of the
// device are of its window, from the first activity to the last.
func TestFindings(t *testing.T) {
	const all = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)"
	for kind, c := range map[string]struct {
		above        string
		step, device string // findings of the kind; empty: none
		below        string
	}{
		"idle_device": {
			above: gpu(1, 1, 0, 400, 7, "a", "") + "," + gpu(2, 390, 600, 1000, 7, "b", ""),
			step:  "0.2 of 0.2: the device was idle for 200µs of 1ms", device: "0.2 of 0.2: idle for 200µs of 1ms: 0s waiting for the host, 200µs after a launch, 0s without a launch in the file",
			below: gpu(1, 1, 0, 400, 7, "a", "") + "," + gpu(2, 390, 599, 1000, 7, "b", ""),
		},
		"host_starved": {
			above: `{"ph":"X","cat":"user_annotation","name":"tokenize","pid":9,"tid":9,"ts":100,"dur":600},` + gpu(1, 1, 0, 400, 7, "a", "") + "," + gpu(2, 590, 600, 1000, 7, "b", ""),
			step:  "0.2 of 0.2: waited 200µs for launches; the host was in tokenize (200µs)", device: "0.2 of 0.2: waited 200µs for launches; the host was in tokenize (200µs)",
			below: gpu(1, 1, 0, 400, 7, "a", "") + "," + gpu(2, 400, 600, 1000, 7, "b", ""),
		},
		"synchronization": {
			above: gpu(1, 1, 0, 1000, 7, "a", "") + `,{"ph":"X","cat":"cpu_op","name":"aten::item","pid":9,"tid":9,"ts":5,"dur":105},` +
				`{"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":9,"tid":9,"ts":10,"dur":100,"args":{"correlation":5}}`,
			step:   "0.1 of 0.1: the host waited for the device in 1 call, 100µs together, in aten::item (100µs)",
			device: "0.1 of 0.1: the host waited for the device in 1 call, 100µs together, in aten::item (100µs)",
			below:  gpu(1, 1, 0, 1000, 7, "a", "") + `,{"ph":"X","cat":"cuda_runtime","name":"cudaStreamSynchronize","pid":9,"tid":9,"ts":10,"dur":99,"args":{"correlation":5}}`,
		},
		"exposed_communication": {
			above: gpu(1, 1, 0, 1000, 7, "gemm", "") + "," + gpu(2, 2, 900, 1053, 20, all, ""),
			step:  "", device: "0.0503 of 0.05: 53µs of 153µs of communication ran without computation beside it", // in the step nothing is exposed
			below: gpu(1, 1, 0, 1000, 7, "gemm", "") + "," + gpu(2, 2, 900, 1050, 20, all, ""),
		},
		"loader_gaps": {
			above: `{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__","pid":9,"tid":9,"ts":0,"dur":100},` + gpu(1, 101, 110, 1000, 7, "a", ""),
			step:  "0.1 of 0.1: 100µs of 1ms waited for data", device: "0.1 of 0.1: 100µs of 1ms of steps waited for data",
			below: `{"ph":"X","cat":"user_annotation","name":"enumerate(DataLoader)#x","pid":9,"tid":9,"ts":0,"dur":99},` + gpu(1, 101, 110, 1000, 7, "a", ""),
		},
		"pageable_copies": {
			above: pageable(10) + "," + gpu(1, 1, 0, 1000, 7, "a", ""),
			step:  "0.01 of 0.01: 1 copy of 1 MB from or to pageable memory took 10µs, 100 GB/s", device: "0.01 of 0.01: 1 copy of 1 MB from or to pageable memory took 10µs, 100 GB/s",
			below: pageable(9) + "," + gpu(1, 1, 0, 1000, 7, "a", ""),
		},
		"short_kernels": {
			above: kernels(500, 1), step: "1 of 0.5: 500 of 500 kernels are shorter than 10µs, 500µs together", device: "1 of 0.5: 500 of 500 kernels are shorter than 10µs, 500µs together",
			below: kernels(499, 1),
		},
		"low_parallelism": {
			above: gpu(1, 1, 0, 250, 7, "a", `,"blocks per SM":0.5`) + "," + gpu(2, 2, 250, 1000, 7, "b", `,"blocks per SM":2`),
			step:  "0.25 of 0.25: 1 kernel, 250µs of 1ms, with fewer blocks than the device has SMs", device: "0.25 of 0.25: 1 kernel, 250µs of 1ms, with fewer blocks than the device has SMs",
			below: gpu(1, 1, 0, 249, 7, "a", `,"blocks per SM":0.5`) + "," + gpu(2, 2, 249, 1000, 7, "b", `,"blocks per SM":2`),
		},
		"opaque_regions": {
			above: `{"ph":"X","cat":"cpu_op","name":"Torch-Compiled Region: 0/0","pid":9,"tid":9,"ts":0,"dur":8},` +
				gpu(1, 1, 0, 500, 7, "triton_poi_fused_0", "") + "," + gpu(2, 9, 500, 1000, 7, "b", ""),
			step:   "0.5 of 0.5: 1 kernel, 500µs of 1ms, in compiled regions or graphs, which do not show their operators",
			device: "0.5 of 0.5: 1 kernel, 500µs of 1ms, in compiled regions or graphs, which do not show their operators",
			below: `{"ph":"X","cat":"cpu_op","name":"Torch-Compiled Region: 0/0","pid":9,"tid":9,"ts":0,"dur":8},` +
				gpu(1, 1, 0, 499, 7, "triton_poi_fused_0", "") + "," + gpu(2, 9, 499, 1000, 7, "b", ""),
		},
		"memory_spike": {
			above: gpu(1, 1, 0, 1000, 7, "a", "") + "," + memoryEvent(10, 10_000_000, 760_000_000) +
				`,{"ph":"X","cat":"user_annotation","name":"attention","pid":9,"tid":9,"ts":20,"dur":10},` + memoryEvent(25, 240_000_000, 1_000_000_000) + "," + memoryEvent(40, -240_000_000, 760_000_000),
			step:   "0.25 of 0.25: allocated memory grew from 750 MB to 1 GB, which it reached in attention",
			device: "0.25 of 0.25: allocated memory grew from 750 MB to 1 GB, which it reached in attention",
			below:  gpu(1, 1, 0, 1000, 7, "a", "") + "," + memoryEvent(10, 9_000_000, 760_000_000) + "," + memoryEvent(25, 240_000_000, 1_000_000_000),
		},
	} {
		t.Run(kind, func(t *testing.T) {
			in := func(text string) ([]ptrace.Traces, Stats) {
				return convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+text+"]", Options{})
			}
			b, st := in(c.above)
			assert.Equal(t, c.step, found(t, find(t, b, "ProfilerStep#4"))[kind])
			assert.Equal(t, c.device, found(t, find(t, b, "GPU 0"))[kind])
			var kinds []string
			for _, f := range st.Findings {
				kinds = append(kinds, f.Kind)
				assert.GreaterOrEqual(t, f.Value, f.Threshold)
			}
			assert.ElementsMatch(t, kinds, slices.Collect(maps.Keys(found(t, find(t, b, "GPU 0")))), "Stats hold those of devices")
			assert.Contains(t, kinds, kind)
			b, _ = in(c.below)
			assert.NotContains(t, found(t, find(t, b, "ProfilerStep#4")), kind)
			assert.NotContains(t, found(t, find(t, b, "GPU 0")), kind)
		})
	}
}

func TestDevicesHaveTheirNumbersInOneLine(t *testing.T) {
	_, st := convert(t, `{"deviceProperties":[{"id":0,"name":"NVIDIA A100"}],"traceEvents":[`+
		operator("aten::mm", 0, 90, `"Input Dims":[[1000,1000],[1000,500]]`)+","+gpu(1, 1, 0, 900, 7, "gemm", "")+","+gpu(3, 95, 900, 950, 7, "relu", "")+","+
		gpu(2, 2, 800, 1000, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "")+","+
		`{"ph":"X","cat":"kernel","name":"k","pid":1,"tid":7,"ts":5,"dur":5}]}`, Options{})
	var lines []string
	for _, d := range st.Devices {
		lines = append(lines, d.String())
	}
	assert.Equal(t, []string{
		"GPU 0 (NVIDIA A100): 1ms, busy 1ms (100 %), computing 950µs (95 %), communicating 200µs (20 %), exposed 50µs (5 %), 1 GFLOP in 94.7 % of the kernel time",
		"GPU 1 (NVIDIA A100): 5µs, busy 5µs (100 %), computing 5µs (100 %)",
	}, lines)
}

func TestNothingIsFoundWhereNothingIsWrong(t *testing.T) {
	b, st := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+gpu(1, 1, 10, 990, 7, "a", "")+"]", Options{})
	assert.Empty(t, st.Findings)
	assert.Empty(t, found(t, find(t, b, "ProfilerStep#4")))
}

func TestCommunicationThatTheStepCannotHideIsExposed(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		gpu(1, 1, 0, 900, 7, "gemm", "")+","+gpu(2, 2, 850, 950, 20, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(int)", "")+"]", Options{})
	assert.Equal(t, "0.05 of 0.05: 50µs of 100µs of communication ran without computation beside it", found(t, find(t, b, "ProfilerStep#4"))["exposed_communication"])
}

func TestStepsFindTheCauseOfTheirOwnIdleTime(t *testing.T) {
	b, _ := convert(t, `[{"ph":"X","cat":"user_annotation","name":"ProfilerStep#4","pid":9,"tid":9,"ts":0,"dur":1000},`+
		`{"ph":"X","cat":"user_annotation","name":"parse","pid":9,"tid":9,"ts":100,"dur":300},`+gpu(1, 300, 310, 900, 7, "a", "")+
		`,{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":9,"tid":9,"ts":1000,"dur":1000},`+
		`{"ph":"X","cat":"user_annotation","name":"decode","pid":9,"tid":9,"ts":1500,"dur":300},`+gpu(2, 1590, 1600, 1900, 7, "a", "")+"]", Options{})
	// From the beginning of the step to its first activity.
	assert.Equal(t, "0.31 of 0.2: waited 310µs for launches; the host was in parse (310µs)", found(t, find(t, b, "ProfilerStep#4"))["host_starved"])
	assert.Equal(t, "0.6 of 0.2: waited 600µs for launches; the host was in decode (600µs)", found(t, find(t, b, "ProfilerStep#5"))["host_starved"])
	assert.Equal(t, "0.44 of 0.2: waited 700µs for launches; the host was in decode (700µs)", found(t, find(t, b, "GPU 0"))["host_starved"])
}
