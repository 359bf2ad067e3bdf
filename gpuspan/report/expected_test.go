// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// record is a line of a CSV file by column name.
type record map[string]string

func records(t *testing.T, path string) []record {
	f, err := os.Open(path)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	lines, err := csv.NewReader(f).ReadAll()
	require.NoError(t, err)
	var out []record
	for _, line := range lines[1:] {
		r := record{}
		for i, v := range line {
			r[lines[0][i]] = v
		}
		out = append(out, r)
	}
	return out
}

func (r record) float(t *testing.T, key string) float64 {
	v, err := strconv.ParseFloat(r[key], 64)
	require.NoError(t, err, "%s of %s", key, r["name"])
	return v
}

func (r record) int(t *testing.T, key string) int64 { return int64(r.float(t, key)) }

// testdata/runs.py writes random runs of nested operations and their statistics, computed by
// pandas.
func TestFiguresEqualPandas(t *testing.T) {
	c := report.NewCollector(report.WithDevices(report.Device{Peaks: report.Peaks{
		Memory: 3.35e12, PCIe: 63e9, FLOPs: map[string]float64{"bf16": 989e12, "fp32": 67e12},
	}}))
	var node func(path, category string) statistics.Node
	node = func(path, category string) statistics.Node {
		parent, name := statistics.Node(0), path
		if i := strings.LastIndex(path, " > "); i >= 0 {
			parent, name = node(path[:i], ""), path[i+3:]
		}
		return c.Node(parent, report.Info{Name: name, Category: category})
	}
	runs := records(t, "testdata/runs.csv")
	for _, r := range runs {
		c.Section(node(r["path"], r["category"]), statistics.Sample{
			Timed: r["timed"] == "1", Start: r.int(t, "start"), Duration: time.Duration(r.int(t, "duration")),
			Memory: statistics.IO{
				Read: r.int(t, "memory_read"), Written: r.int(t, "memory_written"),
				Unsplit: r.int(t, "memory_unsplit"),
			},
			PCIe:  statistics.Transfer{FromDevice: r.int(t, "pcie_written")},
			Items: r.int(t, "items"), FLOPs: r.float(t, "flops"), Precision: r["precision"],
		})
	}
	require.Len(t, runs, 590)
	s := c.Summary()
	operations := map[string]*report.Operation{}
	for i := range s.Operations {
		operations[strings.Join(s.Operations[i].Path, " > ")] = &s.Operations[i]
	}
	categories := map[string]*report.Figures{}
	for _, x := range s.Categories() {
		categories[x.Name] = &x.Figures
	}
	compared := map[string]int{}
	for _, want := range records(t, "testdata/expected.csv") {
		compared[want["kind"]]++
		o := operations[want["name"]]
		switch want["kind"] {
		case "operation":
			want.compare(t, &o.All, true)
			require.InDelta(t, want.float(t, "share_of_total"), o.ShareOfTotal, 1e-12)
			require.InDelta(t, want.float(t, "share_of_parent"), o.ShareOfParent, 1e-12)
			require.InDelta(t, want.float(t, "peak_share"), o.PeakShare, 1e-12)
			require.Equal(t, want["peak_of"], o.PeakOf)
		case "first":
			want.compare(t, &o.First, false)
		case "rest":
			want.compare(t, &o.Rest, false)
		case "category":
			want.compare(t, categories[want["name"]], false)
		case "summary":
			require.EqualValues(t, want.int(t, "total"), s.Total())
			require.EqualValues(t, want.int(t, "timed"), s.Covered, "the union of all intervals")
		}
	}
	require.Equal(t, map[string]int{"operation": 7, "first": 6, "rest": 7, "category": 4, "summary": 1}, compared)
	require.Len(t, operations, 7)
	require.Len(t, categories, 4)
	require.Zero(t, operations["decode > attention"].First.Count, "it ran elsewhere first")
}

func (r record) compare(t *testing.T, f *report.Figures, quantiles bool) {
	d, rates := f.Duration, f.Rates()
	got := map[string]float64{
		"count": float64(f.Count), "timed": float64(d.Count), "total": float64(d.Total), "min": float64(d.Min),
		"max":  float64(d.Max),
		"mean": float64(d.Mean), "stddev": float64(d.StdDev), "items": float64(f.Items), "flops": f.TotalFLOPs(),
		"memory": float64(f.Memory.Total()), "pcie": float64(f.PCIe.Total()), "memory_read_rate": rates.MemoryRead,
		"memory_write_rate": rates.MemoryWritten, "memory_rate": rates.Memory, "pcie_rate": rates.PCIe,
		"flop_rate": rates.FLOPs, "item_rate": rates.Items,
	}
	if quantiles {
		got["p50"], got["p99"] = float64(d.P50), float64(d.P99)
	}
	for key, v := range got {
		want := r.float(t, key)
		// durations are integer nanoseconds
		require.InDelta(t, want, v, max(1, want*1e-12), "%s of %s %s", key, r["kind"], r["name"])
	}
}
