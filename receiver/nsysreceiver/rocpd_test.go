// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
)

// rocpdRun has the tables of one run of rocprofv3, whose names end in %, with the columns that are
// read and some that are not. Row numbers differ from the numbers of devices, processes and
// threads.
const rocpdRun = "CREATE TABLE `rocpd_string%` (\"id\" INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, \"guid\" TEXT DEFAULT \"x\" NOT NULL, \"string\" TEXT);" +
	"INSERT INTO `rocpd_string%` (id, string) VALUES (1, 'HIP_RUNTIME_API_EXT'), (2, 'MARKER_CORE_RANGE_API'), (3, 'hipLaunchKernel')," +
	"(4, 'hipMemcpyAsync'), (5, 'roctxRangePushA'), (6, 'MEMORY_COPY_HOST_TO_DEVICE'), (7, 'HSA_CORE_API'), (8, 'hsa_signal_create')," +
	"(9, 'KERNEL_DISPATCH');" +
	"CREATE TABLE `rocpd_info_node%` (id INTEGER PRIMARY KEY, hostname TEXT); INSERT INTO `rocpd_info_node%` VALUES (4, 'node1');" +
	"CREATE TABLE `rocpd_info_process%` (id INTEGER PRIMARY KEY, pid INTEGER, environment JSONB DEFAULT \"{}\");" +
	"INSERT INTO `rocpd_info_process%` VALUES (3, 77, '{\"RANK\":\"5\",\"WORLD_SIZE\":\"8\"}');" +
	"CREATE TABLE `rocpd_info_thread%` (id INTEGER PRIMARY KEY, tid INTEGER); INSERT INTO `rocpd_info_thread%` VALUES (2, 78);" +
	"CREATE TABLE `rocpd_info_agent%` (id INTEGER PRIMARY KEY, type TEXT, absolute_index INTEGER, type_index INTEGER, name TEXT, product_name TEXT, extdata JSONB);" +
	"INSERT INTO `rocpd_info_agent%` VALUES (0, 'CPU', 0, 0, 'EPYC', 'EPYC', '{}'), (1, 'GPU', 1, 0, 'gfx942', 'AMD Instinct MI300X', NULL)," +
	"(2, 'GPU', 2, 1, 'gfx942', 'AMD Instinct MI300X', '{\"cu_count\": 4}');" +
	"CREATE TABLE `rocpd_info_kernel_symbol%` (id INTEGER PRIMARY KEY, kernel_name TEXT, display_name TEXT, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);" +
	"INSERT INTO `rocpd_info_kernel_symbol%` VALUES (9, '_Z4gemmPf.kd', 'gemm(float*)', 96, 88, 8);" +
	"CREATE TABLE `rocpd_event%` (id INTEGER PRIMARY KEY, category_id INTEGER, stack_id INTEGER, extdata JSONB);" +
	"INSERT INTO `rocpd_event%` VALUES (11, 2, 5, '{\"message\":\"forward\"}'), (12, 1, 6, '{}'), (13, 1, 7, '{}'), (14, 9, 6, '{}')," +
	"(15, 9, 7, '{}'), (16, 7, 8, '{}');" +
	"CREATE TABLE `rocpd_region%` (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, start BIGINT, end BIGINT, name_id INTEGER, event_id INTEGER);" +
	"INSERT INTO `rocpd_region%` VALUES (5, 3, 2, 1900, 3000, 5, 11), (6, 3, 2, 2000, 2100, 3, 12), (7, 3, 2, 2200, 2300, 4, 13), (8, 3, 2, 2400, 2410, 8, 16);" +
	"CREATE TABLE `rocpd_kernel_dispatch%` (id INTEGER PRIMARY KEY, pid INTEGER, tid INTEGER, agent_id INTEGER, kernel_id INTEGER, queue_id INTEGER, stream_id INTEGER," +
	"start BIGINT, end BIGINT, workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, event_id INTEGER, group_segment_size INTEGER);" +
	"INSERT INTO `rocpd_kernel_dispatch%` VALUES (1, 3, 2, 2, 9, 4, 0, 2500, 4500, 256, 1, 1, 1000, 2, 1, 14, 20480), (2, 3, 2, 0, 9, 4, 0, 2500, 4500, 1, 1, 1, 1, 1, 1, 14, 0);" +
	"CREATE TABLE `rocpd_memory_copy%` (id INTEGER PRIMARY KEY, pid INTEGER, start BIGINT, end BIGINT, name_id INTEGER, dst_agent_id INTEGER, src_agent_id INTEGER," +
	"size INTEGER, queue_id INTEGER, stream_id INTEGER, event_id INTEGER);" +
	"INSERT INTO `rocpd_memory_copy%` VALUES (1, 3, 5000, 6000, 6, 2, 0, 4096, 0, 3, 15);" +
	"CREATE VIEW rocpd_memory_copy AS SELECT * FROM `rocpd_memory_copy%`"

func TestDatabasesOfRocprofv3(t *testing.T) {
	run := strings.Split(strings.ReplaceAll(rocpdRun, "%", "_00003fdc_92cb"), ";")
	spans, batches, st := convert(t, export(t, run...), Options{Detail: emit.LevelKernels})
	assert.EqualValues(t, 1, st.Kernels)
	assert.EqualValues(t, 1, st.Copies)
	assert.Equal(t, map[string]int64{"activity of an agent that is not a listed GPU": 1}, st.Skipped)
	require.Len(t, st.Faults, 1)
	assert.Contains(t, st.Faults[0], "times count from the start of the machine")

	kernel := &st.Devices[0].ByKernel[0] // 3 workgroups of 4 waves by LDS, of 5 by 96 registers
	assert.Equal(t, "grid", kernel.LimitedBy.String(), "8 workgroups on 4 units")
	assert.InDelta(t, 2.0/3, kernel.Waves.Value(), 1e-9)
	assert.InDelta(t, 2*4/32.0, kernel.Occupancy.Value(), 1e-9)

	k, c := spans["gemm"], spans["Memcpy HtoD"]
	for key, want := range map[string]any{
		"gpu.kernel.name": "gemm(float*)", "gpu.device.ordinal": int64(1), "gpu.stream.id": int64(0), "gpu.duration": 2e-6,
		"gpu.launch.delay": 4e-7, "gpu.correlation.id": int64(6),
	} {
		assert.Equal(t, want, k.Attributes().AsRaw()[key], key)
	}
	assert.EqualValues(t, 2500, k.StartTimestamp())
	for key, want := range map[string]any{
		"gpu.copy.direction": "host_to_device", "gpu.io.size": int64(4096), "gpu.device.ordinal": int64(1), "gpu.stream.id": int64(3),
	} {
		assert.Equal(t, want, c.Attributes().AsRaw()[key], key)
	}
	assert.Equal(t, spans["hipLaunchKernel"].SpanID(), k.ParentSpanID())
	assert.Equal(t, spans["hipMemcpyAsync"].SpanID(), c.ParentSpanID())
	assert.Equal(t, spans["forward"].SpanID(), spans["hipLaunchKernel"].ParentSpanID())
	assert.NotContains(t, spans, "hsa_signal_create")

	resource := batches[0].ResourceSpans().At(0).Resource().Attributes().AsRaw()
	for key, want := range map[string]any{
		"service.name": "rocprofv3", "host.name": "node1", "process.pid": int64(77), "gpu.job.rank": int64(5),
		"gpu.job.world_size": int64(8),
	} {
		assert.Equal(t, want, resource[key], key)
	}
}

// A file merged by rocpd has the tables of each run, with repeating row numbers.
func TestDatabasesOfSeveralRunsOfRocprofv3(t *testing.T) {
	one := strings.Split(strings.ReplaceAll(rocpdRun, "%", "_1"), ";")
	two := strings.ReplaceAll(strings.ReplaceAll(rocpdRun, "%", "_2"), "(3, 77,", "(3, 99,")
	two, _, _ = strings.Cut(two, ";CREATE VIEW")
	_, _, st := convert(t, export(t, append(one, strings.Split(two, ";")...)...), Options{Detail: emit.LevelKernels})
	assert.EqualValues(t, 2, st.Kernels)
	assert.EqualValues(t, 2, st.Copies)
}
