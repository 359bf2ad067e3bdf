// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestDemoPutsTheDeviceOnTheSpans(t *testing.T) {
	dir := t.TempDir()
	stdout, _, err := inProcess(t, "demo", "--duration", "3s", "--html", "--out", dir)
	require.NoError(t, err)
	recorded, size := reportState(t, filepath.Join(dir, "report.html"))
	require.Less(t, size, 1_000_000)
	require.False(t, recorded.Live)
	require.Len(t, recorded.Devices, 1)
	require.NotEmpty(t, recorded.Steps)
	require.NotEmpty(t, recorded.Requests)
	require.NotEmpty(t, recorded.Roofs, "of a model that no table has, by the spans' rates and shares")
	for _, want := range []string{
		"The device is simulated", "prefill", "decode", "train",
		filepath.Join(dir, "trace.json"),
	} {
		require.Contains(t, stdout, want)
	}

	gpu := map[string]ptrace.Span{}
	parents := map[string]string{}
	energy := 0.0
	accounts := map[string]map[string]ptrace.Span{} // of requests, by trace and name
	served, charged, batches := 0, 0.0, 0.0
	facts := map[string]spanfacts.Facts{}
	eachSpan(t, filepath.Join(dir, "spans.json"), func(rs ptrace.ResourceSpans, s ptrace.Span) {
		trace := s.TraceID().String()
		if s.Kind() == ptrace.SpanKindServer {
			served++
		}
		typ, ok := s.Attributes().Get(string(semconv.GPUOperationTypeKey))
		if s.Name() == "queue" || ok && typ.Str() == semconv.GPUOperationTypeShare {
			if accounts[trace] == nil {
				accounts[trace] = map[string]ptrace.Span{}
			}
			accounts[trace][s.Name()] = s
			charged += number(s, semconv.GPUEnergyKey)
			return
		}
		if s.Links().Len() > 0 {
			batches += number(s, semconv.GPUEnergyKey)
		}
		if ok {
			gpu[s.SpanID().String()] = s
			facts[s.SpanID().String()] = factsOf(rs, s)
			parents[s.SpanID().String()] = s.ParentSpanID().String()
		}
	})
	joined, derived := 0, 0
	for id, s := range gpu {
		f := facts[id]
		require.Equal(t, semconv.GPUTimingSourceSimulated, f.Source)
		if f.HasEnergy && f.Coverage > 0.99 {
			joined++
		}
		if _, ok := s.Attributes().Get(string(semconv.GPURooflineBoundKey)); ok {
			derived++
		}
		if _, nested := gpu[parents[id]]; !nested {
			if j, ok := s.Attributes().Get(string(semconv.GPUEnergyKey)); ok {
				require.GreaterOrEqual(t, j.Double(), 0.0)
				energy += j.Double()
			}
		}
	}
	require.Greater(t, len(gpu), 100)
	require.Greater(t, float64(joined), 0.9*float64(len(gpu)), "spans with samples around them")
	require.Positive(t, derived)

	// Every request's trace says what the GPU did for it, and the batches are divided without a rest.
	require.Greater(t, served, 20)
	require.Len(t, accounts, served)
	long := ""
	for trace, a := range accounts {
		require.Contains(t, a, "queue", trace)
		if _, is := a["prefill.long"]; is { // the one that stands out
			require.Empty(t, long)
			long = trace
			require.Equal(t, 32768.0, number(a["prefill.long"], semconv.GPUOperationItemsKey))
			continue
		}
		for _, name := range []string{"prefill", "decode"} {
			require.Contains(t, a, name, trace)
			require.Positive(t, number(a[name], semconv.GPURequestDurationKey), trace)
			require.Positive(t, number(a[name], semconv.GPUOperationItemsKey), trace)
		}
		require.Equal(t, 512.0, number(a["prefill"], semconv.GPUOperationItemsKey))
		require.Equal(t, number(a["decode"], semconv.GPUOperationItemsKey),
			number(a["decode"], semconv.GPURequestBatchCountKey))
	}
	// The findings name it, and what else stands out.
	require.Regexp(t, `slow request: \d+.*; it used [\d.]+ J \(trace `+long+`\)`, stdout)
	require.Regexp(t,
		`throttle: the clock was held back in 1 of 1 spans of prefill.long, \d.* of GPU time \(sw_power_cap\)`, stdout)
	require.Regexp(t, `pageable copy: h2d.batch moves from pageable memory at 1\d\.\d GB/s, \d+ % of the bus`, stdout)
	require.Regexp(t, `(?m)^prefill.long +section +1 +\d`, stdout, "the table")
	require.NotEmpty(t, long)
	require.Positive(t, batches)
	require.InEpsilon(t, batches, charged, 1e-6)

	// The parts of outermost spans can never be more than the device took in all, which the receiver counted by itself.
	total := lastSum(t, filepath.Join(dir, "metrics.json"), semconv.HWEnergyName)
	require.Positive(t, energy)
	require.LessOrEqual(t, energy, total)
	require.Greater(t, energy, 0.3*total, "a device that is busy most of the time")

	names := countMetrics(t, filepath.Join(dir, "metrics.json"))
	for _, name := range []string{
		semconv.HWPowerName, semconv.HWEnergyName, semconv.GPUOperationDurationName, semconv.GPUStepDurationName,
		semconv.GPURequestEnergyName, semconv.GPURequestQueueDurationName, semconv.GPURequestTimeToFirstItemName,
	} {
		require.Contains(t, names, name)
	}
	trace, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	require.NoError(t, err)
	require.True(t, json.Valid(trace))
}

// factsOf reads a span with what its scope says for it.
func factsOf(rs ptrace.ResourceSpans, s ptrace.Span) (f spanfacts.Facts) {
	for _, ss := range rs.ScopeSpans().All() {
		for _, x := range ss.Spans().All() {
			if x == s {
				var scope spanfacts.Scope
				scope.Load(nil, ss.Scope().Attributes())
				f.Load(s, &scope)
			}
		}
	}
	return f
}

// number is an attribute of a span, 0 where it is absent.
func number(s ptrace.Span, key attribute.Key) float64 {
	v, ok := s.Attributes().Get(string(key))
	if !ok {
		return 0
	}
	if v.Type() == pcommon.ValueTypeInt {
		return float64(v.Int())
	}
	return v.Double()
}

// lastSum is the newest value of a cumulative sum with one series.
func lastSum(t *testing.T, path, name string) float64 {
	t.Helper()
	last := 0.0
	var u pmetric.JSONUnmarshaler
	lines(t, path, func(line []byte) {
		md, err := u.UnmarshalMetrics(line)
		require.NoError(t, err)
		for _, rm := range md.ResourceMetrics().All() {
			for _, sm := range rm.ScopeMetrics().All() {
				for _, m := range sm.Metrics().All() {
					if m.Name() == name {
						last = m.Sum().DataPoints().At(m.Sum().DataPoints().Len() - 1).DoubleValue()
					}
				}
			}
		}
	})
	return last
}

func TestDemoEndsCleanlyWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	p := start(t, os.Environ(), "demo", "--duration", "5m", "--out", dir)
	require.Eventually(t, func() bool {
		info, err := os.Stat(filepath.Join(dir, "spans.json"))
		return err == nil && info.Size() > 0
	}, time.Minute, 50*time.Millisecond)
	require.Zero(t, p.interrupt(t), p.stderr.String())
	require.Empty(t, p.stderr.String())
	trace, err := os.ReadFile(filepath.Join(dir, "trace.json"))
	require.NoError(t, err)
	require.True(t, json.Valid(trace))
	spans := 0
	eachSpan(t, filepath.Join(dir, "spans.json"), func(ptrace.ResourceSpans, ptrace.Span) { spans++ })
	require.Positive(t, spans)
}

func TestDemoNamesWhatItCannotUse(t *testing.T) {
	_, _, err := inProcess(t, "demo", "--duration", "-1s", "--out", t.TempDir())
	require.ErrorContains(t, err, "must be positive, found -1s")
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	_, _, err = inProcess(t, "demo", "--duration", "1s", "--out", file)
	require.ErrorContains(t, err, file)
}

func TestARecordingIsPlayedBack(t *testing.T) {
	file := filepath.Join(t.TempDir(), "device.gpurec")
	stdout, _, err := inProcess(t, "record", "--source", "simulated", "--duration", "1s", "--interval", "20ms", "--out",
		file)
	require.NoError(t, err)
	require.Contains(t, stdout, "1 devices from simulated")
	out := filepath.Join(t.TempDir(), "metrics.json")
	p := start(t, os.Environ(), "--config", "yaml:"+
		"receivers: {gpu: {source: replay, collection_interval: 200ms, replay: {file: \""+file+"\"}}}\n"+
		"exporters: {file: {path: \""+out+"\"}}\n"+
		"service: {telemetry: {metrics: {level: none}}, pipelines: {metrics: {receivers: [gpu], exporters: [file]}}}\n")
	require.Eventually(t, func() bool {
		info, err := os.Stat(out)
		return err == nil && info.Size() > 0
	}, time.Minute, 50*time.Millisecond, "%s", &p.stderr)
	require.Zero(t, p.interrupt(t))
	require.Contains(t, countMetrics(t, out), semconv.HWPowerName)
}
