// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/semconv"
)

const (
	system0  = "CREATE TABLE TARGET_INFO_SYSTEM_ENV (globalVid INT, devStateName TEXT, name TEXT, nameEnum INT, value TEXT)"
	capture0 = "CREATE TABLE META_DATA_CAPTURE (name TEXT, value TEXT)"
	cuda0    = "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INT, cudaId INT, pid INT, uuid TEXT)"
	kernel1  = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName) VALUES (1000, 1500, 0, 7, 9, 67108864, 1)"
	kernel2  = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, demangledName) VALUES (1200, 1900, 0, 7, 9, 83886080, 1)"
)

func TestRankAndJob(t *testing.T) {
	for name, c := range map[string]struct {
		rows []string
		file string
		want map[string]any
	}{
		"of the program": {
			rows: []string{
				`INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'RANK="3"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'LOCAL_RANK="1"'),
				 ('PROCESS_0:ENVIRONMENT_VARIABLE', 'WORLD_SIZE="8"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'TORCHELASTIC_RUN_ID="run"')`,
				"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local (CLI)', 'Hostname', 0, 'node-1')", kernel1,
			},
			want: map[string]any{
				"gpu.job.rank": int64(3), "gpu.job.local_rank": int64(1), "gpu.job.world_size": int64(8),
				"gpu.job.id": "run", "host.name": "node-1",
			},
		},
		"of the profiler": {
			rows: []string{"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local (CLI)', 'DeviceEnvironment', 610, 'SHELL=/bin/sh;SLURM_PROCID=5;SLURM_NTASKS=16;SLURM_JOB_ID=77')", kernel1},
			want: map[string]any{"gpu.job.rank": int64(5), "gpu.job.world_size": int64(16), "gpu.job.id": "77"},
		},
		"of the name": {
			rows: []string{kernel1}, file: "llama.rank-12.sqlite",
			want: map[string]any{"gpu.job.rank": int64(12)},
		},
		"no rank in a name": {rows: []string{kernel1}, file: "frank3.sqlite", want: map[string]any{}},
		"several processes": {
			rows: []string{`INSERT INTO META_DATA_CAPTURE VALUES ('PROCESS_0:ENVIRONMENT_VARIABLE', 'SLURM_PROCID="1"'), ('PROCESS_0:ENVIRONMENT_VARIABLE', 'SLURM_JOB_ID="77"')`, kernel1, kernel2},
			file: "rank3.sqlite",
			want: map[string]any{"gpu.job.id": "77"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := export(t, append([]string{strings0, strings1, kernel0, session0, session1, system0, capture0}, c.rows...)...)
			if c.file != "" {
				named := filepath.Join(filepath.Dir(path), c.file)
				require.NoError(t, os.Rename(path, named))
				path = named
			}
			_, batches, _ := convert(t, path, Options{Detail: emit.LevelKernels})
			got := map[string]any{}
			for k, v := range batches[0].ResourceSpans().At(0).Resource().Attributes().AsRaw() {
				switch k {
				case "gpu.job.rank", "gpu.job.local_rank", "gpu.job.world_size", "gpu.job.id", "host.name":
					got[k] = v
				}
			}
			assert.Equal(t, c.want, got)
		})
	}
}

// With CUDA_VISIBLE_DEVICES, both processes number their device 0.
func TestProcessesWithDevicesOfTheSameNumber(t *testing.T) {
	path := export(t, strings0, strings1, kernel0, session0, session1, gpu0, cuda0, kernel1, kernel2,
		"INSERT INTO TARGET_INFO_GPU VALUES (2, 'NVIDIA H100', '74E128B2-90b6-b409-07c8-33bee5ff6f88', 2), (3, 'NVIDIA H100', 'aaaaaaaa-90b6-b409-07c8-33bee5ff6f88', 3)",
		"INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 4, NULL), (3, 0, 5, NULL)")
	_, batches, st := convert(t, path, Options{Detail: emit.LevelKernels})
	got := map[any]any{}
	for _, td := range batches {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if a := s.Attributes().AsRaw(); a["gpu.operation.type"] == "kernel" {
						got[a["gpu.duration"]] = []any{a["gpu.device.ordinal"], a["hw.id"]}
					}
				}
			}
		}
	}
	assert.Equal(t, map[any]any{
		5e-7: []any{int64(2), "GPU-74e128b2-90b6-b409-07c8-33bee5ff6f88"},
		7e-7: []any{int64(3), "GPU-aaaaaaaa-90b6-b409-07c8-33bee5ff6f88"},
	}, got)
	assert.Contains(t, st.Faults, "processes number devices differently: gpu.device.ordinal is Nsight's number")
}

func TestPayloadsByIdAndOverheadOfBothKinds(t *testing.T) {
	path := export(t, strings0, strings1, session0, session1,
		"CREATE TABLE NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, globalTid INT, jsonTextId INT)",
		"INSERT INTO StringIds VALUES (9, '{\"size\": 5}')",
		"INSERT INTO NVTX_EVENTS VALUES (100, 200, 59, 'all_reduce', 67108865, 9)",
		"CREATE TABLE PROFILER_OVERHEAD (start INT, end INT)", "INSERT INTO PROFILER_OVERHEAD VALUES (1, 2)",
		"INSERT INTO StringIds VALUES (10, 'Lazy Function Loading'), (11, 'CUPTI Buffer flush')",
		"CREATE TABLE CUPTI_ACTIVITY_KIND_OVERHEAD (start INT, end INT, nameId INT)",
		"INSERT INTO CUPTI_ACTIVITY_KIND_OVERHEAD VALUES (1, 2, 10), (3, 4, 11)")
	spans, _, st := convert(t, path, Options{Detail: emit.LevelKernels})
	assert.Equal(t, `{"size": 5}`, spans["all_reduce"].Attributes().AsRaw()["cuda.nvtx.payload"])
	assert.Equal(t, map[string]int64{"overhead that calls show, too": 1}, st.Skipped)
	assert.EqualValues(t, 4, st.Records)
}

func TestTextsAreLookedUpInBoundedMemory(t *testing.T) {
	path := export(t, strings0,
		"INSERT INTO StringIds WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40) SELECT i, printf('%.*c', 1 << 20, 'x') || i FROM n",
		"CREATE TABLE NVTX_EVENTS (start INT)")
	f, err := os.Open(path)
	require.NoError(t, err)
	db, err := open(f)
	require.NoError(t, err)
	defer db.Close()
	x := texts{table: db.Tables[tableStrings], held: map[int64]string{}}
	for range 2 {
		for i := range int64(40) {
			s, err := x.text(i + 1)
			require.NoError(t, err)
			require.Greater(t, len(s), 1<<20)
			held := 0
			for _, v := range x.held {
				held += len(v)
			}
			require.LessOrEqual(t, held, maxStrings)
		}
	}
	s, err := x.text(4711)
	require.NoError(t, err)
	assert.Empty(t, s)
}

// Launches that wait together are caused by Windows if the export states that the host runs
// Windows.
func TestLaunchesAreHeldBackOnWindows(t *testing.T) {
	for system, says := range map[string]string{
		"Windows 11 Pro": "WDDM", "Ubuntu 22.04.5 LTS": "something that the file does not show",
	} {
		rows := []string{
			strings0, strings1, kernel0, runtime0, session0, session1, system0,
			"INSERT INTO TARGET_INFO_SYSTEM_ENV VALUES (0, 'Local (CLI)', 'OsDescription', 605, '" + system + "')",
		}
		for i := range 40 { // 4 launches within 40 µs, which start 1 ms later, one after the other
			launched, begins := 2_000_000*(i/4)+10_000*(i%4), 2_000_000*(i/4)+1_000_000+20_000*(i%4)
			rows = append(rows,
				fmt.Sprintf("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (%d, %d, 67108865, %d, 1)", launched, launched+5000, i+1),
				fmt.Sprintf("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId, correlationId, globalPid, "+
					"demangledName) VALUES (%d, %d, 0, 7, %d, 67108864, 1)", begins, begins+20_000, i+1))
		}
		_, _, st := convert(t, export(t, rows...), Options{Detail: emit.LevelSteps})
		require.Len(t, st.Devices, 1)
		v := st.Devices[0].Findings[0]
		assert.Equal(t, semconv.GPUFindingKindDependency, v.Kind)
		assert.Contains(t, v.Chain[0], says)
	}
}
