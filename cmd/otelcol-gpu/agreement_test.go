// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/semconv"
)

// sumsBy returns the totals of a cumulative sum by one attribute, or the sum and the count of a
// histogram.
func sumsBy(t *testing.T, path, name, key string) map[string]float64 {
	t.Helper()
	newest := map[string]map[string]float64{}
	lines(t, path, func(line []byte) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != name {
						continue
					}
					add := func(attributes pcommon.Map, value string, v float64) {
						if newest[value] == nil {
							newest[value] = map[string]float64{}
						}
						newest[value][mapKey(rm.Resource().Attributes())+mapKey(attributes)] = v
					}
					if m.Type() == pmetric.MetricTypeHistogram {
						for _, p := range m.Histogram().DataPoints().All() {
							add(p.Attributes(), "sum", p.Sum())
							add(p.Attributes(), "count", float64(p.Count()))
						}
						continue
					}
					for _, p := range m.Sum().DataPoints().All() {
						v, _ := p.Attributes().Get(key)
						add(p.Attributes(), v.AsString(), p.DoubleValue())
					}
				}
			}
		}
	})
	totals := map[string]float64{}
	for value, list := range newest {
		for _, v := range list {
			totals[value] += v
		}
	}
	return totals
}

func mapKey(m pcommon.Map) string {
	v := pcommon.NewValueMap()
	m.CopyTo(v.Map())
	return v.AsString()
}

var rowOfTable = regexp.MustCompile(`(?m)^ *(\S+) +(?:section|copy|collective|kernel|graph) +(\d+) .* (\d+\.\d\d|-)(?: +[a-z_]+)*$`)

// agree compares what the terminal, the page and the metrics of one demo say.
func agree(t *testing.T, stdout string, recorded page.State, dir string) {
	t.Helper()
	table := stdout[strings.LastIndex(stdout, "\nAfter "):]
	type operation struct {
		count      int64
		total, own float64
	}
	terminal, shown := map[string]operation{}, map[string]operation{}
	for _, m := range rowOfTable.FindAllStringSubmatch(table, -1) {
		o := terminal[m[1]]
		count, err := strconv.ParseInt(m[2], 10, 64)
		require.NoError(t, err)
		joules, _ := strconv.ParseFloat(m[3], 64)
		terminal[m[1]] = operation{count: o.count + count, total: o.total + joules}
	}
	for _, o := range recorded.Operations {
		x := shown[o.Name]
		shown[o.Name] = operation{count: x.count + o.Count, total: x.total + o.Total, own: x.own + o.Energy}
	}
	require.Greater(t, len(terminal), 8, table)
	for name, o := range terminal {
		assert.Equal(t, o.count, shown[name].count, "count of %s on the terminal and on the page", name)
		assert.InDelta(t, o.total, shown[name].total, 0.02, "joules of %s on the terminal and on the page", name)
	}

	of := func(pattern string) float64 {
		m := regexp.MustCompile(pattern).FindStringSubmatch(table)
		require.NotNil(t, m, "%s in %s", pattern, table)
		d, err := time.ParseDuration(m[1] + m[2])
		require.NoError(t, err)
		return d.Seconds()
	}
	median := of(`(?m)^inference +\d+ +([\d.]+) (\S+)`)
	assert.InEpsilon(t, median, recorded.ReqMedian, 1e-3, "median request on the terminal and on the page")
	var steps, lengths float64
	for _, st := range recorded.Steps {
		n := float64(max(1, st.Count))
		steps, lengths = steps+n, lengths+n*st.Duration
	}
	step := of(`(?m)^train +\d+ +([\d.]+) (\S+)`)
	assert.InEpsilon(t, step, lengths/steps, 1e-3, "mean step on the terminal and on the page")

	counted := sumsBy(t, filepath.Join(dir, "metrics.json"), semconv.GPUOperationEnergyName, "gpu.operation.name")
	for name, o := range shown {
		assert.InDelta(t, counted[name], o.own, 1e-6*o.own+1e-9, "own joules of %s in the metrics and on the page", name)
	}

	perItem := sumsBy(t, filepath.Join(dir, "metrics.json"), semconv.GPURequestItemEnergyName, "")
	var joules, items float64
	for _, b := range recorded.Bins {
		joules, items = joules+b.Metered, items+b.Items
	}
	require.Positive(t, items)
	assert.InDelta(t, perItem["sum"], joules, 1e-6*joules, "joules of tokens in the metrics and on the page")
	assert.InDelta(t, perItem["count"], items, 1e-3*items+1, "tokens in the metrics and on the page")

	for _, d := range recorded.Devices {
		assert.True(t, d.Metered, "the power of %s is from its energy counter", d.ID)
	}
}
