// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
)

// nsys writes an export of Nsight Systems 2024.6 (schema 3.17): the tables that the profiler fills.
func (s *sim) nsys(t testing.TB, path string) {
	db := sqlitetest.Open(t, "file:"+path+"?_pragma=journal_mode(off)&_pragma=synchronous(off)")
	defer db.Close()
	tx, err := db.Begin()
	require.NoError(t, err)
	const global = int64(1)<<48 + int64(pid)<<24
	ids := map[string]int{}
	exec := func(text string, args ...any) {
		if err == nil {
			_, err = tx.Exec(text, args...)
		}
	}
	for _, table := range []string{
		"StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL)",
		"META_DATA_EXPORT (name TEXT NOT NULL, value TEXT)",
		"TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT)",
		"TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, isDiscrete INTEGER, l2CacheSize INTEGER, totalMemory INTEGER, memoryBandwidth INTEGER, clockRate INTEGER, smCount INTEGER, uuid TEXT, chipName TEXT, cuDevice INTEGER, threadsPerWarp INTEGER, maxWarpsPerSm INTEGER, maxBlocksPerSm INTEGER, maxRegistersPerSm INTEGER, maxShmemPerSm INTEGER, computeMajor INTEGER, computeMinor INTEGER)",
		"PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT)",
		"ThreadNames (nameId INTEGER NOT NULL, priority INTEGER, globalTid INTEGER)",
		"CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL, dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL, gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER)",
		"CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER, srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER, graphNodeId INTEGER, virtualAddress INTEGER, copyCount INTEGER)",
		"CUPTI_ACTIVITY_KIND_MEMSET (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER, value INTEGER NOT NULL, bytes INTEGER NOT NULL, graphNodeId INTEGER, memKind INTEGER)",
		"CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER)",
		"NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER, int64Value INTEGER, doubleValue REAL, uint32Value INTEGER, int32Value INTEGER, floatValue REAL, jsonTextId INTEGER, jsonText TEXT, binaryData TEXT)",
		"OSRT_API (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, nestingLevel INTEGER, callchainId INTEGER NOT NULL)",
		"MPI_COLLECTIVES_EVENTS (start INTEGER NOT NULL, end INTEGER, globalTid INTEGER, textId INTEGER, commHandle INTEGER, rootRank INTEGER, size INTEGER, recvSize INTEGER)",
		"DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL, severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER)",
	} {
		exec("CREATE TABLE " + table)
	}
	str := func(text string) int {
		id, ok := ids[text]
		if !ok {
			id = len(ids) + 1
			ids[text] = id
			exec("INSERT INTO StringIds VALUES (?, ?)", id, text)
		}
		return id
	}
	insert := func(table string, values ...any) {
		exec("INSERT INTO "+table+" VALUES (?"+strings.Repeat(", ?", len(values)-1)+")", values...)
	}
	for k, v := range map[string]string{
		"EXPORT_PRODUCT_NAME": "NVIDIA Nsight Systems", "EXPORT_PRODUCT_VERSION": "2024.6.1.90",
		"EXPORT_SCHEMA_VERSION": "3.17.0", "EXPORT_SCHEMA_VERSION_MAJOR": "3", "EXPORT_SCHEMA_VERSION_MINOR": "17", "EXPORT_SCHEMA_VERSION_MICRO": "0",
	} {
		insert("META_DATA_EXPORT", k, v)
	}
	insert("TARGET_INFO_SESSION_START_TIME", int64(1751410836000000000), "2025-07-01T23:00:36", "2025-07-01T23:00:36")
	insert("TARGET_INFO_GPU", int64(1)<<48, 0, s.dev.name, "0000:03:00.0", 1, 41943040, s.dev.memory, int64(s.dev.bytes), int64(1410000000), s.dev.sms,
		"74e128b2-90b6-b409-07c8-33bee5ff6f88", "GA100", 0, 32, 64, 32, 65536, 167936, s.dev.major, s.dev.minor)
	insert("PROCESSES", global, pid, "./solver")
	insert("ThreadNames", str("solver"), 20, global+pid)
	ns := func(us float64) int64 { return int64(math.Round((us - s.start + 2_000_000) * 1e3)) }
	memory := map[string]int{"Pageable": 0, "Pinned": 1, "Device": 2, "Managed": 4}
	for i := range s.records {
		r := &s.records[i]
		start, end, tid := ns(r.ts), ns(r.ts+r.dur), global+int64(r.tid)
		switch r.kind {
		case cpuOp, annotation:
			insert("NVTX_EVENTS", start, end, 59, nil, nil, nil, r.name, tid, nil, nil, 0, nil, nil, nil, nil, nil, nil, nil, nil, nil)
		case pyFunc: // a call of the operating system
			insert("OSRT_API", start, end, 27, tid, nil, str(r.name), 0, nil, 0)
		case runtime, driver:
			insert("CUPTI_ACTIVITY_KIND_RUNTIME", start, end, int(r.kind-runtime), tid, r.corr, str(r.name+map[bool]string{true: "_v7000", false: ""}[r.kind == runtime]), 0, nil)
		case kernelRun:
			short, _, _ := strings.Cut(strings.TrimPrefix(r.name, "void "), "<")
			short, _, _ = strings.Cut(short, "(")
			insert("CUPTI_ACTIVITY_KIND_KERNEL", start, end, 0, 1, nil, r.stream, r.corr, global, str(r.name), str(short), str(r.name), 1, 1, r.regs,
				r.grid[0], r.grid[1], r.grid[2], r.block[0], r.block[1], r.block[2], 0, r.smem, 0, 0, i, 16384, nil, 0)
		case memcpy:
			kind := map[string]int{"HtoD": 1, "DtoH": 2, "DtoD": 8}[strings.Fields(r.name)[1]]
			insert("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, 0, 1, nil, r.stream, r.corr, global, r.bytes, kind, nil, memory[r.src], memory[r.dst],
				nil, nil, nil, nil, nil, nil, nil, 1)
		case migration:
			kind, src, dst := 11, 0, 2
			if r.name == "DtoH" {
				kind, src, dst = 12, 2, 0
			}
			// Its cause is 2, coherence: a kernel touched the page (ENUM_CUDA_UNIF_MEM_MIGRATION).
			insert("CUPTI_ACTIVITY_KIND_MEMCPY", start, end, 0, 1, nil, 0, nil, global, r.bytes, kind, nil, memory["Managed"], memory["Managed"],
				src, nil, dst, nil, 2, nil, int64(0x7f1200000000)+int64(i)<<16, 1)
		case memset:
			insert("CUPTI_ACTIVITY_KIND_MEMSET", start, end, 0, 1, nil, r.stream, r.corr, global, 0, r.bytes, nil, 2)
		}
		if strings.HasPrefix(r.name, "MPI_") && r.kind == annotation {
			exec("DELETE FROM NVTX_EVENTS WHERE start = ? AND text = ?", start, r.name)
			insert("MPI_COLLECTIVES_EVENTS", start, end, tid, str(r.name), 0, nil, 4096, 4096)
		}
	}
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
}

// rocprof returns what rocprofv3 writes as JSON.
func (s *sim) rocprof() []byte {
	ns := func(us float64) int64 { return int64(math.Round((us - s.start + 900_000) * 1e3)) }
	symbols, markers := map[string]int{}, []any{}
	var kernels, copies, calls, ranges, names []any
	operations := []string{"hipNone"}
	operation := map[string]int{}
	for i := range s.records {
		r := &s.records[i]
		at := map[string]any{"thread_id": r.tid, "start_timestamp": ns(r.ts), "end_timestamp": ns(r.ts + r.dur), "correlation_id": map[string]any{"internal": r.corr, "external": 0}}
		switch r.kind {
		case cpuOp, annotation:
			id := 5_000_000 + i
			at["kind"], at["operation"], at["correlation_id"] = 3, 1, map[string]any{"internal": id, "external": 0}
			ranges = append(ranges, at)
			markers = append(markers, map[string]any{"key": id, "value": r.name})
		case runtime, driver:
			if operation[r.name] == 0 {
				operation[r.name] = len(operations)
				operations = append(operations, r.name)
			}
			at["kind"], at["operation"] = 1, operation[r.name]
			calls = append(calls, at)
		case kernelRun:
			if symbols[r.name] == 0 {
				symbols[r.name] = len(symbols) + 1
				names = append(names, map[string]any{
					"kernel_id": len(symbols), "kernel_name": r.name + ".kd", "formatted_kernel_name": r.name,
					"arch_vgpr_count": r.regs, "accum_vgpr_count": 0, "sgpr_count": 64,
				})
			}
			at["kind"], at["operation"] = 5, 1
			at["dispatch_info"] = map[string]any{
				"agent_id": map[string]any{"handle": 2}, "queue_id": map[string]any{"handle": r.stream}, "kernel_id": symbols[r.name],
				"workgroup_size": map[string]any{"x": r.block[0], "y": 1, "z": 1}, "grid_size": map[string]any{"x": r.grid[0] * r.block[0], "y": 1, "z": 1},
			}
			kernels = append(kernels, at)
		case memcpy:
			at["kind"], at["operation"], at["bytes"] = 2, 2, r.bytes
			at["dst_agent_id"], at["src_agent_id"] = map[string]any{"handle": 2}, map[string]any{"handle": 1}
			if r.src == "Device" {
				at["operation"] = 3
				at["dst_agent_id"], at["src_agent_id"] = map[string]any{"handle": 1}, map[string]any{"handle": 2}
			}
			copies = append(copies, at)
		}
	}
	// Objects of JSON have no order: here, the names follow the records that use them.
	text, err := json.Marshal(map[string]any{"rocprofiler-sdk-tool": []any{map[string]any{
		"metadata": map[string]any{"pid": pid, "init_time": ns(s.start) - 1000, "fini_time": ns(s.start+s.span()) + 1000, "node": map[string]any{"id": 3, "hostname": "frontier1"}},
		"agents": []any{
			map[string]any{"id": map[string]any{"handle": 1}, "type": 1, "name": "EPYC", "logical_node_type_id": 0},
			map[string]any{"id": map[string]any{"handle": 2}, "type": 2, "name": "gfx942", "product_name": s.dev.name, "cu_count": s.dev.sms, "logical_node_type_id": 0},
		},
		"counters": []any{},
		"strings": map[string]any{
			"buffer_records": []any{
				map[string]any{"kind": "NONE", "operations": []any{}},
				map[string]any{"kind": "HIP_RUNTIME_API", "operations": operations},
				map[string]any{"kind": "MEMORY_COPY", "operations": []any{"MEMORY_COPY_NONE", "MEMORY_COPY_HOST_TO_HOST", "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST", "MEMORY_COPY_DEVICE_TO_DEVICE"}},
				map[string]any{"kind": "MARKER_CORE_API", "operations": []any{"roctxMarkA", "roctxThreadRangeA"}},
				map[string]any{"kind": "x", "operations": []any{}},
				map[string]any{"kind": "KERNEL_DISPATCH", "operations": []any{"NONE", "COMPLETE"}},
			},
			"marker_api": markers,
		},
		"kernel_symbols": names,
		"buffer_records": map[string]any{"marker_api": ranges, "hsa_api": []any{}, "hip_api": calls, "kernel_dispatch": kernels, "memory_copy": copies},
	}}})
	if err != nil {
		panic(err) // values have only maps of text and numbers
	}
	return text
}

// proton returns a Chrome trace of Triton's Proton: kernels and scopes, nothing of the host.
func (s *sim) proton() []byte {
	var b bytes.Buffer
	b.WriteString(`{"displayTimeUnit": "us", "traceEvents": [`)
	first := true
	for i := range s.records {
		r := &s.records[i]
		if r.kind != kernelRun {
			continue
		}
		if !first {
			b.WriteString(", ")
		}
		first = false
		fmt.Fprintf(&b, `{"name": %q, "cat": "kernel", "ph": "X", "ts": %.3f, "dur": %.3f, "pid": 0, "tid": %d, "args": {"call_stack": ["ROOT", "model", %q]}}`, r.name, r.ts-s.start, r.dur, r.stream, r.name)
	}
	b.WriteString("]}\n")
	return b.Bytes()
}

// onnx returns the profile of a session of ONNX Runtime.
func (s *sim) onnx() []byte {
	var b bytes.Buffer
	at := func(us float64) int64 { return int64(us-s.start) + 96000 }
	b.WriteString(`[{"cat": "Session", "pid": 4211, "tid": 4211, "dur": 30779, "ts": 13, "ph": "X", "name": "model_loading_uri", "args": {}}, {"cat": "Session", "pid": 4211, "tid": 4211, "dur": 30116, "ts": 30796, "ph": "X", "name": "session_initialization", "args": {}}`)
	node := ""
	for i := range s.records {
		r := &s.records[i]
		ts, dur := at(r.ts), int64(r.ts+r.dur)-int64(r.ts)
		switch r.kind {
		case annotation:
			if !strings.HasPrefix(r.name, "ProfilerStep") {
				fmt.Fprintf(&b, `, {"cat": "Session", "pid": %d, "tid": %d, "dur": %d, "ts": %d, "ph": "X", "name": %q, "args": {}}`, pid, r.tid, dur, ts, r.name)
			}
		case cpuOp:
			op := strings.TrimPrefix(r.name, "aten::")
			node = fmt.Sprintf("%s_%d", op, i)
			fmt.Fprintf(&b, `, {"cat": "Node", "pid": %d, "tid": %d, "dur": %d, "ts": %d, "ph": "X", "name": "%s_kernel_time", "args": {"op_name": %q, "provider": "CUDAExecutionProvider", "node_index": "%d"}}`, pid, r.tid, dur, ts, node, op, i)
		case kernelRun:
			fmt.Fprintf(&b, `, {"cat": "Kernel", "pid": -1, "tid": -1, "dur": %d, "ts": %d, "ph": "X", "name": %q, "args": {"stream": "7", "grid_x": "%d", "grid_y": "1", "grid_z": "1", "block_x": "%d", "block_y": "1", "block_z": "1", "op_name": "x", "parent_name": %q}}`,
				dur, ts, r.name, r.grid[0], r.block[0], node)
		}
	}
	b.WriteString("]\n")
	return b.Bytes()
}
