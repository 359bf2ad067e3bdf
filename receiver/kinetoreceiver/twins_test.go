// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/sqlitefile/sqlitetest"
	"github.com/otelgpu/otelgpu/receiver/nsysreceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// traced is an event in the output of a machine.
type traced struct {
	Cat, Name string
	PID, TID  any
	Ts, Dur   json.Number
	Args      map[string]any
}

func ns(x json.Number) int64 {
	f, _ := x.Float64() // at most 2^53 ns, written with three digits
	return int64(math.Round(f * 1000))
}

func whole(v any) int64 {
	f, _ := v.(float64)
	return int64(f)
}

// nsight writes the export of Nsight Systems for the same run: names by number, ranges and
// operators as NVTX, and calls, activities and overhead in their tables.
type nsight struct {
	t         *testing.T
	tx        *sql.Tx
	strings   map[string]int64
	processes map[int64]int64 // by correlation
	graphs    map[int64]bool  // graph launches by correlation; nil: nodes are rows
}

// Global IDs contain the process from bit 24 on.
const firstProcess, secondProcess = int64(800) << 24, int64(801) << 24

func (n *nsight) do(statement string, args ...any) {
	_, err := n.tx.ExecContext(n.t.Context(), statement, args...)
	require.NoError(n.t, err, statement)
}

func (n *nsight) text(s string) int64 {
	id, ok := n.strings[s]
	if !ok {
		id = int64(len(n.strings) + 1)
		n.strings[s] = id
		n.do("INSERT INTO StringIds VALUES (?, ?)", id, s)
	}
	return id
}

// nsightOf writes the export; wholeGraphs is the default of Nsight Systems, in which a graph launch
// is one row.
func nsightOf(t *testing.T, text string, wholeGraphs bool) string {
	var file struct {
		DeviceProperties []struct {
			ID   int64
			Name string
		}
		TraceEvents []traced
	}
	d := json.NewDecoder(strings.NewReader(text))
	require.NoError(t, d.Decode(&file))
	path := filepath.Join(t.TempDir(), "report.sqlite")
	db := sqlitetest.Open(t, path)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	n := &nsight{t, tx, map[string]int64{}, map[int64]int64{}, map[int64]bool{}}
	const activity = "start INT, end INT, deviceId INT, streamId INT, correlationId INT, globalPid INT, graphNodeId INT, "
	for _, table := range []string{
		"StringIds (id INTEGER PRIMARY KEY, value TEXT)",
		"TARGET_INFO_SESSION_START_TIME (utcEpochNs INT)",
		"TARGET_INFO_GPU (id INT, name TEXT, uuid TEXT, cuDevice INT, smCount INT)",
		"CUPTI_ACTIVITY_KIND_KERNEL (" + activity + "demangledName INT, shortName INT, gridX INT, gridY INT, gridZ INT, " +
			"blockX INT, blockY INT, blockZ INT)",
		"CUPTI_ACTIVITY_KIND_MEMCPY (" + activity + "bytes INT, copyKind INT, srcKind INT, dstKind INT)",
		"CUPTI_ACTIVITY_KIND_MEMSET (" + activity + "bytes INT)",
		"CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT, nameId INT)",
		"NVTX_EVENTS (start INT, end INT, eventType INT, text TEXT, textId INT, globalTid INT, domainId INT)",
		"CUPTI_ACTIVITY_KIND_GRAPH_TRACE (" + activity + "graphId INT)",
		"PROFILER_OVERHEAD (start INT, end INT, nameId INT)",
	} {
		n.do("CREATE TABLE " + table)
	}
	n.do("INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1700000000000000000)")
	for _, g := range file.DeviceProperties {
		n.do("INSERT INTO TARGET_INFO_GPU VALUES (?, ?, NULL, ?, 108)", g.ID, g.Name, g.ID)
	}
	spans := map[int64][2]int64{} // of graphs
	for _, e := range file.TraceEvents {
		corr := whole(e.Args["correlation"])
		switch start, end := ns(e.Ts), ns(e.Ts)+ns(e.Dur); {
		case e.Cat == "kernel" && n.graphs[corr]:
			span, ok := spans[corr]
			if !ok {
				span[0] = start
			}
			spans[corr] = [2]int64{min(span[0], start), max(span[1], end)}
		case wholeGraphs && strings.HasSuffix(e.Name, "GraphLaunch"):
			n.graphs[corr] = true
		}
		if _, ok := e.Args["device"]; !ok && corr != 0 {
			n.processes[corr] = processOf(&e)
		}
	}
	for i, e := range file.TraceEvents {
		if e.Cat != "kernel" || !n.graphs[whole(e.Args["correlation"])] {
			n.event(i, &e)
		}
	}
	for corr, s := range spans {
		n.do("INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (?,?,0,7,?,?,NULL,1)", s[0], s[1], corr, firstProcess)
	}
	require.NoError(t, tx.Commit())
	require.NoError(t, db.Close())
	return path
}

// processOf returns the process of a thread, which the machine does not distinguish.
func processOf(e *traced) int64 {
	if whole(e.TID) == 7711 {
		return secondProcess
	}
	return firstProcess
}

func (n *nsight) event(i int, e *traced) {
	start, end := ns(e.Ts), ns(e.Ts)+ns(e.Dur)
	thread := processOf(e) | whole(e.TID)&0xffffff
	corr := whole(e.Args["correlation"])
	common := []any{start, end, whole(e.Args["device"]), whole(e.Args["stream"]), corr, n.processes[corr], nil}
	switch strings.ToLower(e.Cat) {
	case "kernel":
		var shape [6]any
		for k, name := range []string{"grid", "block"} {
			if list, ok := e.Args[name].([]any); ok {
				copy(shape[3*k:], list)
			}
		}
		for k := range shape {
			if shape[k] != nil {
				shape[k] = whole(shape[k])
			}
		}
		short, _, _ := strings.Cut(e.Name, "(")
		n.do("INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
			append(append(common, n.text(e.Name), n.text(short)), shape[:]...)...)
	case "gpu_memcpy", "memcpy":
		var kind, source, destination any = nil, nil, nil
		memory := map[bool]int64{true: 0, false: 1}[strings.Contains(e.Name, "Pageable")]
		switch {
		case strings.Contains(e.Name, "HtoD"):
			kind, source, destination = 1, memory, 2
		case strings.Contains(e.Name, "DtoH"):
			kind, source, destination = 2, 2, memory
		case strings.Contains(e.Name, "PtoP"):
			kind, source, destination = 10, 2, 2
		}
		n.do("INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?,?,?,?,?,?,?,?,?,?,?)",
			append(common, whole(e.Args["bytes"]), kind, source, destination)...)
	case "gpu_memset", "memset":
		n.do("INSERT INTO CUPTI_ACTIVITY_KIND_MEMSET VALUES (?,?,?,?,?,?,?,?)", append(common, whole(e.Args["bytes"]))...)
	case "cuda_runtime", "cuda_driver", "runtime":
		n.do("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?,?,?,?,?)", start, end, thread, common[4],
			n.text(e.Name+"_v7000"))
	case "overhead":
		n.do("INSERT INTO PROFILER_OVERHEAD VALUES (?,?,?)", start, end, n.text(e.Name))
	case "cpu_op", "operator":
		name := fmt.Sprintf("%s, seq = %d, op_id = %d", e.Name, i, i)
		if dims, ok := e.Args["Input Dims"]; ok {
			sizes, err := json.Marshal(dims)
			require.NoError(n.t, err)
			name += ", sizes = " + strings.ReplaceAll(string(sizes), ",", ", ")
		}
		n.do("INSERT INTO NVTX_EVENTS VALUES (?,?,59,?,NULL,?,0)", start, end, name, thread)
	case "user_annotation", "python_function":
		n.do("INSERT INTO NVTX_EVENTS VALUES (?,?,59,NULL,?,?,0)", start, end, n.text(e.Name), thread)
	default:
		require.Fail(n.t, "no table for", e.Cat)
	}
}

// nsightReports returns the reports of the devices in the export of the same run.
func nsightReports(t *testing.T, text string, wholeGraphs bool) []facts.Report {
	st, err := nsysreceiver.ReadFile(t.Context(), nsightOf(t, text, wholeGraphs), nsysreceiver.Options{Detail: DetailSteps},
		func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	require.Empty(t, st.Skipped)
	return st.Devices
}

// unrecorded are jobs whose cause an export does not record, such as sizes of collectives and
// element types.
var unrecorded = map[string]struct{ kind, says string }{
	"experts that some ranks have more of":     {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"experts with fewer tokens than others":    {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"a late rank among even experts/plain":     {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"a link that is slow":                      {semconv.GPUFindingKindExposedCommunication, "while nothing computes"},
	"pipeline that fills and drains":           {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"pipeline with bubbles":                    {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"late rank/plain":                          {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"}, // nor has it steps
	"sparse requests of a server/frames":       {semconv.GPUFindingKindHostWork, "poll"},                                // ranges are not Python frames
	"products without tensor cores":            {semconv.GPUFindingKindSinglePrecision, "longest: ampere_sgemm"},        // from its name
	"products in double precision":             {semconv.GPUFindingKindNotJudged, "no operator's work is known"},
	"products whose last wave is a fifth full": {semconv.GPUFindingKindNotJudged, "no operator's work is known"},
	"a reduction for each parameter":           {semconv.GPUFindingKindExposedCommunication, "or wait for a late rank"},
	"attention in parts":                       {semconv.GPUFindingKindUnfusedAttention, "do in 81.6ms"}, // everything but the products
	"thousands of tiny graphs":                 {semconv.GPUFindingKindLaunchBound, "launches graphs slower"},
	"graphs with a tail of small kernels":      {semconv.GPUFindingKindLaunchBound, "sample_tokens"},
	"graphs of kernels that are too short":     {semconv.GPUFindingKindNotJudged, "do not show their operators"}, // or the gaps in graphs
}

// An export of Nsight Systems has the same findings as the PyTorch profile of the same run.
func TestNsightTwinsOfSimulatedJobsHaveTheSameFindings(t *testing.T) {
	all := everything()
	for n, name := range slices.Sorted(maps.Keys(all)) {
		if otherJob(n) {
			continue
		}
		p, seed := all[name], uint64(500+n)
		for i, s := range styles() {
			if s.name == "2021" || !strings.HasPrefix(s.launch, "cu") || i%2 != n%2 { // each job in one or two styles
				continue
			}
			t.Run(name+"/"+s.name, func(t *testing.T) {
				m := newMachine(seed, s)
				p.run(m, true)
				text := m.text(max(1, p.devices))
				_, st := convert(t, text, Options{Detail: DetailSteps})
				got := nsightReports(t, text, true)
				require.Len(t, got, len(st.Devices))
				for i, d := range got {
					checkReport(t, d)
					assert.Equal(t, st.Devices[i].Window, d.Window)
					want, is := st.Devices[i].Findings[0], d.Findings[0]
					less, ok := unrecorded[name]
					if !ok {
						less, ok = unrecorded[name+"/"+s.name]
					}
					if ok {
						assert.Equal(t, less.kind, is.Kind, "%s", is)
						assert.Contains(t, is.String(), less.says)
						continue
					}
					if nothingToGain(st.Devices[i]) { // an export has no shapes
						assert.Equal(t, semconv.GPUFindingKindNotJudged, is.Kind, "%s", is)
						continue
					}
					assert.Equal(t, want.Kind, is.Kind, "%s\n%s", want, is)
					assert.InEpsilon(t, want.Gain+1, is.Gain+1, 0.05, "%s\n%s", want, is)
				}
			})
		}
	}
}
