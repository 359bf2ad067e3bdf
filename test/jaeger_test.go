// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/config"
	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/freeport"
	"github.com/otelgpu/otelgpu/test/internal/integration"
	"github.com/otelgpu/otelgpu/test/internal/jaeger"
	"github.com/otelgpu/otelgpu/test/internal/jaeger/jaegertest"
	"github.com/otelgpu/otelgpu/test/internal/program"
)

// overrides moves the shipped jaeger pipeline to free ports and onto the recorded device. Join
// delays are shortened for the test: all data is from one process, which flushes immediately.
const overrides = `
receivers:
  otlp:
    protocols:
      grpc:
        endpoint: %s
      http:
        endpoint: %s
  gpu:
    source: replay
    replay:
      file: %s
processors:
  gpu_join:
    settle: 300ms
    max_wait: 5s
    attributes: full
  gpu_derive:
    attributes: full
exporters:
  prometheus:
    endpoint: %s
extensions:
  health_check:
    endpoint: %s
service:
  telemetry:
    metrics:
      level: none
      readers: []
`

// intoJaeger runs the shipped jaeger pipeline with overrides in the real binary; spans are sent to
// address.
func intoJaeger(t *testing.T, j *jaeger.Jaeger, more ...string) (collector *program.Program, address string) {
	t.Helper()
	binary := buildCollector(t)
	pipeline, err := config.YAML("jaeger")
	require.NoError(t, err)
	recording := filepath.Join(t.TempDir(), "constant.gpurec")
	addresses := make([]any, 0, 4)
	for range 4 {
		a, err := freeport.Address()
		require.NoError(t, err)
		addresses = append(addresses, a)
	}
	constantDevice(t, recording, firstDevice, "NVIDIA H100 80GB HBM3", 2*time.Minute)
	configs := append([]string{pipeline, fmt.Sprintf(overrides, addresses[0], addresses[1], recording, addresses[2],
		addresses[3])}, more...)
	collector = startCollector(t, binary, []string{"OTELGPU_JAEGER_ENDPOINT=" + j.OTLPGRPC}, configs...)
	require.NoError(t, collector.WaitFor("GPU source opened", time.Minute)) // the first sample has that time
	time.Sleep(leadIn)                                                      // before, short spans have no energy
	return collector, addresses[0].(string)
}

const firstDevice = "GPU-51a0c0de-0000-4000-8000-000000000000" // simgpu's

// End to end: an instrumented service, the shipped pipeline in the real binary, and the real
// Jaeger, queried for the trace as a user would.
func TestIntegrationTraceOfAnInstrumentedServiceArrivesInJaeger(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	j := jaegertest.Start(t)
	collector, address := intoJaeger(t, j)
	s := newService(t, address)
	require.Equal(t, firstDevice, s.profiler.Devices()[0].UUID)
	request, queued, fit := s.request(t), s.queue(t), s.train(t)
	spans := s.close(t)
	for name, id := range map[string]trace.TraceID{"request": request, "queued": queued, "training": fit} {
		t.Run(name, func(t *testing.T) {
			sent := spansOf(spans, id)
			got := await(t, j, id, len(sent))
			require.NoError(t, conformance.Traces(got.all))
			t.Run("nothing that was sent is lost or changed", func(t *testing.T) { got.equal(t, sent) })
			switch id {
			case request:
				t.Run("the tree equals the service's", func(t *testing.T) { got.tree(t) })
				t.Run("rates are derived", func(t *testing.T) { got.derived(t) })
			case queued:
				t.Run("the device works when the request has ended", func(t *testing.T) { got.queued(t) })
			case fit:
				t.Run("steps are whole", func(t *testing.T) { got.steps(t) })
			}
			t.Run("device samples are joined", func(t *testing.T) { got.joined(t) })
			t.Run("the page has no warnings", func(t *testing.T) {
				warnings, err := j.Warnings(t.Context(), id.String())
				require.NoError(t, err)
				require.Empty(t, warnings)
			})
		})
	}
	if t.Failed() {
		t.Log(collector.Output())
	}
}

// With the shipped pipeline, only the trace of the late rank names it.
func TestIntegrationJaegerShowsTheSlowRank(t *testing.T) {
	integration.Need(t)
	t.Parallel()
	j := jaegertest.Start(t)
	_, address := intoJaeger(t, j, "connectors: {gpu_metrics: {flush_interval: 500ms}}")
	x := timeline{zero: time.Now().Add(-200 * time.Millisecond).Truncate(time.Millisecond)}
	export(t, address, x.ranks())
	slow := await(t, j, trace.TraceID{3}, 6)
	require.NoError(t, conformance.Traces(slow.all))
	s := slow.one(t, "straggler backward/attention")
	for _, rs := range slow.all.ResourceSpans().All() { // all of one service
		ip, _ := rs.Resource().Attributes().Get("ip")
		require.Equal(t, "trainer", ip.Str(), "the page takes them for spans of one host")
		rs.Resource().Attributes().Remove("ip")
		x.checkStraggler(t, rs, s)
	}
	warnings, err := j.Warnings(t.Context(), trace.TraceID{3}.String())
	require.NoError(t, err)
	require.Empty(t, warnings)
	for rank := range byte(4) {
		if rank != 2 {
			await(t, j, trace.TraceID{rank + 1}, 5)
		}
	}
	found, err := j.Find(t.Context(), "trainer", x.zero.Add(-time.Minute), x.zero.Add(time.Minute), 1000)
	require.NoError(t, err)
	last := 0 // of the last step of each rank
	for _, rs := range found.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				if id := s.TraceID(); id == (pcommon.TraceID{id[0]}) {
					last++
				}
			}
		}
	}
	require.Equal(t, 4*5+1, last)
}

// spansOf returns the spans of one trace.
func spansOf(spans tracetest.SpanStubs, id trace.TraceID) tracetest.SpanStubs {
	var out tracetest.SpanStubs
	for _, s := range spans {
		if s.SpanContext.TraceID() == id {
			out = append(out, s)
		}
	}
	return out
}

// answer is a trace returned by Jaeger.
type answer struct {
	all    ptrace.Traces
	byID   map[pcommon.SpanID]ptrace.Span
	byName map[string][]ptrace.Span
}

// await polls Jaeger until it has n spans of the trace: joins settle, queues flush.
func await(t *testing.T, j *jaeger.Jaeger, id trace.TraceID, n int) answer {
	t.Helper()
	var td ptrace.Traces
	require.Eventually(t, func() bool {
		var err error
		td, err = j.Trace(t.Context(), id.String())
		if errors.Is(err, jaeger.ErrNotFound) {
			return false
		}
		require.NoError(t, err)
		return td.SpanCount() >= n
	}, time.Minute, 100*time.Millisecond)
	a := answer{all: td, byID: map[pcommon.SpanID]ptrace.Span{}, byName: map[string][]ptrace.Span{}}
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				for k, v := range ss.Scope().Attributes().All() { // a span inherits the attributes of its scope
					if _, ok := s.Attributes().Get(k); !ok {
						v.CopyTo(s.Attributes().PutEmpty(k))
					}
				}
				a.byID[s.SpanID()] = s
				a.byName[s.Name()] = append(a.byName[s.Name()], s)
			}
		}
	}
	return a
}

func (a answer) one(t *testing.T, name string) ptrace.Span {
	t.Helper()
	require.Len(t, a.byName[name], 1, name)
	return a.byName[name][0]
}

func double(t *testing.T, s ptrace.Span, name string) float64 {
	t.Helper()
	v, ok := s.Attributes().Get(name)
	require.True(t, ok, "%s has no %s, only %v", s.Name(), name, s.Attributes().AsRaw())
	require.Equal(t, pcommon.ValueTypeDouble, v.Type(), name)
	return v.Double()
}

func text(t *testing.T, s ptrace.Span, name string) string {
	t.Helper()
	v, ok := s.Attributes().Get(name)
	require.True(t, ok, "%s has no %s, only %v", s.Name(), name, s.Attributes().AsRaw())
	return v.AsString()
}

// seconds returns the duration of a span.
func seconds(s ptrace.Span) float64 {
	return s.EndTimestamp().AsTime().Sub(s.StartTimestamp().AsTime()).Seconds()
}

func (a answer) equal(t *testing.T, sent tracetest.SpanStubs) {
	require.Len(t, a.byID, len(sent))
	for _, want := range sent {
		got, ok := a.byID[pcommon.SpanID(want.SpanContext.SpanID())]
		require.True(t, ok, want.Name)
		require.Equal(t, want.Name, got.Name())
		require.Equal(t, want.StartTime.UnixNano(), int64(got.StartTimestamp()), want.Name)
		require.Equal(t, want.EndTime.UnixNano(), int64(got.EndTimestamp()), want.Name)
		require.Equal(t, want.Parent.SpanID().String(), hex(got.ParentSpanID()), want.Name)
		for _, kv := range want.Attributes {
			v, ok := got.Attributes().Get(string(kv.Key))
			require.True(t, ok, "%s lost %s", want.Name, kv.Key)
			require.Equal(t, plain(kv.Value), v.AsRaw(), "%s of %s", kv.Key, want.Name)
		}
		require.Len(t, want.Links, got.Links().Len(), want.Name)
		for i, l := range want.Links {
			require.Equal(t, l.SpanContext.TraceID().String(), got.Links().At(i).TraceID().String())
			require.Equal(t, l.SpanContext.SpanID().String(), got.Links().At(i).SpanID().String())
		}
	}
}

// hex formats an ID like the SDK: the parent ID of a root is zeros, not empty.
func hex(id pcommon.SpanID) string { return trace.SpanID(id).String() }

// plain returns the value as pdata does.
func plain(v attribute.Value) any {
	switch v.Type() {
	case attribute.STRINGSLICE:
		var out []any
		for _, s := range v.AsStringSlice() {
			out = append(out, s)
		}
		return out
	case attribute.INT64SLICE:
		var out []any
		for _, i := range v.AsInt64Slice() {
			out = append(out, i)
		}
		return out
	}
	return v.AsInterface()
}

func (a answer) tree(t *testing.T) {
	request := a.one(t, requestName)
	require.True(t, request.ParentSpanID().IsEmpty())
	require.Equal(t, ptrace.SpanKindServer, request.Kind())
	prefill := a.one(t, "prefill")
	for name, parent := range map[string]ptrace.Span{"h2d.tokens": request, "prefill": request, "attention": prefill} {
		require.Equal(t, parent.SpanID(), a.one(t, name).ParentSpanID(), name)
	}
	require.Len(t, a.byName["decode"], decodeCount)
	for _, d := range a.byName["decode"] {
		require.Equal(t, request.SpanID(), d.ParentSpanID())
		require.GreaterOrEqual(t, seconds(d), decodeTime.Seconds())
	}
	require.Equal(t, 1, prefill.Links().Len(), "the second request of the batch")
	attention := a.one(t, "attention")
	require.GreaterOrEqual(t, attention.StartTimestamp(), prefill.StartTimestamp())
	require.LessOrEqual(t, attention.EndTimestamp(), prefill.EndTimestamp())
	require.GreaterOrEqual(t, seconds(attention), prefillTime.Seconds())
}

// The peaks are from NVIDIA's data sheet of the H100 SXM5: 3.35 TB/s and 989.4 TFLOP/s dense in
// bf16.
func (a answer) derived(t *testing.T) {
	attention := a.one(t, "attention")
	rate := prefillFLOPs / double(t, attention, "gpu.duration")
	require.InEpsilon(t, rate, double(t, attention, "gpu.flop.rate"), 1e-9)
	require.InEpsilon(t, rate/989.4e12, double(t, attention, "gpu.flop.utilization"), 1e-3)
	require.Equal(t, "table", text(t, attention, "gpu.peak.source"))
	for _, d := range a.byName["decode"] {
		rate := float64(decodeBytes) / double(t, d, "gpu.duration")
		require.InEpsilon(t, rate, double(t, d, "gpu.io.read.rate"), 1e-9)
		require.InEpsilon(t, rate/3.35e12, double(t, d, "gpu.io.utilization"), 1e-3)
		require.InEpsilon(t, float64(decodeTokens)/double(t, d, "gpu.duration"), double(t, d, "gpu.operation.item.rate"),
			1e-9)
		require.Equal(t, "ok", text(t, d, "gpu.declaration.status"))
	}
	h2d := a.one(t, "h2d.tokens")
	require.InEpsilon(t, float64(copyBytes)/double(t, h2d, "gpu.duration"), double(t, h2d, "gpu.io.rate"), 1e-9)
	skipped := a.one(t, "d2h.skipped")
	require.Equal(t, "below_floor", text(t, skipped, "gpu.rate.status"))
	require.NotContains(t, skipped.Attributes().AsRaw(), "gpu.io.rate")
	for name := range a.one(t, requestName).Attributes().All() {
		require.NotContains(t, name, "gpu.", "the request is no GPU span")
	}
}

// queued checks a request that Jaeger considers a clock error unless it knows that both spans are
// from one host.
func (a answer) queued(t *testing.T) {
	request := a.one(t, queuedRequest)
	require.Len(t, a.byName["embed"], 2)
	for _, s := range a.byName["embed"] {
		require.Greater(t, s.EndTimestamp(), request.EndTimestamp())
		require.Less(t, seconds(s), seconds(request))
	}
}

// steps checks the parts of each step against each other and against the kernels' known lengths.
func (a answer) steps(t *testing.T) {
	fit := a.one(t, "fit")
	require.Len(t, a.byName["train"], stepCount)
	index := map[int64]bool{}
	for _, s := range a.byName["train"] {
		require.Equal(t, fit.SpanID(), s.ParentSpanID())
		require.Equal(t, "step", text(t, s, "gpu.operation.type"))
		i, ok := s.Attributes().Get("gpu.step.index")
		require.True(t, ok)
		index[i.Int()] = true
		length := double(t, s, "gpu.step.duration")
		forward, backward := double(t, s, "gpu.step.phase.duration.forward"), double(t, s, "gpu.step.phase.duration.backward")
		require.GreaterOrEqual(t, forward, forwardTime.Seconds())
		require.GreaterOrEqual(t, backward, backwardTime.Seconds())
		require.InDelta(t, length, forward+backward-double(t, s, "gpu.step.overlap.duration")+double(t, s,
			"gpu.step.other.duration"), 1e-9)
		require.InEpsilon(t, float64(stepItems)/length, double(t, s, "gpu.step.item.rate"), 1e-9)
		require.InEpsilon(t, stepFLOPs/(length*989.4e12), double(t, s, "gpu.step.mfu"), 1e-3)

		var phases float64
		for _, name := range []string{"forward", "backward"} {
			require.Len(t, a.byName[name], stepCount)
			for _, p := range a.byName[name] {
				if p.ParentSpanID() == s.SpanID() && !withheld(p) {
					phases += double(t, p, "gpu.energy")
				}
			}
		}
		if !withheld(s) {
			require.LessOrEqual(t, phases, double(t, s, "gpu.energy")*(1+1e-9), "a step has at least what its phases have")
		}
	}
	require.Equal(t, map[int64]bool{1: true, 2: true, 3: true}, index)
}

// withheld reports whether a span has no energy because it is short: in the first seconds of a
// device the times at which its counter was refreshed are not known well enough for a span of
// milliseconds (docs/energy.md).
func withheld(s ptrace.Span) bool {
	_, known := s.Attributes().Get("gpu.energy")
	return !known && seconds(s) < 0.1
}

// joined compares every GPU span except steps with the constant device. (Steps are live spans: one
// ends shortly after the next one has started, and they share that time.)
func (a answer) joined(t *testing.T) {
	n := 0
	for _, s := range a.byID {
		kind, gpu := s.Attributes().Get("gpu.operation.type")
		if !gpu {
			continue
		}
		n++
		require.InDelta(t, seconds(s), double(t, s, "gpu.join.coverage")*seconds(s), 5e-9,
			"%s is covered but for roundings to nanoseconds", s.Name())
		require.Equal(t, "replay", text(t, s, "gpu.measurement.source"))
		for name, want := range map[string]float64{
			"gpu.power": watts, "gpu.utilization": utilization, "gpu.sm.utilization": smActive, "gpu.sm.occupancy": occupancy,
			"gpu.tensor.utilization": tensor, "gpu.dram.utilization": dram, "gpu.temperature.max": celsius,
			"gpu.clock.sm.frequency": smHertz, "gpu.clock.memory.frequency": memoryHertz,
			// One process with one stream: nothing is shared with others, so a span's energy is
			// power times its length.
			"gpu.energy": watts * seconds(s),
		} {
			if name == "gpu.energy" && (kind.Str() == "step" || withheld(s)) {
				continue
			}
			require.InEpsilon(t, want, double(t, s, name), 1e-6, "%s of %s", name, s.Name())
		}
		used, ok := s.Attributes().Get("gpu.memory.usage")
		require.True(t, ok)
		require.InEpsilon(t, memoryUsed, used.Int(), 1e-6)
	}
	require.NotZero(t, n)
}
