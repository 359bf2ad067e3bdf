// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
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

var (
	rowOfTable = regexp.MustCompile(`(?m)^ *(\S.*?) +(?:section|copy|collective|kernel|graph|memset) +(\d+) .* ` +
		`(\d+\.\d\d|-)(?: +[a-z_]+)*$`)
	rowOfSteps    = regexp.MustCompile(`(?m)^STEPS OF .*\n(\S.*?) +(\d+) +([\d.]+ m?s) .* ([\d.]+)(?:  rank .*)?$`)
	rowOfRequests = regexp.MustCompile(`(?m)^REQUESTS OF .*\n\S+ +(\d+) +([\d.]+ m?s) +([\d.]+ m?s)$`)
)

// work is what a surface states about an operation.
type work struct {
	count, held int64
	total, own  float64
}

// agree compares what the terminal, the page, the metrics and the spans of one run state. It
// returns the operations of the page by name.
func agree(t *testing.T, stdout string, recorded page.State, dir string) map[string]work {
	t.Helper()
	table := stdout[strings.LastIndex(stdout, "\nAfter "):]
	terminal, shown, written := map[string]work{}, map[string]work{}, map[string]work{}
	for _, m := range rowOfTable.FindAllStringSubmatch(table, -1) {
		o := terminal[m[1]]
		count, err := strconv.ParseInt(m[2], 10, 64)
		require.NoError(t, err)
		joules, _ := strconv.ParseFloat(m[3], 64)
		terminal[m[1]] = work{count: o.count + count, total: o.total + joules}
	}
	var stepJoules float64
	spans, gpuSpans := int64(0), int64(0)
	eachSpan(t, filepath.Join(dir, "spans.json"), func(rs ptrace.ResourceSpans, s ptrace.Span) {
		spans++
		f := factsOf(rs, s)
		if !f.Kind.Work() {
			return
		}
		gpuSpans++
		if f.Kind == spanfacts.Step {
			stepJoules += f.Energy
			return
		}
		o := written[s.Name()]
		o.count++
		o.total += f.Energy
		if v, ok := s.Attributes().Get(string(semconv.GPUThrottleReasonsKey)); ok && v.Slice().Len() > 0 && f.Duration > 0 &&
			(f.FLOPs > 0 || f.Kind != spanfacts.Copy && f.Kind != spanfacts.Memset && f.Kind != spanfacts.Collective) {
			o.held++
		}
		written[s.Name()] = o
	})
	own := 0.0
	for _, o := range recorded.Operations {
		x := shown[o.Name]
		shown[o.Name] = work{x.count + o.Count, x.held + o.Held, x.total + o.Total, x.own + o.Energy}
		own += o.Energy
	}
	require.Greater(t, len(terminal), 8, table)
	require.ElementsMatch(t, slices.Collect(maps.Keys(terminal)), slices.Collect(maps.Keys(shown)),
		"operations on the terminal and on the page")
	for name, o := range terminal {
		assert.Equal(t, o.count, shown[name].count, "count of %s on the terminal and on the page", name)
		assert.Equal(t, written[name].count, shown[name].count, "count of %s in the spans and on the page", name)
		assert.Equal(t, written[name].held, shown[name].held, "throttled runs of %s in the spans and on the page", name)
		assert.InDelta(t, o.total, shown[name].total, 0.02, "joules of %s on the terminal and on the page", name)
		assert.InDelta(t, written[name].total, shown[name].total, 1e-6*o.total+1e-9, "joules of %s in the spans and on the page",
			name)
	}
	m := regexp.MustCompile(`: (\d+) spans, (\d+) of them GPU spans`).FindStringSubmatch(table)
	require.NotNil(t, m, table)
	assert.Equal(t, []string{m[0], fmt.Sprint(spans), fmt.Sprint(gpuSpans)}, m, "spans on the terminal and in the file")
	assert.Equal(t, []int64{spans, gpuSpans}, []int64{recorded.Health.Spans, recorded.Health.GPUSpans},
		"spans in the file and on the page")

	counted := sumsBy(t, filepath.Join(dir, "metrics.json"), semconv.GPUOperationEnergyName, "gpu.operation.name")
	for name, o := range shown {
		assert.InDelta(t, counted[name], o.own, 1e-6*o.own+1e-9, "own joules of %s in the metrics and on the page", name)
	}

	perItem := sumsBy(t, filepath.Join(dir, "metrics.json"), semconv.GPURequestItemEnergyName, "")
	var inSpans, joules, items float64
	for _, b := range recorded.Bins {
		inSpans, joules, items = inSpans+b.Energy, joules+b.Metered, items+b.Items
	}
	assert.InDelta(t, own, inSpans, 1e-6*own, "joules of all operations and of the headline")
	require.Positive(t, items)
	assert.InDelta(t, perItem["sum"], joules, 1e-6*joules, "joules of tokens in the metrics and on the page")
	assert.InDelta(t, perItem["count"], items, 1e-3*items+1, "tokens in the metrics and on the page")

	var steps, lengths, ofSteps float64
	for _, st := range recorded.Steps {
		n := float64(max(1, st.Count))
		steps, lengths, ofSteps = steps+n, lengths+n*st.Duration, ofSteps+n*st.Energy
	}
	assert.InEpsilon(t, stepJoules, ofSteps, 1e-3, "joules of steps in the spans and on the page")
	row := rowOfSteps.FindStringSubmatch(table)
	require.NotNil(t, row, table)
	assert.Equal(t, row[2], fmt.Sprint(steps), "steps on the terminal and on the page")
	assert.InEpsilon(t, printedSeconds(t, row[3]), lengths/steps, 1e-3, "mean step on the terminal and on the page")
	printed, err := strconv.ParseFloat(row[4], 64)
	require.NoError(t, err)
	assert.InEpsilon(t, printed, ofSteps, 1e-3, "joules of steps on the terminal and on the page")
	row = rowOfRequests.FindStringSubmatch(table)
	require.NotNil(t, row, table)
	assert.Equal(t, row[1], fmt.Sprint(len(recorded.Requests)+recorded.MoreReqs),
		"requests on the terminal and on the page")
	assert.InEpsilon(t, printedSeconds(t, row[2]), recorded.ReqMedian, 1e-3,
		"median request on the terminal and on the page")
	slowest := 0.0
	for _, p := range recorded.Points {
		slowest = max(slowest, p.Duration)
	}
	assert.InEpsilon(t, printedSeconds(t, row[3]), slowest, 1e-3, "slowest request on the terminal and on the page")

	agreeOnDevices(t, recorded.Devices, filepath.Join(dir, "metrics.json"))
	return shown
}

// printedSeconds returns a length of the terminal.
func printedSeconds(t *testing.T, printed string) float64 {
	t.Helper()
	d, err := time.ParseDuration(strings.ReplaceAll(printed, " ", ""))
	require.NoError(t, err)
	return d.Seconds()
}

// agreeOnDevices compares the power and the throttling on the page with the increases of the
// counters.
func agreeOnDevices(t *testing.T, devices []page.Device, metrics string) {
	t.Helper()
	require.NotEmpty(t, devices)
	joules := readings(t, metrics, semconv.HWEnergyName, "")
	held := readings(t, metrics, semconv.GPUThrottleTimeName, string(semconv.GPUThrottleReasonKey))
	for _, d := range devices {
		require.True(t, d.Metered, "the power of %s is from its energy counter", d.ID)
		at := slices.Sorted(maps.Keys(joules[d.ID][""]))
		at = slices.CompactFunc(at, func(a, b int64) bool { return a/1e9 == b/1e9 }) // the page has one value a second
		require.Greater(t, len(at), 1, "readings of %s", d.ID)
		reasons := held[d.ID]
		shown, counted := 0.0, 0.0
		for i, power := range d.Power {
			from, watts, throttled, known := d.Start+int64(i)*d.Step, 0.0, 0.0, 0.0
			for second := from; second < from+d.Step; second++ {
				// The first reading at or after the second, and the reading before it.
				n := slices.IndexFunc(at, func(ns int64) bool { return ns/1e9 >= second })
				if n < 1 {
					continue
				}
				last, now := at[n-1], at[n]
				elapsed, share := float64(now-last)/1e9, 0.0
				for _, seconds := range reasons {
					share = max(share, min(1, (seconds[now]-seconds[last])/elapsed))
				}
				rate := (joules[d.ID][""][now] - joules[d.ID][""][last]) / elapsed
				known, watts, throttled = known+1, watts+rate, throttled+share
				counted += rate
			}
			if known == 0 {
				assert.Nil(t, power, "power of %s at %d", d.ID, from)
				continue
			}
			if assert.NotNil(t, power, "power of %s at %d", d.ID, from) {
				assert.InDelta(t, watts/known, *power, 0.051, "power of %s at %d, of the counter and on the page", d.ID, from)
				shown += *power * known
			}
			if cell := d.Throttled[i]; cell != nil || throttled > 0 {
				require.NotNil(t, cell, "throttling of %s at %d", d.ID, from)
				assert.InDelta(t, throttled/known, *cell, 0.00051,
					"throttling of %s at %d, of the counter and on the page", d.ID, from)
			}
		}
		assert.Positive(t, shown)
		assert.InEpsilon(t, counted, shown, 1e-3, "joules of %s, of the counter and on the page", d.ID)
	}
}

// readings returns a counter's values by device, another attribute, and time.
func readings(t *testing.T, path, name, key string) map[string]map[string]map[int64]float64 {
	t.Helper()
	out := map[string]map[string]map[int64]float64{}
	lines(t, path, func(line []byte) {
		md, err := (&pmetric.JSONUnmarshaler{}).UnmarshalMetrics(line)
		require.NoError(t, err)
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() != name {
						continue
					}
					for _, p := range m.Sum().DataPoints().All() {
						id, _ := p.Attributes().Get(string(semconv.HWIDKey))
						other := ""
						if v, ok := p.Attributes().Get(key); ok {
							other = v.AsString()
						}
						if out[id.Str()] == nil {
							out[id.Str()] = map[string]map[int64]float64{}
						}
						if out[id.Str()][other] == nil {
							out[id.Str()][other] = map[int64]float64{}
						}
						out[id.Str()][other][p.Timestamp().AsTime().UnixNano()] = p.DoubleValue()
					}
				}
			}
		}
	})
	return out
}
