// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuquantity

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/semconv"
)

//go:generate go test -run TestGenerated -update .

var update = flag.Bool("update", false, "write docs/device-quantities.md and the panels of config/grafana/devices.json")

// generated compares a file with the output of the catalogue, or writes it.
func generated(t *testing.T, path string, edit func(string) string) {
	t.Helper()
	path = filepath.Join("..", "..", path)
	b, err := os.ReadFile(path)
	if !*update {
		require.NoError(t, err)
	}
	want := edit(string(b))
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	assert.True(t, string(b) == want || *update, "%s differs from the catalogue (run make generate)", path)
}

func TestGeneratedDocument(t *testing.T) {
	generated(t, "docs/device-quantities.md", func(string) string { return document() })
}

// document returns the table of quantities.
func document() string {
	var b strings.Builder
	b.WriteString(`<!-- generated from internal/gpuquantity by make generate -->
# Device quantities

What the ` + "`gpu`" + ` receiver reads. [Semantic conventions](semconv/README.md) describes each metric and attribute.

A field in parentheses is read only without the one before it. Quantities in bold are kept in
` + "`gpu_samples`" + `, to be joined with spans. Implausible values (ratios above 1.05, negative counters, power
above 100 kW, temperatures outside -100 to 300 °C) are dropped and counted as ` + "`out_of_range`" + `.

| quantity | metric | span attribute | DCGM fields | NVML, GPM | AMD's exporters |
|---|---|---|---|---|---|
`)
	for _, q := range All() {
		x := q.Info()
		metric := code(x.Metric.Name)
		if x.Metric.Key != "" {
			metric += " " + code(fmt.Sprintf("%s=%s", x.Metric.Key, x.Metric.Value))
		}
		if x.Metric.Off {
			metric += ", off by default"
		}
		attribute := code(string(x.Span.Key))
		if x.Span.Max {
			attribute += " (highest)"
		}
		name := code(x.Name)
		if q.HasRing() {
			name = "**" + name + "**"
		}
		var fields, amd []string
		for _, f := range x.DCGM {
			switch {
			case f.Pace == Unread:
			case f.Rank > 0:
				fields = append(fields, fmt.Sprintf("(%d)", f.ID))
			default:
				fields = append(fields, fmt.Sprint(f.ID))
			}
		}
		for _, e := range x.AMD {
			amd = append(amd, code(e.Name))
		}
		var nvml []string
		if x.NVML.FieldID != 0 {
			nvml = append(nvml, fmt.Sprintf("field %d", x.NVML.FieldID))
		}
		if x.NVML.Function != "" {
			nvml = append(nvml, code(strings.TrimPrefix(x.NVML.Function, "nvmlDevice")))
		}
		if x.GPM.ID != 0 {
			nvml = append(nvml, fmt.Sprintf("GPM %d", x.GPM.ID))
		}
		row := []string{
			name, metric, attribute, strings.Join(fields, " "), strings.Join(nvml, ", "), strings.Join(amd, ", "),
		}
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

func TestGeneratedPanels(t *testing.T) {
	generated(t, "config/grafana/devices.json", withPanels)
}

// withPanels appends a panel for each metric that is on by default and has none. A panel that was
// edited or moved manually stays unchanged.
func withPanels(board string) string {
	metrics := map[string]semconv.Metric{}
	for _, q := range All() {
		if m, ok := q.Info().Metric.Registered(); ok && !q.Info().Metric.Off {
			metrics[m.Name] = m
		}
	}
	names := make([]string, 0, len(metrics))
	for name := range metrics {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m := metrics[name]
		suffix := map[string]string{
			"W": "_watts", "J": "_joules", "Hz": "_hertz", "By": "_bytes", "Cel": "_celsius", "1": "_ratio",
		}[m.Unit]
		// Prometheus adds the unit only to names that do not end with it.
		series := strings.TrimSuffix(strings.ReplaceAll(name, ".", "_"), suffix) + suffix
		expr := series + `{hw_id=~\"$gpu\",hw_model=~\"$model\"}`
		if m.Instrument == semconv.InstrumentCounter {
			series += "_total"
			expr = `rate(` + series + `{hw_id=~\"$gpu\",hw_model=~\"$model\"}[$__rate_interval])`
		}
		if strings.Contains(board, series+"{") {
			continue
		}
		n := strings.Count(board, `"gridPos"`)
		unit := cmp.Or(map[string]string{
			"W": "watt", "J": "joule", "Hz": "hertz", "By": "decbytes", "Cel": "celsius", "1": "percentunit",
		}[m.Unit], "short")
		title := strings.TrimPrefix(strings.TrimPrefix(name, "hw."), "gpu.")
		title = strings.TrimSuffix(strings.ToUpper(title[:1])+strings.ReplaceAll(title[1:], ".", " "), "_ratio")
		panel := fmt.Sprintf(panelText, n+1, title, m.Brief, 100+n/3*8, n%3*8, unit, expr)
		board = strings.Replace(board, "\n  ]\n}", ",\n"+panel+"\n  ]\n}", 1)
	}
	return board
}

const panelText = `    {
      "id": %d,
      "type": "timeseries",
      "title": "%s",
      "description": %q,
      "datasource": {
        "type": "prometheus",
        "uid": "${datasource}"
      },
      "gridPos": {
        "y": %d,
        "x": %d,
        "w": 8,
        "h": 8
      },
      "fieldConfig": {
        "defaults": {
          "unit": "%s"
        },
        "overrides": []
      },
      "targets": [
        {
          "refId": "A",
          "datasource": {
            "type": "prometheus",
            "uid": "${datasource}"
          },
          "expr": "%s",
          "legendFormat": "{{hw_name}} {{instance}}",
          "editorMode": "code",
          "range": true,
          "instant": false
        }
      ]
    }`
