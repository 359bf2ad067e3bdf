// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// bench is a profiler over a scripted backend.
type bench struct {
	b     *scripted
	p     *Profiler
	spans *tracetest.SpanRecorder
	mu    sync.Mutex
	errs  []string
}

func (f *bench) errors() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return strings.Join(f.errs, "\n")
}

func newBench(t *testing.T, b *scripted, opts ...Option) *bench {
	t.Helper()
	f := &bench{b: b, spans: tracetest.NewSpanRecorder()}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.spans))
	opts = append([]Option{WithTracerProvider(tp), WithErrorHandler(func(err error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.errs = append(f.errs, err.Error())
	})}, opts...)
	p, err := New(b, opts...)
	require.NoError(t, err)
	f.p = p
	t.Cleanup(func() { _ = p.Shutdown(context.Background()) })
	return f
}

func (f *bench) flush(t *testing.T) {
	t.Helper()
	flush(t, f.p)
}

// tidy does what is due each second, and makes the spans that come of it.
func (f *bench) tidy(t *testing.T) {
	t.Helper()
	p := f.p
	require.NoError(t, p.poller.Call(context.Background(), func() {
		p.poller.Tidy()
		p.poller.Place(true)
	}))
	require.NoError(t, p.emitter.Call(context.Background(), func() { p.emitter.DrainUntil(math.MaxInt64) }))
}

// flush waits for as long as a slow machine takes, which may be longer than `flush_deadline`.
func flush(t *testing.T, p *Profiler) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	require.NoError(t, p.Flush(ctx))
}

func (f *bench) status(i int) (status, source string) {
	span := f.spans.Ended()[i]
	scope := span.InstrumentationScope().Attributes
	status = "ok" // where nothing is stated
	for _, kv := range append(scope.ToSlice(), span.Attributes()...) {
		switch kv.Key {
		case "gpu.timing.status":
			status = kv.Value.AsString()
		case "gpu.timing.source":
			source = kv.Value.AsString()
		}
	}
	return status, source
}

var testOp = record.NewOperation("op")

func TestAFullPoolDropsAndCountsButNeverBlocks(t *testing.T) {
	f := newBench(t, newScripted(), WithSlots(4))
	f.b.query.Store(int32(backend.StatusNotReady))
	s := f.p.Stream(3, "main")
	for range 10 {
		testOp.Start(context.Background(), s).EndWith(work.Work{Items: 1})
	}
	require.EqualValues(t, 6, f.p.Drops[record.DropPoolFull].Load())
	f.b.query.Store(int32(backend.StatusOK))
	f.flush(t)
	require.Len(t, f.spans.Ended(), 4)
	fig, _ := f.p.Stats(testOp)
	require.EqualValues(t, 10, fig.Count)
	require.EqualValues(t, 10, fig.Items)
	require.EqualValues(t, 4, fig.Duration.Count)
	require.EqualValues(t, 6, f.p.Snapshot().Dropped["pool_full"])
	require.True(t, testOp.Start(context.Background(), s).Timed(), "slots come back")
}

func TestADeviceErrorRetiresTheStreamAndLosesNoSection(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func(*scripted)
		want    string
	}{
		{
			"at query", func(b *scripted) { b.query.Store(700) },
			`stream "main" is retired, its sections get host times only: event: status 700 (illegal address)`,
		},
		{
			"at record", func(b *scripted) { b.record.Store(int32(backend.StatusContextDestroyed)) },
			`status 709 (context destroyed)`,
		},
		{"device lost", func(b *scripted) { b.query.Store(46) }, `status 46 (device unavailable)`},
		{"memory error", func(b *scripted) { b.query.Store(214) }, `status 214 (uncorrectable ECC error)`},
		{"restart of the MPS server", func(b *scripted) { b.record.Store(806) }, `status 806 (MPS server failed)`},
		{"MPS client ended", func(b *scripted) { b.query.Store(810) }, `status 810 (MPS client terminated)`},
		{"shutdown of the driver reports nothing", func(b *scripted) { b.query.Store(int32(backend.StatusDeinitialized)) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := newBench(t, newScripted())
			s := f.p.Stream(3, "main")
			require.True(t, s.DeviceTimed())
			tt.disturb(f.b)
			for range 3 {
				testOp.Start(context.Background(), s).End()
			}
			f.flush(t)
			require.False(t, s.DeviceTimed())
			require.Len(t, f.spans.Ended(), 3)
			for i := range 3 {
				status, source := f.status(i)
				require.Equal(t, "device_error", status)
				require.Equal(t, "host", source)
			}
			n := f.b.records.Load()
			testOp.Start(context.Background(), s).End()
			f.flush(t)
			require.Equal(t, n, f.b.records.Load(), "no call to the driver after retirement")
			if tt.want == "" {
				require.Empty(t, f.errors())
			} else {
				require.Contains(t, f.errors(), tt.want)
				require.Equal(t, 1, strings.Count(f.errors(), "retired"), "said once")
			}
		})
	}
}

func TestAPanickingBackendNeverReachesTheApplication(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	x := testOp.Start(context.Background(), s)
	f.b.panics.Store(true)
	require.NotPanics(t, x.End)
	require.NotPanics(t, func() { testOp.Start(context.Background(), s).End() })
	f.flush(t)
	require.Len(t, f.spans.Ended(), 2)
	require.False(t, s.DeviceTimed())

	g := newBench(t, newScripted())
	s = g.p.Stream(3, "main")
	g.b.query.Store(int32(backend.StatusNotReady))
	testOp.Start(context.Background(), s).End()
	g.b.panics.Store(true) // now Query does
	require.Eventually(t, func() bool { return strings.Contains(g.errors(), "scripted panic") }, 20*time.Second,
		time.Millisecond)
	g.flush(t)
	status, _ := g.status(0)
	require.Equal(t, "device_error", status)
}

// panicky is a span processor that panics.
type panicky struct{ sdktrace.SpanProcessor }

func (panicky) OnStart(context.Context, sdktrace.ReadWriteSpan) { panic("processor") }
func (panicky) OnEnd(sdktrace.ReadOnlySpan)                     {}
func (panicky) Shutdown(context.Context) error                  { return nil }
func (panicky) ForceFlush(context.Context) error                { return nil }

func TestAPanickingSpanProcessorCostsItsSpanOnly(t *testing.T) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(panicky{}))
	f := newBench(t, newScripted(), WithTracerProvider(tp), WithSlots(4))
	s := f.p.Stream(3, "main")
	for range 20 {
		x := testOp.Start(context.Background(), s)
		x.Start(testOp).End()
		x.End()
		_ = f.p.Flush(context.Background())
	}
	require.Contains(t, f.errors(), "processor")
	require.True(t, testOp.Start(context.Background(), s).Timed(), "no slot is lost")
}

func TestAPanickingErrorHandlerIsHarmless(t *testing.T) {
	b := newScripted()
	b.kind = backend.StreamPerThread
	p, err := New(b, WithErrorHandler(func(error) { panic("handler") }))
	require.NoError(t, err)
	require.NotPanics(t, func() { p.Stream(2, "x") })
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestWithoutADeviceSectionsGetHostTimes(t *testing.T) {
	for _, b := range []backend.Backend{nil, &scripted{live: map[backend.Event]bool{}}} {
		spans := tracetest.NewSpanRecorder()
		p, err := New(b, WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
		if b == nil {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "backend cuda_event found no device")
		}
		require.Equal(t, "host", p.Source())
		s := p.Stream(0, "cpu")
		x := testOp.Start(context.Background(), s)
		time.Sleep(2 * time.Millisecond)
		x.End()
		flush(t, p)
		require.Len(t, spans.Ended(), 1)
		span := spans.Ended()[0]
		require.GreaterOrEqual(t, span.EndTime().Sub(span.StartTime()), 2*time.Millisecond)
		require.WithinDuration(t, time.Now(), span.EndTime(), time.Minute)
		require.NoError(t, p.Shutdown(context.Background()))
	}
}

// What panics in every pass, as a clock of the application may, leaves the thread callable, and it ends.
func TestAThreadThatPanicsInEveryPassHearsCallsAndItsEnd(t *testing.T) {
	p, err := New(newScripted(), WithErrorHandler(func(error) {}))
	require.NoError(t, err)
	require.NoError(t, p.poller.Call(context.Background(), func() { p.poller.Waiting = []*record.Slot{nil} }))
	for range 3 {
		require.NoError(t, p.poller.Call(context.Background(), func() {}))
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	require.Error(t, p.Shutdown(ctx))
	<-p.poller.Done
}

func TestFlushAndShutdownKeepTheirDeadlines(t *testing.T) {
	f := newBench(t, newScripted())
	f.b.query.Store(int32(backend.StatusNotReady))
	s := f.p.Stream(3, "main")
	testOp.Start(context.Background(), s).End()
	open := testOp.Start(context.Background(), s)
	// the polling thread must get a turn, on a busy machine too
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err := f.p.Flush(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "1 sections are not read back")
	err = f.p.Shutdown(ctx)
	require.Error(t, err)
	require.Len(t, f.spans.Ended(), 2, "an abandoned section still becomes a span")
	for i := range 2 {
		status, source := f.status(i)
		require.Equal(t, "timeout", status)
		require.Equal(t, "host", source)
	}
	require.EqualValues(t, 2, f.p.Drops[record.DropShutdown].Load())
	require.True(t, f.b.closed.Load())
	require.Empty(t, f.b.live)
	require.Equal(t, err, f.p.Shutdown(context.Background()), "idempotent")
	require.NoError(t, f.p.Flush(context.Background()))
	require.Nil(t, f.p.Stream(9, "late"))
	require.False(t, testOp.Start(context.Background(), s).Timed())
	f.p.SetEnabled(true)
	require.False(t, f.p.Enabled())
	open.End()
}

func TestAHangIsLoggedOnceAndSeenInTheGauge(t *testing.T) {
	var lines logLines
	set := settings.Default()
	set.HangLimit = 20 * time.Millisecond
	f := newBench(t, newScripted(), WithSettings(set), WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	f.b.query.Store(int32(backend.StatusNotReady))
	s := f.p.Stream(3, "main")
	testOp.Start(context.Background(), s).End()
	time.Sleep(40 * time.Millisecond)
	for range 3 {
		f.p.watchdog.Look()
	}
	require.Equal(t, 1, strings.Count(lines.String(), "the device has not finished a section"))
	require.Contains(t, lines.String(), "operation=op stream=main")
	name, age, _, ok := s.Oldest(f.p.Clock.Now())
	require.True(t, ok)
	require.Equal(t, "op", name)
	require.Greater(t, age, 30*time.Millisecond)
	f.b.query.Store(int32(backend.StatusOK))
}

// logLines is what was logged; the watchdog also writes by itself, once a second.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestForgottenSectionsGiveTheirSlotsBack(t *testing.T) {
	set := settings.Default()
	set.OpenLimit, set.Slots = 10*time.Millisecond, 4
	f := newBench(t, newScripted(), WithSettings(set))
	s := f.p.Stream(3, "main")
	// on the polling thread, so that it does not tidy up in between
	require.NoError(t, f.p.poller.Call(context.Background(), func() {
		for range 4 {
			testOp.Start(context.Background(), s)
		}
		require.False(t, testOp.Start(context.Background(), s).Timed())
		time.Sleep(20 * time.Millisecond)
		f.p.poller.Tidy()
		x := testOp.Start(context.Background(), s)
		require.True(t, x.Timed())
		x.End()
	}))
	f.flush(t)
	status, _ := f.status(0)
	require.Equal(t, "timeout", status)
}

// Whose section it is that ends decides whether the driver is called, before it is: after Shutdown an answer would need
// a context that nobody gives back.
func TestWhatHasEndedAllocatesNothing(t *testing.T) {
	set := settings.Default()
	set.MemoryUsage = true
	f := newBench(t, newScripted(), WithSettings(set))
	s, closed := f.p.Stream(3, "main"), f.p.Stream(4, "closed")
	x := testOp.Start(context.Background(), s)
	x.End()
	require.EqualValues(t, 2, f.b.asked.Load())
	x.End()
	require.EqualValues(t, 2, f.b.asked.Load(), "it has ended")

	y, z := testOp.Start(context.Background(), s), testOp.Start(context.Background(), closed)
	within := y.Start(testOp)
	require.EqualValues(t, 5, f.b.asked.Load())
	closed.Close()
	z.End()
	testOp.Start(context.Background(), closed).End()
	require.EqualValues(t, 5, f.b.asked.Load(), "the stream may not exist any more")
	require.NoError(t, f.p.Shutdown(context.Background()))
	within.End()
	y.End()
	testOp.Start(context.Background(), s).End()
	require.EqualValues(t, 5, f.b.asked.Load(), "there is no context any more")
	require.Zero(t, f.b.bound.Load())
}

func TestADriverThatHangsDelaysNothing(t *testing.T) {
	b := newScripted()
	b.block = make(chan struct{})
	set := settings.Default()
	set.Slots, set.HangLimit = 8, 10*time.Millisecond
	var lines logLines
	f := newBench(t, b, WithSettings(set), WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	s := f.p.Stream(3, "main")
	b.blocks.Store(true)
	for range 100 {
		testOp.Start(context.Background(), s).EndWith(work.Work{Items: 1})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, f.p.Flush(ctx), "the polling thread did not answer")
	f.p.Snapshot()
	f.p.Reset()
	f.p.SetEnabled(false)
	name, age, _, ok := s.Oldest(f.p.Clock.Now())
	require.True(t, ok)
	require.Equal(t, "op", name)
	require.Positive(t, age)
	said := func() int {
		f.p.watchdog.Look()
		return strings.Count(lines.String(), "the polling thread does not come back")
	}
	require.Eventually(t, func() bool { return said() > 0 }, time.Minute, time.Millisecond)
	require.Equal(t, 1, said(), "once")
	err := f.p.Shutdown(ctx)
	require.ErrorContains(t, err, "the polling thread hangs in the driver and was left behind")
	close(b.block) // the driver comes back: the thread ends, as the check for leaked goroutines sees
	<-f.p.poller.Done
}

// A nest that is too large keeps its bound: what is beyond it is measured and counted where it belongs, and has no
// span.
func TestANestThatIsTooLargeOnlyCounts(t *testing.T) {
	f := newBench(t, newScripted())
	s := f.p.Stream(3, "main")
	inner := record.NewOperation("inner")
	x := testOp.Start(context.Background(), s)
	const n = timeline.MaxHeld + 100
	for range n {
		for !timedEnd(x.Start(inner)) {
			f.flush(t)
		}
	}
	x.End()
	f.flush(t)
	require.Len(t, f.spans.Ended(), timeline.MaxHeld+1)
	summary := f.p.Snapshot()
	require.EqualValues(t, 100, summary.Dropped["nest_limit"])
	fig, ok := summary.ByName("inner")
	require.True(t, ok)
	require.EqualValues(t, n, fig.Duration.Count)
	for _, o := range summary.Operations {
		require.Equal(t, "op", o.Path[0])
	}
}

// end ends a section and reports whether it was timed.
func timedEnd(x record.Section) bool {
	timed := x.Timed()
	x.End()
	return timed
}
