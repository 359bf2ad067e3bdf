// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// The demo runs in real time. On an overloaded machine, devices are sampled with gaps, and other
// ranks than the scripted one are late, so the script is checked only if the machine kept up.
func TestDemoPutsTheDeviceOnTheSpans(t *testing.T) {
	var dir, stdout string
	var late time.Duration
	for attempt := range 3 {
		dir = t.TempDir()
		late = lateness(func() {
			var err error
			stdout, _, err = inProcess(t, "demo", "--duration", "3s", "--html", "--files", "--out", dir)
			require.NoError(t, err)
		})
		t.Logf("attempt %d: timers were late by %s in all", attempt+1, late)
		if late < keptUp {
			break
		}
	}
	recorded, size := reportState(t, filepath.Join(dir, "report.html"))
	require.Less(t, size, 1_000_000)
	require.False(t, recorded.Live)

	gpu := map[string]ptrace.Span{}
	parents := map[string]string{}
	energy := 0.0
	accounts := map[string]map[string]ptrace.Span{} // usage records of requests, by trace and name
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
	// The energy of outermost spans can never exceed the total of the devices, which the receiver
	// counts independently.
	total := 0.0
	for _, joules := range sumsBy(t, filepath.Join(dir, "metrics.json"), semconv.HWEnergyName, string(semconv.HWIDKey)) {
		total += joules
	}
	require.LessOrEqual(t, energy, total)
	require.True(t, json.Valid(gunzip(t, filepath.Join(dir, "trace.json.gz"))))
	require.Contains(t, stdout, fmt.Sprintf(": %d spans, %d of them GPU spans.\n", recorded.Health.Spans,
		recorded.Health.GPUSpans), "the page counts what the terminal counts")
	agree(t, stdout, recorded, dir)
	if late >= keptUp {
		t.Skipf("the machine is too busy for the demo's story: timers were late by %s in all", late)
	}

	require.Len(t, recorded.Devices, 4)
	for _, d := range recorded.Devices {
		memory := slices.DeleteFunc(d.Memory, func(v *float64) bool { return v == nil })
		require.NotEmpty(t, memory, "of the device's samples")
		require.GreaterOrEqual(t, *memory[len(memory)-1], math.Floor(8*1.3e9/(1<<20)), "what the training job has")
		require.Less(t, *memory[len(memory)-1], d.Limit)
	}
	require.NotEmpty(t, recorded.Steps)
	require.NotEmpty(t, recorded.Requests)
	require.NotEmpty(t, recorded.Roofs, "of a model that no table has, by the spans' rates and shares")
	for _, want := range []string{
		"4 simulated GPUs", "prefill", "decode", "train",
		filepath.Join(dir, "trace.json.gz"),
	} {
		require.Contains(t, stdout, want)
	}
	require.Greater(t, len(gpu), 100)
	require.Greater(t, float64(joined), 0.9*float64(len(gpu)), "spans with samples around them")
	require.Positive(t, derived)

	// Every request's trace contains its GPU work, and batches are divided without a remainder.
	require.Greater(t, served, 20)
	require.Len(t, accounts, served)
	long := ""
	for trace, a := range accounts {
		require.Contains(t, a, "queue", trace)
		if _, is := a["prefill.long"]; is { // the straggler
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
	// The findings, the page and the table name it, along with the other findings.
	found := map[string]finding.Finding{}
	for _, f := range recorded.Findings {
		found[f.Kind] = f
		require.Contains(t, stdout, "  "+strings.ReplaceAll(f.Kind, "_", " ")+": "+strings.Join(f.Chain, " -> "))
		require.Contains(t, stdout, f.Remedy+" (trace "+f.Trace+")\n")
	}
	require.Equal(t, long, found[semconv.GPUFindingKindSlowRequest].Trace)
	require.Regexp(t, `^[\d.]+m?s, the median of \d+ takes [\d.]+m?s; it used [\d.]+ J$`, found[semconv.GPUFindingKindSlowRequest].Chain[0])
	require.Regexp(t, `^the only span of prefill.long ran with a throttled clock, [\d.]+ms of GPU time \(sw_power_cap\)$`,
		found[semconv.GPUFindingKindThrottle].Chain[0])
	require.Regexp(t, `^h2d.batch moves through pageable memory at 1\d\.\d GB/s, \d+ % of the bus$`,
		found[semconv.GPUFindingKindPageableCopies].Chain[0])
	require.Regexp(t, `^rank 0 of 4 is late in \d+ of \d+ steps, by [\d.]+ms on average, .* of it in \w+ -> `+
		`inference runs on its GPU, too -> `, strings.Join(found[semconv.GPUFindingKindLateRank].Chain, " -> "))
	require.Regexp(t, `(?m)^prefill.long +section +1 +\d.* throttled$`, stdout, "the table")
	require.Regexp(t, `(?m)^  h2d.batch .* pageable$`, stdout)
	require.Regexp(t, `(?m)^train .* rank 0 is late by [\d.]+ms$`, stdout)
	require.Regexp(t, `(?m)^inference +\d+ +\d+\.\d+ ms +\d+\.\d+ m?s$`, stdout)
	require.NotEmpty(t, long)
	require.Positive(t, batches)
	require.InEpsilon(t, batches, charged, 1e-6)

	require.Positive(t, energy)
	require.Greater(t, energy, 0.3*total, "devices that are busy most of the time")

	names := countMetrics(t, filepath.Join(dir, "metrics.json"))
	for _, name := range []string{
		semconv.HWPowerName, semconv.HWEnergyName, semconv.GPUOperationDurationName, semconv.GPUStepDurationName,
		semconv.GPURequestEnergyName, semconv.GPURequestQueueDurationName, semconv.GPURequestTimeToFirstItemName,
	} {
		require.Contains(t, names, name)
	}
}

// keptUp is less than the total delay of the scripted rank, and than the gap that leaves time
// without samples.
const keptUp = 200 * time.Millisecond

// lateness returns the total delay of a 5 ms timer while f ran, ignoring delays up to 10 ms, which
// occur on any machine.
func lateness(f func()) (sum time.Duration) {
	const tick, usual = 5 * time.Millisecond, 10 * time.Millisecond
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			from := time.Now()
			select {
			case <-stop:
				return
			case <-time.After(tick):
				sum += max(time.Since(from)-tick-usual, 0)
			}
		}
	}()
	defer func() { close(stop); <-done }()
	f()
	return
}

// factsOf reads a span together with its scope.
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

// number returns an attribute of a span, or 0 if it is absent.
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

func gunzip(t *testing.T, path string) []byte {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	b, err := io.ReadAll(z)
	require.NoError(t, err)
	return b
}

func TestDemoEndsCleanlyWhenInterrupted(t *testing.T) {
	dir := t.TempDir()
	p := start(t, os.Environ(), "demo", "--duration", "5m", "--files", "--out", dir)
	require.Eventually(t, func() bool {
		info, err := os.Stat(filepath.Join(dir, "spans.json"))
		return err == nil && info.Size() > 0
	}, time.Minute, 50*time.Millisecond)
	require.Zero(t, p.interrupt(t), p.stderr.String())
	require.Empty(t, p.stderr.String())
	require.True(t, json.Valid(gunzip(t, filepath.Join(dir, "trace.json.gz"))))
	spans := 0
	eachSpan(t, filepath.Join(dir, "spans.json"), func(ptrace.ResourceSpans, ptrace.Span) { spans++ })
	require.Positive(t, spans)
}

func TestDemoNamesUnusablePortsAndFiles(t *testing.T) {
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
		b, _ := os.ReadFile(out)
		return bytes.Contains(b, []byte(strconv.Quote(semconv.HWPowerName)))
	}, time.Minute, 50*time.Millisecond, "%s", &p.stderr)
	require.Zero(t, p.interrupt(t))
	require.Contains(t, countMetrics(t, out), semconv.HWPowerName)
}
