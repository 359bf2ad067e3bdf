// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// fault panics in the named call once it is armed.
type fault struct {
	at    string
	armed atomic.Bool
	hits  atomic.Int64
}

func (f *fault) in(call string) {
	if f.at == call && f.armed.Load() {
		f.hits.Add(1)
		panic("injected into " + call)
	}
}

// faultyBackend is an enginetest.Backend whose methods may panic.
type faultyBackend struct {
	*enginetest.Backend
	*fault
}

func (b faultyBackend) Name() string { b.in("Name"); return b.Backend.Name() }

func (b faultyBackend) Devices() ([]backend.Device, error) {
	b.in("Devices")
	return b.Backend.Devices()
}

func (b faultyBackend) Now() time.Time { b.in("Now"); return time.Now().Round(0) }

func (b faultyBackend) ThreadInit() error { b.in("ThreadInit"); return nil }

func (b faultyBackend) Bind(d backend.Context) (func(), backend.Status) {
	b.in("Bind")
	return b.Backend.Bind(d)
}

func (b faultyBackend) FreeStream(d backend.Context, s backend.StreamHandle) { b.in("FreeStream") }

func (b faultyBackend) Record(c *backend.Call) backend.Status {
	b.in("Record")
	return b.Backend.Record(c)
}

func (b faultyBackend) Query(e backend.Event) backend.Status {
	b.in("Query")
	return b.Backend.Query(e)
}

func (b faultyBackend) Synchronize(e backend.Event) backend.Status {
	b.in("Synchronize")
	return backend.StatusOK
}

func (b faultyBackend) Elapsed(x, y backend.Event) (float64, backend.Status) {
	b.in("Elapsed")
	return b.Backend.Elapsed(x, y)
}

func (b faultyBackend) StreamInfo(s backend.StreamHandle, c backend.Context) (backend.StreamInfo, error) {
	b.in("StreamInfo")
	return b.Backend.StreamInfo(s, c)
}

func (b faultyBackend) NewStream(d backend.Context) (backend.StreamHandle, backend.Status) {
	b.in("NewStream")
	return b.Backend.NewStream(d)
}

func (b faultyBackend) NewEvents(d backend.Context, dst []backend.Event) backend.Status {
	b.in("NewEvents")
	return b.Backend.NewEvents(d, dst)
}

func (b faultyBackend) FreeEvents(d backend.Context, e []backend.Event) {
	b.in("FreeEvents")
	b.Backend.FreeEvents(d, e)
}

func (b faultyBackend) Capturing(s backend.StreamHandle) (bool, backend.Status) {
	b.in("Capturing")
	return b.Backend.Capturing(s)
}

func (b faultyBackend) MemoryUsage(d backend.Context) (int64, backend.Status) {
	b.in("MemoryUsage")
	return b.Backend.MemoryUsage(d)
}

func (b faultyBackend) Close() error { b.in("Close"); return b.Backend.Close() }

// faultyCode implements everything else that an application can pass to a profiler.
type faultyCode struct{ *fault }

func (c faultyCode) OnStart(context.Context, sdktrace.ReadWriteSpan) { c.in("OnStart") }

func (c faultyCode) OnEnd(sdktrace.ReadOnlySpan) { c.in("OnEnd") }

func (c faultyCode) Shutdown(context.Context) error { return nil }

func (c faultyCode) ForceFlush(context.Context) error { return nil }

func (c faultyCode) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	c.in("ShouldSample")
	return sdktrace.AlwaysSample().ShouldSample(p)
}

func (c faultyCode) Description() string { return "faulty" }

func (c faultyCode) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	c.in("NewIDs")
	return (*spanid.Generator)(nil).NewIDs(ctx)
}

func (c faultyCode) NewSpanID(ctx context.Context, t trace.TraceID) trace.SpanID {
	c.in("NewSpanID")
	return (*spanid.Generator)(nil).NewSpanID(ctx, t)
}

func (c faultyCode) RangeStart(*section.Operation, trace.SpanContext, int64) uint64 {
	c.in("RangeStart")
	return 1
}

func (c faultyCode) RangeEnd(uint64) { c.in("RangeEnd") }

func (c faultyCode) Enabled() bool { c.in("Enabled"); return true }

func (c faultyCode) Write(p []byte) (int, error) { c.in("Write"); return 0, errors.New("disk full") }

// faultyTracers, faultyMeters, faultySketch and faultyLogger are providers, a sketch and a logger
// that may panic.
type faultyTracers struct {
	*sdktrace.TracerProvider
	fault *fault
}

func (p faultyTracers) Tracer(name string, o ...trace.TracerOption) trace.Tracer {
	p.fault.in("Tracer")
	return p.TracerProvider.Tracer(name, o...)
}

type faultyMeters struct {
	metricnoop.MeterProvider
	fault *fault
}

func (p faultyMeters) Meter(name string, o ...metric.MeterOption) metric.Meter {
	p.fault.in("Meter")
	return p.MeterProvider.Meter(name, o...)
}

type faultySketch struct{ *fault }

func (s faultySketch) Add(float64) { s.in("Add") }

func (s faultySketch) Quantile(float64) (float64, bool) { s.in("Quantile"); return 0, false }

type faultyLogger struct{ *fault }

func (l faultyLogger) Enabled(context.Context, slog.Level) bool { return true }

func (l faultyLogger) Handle(context.Context, slog.Record) error { l.in("Handle"); return nil }

func (l faultyLogger) WithAttrs([]slog.Attr) slog.Handler { return l }

func (l faultyLogger) WithGroup(string) slog.Handler { return l }

// application is a program with sections of every kind. It returns how many operations it
// completed.
func application(p *engine.Profiler, arm func()) (done int) {
	out := faultyCode{&fault{}}
	ctx := context.Background()
	op, inner := section.NewOperation("faults", enginetest.PrintReport(out)), section.NewOperation("faults inner", enginetest.Sync(settings.SyncImmediate))
	for i := range 3 {
		if i == 1 {
			arm()
		}
		s := p.Stream(uintptr(3+i), "main")
		x := op.Start(ctx, s)
		x.Checksum(1)
		x.Start(inner).EndWith(work.Work{Items: 1})
		x.End()
		op.Start(enginetest.Sampled(), s).End()
		op.Start(trace.ContextWithSpanContext(ctx, trace.SpanContext{}.WithTraceID(trace.TraceID{1}).WithSpanID(
			trace.SpanID{1})), s).EndWith(work.Work{Items: 1})
		op.Launch(ctx, s, func() { done++ })
		op.Record(ctx, s, time.Now(), time.Second, work.Work{})
		s.StartNamed(ctx, "name")
		s.EndNamed("name", work.Work{})
		for _, st := range p.Loop("faults loop", s, enginetest.TotalSteps(2),
			enginetest.StepSchedule(settings.Schedule{Warmup: 1, Active: 1})).Steps(ctx) {
			st.Phase("forward").End()
			st.AddPhase(spans.Comm, time.Second)
			done++
		}
		short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		_ = p.Flush(short)
		cancel()
		p.Snapshot()
		p.Stats(op)
		p.Reset()
		_ = p.Devices()
		_ = s.DeviceTimed()
		s.Close()
		done++
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	_ = p.Shutdown(short)
	return done
}

// Whatever panics in the application's callbacks or the driver, the application continues: no call
// panics or blocks, and the error handler is called.
func TestNoPanicReachesTheApplication(t *testing.T) {
	for _, at := range []string{
		"Name", "Devices", "Now", "ThreadInit", "StreamInfo", "Bind", "NewStream", "FreeStream", "NewEvents", "FreeEvents",
		"Capturing", "Record", "Query",
		"Synchronize", "Elapsed", "MemoryUsage", "Close",
		"OnStart", "OnEnd", "ShouldSample", "NewIDs", "NewSpanID", "RangeStart", "RangeEnd", "Enabled", "Tracer", "Meter",
		"Add", "Quantile", "Handle", "Write", "nothing",
	} {
		for _, early := range []bool{true, false} {
			name := at + " at once"
			if !early {
				name = at + " later"
			}
			t.Run(name, func(t *testing.T) {
				f := &fault{at: at}
				f.armed.Store(early)
				code := faultyCode{f}
				ids := spanid.New(code)
				tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), sdktrace.WithSampler(code),
					sdktrace.WithSpanProcessor(code))
				set := settings.Default()
				set.MemoryUsage, set.CodeLocation = true, true
				var mu sync.Mutex
				var heard []string
				done := 0
				require.NotPanics(t, func() {
					p, err := engine.New(faultyBackend{enginetest.NewBackend(), f},
						enginetest.WithSettings(set), enginetest.WithTracerProvider(faultyTracers{TracerProvider: tp, fault: f}),
						enginetest.WithMeterProvider(faultyMeters{fault: f}),
						enginetest.WithIDGenerator(ids), enginetest.WithAnnotator(code), enginetest.WithOutputLog(code),
						enginetest.WithReport(report.WithSketch(func() report.Sketch { return faultySketch{f} })), enginetest.WithLogger(slog.New(faultyLogger{f})),
						enginetest.WithErrorHandler(func(err error) {
							mu.Lock()
							heard = append(heard, err.Error())
							mu.Unlock()
							panic("and the handler, too")
						}))
					if err != nil {
						mu.Lock()
						heard = append(heard, err.Error())
						mu.Unlock()
					}
					done = application(p, func() { f.armed.Store(true) })
				})
				require.Equal(t, 12, done)
				mu.Lock()
				defer mu.Unlock()
				if f.hits.Load() > 0 { // only New makes some of the calls
					require.Regexp(t, "panicked|injected into "+at, strings.Join(heard, "\n"))
				}
				if early && at != "nothing" && at != "Handle" {
					require.Positive(t, f.hits.Load(), "the fault was met")
				}
			})
		}
	}
}

// A provider that panics loses spans, but not statistics.
func TestAPanickingTracerCostsNoStatistics(t *testing.T) {
	f := &fault{at: "Tracer"}
	f.armed.Store(true)
	b := enginetest.New(t, enginetest.NewBackend(), enginetest.WithTracerProvider(faultyTracers{
		TracerProvider: sdktrace.NewTracerProvider(),
		fault:          f,
	}))
	s := b.P.Stream(3, "main")
	for range 5 {
		x := enginetest.Op.Start(context.Background(), s)
		x.Start(enginetest.Op).EndWith(work.Work{Items: 2})
		x.End()
	}
	b.Flush(t)
	fig, ok := b.P.Stats(enginetest.Op)
	require.True(t, ok)
	require.EqualValues(t, 10, fig.Count)
	require.EqualValues(t, 10, fig.Items)
	require.EqualValues(t, 10, fig.Duration.Count)
	require.Contains(t, b.Errors(), "recovered while a section's span was made: injected into Tracer")
}

func TestAPanickingLoggerIsHarmless(t *testing.T) {
	f := &fault{at: "Handle"}
	f.armed.Store(true)
	for _, b := range []backend.Backend{nil, &enginetest.Backend{Live: map[backend.Event]bool{}}} { // both report it
		require.NotPanics(t, func() {
			p, _ := engine.New(b, enginetest.WithLogger(slog.New(faultyLogger{f})))
			require.NoError(t, p.Shutdown(context.Background()))
		})
	}
	require.EqualValues(t, 2, f.hits.Load())
}

func TestNilContextsAreBackgroundContexts(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "main")
	var none context.Context
	require.NotPanics(t, func() {
		enginetest.Op.Start(none, s).End()
		x := enginetest.Op.Start(none, s)
		x.Link(none)
		_ = x.Context(none)
		x.End()
		enginetest.Op.Launch(none, s, nil)
		s.StartNamed(none, "n")
		s.EndNamed("n", work.Work{})
		enginetest.Op.Record(none, s, time.Now(), 1, work.Work{})
		for range f.P.Loop("l", s, enginetest.TotalSteps(2)).Steps(none) {
		}
		require.NoError(t, f.P.Flush(none))
	})
	require.Len(t, f.Spans.Ended(), 7)
	require.NoError(t, f.P.Shutdown(none))
	require.Empty(t, strings.TrimSpace(f.Errors()))
}
