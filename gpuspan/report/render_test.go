// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"log/slog"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

func both() report.Summary {
	c := served()
	trained(c)
	c.SetDropped("pool_exhausted", 3)
	return c.Summary()
}

func TestJSONHasSecondsAndBytesAndOmitsUnknownValues(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, both().WriteJSON(&b))
	golden(t, "summary.json", b.String())
	var got struct {
		Wall       float64 `json:"wall_seconds"`
		Operations []map[string]any
		Loops      []map[string]any
		Findings   []map[string]any
		Dropped    map[string]int
	}
	require.NoError(t, json.Unmarshal(b.Bytes(), &got))
	require.InDelta(t, .1, got.Wall, 1e-9)
	all := got.Operations[0]["all"].(map[string]any)
	require.InDelta(t, .076, all["duration"].(map[string]any)["total_seconds"], 1e-12)
	require.InDelta(t, 90e9/.076, all["rates"].(map[string]any)["memory_bytes_per_second"], 1)
	require.NotContains(t, all, "pcie_bytes", "not stated")
	require.NotContains(t, got.Operations[2], "peak_of_nothing")
	require.Equal(t, map[string]int{"pool_exhausted": 3}, got.Dropped)
	require.InDelta(t, .4044, got.Loops[0]["mfu"], 1e-4)
	require.Len(t, got.Findings, 7)
	empty, err := json.Marshal(report.Summary{})
	require.NoError(t, err)
	require.JSONEq(t, `{"wall_seconds":0,"covered_seconds":0,"operations":[]}`, string(empty))
}

func TestCSVHasOneRowForEachOperationAndSetOfRuns(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, both().WriteCSV(&b))
	records, err := csv.NewReader(&b).ReadAll()
	require.NoError(t, err)
	column := map[string]int{}
	for i, name := range records[0] {
		column[name] = i
	}
	rows := map[string][]string{}
	for _, r := range records[1:] {
		rows[r[column["path"]]+"/"+r[column["runs"]]] = r
	}
	require.Len(t, rows, 9)
	get := func(row, name string) string { return rows[row][column[name]] }
	require.Equal(t, "0.076", get("prefill/all", "total_seconds"))
	require.Equal(t, "0.04", get("prefill/first", "total_seconds"))
	require.Equal(t, "0.036", get("prefill/rest", "total_seconds"))
	require.Equal(t, "9", get("prefill > attention/rest", "count"))
	require.Equal(t, "90000000000", get("prefill/all", "memory_bytes"))
	require.Equal(t, "", get("prefill/all", "pcie_bytes"))
	require.Equal(t, "bf16", get("prefill/all", "flop_precision"))
	require.Equal(t, "memory", get("prefill/all", "peak_of"))
	require.Equal(t, "", get("prefill/first", "share_of_total"), "only of all runs")
	require.Equal(t, "token", get("prefill/all", "item_type"))
}

func TestDOTShowsSectionsKernelsAndModules(t *testing.T) {
	var b bytes.Buffer
	require.NoError(t, both().WriteDOT(&b))
	golden(t, "summary.dot", b.String())
	c := report.NewCollector()
	n := c.Node(0, report.Info{Name: "\"quoted\" \\ name\n}"})
	c.Section(n, statistics.Sample{Kernel: "k<\"x\">", Module: "m\\"})
	b.Reset()
	require.NoError(t, c.Summary().WriteDOT(&b))
	require.Contains(t, b.String(), `label="\"quoted\" \\ name\n}\n1 × -"`)
	if dot, err := exec.LookPath("dot"); err == nil {
		cmd := exec.Command(dot, "-Tplain")
		cmd.Stdin = &b
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, string(out))
	}
}

func TestLogRecordsHaveUnitsInTheirKeys(t *testing.T) {
	var b bytes.Buffer
	l := slog.New(slog.NewJSONHandler(&b, nil))
	s := both()
	s.Log(t.Context(), l)
	var records []map[string]any
	for line := range strings.Lines(b.String()) {
		var r map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &r))
		records = append(records, r)
	}
	require.Len(t, records, 3+1+7)
	require.Equal(t, "prefill", records[0]["operation"])
	require.InDelta(t, .076, records[0]["total_seconds"], 1e-12)
	require.NotContains(t, records[0], "pcie_bytes_per_second")
	for key, want := range map[string]float64{
		"min_seconds": .004, "max_seconds": .04, "stddev_seconds": .0108, "memory_write_bytes_per_second": 10e9 / .076,
		"first_mean_seconds": .04, "rest_mean_seconds": .004, "first_flops_per_second": 25e12,
		"rest_flops_per_second": 250e12,
	} {
		require.InEpsilon(t, want, records[0][key], 1e-9, key)
	}
	require.Equal(t, "memory", records[0]["peak_of"])
	require.Equal(t, "train", records[3]["loop"])
	require.InDelta(t, .16, records[3]["phase_backward_seconds"], 1e-12)
	require.Equal(t, "WARN", records[4]["level"])
	require.NotEmpty(t, records[4]["evidence"])
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }

func TestWriteErrorsAreReturned(t *testing.T) {
	s := both()
	require.ErrorContains(t, s.WriteText(broken{}), "closed pipe")
	require.ErrorContains(t, s.WriteJSON(broken{}), "closed pipe")
	require.ErrorContains(t, s.WriteCSV(broken{}), "closed pipe")
	require.ErrorContains(t, s.WriteDOT(broken{}), "closed pipe")
}
