// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
)

// schema are the tables that are read, with their columns.
var schema = map[string][]string{
	tableKernel: {
		"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId", "demangledName",
		"shortName", "gridX", "blockX", "registersPerThread", "graphId",
	},
	tableCopy: {
		"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes", "copyKind", "srcKind",
		"dstKind",
	},
	tableMemset:  {"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "bytes"},
	tableRuntime: {"start", "end", "globalTid", "correlationId", "nameId"},
	tableNVTX: {
		"start", "end", "eventType", "text", "textId", "globalTid", "domainId", "int64Value", "doubleValue",
		"jsonText", "jsonTextId",
	},
	tableStrings:  {"id", "value"},
	tableSession:  {"utcEpochNs"},
	tableGPU:      {"id", "name", "uuid", "cuDevice"},
	tableCUDA:     {"gpuId", "cudaId", "pid"},
	tableOverhead: {"start"},
	tableSystem:   {"name", "devStateName", "value"},
	tableCapture:  {"name", "value"},
}

var tables = []string{
	tableKernel, tableCopy, tableMemset, tableRuntime, tableNVTX, tableStrings, tableSession, tableGPU, tableCUDA,
	tableOverhead, tableSystem, tableCapture,
}

// values are contents of cells: numbers of all sizes, meaningful texts, and values of unexpected
// types.
var values = []any{
	nil, int64(0), int64(1), int64(2), int64(9), int64(100), int64(1500), int64(-5), int64(1) << 62, int64(-1) << 63,
	int64(67108865), int64(59), int64(60), int64(75),
	2.5, "ProfilerStep#3", "aten::mm, seq = 5, op_id = 7, sizes = [[2, 3]]", "step 1",
	"nccl 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
	"PROCESS_0:ENVIRONMENT_VARIABLE", `RANK="1"`, "DeviceEnvironment", "RANK=two;SLURM_PROCID=3",
	"74E128B2-90b6-b409-07c8-33bee5ff6f88",
	[]byte{0xff, 0},
	"",
}

// generate creates an export: each byte of the program selects a table, its columns or a cell.
func generate(t *testing.T, program []byte) string {
	next := func() int {
		if len(program) == 0 {
			return 0
		}
		b := program[0]
		program = program[1:]
		return int(b)
	}
	path := filepath.Join(t.TempDir(), "fuzz.sqlite")
	db := sqlitetest.Open(t, path)
	defer db.Close()
	tx, err := db.Begin()
	require.NoError(t, err)
	for range 1 + next()%4 {
		table := tables[next()%len(tables)]
		list, marks := "", ""
		var columns []string
		missing := next()
		for i, c := range schema[table] {
			if i+1 != missing {
				columns = append(columns, c)
				list += `, "` + c + `"`
				marks += ", ?"
			}
		}
		if len(columns) == 0 {
			continue
		}
		if _, err := tx.ExecContext(t.Context(), fmt.Sprintf(`CREATE TABLE IF NOT EXISTS "%s" (%s)`, table,
			list[2:])); err != nil {
			return path
		}
		for range next() % 8 {
			row := make([]any, len(columns))
			for i := range row {
				row[i] = values[next()%len(values)]
			}
			// a table may have other columns
			_, _ = tx.ExecContext(t.Context(), fmt.Sprintf(`INSERT INTO "%s" (%s) VALUES (%s)`, table, list[2:], marks[2:]),
				row...)
		}
	}
	require.NoError(t, tx.Commit())
	return path
}

// FuzzRows reads exports with any schema, rows and cells: it never panics, writes only what the
// registry knows and gives every span its own identifier.
func FuzzRows(f *testing.F) {
	f.Add([]byte{3, 0, 0, 2, 5, 6, 1, 2, 3, 10, 0, 1, 1, 2, 2, 2, 0, 3, 0, 1, 1, 7, 10, 3, 1, 5, 0, 1, 2, 16}, uint8(4))
	f.Add([]byte{1, 4, 0, 3, 5, 6, 11, 15, 0, 10, 0, 0, 0, 0, 0, 5, 6, 12, 18}, uint8(0))
	f.Add([]byte{2, 1, 0, 3, 5, 6, 1, 2, 3, 10, 5, 2, 1, 1, 8, 0, 1, 2, 3, 8, 0, 2, 3}, uint8(1))
	f.Fuzz(func(t *testing.T, program []byte, level uint8) {
		reads(t, generate(t, program), emit.Level(level%5))
	})
}

// FuzzFile reads broken databases.
func FuzzFile(f *testing.F) {
	whole, err := os.ReadFile(export(f, strings0, strings1, kernel0, runtime0, nvtx0, session0, session1, gpu0, gpu1,
		kernel1))
	require.NoError(f, err)
	f.Add(uint32(100), []byte{0xff, 0xff}, uint16(0))
	f.Add(uint32(len(whole)/2), []byte("nonsense"), uint16(1))
	f.Add(uint32(28), []byte{0, 0, 0, 1}, uint16(4096))
	f.Fuzz(func(t *testing.T, at uint32, with []byte, cut uint16) {
		b := append([]byte(nil), whole...)
		copy(b[int(at)%len(b):], with)
		b = b[:len(b)-int(cut)%len(b)]
		path := filepath.Join(t.TempDir(), "broken.sqlite")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		reads(t, path, emit.LevelKernels)
	})
}

func reads(t *testing.T, path string, detail emit.Level) {
	ids := map[pcommon.SpanID]bool{}
	_, _ = ReadFile(t.Context(), path, Options{Detail: detail, BatchSpans: 3},
		func(_ context.Context, td ptrace.Traces) error {
			if err := conformance.Traces(td); err != nil {
				t.Fatal(err)
			}
			for _, rs := range td.ResourceSpans().All() {
				for _, ss := range rs.ScopeSpans().All() {
					for _, s := range ss.Spans().All() {
						if ids[s.SpanID()] {
							t.Fatalf("%q: span id twice", s.Name())
						}
						ids[s.SpanID()] = true
					}
				}
			}
			return nil
		})
}
