// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// The layout of rocprofv3 --output-format json, of one process with two agents.
const rocText = `{"rocprofiler-sdk-tool": [{
	"metadata": {"pid": 77, "init_time": 1000, "fini_time": 90000, "node": {"id": 3, "hostname": "node1"}},
	"agents": [{"id": {"handle": 1}, "type": 1, "name": "EPYC", "logical_node_type_id": 0},
		{"id": {"handle": 2}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": 304, "logical_node_type_id": 0},
		{"id": {"handle": 3}, "type": 2, "name": "gfx942", "product_name": "AMD Instinct MI300X", "cu_count": 304, "logical_node_type_id": 1}],
	"counters": [{"deep": [[{"x": "}"}]]}],
	"strings": {"buffer_records": [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": ["hipNone", "hipLaunchKernel", "hipMemcpyAsync"]},
		{"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE"]}],
		"marker_api": [{"key": 5, "value": "forward"}]},
	"kernel_symbols": [{"kernel_id": 9, "kernel_name": "_Z4gemmPf.kd", "formatted_kernel_name": "gemm(float*)",
		"arch_vgpr_count": 32, "accum_vgpr_count": 0, "sgpr_count": 64}],
	"buffer_records": {
		"marker_api": [{"kind": 3, "operation": 1, "thread_id": 78, "correlation_id": {"internal": 5, "external": 0}, "start_timestamp": 1900, "end_timestamp": 3000}],
		"hsa_api": [{"kind": 4}],
		"hip_api": [{"kind": 1, "operation": 1, "thread_id": 78, "correlation_id": {"internal": 6, "external": 0}, "start_timestamp": 2000, "end_timestamp": 2100},
			{"kind": 1, "operation": 2, "thread_id": 78, "correlation_id": {"internal": 7, "external": 0}, "start_timestamp": 2200, "end_timestamp": 2300}],
		"kernel_dispatch": [{"kind": 5, "operation": 1, "thread_id": 78, "correlation_id": {"internal": 6, "external": 0}, "start_timestamp": 2500, "end_timestamp": 4500,
			"dispatch_info": {"agent_id": {"handle": 3}, "queue_id": {"handle": 4}, "kernel_id": 9, "workgroup_size": {"x": 256, "y": 1, "z": 1}, "grid_size": {"x": 1000, "y": 2, "z": 1}}}],
		"memory_copy": [{"kind": 2, "operation": 2, "thread_id": 78, "correlation_id": {"internal": 7, "external": 0}, "start_timestamp": 5000, "end_timestamp": 6000,
			"dst_agent_id": {"handle": 3}, "src_agent_id": {"handle": 1}, "bytes": 4096}]
	}}]}`

// For any file, lean omits how kernels were launched, and nothing else.
func TestLeanLeavesOutHowAKernelWasLaunched(t *testing.T) {
	text := `[{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 10, "dur": 5, "args": {"device": 0, "stream": 7,
		"correlation": 3, "grid": [1, 2, 3], "block": [32, 1, 1], "registers per thread": 40, "shared memory": 0, "blocks per SM": 0.5,
		"warps per SM": 2.5, "est. achieved occupancy %": 43, "graph id": 2, "graph node id": 5}}]`
	of := func(level spanfacts.Level) map[string]any {
		batches, _ := convert(t, text, Options{Detail: DetailKernels, Attributes: level})
		return find(t, batches, "gemm").Attributes().AsRaw()
	}
	lean, full := of(spanfacts.Lean), of(spanfacts.Full)
	for key, want := range map[string]any{
		"gpu.kernel.grid": []any{int64(1), int64(2), int64(3)}, "gpu.kernel.block": []any{int64(32), int64(1), int64(1)},
		"gpu.kernel.registers": int64(40), "gpu.kernel.shared_memory.size": int64(0), "gpu.kernel.blocks_per_sm": 0.5,
		"gpu.kernel.warps_per_sm": 2.5,
	} {
		assert.Equal(t, want, full[key], key)
		assert.NotContains(t, lean, key)
		delete(full, key)
	}
	assert.Equal(t, full, lean)
	assert.Equal(t, 0.43, lean["gpu.kernel.occupancy.estimate"])
}

func TestFilesOfRocprofv3(t *testing.T) {
	batches, st := convert(t, rocText, Options{Detail: DetailKernels, Attributes: spanfacts.Full})
	assert.Empty(t, st.Skipped)
	assert.EqualValues(t, 1, st.Kernels)
	assert.EqualValues(t, 1, st.Copies)
	k := find(t, batches, "gemm")
	a := k.Attributes().AsRaw()
	for key, want := range map[string]any{
		"gpu.kernel.name": "gemm(float*)", "gpu.device.ordinal": int64(1), "gpu.stream.id": int64(4),
		"gpu.kernel.grid": []any{int64(4), int64(2), int64(1)}, "gpu.kernel.block": []any{int64(256), int64(1), int64(1)},
		"gpu.duration": 2e-6, "gpu.launch.delay": 4e-7, "gpu.kernel.registers": int64(32),
		"gpu.kernel.shared_memory.size": int64(0),
	} {
		assert.Equal(t, want, a[key], key)
	}
	assert.Equal(t, map[string]any{
		"gpu.device.ordinal": int64(1), "hw.model": "AMD Instinct MI300X",
		"gpu.timing.source": "roctracer",
	}, scopeOf(t, batches, "gemm"))
	assert.Equal(t, find(t, batches, "hipLaunchKernel").SpanID(), k.ParentSpanID())
	assert.Equal(t, find(t, batches, "forward").SpanID(), find(t, batches, "hipLaunchKernel").ParentSpanID())
	c := find(t, batches, "Memcpy HtoD").Attributes().AsRaw()
	assert.Equal(t, "host_to_device", c["gpu.copy.direction"])
	assert.Equal(t, int64(4096), c["gpu.io.size"])
	resource := batches[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
	assert.Equal(t, int64(77), resource["process.pid"])
	assert.Equal(t, "node1", resource["host.name"])
}

// 128 vector registers leave four waves on each SIMD of CDNA 3 (AMD, "Register pressure in AMD
// CDNA2 GPUs"): two workgroups of 512 work-items on a compute unit.
func TestOccupancyInFilesOfRocprofv3(t *testing.T) {
	for name, c := range map[string]struct {
		old, with        string
		waves, occupancy float64
		limit            string
		registers        int64
	}{
		"registers":                    {`"gfx942"`, `"gfx942"`, 4, 0.5, "registers", 128},
		"LDS":                          {`"group_segment_size": 0`, `"group_segment_size": 40000`, 8, 0.25, "shared memory", 128},
		"accumulators before ROCm 6.4": {`"accum_vgpr_count": 8`, `"accum_vgpr_count": 4294965504`, 4, 0.5, "registers", 128},
		"impossible accumulators":      {`"accum_vgpr_count": 8`, `"accum_vgpr_count": 4000`, 0, 0, "", 0},
		"grid":                         {`"x": 622592, "y": 2`, `"x": 77824, "y": 1`, 0.25, 0.125, "grid", 128},
		"scalars":                      {`"sgpr_count": 64`, `"sgpr_count": 200`, 4, 0.5, "registers", 128},
		"unknown device":               {`"gfx942"`, `"gfx1"`, 0, 0, "", 120},
		"no units":                     {`"cu_count": 304, `, ``, 4, 0.5, "registers", 128}, // the number of the model
	} {
		text := strings.NewReplacer(`"arch_vgpr_count": 32, "accum_vgpr_count": 0`,
			`"arch_vgpr_count": 120, "accum_vgpr_count": 8`, `"workgroup_size": {"x": 256`,
			`"group_segment_size": 0, "workgroup_size": {"x": 512`, `"x": 1000, "y": 2`, `"x": 622592, "y": 2`).Replace(rocText)
		require.Contains(t, text, c.old, name)
		text = strings.ReplaceAll(text, c.old, c.with)
		_, st := convert(t, text, Options{})
		require.Len(t, st.Devices, 1, name)
		require.Len(t, st.Devices[0].ByKernel, 1, name)
		k := &st.Devices[0].ByKernel[0]
		assert.InDelta(t, c.waves, k.Waves.Value(), 1e-9, name)
		assert.InDelta(t, c.occupancy, k.Occupancy.Value(), 1e-9, name)
		assert.Equal(t, c.limit, k.LimitedBy.String(), name)
		assert.Equal(t, c.registers, k.Registers, name)
	}
}

// ROCm 6.2 and 6.3 wrote agents without logical_node_type_id: GPUs are numbered in list order.
func TestFilesOfRocprofv3WithoutNumbersOfDevices(t *testing.T) {
	text := regexp.MustCompile(`, "logical_node_type_id": \d`).ReplaceAllString(rocText, "")
	require.NotEqual(t, rocText, text)
	batches, st := convert(t, text, Options{Detail: DetailKernels})
	assert.Empty(t, st.Skipped)
	assert.Equal(t, int64(1), find(t, batches, "gemm").Attributes().AsRaw()["gpu.device.ordinal"])
	assert.Equal(t, int64(1), find(t, batches, "Memcpy HtoD").Attributes().AsRaw()["gpu.device.ordinal"])
}

// Streams and queues are numbered separately: queue 4 is not stream 4. Without streams, such as in
// programs without HIP, queues run concurrently.
func TestFilesOfRocprofv3WithStreams(t *testing.T) {
	text := strings.Replace(rocText, `"bytes": 4096`, `"stream_id": {"handle": 4}, "bytes": 4096`, 1)
	batches, _ := convert(t, text, Options{Detail: DetailKernels})
	assert.Equal(t, int64(0), find(t, batches, "gemm").Attributes().AsRaw()["gpu.stream.id"])
	assert.Equal(t, int64(4), find(t, batches, "Memcpy HtoD").Attributes().AsRaw()["gpu.stream.id"])
}

// Copies from host to host, and kernels of agents that are not in the list, have no GPU.
func TestFilesOfRocprofv3WithWorkOfOthers(t *testing.T) {
	text := strings.Replace(rocText, `"dst_agent_id": {"handle": 3}`, `"dst_agent_id": {"handle": 1}`, 1)
	text = strings.Replace(text, `"dispatch_info": {"agent_id": {"handle": 3}`, `"dispatch_info": {"agent_id": {"handle": 9}`, 1)
	_, st := convert(t, text, Options{Detail: DetailKernels})
	assert.Zero(t, st.Kernels+st.Copies)
	assert.Equal(t, map[string]int64{"activity of an agent that is not a listed GPU": 2}, st.Skipped)
}

func TestFilesOfRocprofv3ThatAreBroken(t *testing.T) {
	for i := 30; i < len(rocText)-1; i += 7 {
		_, err := Read(t.Context(), strings.NewReader(rocText[:i]), Options{}, nil)
		require.Error(t, err, i)
	}
	_, err := Read(t.Context(), strings.NewReader(rocText[:len(rocText)-20]), Options{}, nil)
	require.ErrorIs(t, err, ErrTruncated)
	_, err = Read(t.Context(), strings.NewReader(`{"rocprofiler-sdk-tool": [{"agents": 5}]}`), Options{}, nil)
	require.ErrorIs(t, err, ErrSyntax)
	_, err = Read(t.Context(), strings.NewReader(strings.Replace(rocText, `"kind": 5`, `"kind": x`, 1)), Options{}, nil)
	require.ErrorIs(t, err, ErrSyntax)
}

// A part that is elsewhere, missing, or of another form does not affect the others.
func TestPartsOfRocprofv3FilesThatAreOdd(t *testing.T) {
	const metadata = `"metadata": {"pid": 77, "init_time": 1000, "fini_time": 90000, "node": {"id": 3, "hostname": "node1"}},`
	lastly := strings.TrimSuffix(strings.Replace(rocText, metadata, "", 1), "}]}") + "," +
		strings.TrimSuffix(metadata, ",") + "}]}"
	const start, empty = `{"rocprofiler-sdk-tool": [{`, `{"rocprofiler-sdk-tool": [{"buffer_records": {"hip_api": null}}, {`
	parts, records, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(rocText, start), "}]}"), "\"buffer_records\": {\n")
	recordsFirst := start + `"buffer_records": {` + records + ", " + strings.TrimSuffix(strings.TrimSpace(parts), ",") + "}]}"
	const copies = `"src_agent_id": {"handle": 1}, "bytes": 4096}]`
	for name, c := range map[string]struct {
		old, with string
		skipped   map[string]int64
	}{
		"no metadata":                          {metadata, "", nil},
		"metadata last":                        {rocText, lastly, nil},
		"records first":                        {rocText, recordsFirst, nil},
		"records first, in the second process": {rocText, empty + strings.TrimPrefix(recordsFirst, start), nil},
		"number as text": {
			`"start_timestamp": 1900`, `"start_timestamp": "1900"`,
			map[string]int64{"marker_api of another form": 1},
		},
		"null list":   {`[{"kind": 4}]`, "null", nil},
		"null object": {`"hsa_api": [{"kind": 4}]`, `"hip_api": null`, nil},
		"a time beyond int64": {
			copies, copies[:len(copies)-1] + `, {"start_timestamp": 1, "end_timestamp": 18446744073709551615}]`,
			map[string]int64{"memory_copy of another form": 1},
		},
		"an agent": {
			`"agents": [`, `"agents": [{"id": 5}, [], `,
			map[string]int64{"agents of another form": 2},
		},
		"a kernel": {
			`"kernel_symbols": [`, `"kernel_symbols": [{"kernel_id": "9"}, `,
			map[string]int64{"kernel_symbols of another form": 1},
		},
		"process": {`"pid": 77`, `"pid": "77"`, map[string]int64{"metadata of another form": 1}},
		"texts": {
			`"marker_api": [{"key": 5`, `"marker_api": [{"key": "x"}, {"key": 5`,
			map[string]int64{"strings of another form": 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(rocText, c.old, c.with, 1)
			require.NotEqual(t, rocText, text)
			batches, st := convert(t, text, Options{Detail: DetailKernels})
			if c.skipped == nil {
				c.skipped = map[string]int64{}
			}
			assert.Equal(t, c.skipped, st.Skipped)
			assert.EqualValues(t, 1, st.Kernels)
			assert.EqualValues(t, 1, st.Copies)
			assert.Equal(t, int64(1), find(t, batches, "gemm").Attributes().AsRaw()["gpu.device.ordinal"])
			assert.Equal(t, find(t, batches, "hipLaunchKernel").SpanID(), find(t, batches, "gemm").ParentSpanID())
		})
	}
}
