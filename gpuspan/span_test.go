// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a profiler over a simulated device with a clock that the test controls.
type rig struct {
	t     *testing.T
	clock *simgpu.ManualClock
	gpu   *simgpu.GPU
	p     *gpuspan.Profiler
	tp    *sdktrace.TracerProvider
	spans *tracetest.SpanRecorder
	errs  []error
}

var epoch = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newRig returns a rig whose device has no drift, jitter or tick rounding, so that tests can expect
// exact times.
func newRig(t *testing.T, opts ...gpuspan.Option) *rig {
	t.Helper()
	r := &rig{t: t, clock: simgpu.NewManualClock(epoch), spans: tracetest.NewSpanRecorder()}
	r.clock.SetStep(20 * time.Nanosecond) // with a stopped clock, an anchor would never complete
	r.gpu = simgpu.New(r.clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	r.tp = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))
	opts = append([]gpuspan.Option{
		gpuspan.WithTracerProvider(r.tp),
		gpuspan.WithErrorHandler(func(err error) { r.errs = append(r.errs, err) }),
	}, opts...)
	p, err := gpuspan.New(r.gpu, opts...)
	require.NoError(t, err)
	r.p = p
	t.Cleanup(func() { require.NoError(t, p.Shutdown(context.Background())) })
	return r
}

func (r *rig) stream(opts ...gpuspan.StreamOption) (*gpuspan.Stream, backend.StreamHandle) {
	h := r.gpu.Stream(0)
	return r.p.Stream(h, "main", opts...), h
}

// busy enqueues work of the given duration.
func (r *rig) busy(h backend.StreamHandle, d time.Duration) {
	r.t.Helper()
	require.Equal(r.t, backend.StatusOK, r.gpu.Launch(h, simgpu.Kernel{Duration: d}))
}

func (r *rig) flush() {
	r.t.Helper()
	flush(r.t, r.p)
}

// flush waits as long as a slow machine needs, which may exceed `flush_deadline`.
func flush(t *testing.T, p *gpuspan.Profiler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, p.Flush(ctx))
}

func (r *rig) ended() map[string]sdktrace.ReadOnlySpan {
	out := map[string]sdktrace.ReadOnlySpan{}
	for _, s := range r.spans.Ended() {
		out[s.Name()] = s
	}
	return out
}

// attrs returns the attributes as a consumer resolves them: from the span, then its scope, and
// status ok if absent.
func attrs(s sdktrace.ReadOnlySpan) map[string]attribute.Value {
	scope := s.InstrumentationScope().Attributes
	out := map[string]attribute.Value{"gpu.timing.status": attribute.StringValue("ok")}
	for _, kv := range scope.ToSlice() {
		if kv.Key != "gpu.metrics.emitted" {
			out[string(kv.Key)] = kv.Value
		}
	}
	for _, kv := range s.Attributes() {
		out[string(kv.Key)] = kv.Value
	}
	return out
}

// An attribute limit drops measured values last, if at all.
func TestAttributeLimitKeepsMeasuredValues(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	limits := sdktrace.NewSpanLimits()
	limits.AttributeCountLimit = 8
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithRawSpanLimits(limits))
	r := newRig(t, gpuspan.WithTracerProvider(tp), gpuspan.WithAttributes(attribute.Int("a", 1), attribute.Int("b", 2),
		attribute.Int("c", 3)))
	s, h := r.stream()
	x := gpuspan.NewOperation("op", gpuspan.Category("c"), gpuspan.ItemType("token")).Start(context.Background(), s)
	r.busy(h, time.Millisecond)
	x.SetAttributes(attribute.Int("d", 4))
	x.EndWith(gpuspan.Work{Read: 1, Written: 1, Items: 1, FLOPs: 1, Precision: gpuspan.FP32})
	r.clock.Advance(2 * time.Millisecond)
	r.flush()
	span := spans.Ended()[0]
	require.Positive(t, span.DroppedAttributes())
	for _, k := range []string{"gpu.duration", "gpu.timing.error", "gpu.start.delay", "gpu.operation.type"} {
		require.Contains(t, attrs(span), k)
	}
}

// While work was queued, the host's delay cost nothing, so it is omitted.
func TestTheDelayOfAnEndIsStatedWhereTheDeviceWaitedForTheHost(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	for name, late := range map[string]bool{"queued": false, "waited": true} {
		x := gpuspan.NewOperation(name).Start(context.Background(), s)
		r.busy(h, 3*time.Millisecond)
		if late {
			r.clock.Advance(5 * time.Millisecond)
		}
		x.End()
		r.clock.Advance(10 * time.Millisecond)
	}
	r.flush()
	require.NotContains(t, attrs(r.ended()["queued"]), "gpu.end.delay")
	waited := attrs(r.ended()["waited"])
	require.InDelta(t, 5e-3, waited["gpu.duration"].AsFloat64(), 20e-6)
	require.InDelta(t, 0, waited["gpu.end.delay"].AsFloat64(), 10e-6)
}

func TestSectionBecomesASpanOnGPUTime(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))
	x := op.Start(context.Background(), s)
	r.busy(h, 3*time.Millisecond)
	x.EndWith(gpuspan.Work{Read: 100, Written: 50, Items: 7, FLOPs: 1e9, Precision: gpuspan.BF16})
	r.clock.Advance(10 * time.Millisecond)
	r.flush()

	span := r.ended()["prefill"]
	require.NotNil(t, span)
	a := attrs(span)
	require.InDelta(t, 3e-3, a["gpu.duration"].AsFloat64(), 20e-6)
	require.Equal(t, "simulated", a["gpu.timing.source"].AsString())
	require.Equal(t, "ok", a["gpu.timing.status"].AsString())
	require.Equal(t, "section", a["gpu.operation.type"].AsString())
	require.EqualValues(t, 100, a["gpu.io.read.size"].AsInt64())
	require.EqualValues(t, 50, a["gpu.io.write.size"].AsInt64())
	require.EqualValues(t, 7, a["gpu.operation.items"].AsInt64())
	require.Equal(t, "bf16", a["gpu.flop.precision"].AsString())
	require.Equal(t, span.EndTime().Sub(span.StartTime()).Seconds(), a["gpu.duration"].AsFloat64())
}

// A section whose work failed states it on its span; what cannot fail stays as it is.
func TestFailedSectionHasTheStatusError(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	for _, err := range []error{errors.New("out of memory"), nil, errors.New("")} {
		x := op.Start(context.Background(), s)
		r.busy(h, time.Millisecond)
		x.Fail(err)
		x.EndWith(gpuspan.Work{Items: 1})
		x.Fail(errors.New("after its end"))
	}
	gpuspan.Section{}.Fail(errors.New("nothing"))
	r.gpu.Wait(h)
	r.flush()
	spans := r.named("op")
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "out of memory"}, spans[0].Status())
	require.Equal(t, sdktrace.Status{}, spans[1].Status())
	require.Equal(t, sdktrace.Status{Code: codes.Error, Description: "failed"}, spans[2].Status())
	require.InDelta(t, 1e-3, attrs(spans[0])["gpu.duration"].AsFloat64(), 0.1e-3)
}
