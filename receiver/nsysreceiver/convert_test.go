// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/semconv"
)

// export creates a database from statements.
func export(t testing.TB, statements ...string) string {
	path := filepath.Join(t.TempDir(), "with space #1?.sqlite")
	db := sqlitetest.Open(t, path)
	for _, s := range statements {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err, s)
	}
	require.NoError(t, db.Close())
	// The driver parses "?" as the start of its options, so the file is renamed afterwards.
	matches, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
	require.NoError(t, err)
	require.Len(t, matches, 1)
	require.NoError(t, os.Rename(matches[0], path))
	return path
}

const (
	strings0 = "CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)"
	strings1 = "INSERT INTO StringIds VALUES (1, 'void ns::gemm<float>(int)'), (2, 'cudaLaunchKernel_v7000'), (3, 'NCCL'), (4, 'forward')"
	kernel0  = "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, demangledName INT, " +
		"gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT, registersPerThread INT, staticSharedMemory INT, dynamicSharedMemory INT, graphId INT, graphNodeId INT)"
	runtime0 = "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT)"
	nvtx0    = "CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, domainId INT, int64Value INT, doubleValue REAL, jsonText TEXT)"
	session0 = "CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INT)"
	session1 = "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)"
	gpu0     = "CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, uuid TEXT, cuDevice INT)"
	gpu1     = "INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100', '74E128B2-90b6-b409-07c8-33bee5ff6f88', 0)"
)

func convert(t testing.TB, path string, o Options) (map[string]ptrace.Span, []ptrace.Traces, Stats) {
	byName := map[string]ptrace.Span{}
	var batches []ptrace.Traces
	st, err := ReadFile(t.Context(), path, o, func(_ context.Context, td ptrace.Traces) error {
		require.NoError(t, conformance.TracesFrom("nsys", td))
		batches = append(batches, td)
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					byName[s.Name()] = s
				}
			}
		}
		return nil
	})
	require.NoError(t, err)
	return byName, batches, st
}

func TestRangesLaunchesAndKernelsAreLinked(t *testing.T) {
	path := export(t, strings0, strings1, kernel0, runtime0, nvtx0, session0, session1, gpu0, gpu1,
		// two processes (4 and 5) use the same correlation
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000, 1500, 0, 7, 9, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, 5, 6)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 910, 67108865, 9, 2), (800, 810, 83886081, 9, 2)",
		"INSERT INTO NVTX_EVENTS (start, end, eventType, text, textId, globalTid, domainId, int64Value, jsonText) VALUES "+
			"(0, NULL, 75, NULL, 3, 67108865, 1, NULL, NULL), "+
			"(100, 5000, 59, 'ProfilerStep#3', NULL, 67108865, 0, NULL, NULL), "+
			"(200, 4000, 59, NULL, 4, 67108865, 1, 1024, NULL), "+
			"(300, 3000, 59, 'aten::mm, seq = 5, op_id = 7, sizes = [[2, 3]]', NULL, 67108865, 0, NULL, NULL), "+
			"(350, 6000, 60, 'across threads', NULL, 67108865, 0, NULL, NULL), "+
			"(400, 500, 34, 'mark', NULL, 67108865, 0, NULL, NULL), (450, NULL, 34, 'mark', NULL, 67108865, 0, NULL, NULL)")
	spans, batches, st := convert(t, path, Options{Detail: emit.LevelKernels, Attributes: spanfacts.Full})
	k := spans["gemm"]
	a := k.Attributes().AsRaw()
	for key, want := range map[string]any{
		"gpu.operation.type": "kernel", "gpu.kernel.name": "void ns::gemm<float>(int)", "gpu.device.ordinal": int64(0),
		"gpu.stream.id":      int64(7),
		"gpu.correlation.id": int64(9), "gpu.kernel.grid": []any{int64(2), int64(3), int64(4)},
		"gpu.kernel.block":     []any{int64(32), int64(1), int64(1)},
		"gpu.kernel.registers": int64(40), "gpu.kernel.shared_memory.size": int64(128), "gpu.graph.id": int64(5),
		"gpu.graph.node.id": int64(6),
		"hw.id":             "GPU-74e128b2-90b6-b409-07c8-33bee5ff6f88", "gpu.launch.delay": 9e-8, "gpu.start.delay": 1e-7,
		"gpu.duration": 5e-7,
	} {
		assert.Equal(t, want, a[key], key)
	}
	scopes := batches[0].ResourceSpans().At(0).ScopeSpans()
	assert.Equal(t, map[string]any{
		"gpu.device.ordinal": int64(0), "hw.id": "GPU-74e128b2-90b6-b409-07c8-33bee5ff6f88", "hw.model": "NVIDIA H100",
		"gpu.timing.source": "cupti",
	}, scopes.At(1).Scope().Attributes().AsRaw(), "of the device, beside the host's")
	assert.Equal(t, int64(1700000000000001000), int64(k.StartTimestamp()))
	for _, up := range []string{"cudaLaunchKernel", "aten::mm", "forward", "ProfilerStep#3"} {
		if up == "cudaLaunchKernel" { // both processes have one: compare by time
			continue
		}
		require.Contains(t, spans, up)
	}
	assert.Equal(t, spans["forward"].SpanID(), spans["aten::mm"].ParentSpanID())
	assert.Equal(t, spans["ProfilerStep#3"].SpanID(), spans["forward"].ParentSpanID())
	assert.Equal(t, int64(3), spans["ProfilerStep#3"].Attributes().AsRaw()["gpu.step.index"])
	assert.Equal(t, int64(1), spans["forward"].Attributes().AsRaw()["thread.id"])
	assert.NotContains(t, spans["across threads"].Attributes().AsRaw(), "thread.id", "a start-end range is on no thread")
	assert.Equal(t, "NCCL", spans["forward"].Attributes().AsRaw()["cuda.nvtx.domain"])
	assert.Equal(t, "1024", spans["forward"].Attributes().AsRaw()["cuda.nvtx.payload"])
	assert.Equal(t, spans["ProfilerStep#3"].TraceID(), k.TraceID(), "the launch of the kernel's own process counts")
	assert.Equal(t, map[string]int64{"NVTX mark or range without an end": 1}, st.Skipped)
	pids := map[any]bool{}
	for _, rs := range batches[0].ResourceSpans().All() {
		pids[rs.Resource().Attributes().AsRaw()["process.pid"]] = true
	}
	assert.Equal(t, map[any]bool{int64(4): true, int64(5): true}, pids, "one resource per process")
}

func TestRangeNames(t *testing.T) {
	for text, want := range map[string]struct {
		kind event.Kind
		name string
		step int64
	}{
		"ProfilerStep#12":                  {event.KindStep, "ProfilerStep#12", 12},
		"step 7":                           {event.KindStep, "step 7", 7},
		"Iteration_3":                      {event.KindStep, "Iteration_3", 3},
		"train_step 5":                     {event.KindStep, "train_step 5", 5},
		"aten::add, seq = 5":               {event.KindOperator, "aten::add", 0},
		"aten::empty, op_id = 990346":      {event.KindOperator, "aten::empty", 0},
		"MulBackward0, seq = 3, op_id = 4": {event.KindOperator, "MulBackward0", 0},
		"MPI_Send":                         {event.KindAnnotation, "MPI_Send", 0},
		"stepping 5":                       {event.KindAnnotation, "stepping 5", 0},
		"step":                             {event.KindAnnotation, "step", 0},
		"forward, layer = 5":               {event.KindAnnotation, "forward, layer = 5", 0},
	} {
		var e event.Event
		name := rangeOf(&e, text)
		assert.Equal(t, want.kind, e.Kind, text)
		assert.Equal(t, want.name, name, text)
		assert.Equal(t, want.step, e.Detail.Step, text)
	}
}

func TestOtherDatabasesAreRejectedByName(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(p, []byte(text), 0o600))
		return p
	}
	for path, says := range map[string]string{
		write("empty.sqlite", ""):                              "it is empty",
		write("text.sqlite", "hello, I am no database at all"): "it is not an SQLite database",
		write("short.sqlite", "SQL"):                           "it is not an SQLite database",
		write("a.nsys-rep",
			"QuadD report"): "it is a report of Nsight Systems (nsys export --type sqlite a.nsys-rep)",
		export(t, kernel0, "CREATE TABLE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL (_id_ INT, start INT, end INT, name INT)"): "it is a " +
			"database of nvprof (record with: nsys profile --trace=cuda,nvtx)",
		export(t, runtime0, "CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY, value TEXT)"): "it is a database of nvprof",
		export(t, "CREATE TABLE TASK (startNs INT)", "CREATE TABLE COMPUTE_TASK_INFO (name INT)"): "it is a database of Ascend's " +
			"profiler (torch_npu, msprof), and work of NPUs is not read",
		export(t, "CREATE TABLE CANN_API (startNs INT)"): "it is a database of Ascend's profiler",
		export(t, "CREATE TABLE HIP (BeginNs INT)", "CREATE TABLE OPS (BeginNs INT)"): "it is a database of rocprof (record with " +
			"rocprofv3 --output-format json)",
		export(t,
			"CREATE TABLE notes (text TEXT)"): "it has none of the tables CUPTI_ACTIVITY_KIND_* and NVTX_EVENTS",
	} {
		_, err := ReadFile(t.Context(), path, Options{}, nil)
		require.ErrorIs(t, err, ErrNotExport, path)
		assert.ErrorContains(t, err, path)
		assert.ErrorContains(t, err, says)
	}
	_, err := ReadFile(t.Context(), export(t, session0), Options{}, nil)
	require.ErrorContains(t, err, "the export has no CUDA or NVTX events (record with: nsys profile --trace=cuda,nvtx)")
	_, err = ReadFile(t.Context(), filepath.Join(dir, "none.sqlite"), Options{}, nil)
	require.ErrorIs(t, err, os.ErrNotExist)
	broken := write("broken.sqlite", "SQLite format 3\x00"+string(make([]byte, 200)))
	_, err = ReadFile(t.Context(), broken, Options{}, nil)
	assert.ErrorContains(t, err, broken)
}

func TestTruncatedDatabaseIsRefused(t *testing.T) {
	whole, err := os.ReadFile(recorded.Path(t, "nsys", "nsys-ai", "mfu_2gpu_before.sqlite"))
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "cut.sqlite")
	for _, length := range []int{90, len(whole) / 3, len(whole) - 4096, len(whole) - 1} {
		require.NoError(t, os.WriteFile(path, whole[:length], 0o600))
		_, err = ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error {
			t.Error("something of a broken file was emitted")
			return nil
		})
		require.ErrorIs(t, err, ErrNotExport, length)
		assert.ErrorContains(t, err, path)
		assert.ErrorContains(t, err, "it is truncated")
	}
}

func TestColumnsThatAreMissingAreAbsent(t *testing.T) {
	path := export(t, "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (-5, 10), (NULL, 3), (9, 3)")
	spans, _, st := convert(t, path, Options{Detail: emit.LevelKernels, Attributes: spanfacts.Full})
	a := spans["kernel"].Attributes().AsRaw()
	for _, key := range []string{
		"gpu.kernel.grid", "gpu.kernel.registers", "gpu.correlation.id", "hw.model",
		"gpu.launch.delay", "gpu.start.delay",
	} {
		assert.NotContains(t, a, key)
	}
	assert.Equal(t, 1.5e-8, a["gpu.duration"])
	assert.Equal(t, map[string]int64{"start or end missing": 1, "negative duration": 1}, st.Skipped)
	assert.Equal(t, []string{"no session start: times count from 1970"}, st.Faults)
}

func TestNoLevelOfDetailLosesWork(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	paths, err := filepath.Glob(recorded.Path(t, "nsys", "*", "*.sqlite"))
	require.NoError(t, err)
	for _, path := range paths {
		var want int64 = -1
		for _, detail := range []emit.Level{emit.LevelKernels, emit.LevelAuto, emit.LevelSteps, emit.LevelAnnotations, emit.LevelOperators} {
			var have int64
			bytes := 0
			st, err := ReadFile(t.Context(), path, Options{Detail: detail}, func(_ context.Context, td ptrace.Traces) error {
				bytes += (&ptrace.ProtoMarshaler{}).TracesSize(td)
				for _, rs := range td.ResourceSpans().All() {
					for _, ss := range rs.ScopeSpans().All() {
						for _, s := range ss.Spans().All() {
							a := s.Attributes().AsRaw()
							for _, k := range []string{"kernel", "collective", "copy", "memset"} {
								n, _ := a["gpu.summary."+k+".count"].(int64)
								have += n
								if a["gpu.operation.type"] == k {
									have++
								}
							}
						}
					}
				}
				return nil
			})
			require.NoError(t, err)
			if want < 0 {
				want = have
			}
			assert.Equal(t, want, have, "%s %v", path, detail)
			t.Logf("%s %v: %d spans, %d bytes, %d cut", filepath.Base(path), detail, st.Spans, bytes, st.Cut)
		}
	}
}

// Without NVTX, recorded system and MPI calls show what a program does; waits in the CUDA runtime
// are waits, regardless of system calls in them.
func TestSystemAndMPICallsShowHostActivity(t *testing.T) {
	const each = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 10000000 FROM n WHERE i < 90000000) SELECT "
	report := func(rows ...string) facts.Report {
		_, _, st := convert(t, export(t, append([]string{
			strings0, strings1, kernel0, runtime0, session0, session1,
			"CREATE TABLE OSRT_API (start INT, end INT, globalTid INT, correlationId INT, nameId INT)",
			"CREATE TABLE MPI_COLLECTIVES_EVENTS (start INT, end INT, globalTid INT, textId INT)",
			"INSERT INTO StringIds VALUES (10, 'fread'), (11, 'MPI_Allreduce'), (12, 'cudaDeviceSynchronize_v3020'), (13, 'sem_timedwait'), (14, 'ioctl')",
			"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName) " +
				each + "i + 20000, i + 2020000, 0, 7, i / 10000000 + 1, 67108864, 1 FROM n",
			"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME " + each + "i, i + 10000, 67108865, i / 10000000 + 1, 2 FROM n",
			"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME " + each + "i + 30000, i + 2025000, 67108865, 0, 12 FROM n",
		}, rows...)...), Options{Detail: emit.LevelKernels})
		assert.Empty(t, st.Skipped)
		return st.Devices[0]
	}
	v := report("INSERT INTO OSRT_API "+each+"i + 2050000, i + 9900000, 67108865, 0, 10 FROM n",
		"INSERT INTO OSRT_API "+each+"i + 40000, i + 2021000, 67108865, 0, 13 FROM n",
		"INSERT INTO OSRT_API "+each+"i + 1000, i + 9000, 67108865, 0, 14 FROM n",
		"INSERT INTO OSRT_API "+each+"i + 1000, i + 9999000, 67108866, 0, 10 FROM n").Findings[0]
	assert.Equal(t, semconv.GPUFindingKindHostWork, v.Kind)
	assert.Equal(t, finding.High, v.Certainty)
	assert.Equal(t, "the host was in fread()", v.Chain[0])
	assert.Equal(t, 9*7850*time.Microsecond, v.Gain)
	assert.NotContains(t, v.Evidence, "another thread", "a call of the system lets other threads run")
	v = report("INSERT INTO MPI_COLLECTIVES_EVENTS " + each + "i + 2050000, i + 9900000, 67108865, 11 FROM n").Findings[0]
	assert.Equal(t, semconv.GPUFindingKindWaitingForRank, v.Kind)
	assert.Contains(t, v.Evidence, "MPI_Allreduce")
	v = report("INSERT INTO OSRT_API "+each+"i + 40000, i + 2021000, 67108865, 0, 13 FROM n",
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME "+each+"i + 2025000, i + 9998000, 67108865, 0, 12 FROM n",
		"INSERT INTO OSRT_API "+each+"i + 2030000, i + 9990000, 67108865, 0, 13 FROM n").Findings[0]
	assert.Equal(t, semconv.GPUFindingKindNotRecorded, v.Kind,
		"the host waits for the device long after its last recorded work")
}

func TestAnOutlyingRowIsNamedAndSkipped(t *testing.T) {
	const each = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 10000000 FROM n WHERE i < 90000000) SELECT "
	const kernel = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName) "
	read := func(rows ...string) (Stats, uint64) {
		spans, _, st := convert(t, export(t, append([]string{
			strings0, strings1, kernel0, runtime0, nvtx0, session0, session1,
			kernel + each + "i + 20000, i + 2020000, 0, 7, i / 10000000 + 1, 67108864, 1 FROM n",
			"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME " + each + "i, i + 10000, 67108865, i / 10000000 + 1, 2 FROM n",
		}, rows...)...), Options{Detail: emit.LevelKernels})
		latest := uint64(0)
		for _, s := range spans {
			latest = max(latest, uint64(s.EndTimestamp()))
		}
		return st, latest
	}
	want, end := read()
	for name, row := range map[string]string{
		"kernel after a year": kernel + "VALUES (31536000000000000, 31536000000001000, 0, 7, 0, 67108864, 1)",
		"kernel of a year":    kernel + "VALUES (5000000, 31536000000001000, 0, 7, 0, 67108864, 1)",
		"call after a year":   "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (31536000000000000, 31536000000001000, 67108865, 77, 2)",
		"range at 1e18":       "INSERT INTO NVTX_EVENTS (start, end, eventType, text, globalTid) VALUES (1000000000000000000, 1000000000000000001, 59, 'odd', 67108865)",
	} {
		got, latest := read(row)
		assert.Equal(t, want.Devices, got.Devices, name)
		assert.Equal(t, map[string]int64{"time more than a day from all other events": 1}, got.Skipped, name)
		require.Len(t, got.Faults, len(want.Faults)+1, name)
		assert.Contains(t, got.Faults[len(want.Faults)], "is omitted: it", name)
		assert.Equal(t, end, latest, name)
	}
}

// Migrations of managed memory are copies of kinds 11 to 13; without concurrent kernels they are
// the finding.
func TestPageMigrations(t *testing.T) {
	path := export(t, strings0, strings1, kernel0, runtime0, session0, session1,
		"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1000, 2000, 0, 7, 0, 67108864, 65536, 11, 3, 2), (2000, 2500, 0, 7, 0, 67108864, 4096, 12, 2, 3)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2500, 3000, 0, 7, 13, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, NULL, NULL)")
	spans, _, st := convert(t, path, Options{Detail: emit.LevelKernels})
	a := spans["Page migration HtoD"].Attributes().AsRaw()
	assert.Equal(t, "host_to_device", a["gpu.copy.direction"])
	assert.Equal(t, "managed", a["gpu.copy.host_memory"])
	assert.Contains(t, spans, "Page migration DtoH")
	v := st.Devices[0].Findings[0]
	assert.Equal(t, "page_migrations", v.Kind)
	assert.Equal(t, 1500*time.Nanosecond, v.Gain)
	assert.Contains(t, v.Evidence, "1 copy host to device of 65.5 kB at 65.5 GB/s")
}

// Kernels that access pages in other memory wait for them while the migrations run. A prefetch by
// the program is a copy.
func TestKernelsThatWaitForPages(t *testing.T) {
	report := func(cause string) facts.Report {
		_, _, st := convert(t, export(t, strings0, strings1, kernel0, runtime0, session0, session1,
			"CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, bytes INT, copyKind INT, srcKind INT, dstKind INT, migrationCause INT)",
			"INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (1000000, 3000000, 0, 7, 0, 67108864, 65536, 11, 3, 2, "+cause+
				"), (2500000, 3500000, 0, 7, 0, 67108864, 65536, 11, 3, 2, "+cause+
				"), (6000000, 6500000, 0, 7, 0, 67108864, 65536, 11, 3, 2, "+cause+"), (4000000, 9000000, 0, 7, 0, 67108864, 4096, 12, 2, 3, "+cause+")",
			"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1000000, 10000000, 0, 7, 13, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, NULL, NULL)"),
			Options{})
		return st.Devices[0]
	}
	for _, fault := range []string{"2", "3", "NULL"} {
		v := report(fault).Findings[0]
		assert.Equal(t, semconv.GPUFindingKindPageMigrations, v.Kind)
		assert.Equal(t, 3*time.Millisecond, v.Gain, "3 ms of incoming pages; outgoing ones stop no kernel")
		assert.Contains(t, v.String(), "its kernels waited for pages for up to 3ms")
	}
	assert.Equal(t, semconv.GPUFindingKindNotJudged, report("1").Findings[0].Kind, "nothing to gain, but no work is recorded")
}

// By default a graph's launch is one row, without rows for its kernels.
func TestGraphsThatAreOneRow(t *testing.T) {
	path := export(t, strings0, strings1, "INSERT INTO StringIds VALUES (5, 'cudaGraphLaunch_v10000')", kernel0, runtime0,
		session0, session1,
		"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INT, end INT, deviceId INT, contextId INT, streamId INT, correlationId INT, globalPid INT, graphId INT, graphExecId INT)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (900, 910, 67108865, 9, 5), (1400, 1410, 67108865, 10, 5)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (1000, 1400, 0, 1, 7, 9, 67108864, 3, 4), (1500, 2000, 0, 1, 7, 10, 67108864, 3, 4), "+
			"(0, 0, 0, 1, 7, 11, 67108864, 3, 4), (2000, 2100, 2147483647, 2147483647, 7, 12, 67108864, 3, 4)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2100, 2200, 0, 7, 13, 67108864, 1, 2, 3, 4, 32, 1, 1, 40, 100, 28, NULL, NULL)")
	spans, _, st := convert(t, path, Options{Detail: emit.LevelKernels})
	assert.Equal(t, map[string]int64{"start or end missing": 1, "graph that begins on the host": 1}, st.Skipped)
	g := spans["CUDAGraph#3"]
	a := g.Attributes().AsRaw()
	assert.Equal(t, "graph", a["gpu.operation.type"])
	assert.Equal(t, int64(3), a["gpu.graph.id"])
	assert.Equal(t, int64(7), a["gpu.stream.id"])
	assert.NotContains(t, a, "gpu.kernel.name")
	assert.Equal(t, spans["cudaGraphLaunch"].SpanID(), g.ParentSpanID())
	assert.Equal(t, []any{"CUDAGraph#3", "gemm"}, spans["GPU 0"].Attributes().AsRaw()["gpu.summary.kernel.names"])
	require.Len(t, st.Devices, 1)
	assert.Equal(t, 1200*time.Nanosecond, st.Devices[0].Window)
	assert.Equal(t, 1000*time.Nanosecond, st.Devices[0].Parts.Computing, "two graphs and a kernel")
	assert.Equal(t, 200*time.Nanosecond, st.Devices[0].Parts.Idle)
	var kinds []string
	for _, f := range st.Devices[0].Findings {
		kinds = append(kinds, f.Kind)
	}
	assert.Contains(t, kinds, semconv.GPUFindingKindNotJudged)
}

// TestDeviceClocksExplainSlowKernels has two devices whose numbers in Nsight Systems differ from
// CUDA's: kernels of device 0, which is its number 1, take half as long again in the last third.
func TestDeviceClocksExplainSlowKernels(t *testing.T) {
	const kernels, slow = 600, 400
	export1 := func(low int64) string {
		rows, clocks := &strings.Builder{}, &strings.Builder{}
		at := int64(1_000_000)
		for i := range int64(kernels) {
			length, hertz := 60_000+40_000*(i%2), int64(1_755_000_000)
			if i >= slow {
				length, hertz = length*3/2, low
			}
			fmt.Fprintf(rows, ",(%d, %d, 0, 7, 0, 0, %d, 132, 1, 1, 256, 1, 1)", at, at+length, 10+i%2)
			fmt.Fprintf(clocks,
				",(%d, 72057594037927937, 0, %d),(%d, 72057594037927936, 0, 210000000),(%d, 72057594037927937, 1, %d)",
				at, hertz, at, at, i%100)
			at += length + 1000
		}
		return export(t, strings0, "INSERT INTO StringIds VALUES (10, 'gemm'), (11, 'norm')", session0, session1,
			"CREATE TABLE TARGET_INFO_GPU (id INT, name TEXT, uuid TEXT, cuDevice INT)",
			"INSERT INTO TARGET_INFO_GPU VALUES (0, 'NVIDIA H100', NULL, 1), (1, 'NVIDIA H100', NULL, 0)",
			"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, "+
				"demangledName INT, gridX INT, gridY INT, gridZ INT, blockX INT, blockY INT, blockZ INT)",
			"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES "+rows.String()[1:],
			"CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER NOT NULL, metricId INTEGER NOT NULL, value INTEGER NOT NULL)",
			"INSERT INTO GPU_METRICS VALUES "+clocks.String()[1:],
			"CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER NOT NULL, sourceId INTEGER NOT NULL, typeName TEXT NOT NULL, "+
				"metricId INTEGER NOT NULL, metricName TEXT NOT NULL)",
			"INSERT INTO TARGET_INFO_GPU_METRICS VALUES (72057594037927936, 1, 'GPU Metrics', 0, 'GPC Clock Frequency [MHz]'), "+
				"(72057594037927937, 1, 'GPU Metrics', 0, 'GPC Clock Frequency [MHz]'), "+
				"(72057594037927937, 1, 'GPU Metrics', 1, 'SMs Active [Throughput %]')")
	}
	throttled := func(low int64) finding.Finding {
		_, _, st := convert(t, export1(low), Options{})
		require.Len(t, st.Devices, 1)
		for _, v := range st.Devices[0].Findings {
			if v.Kind == semconv.GPUFindingKindThrottle {
				return v
			}
		}
		require.Fail(t, "no throttle", "%v", st.Devices[0].Findings)
		return finding.Finding{}
	}
	v := throttled(1_170_000_000)
	assert.Equal(t, finding.High, v.Certainty)
	assert.Contains(t, v.Chain[0], "clocks of the device were lowered")
	assert.Contains(t, v.Evidence, "at 66.7 %", "1170 of 1755 MHz")
	saved := 200 * 80_000 * 1.5 / 3 // ns of the slow third
	assert.InEpsilon(t, saved, float64(v.Gain), 0.05)

	v = throttled(1_755_000_000)
	assert.NotEqual(t, finding.High, v.Certainty)
	assert.Contains(t, v.Chain[0], "though its clock did not")
}

func TestRenamedColumnsOfKernels(t *testing.T) {
	st, err := ReadFile(t.Context(), recorded.Path(t, "cases", "profiles", "nsys_renamed_columns.sqlite"), Options{},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	kernels := map[string]time.Duration{}
	for _, k := range st.Devices[0].ByKernel {
		kernels[k.Name] = k.Time
	}
	assert.Equal(t, map[string]time.Duration{"gemm_0": 600 * time.Microsecond, "gemm_1": 600 * time.Microsecond}, kernels)
	for _, v := range st.Devices[0].Findings {
		assert.NotEqual(t, semconv.GPUFindingKindUnexplainedIdle, v.Kind, "kernels have their launches")
	}
}

// A table of a newer version, and the profiler's own warnings.
func TestNewerRangesAndDiagnostics(t *testing.T) {
	path := export(t, strings0, strings1, session0, session1, kernel0, strings.Replace(nvtx0, "NVTX_EVENTS", "NVTX_EVENTS_V2", 1),
		"INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, demangledName) VALUES (10, 20, 0, 7, 1, 1)",
		"INSERT INTO NVTX_EVENTS_V2 (start, end, eventType, textId, globalTid) VALUES (5, 30, 59, 4, 1)",
		"CREATE TABLE DIAGNOSTIC_EVENT (timestamp INT, timestampType INT, source INT, severity INT, text TEXT)",
		"INSERT INTO DIAGNOSTIC_EVENT VALUES (1, 0, 1, 1, 'Number of CUDA events that might matter: 1'), (2, 0, 1, 2, 'CPU sampling may not be available'), "+
			"(3, 0, 1, 2, 'Not all CUDA events might have been collected.')")
	spans, _, st := convert(t, path, Options{})
	assert.Contains(t, spans, "forward")
	assert.Contains(t, st.Faults, "Nsight Systems: Not all CUDA events might have been collected.")
	assert.Len(t, st.Faults, 1)
}
