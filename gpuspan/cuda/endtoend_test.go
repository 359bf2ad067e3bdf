// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"flag"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// rig is a profiler on a stub, with its spans in memory.
type rig struct {
	stub  *ctest.Stub
	back  *cuda.Backend
	prof  *gpuspan.Profiler
	spans *tracetest.SpanRecorder

	mu     sync.Mutex
	errors []error
}

func newRig(t testing.TB, stub *ctest.Stub, opts ...gpuspan.Option) *rig {
	t.Helper()
	b, err := cuda.Open(cuda.WithLibrary(stub.Path))
	require.NoError(t, err)
	r := &rig{stub: stub, back: b, spans: tracetest.NewSpanRecorder()}
	r.prof, err = gpuspan.New(b, append([]gpuspan.Option{
		gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))),
		gpuspan.WithErrorHandler(func(err error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.errors = append(r.errors, err)
		}),
	}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.prof.Shutdown(context.Background())) })
	return r
}

// flush returns the spans of an operation in section order.
func (r *rig) flush(t testing.TB, name string) []sdktrace.ReadOnlySpan {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	require.NoError(t, r.prof.Flush(ctx))
	var out []sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.Name() == name {
			out = append(out, s)
		}
	}
	return out
}

func value(t testing.TB, s sdktrace.ReadOnlySpan, k attribute.Key) attribute.Value {
	t.Helper()
	for _, kv := range s.Attributes() {
		if kv.Key == k {
			return kv.Value
		}
	}
	scope := s.InstrumentationScope().Attributes
	if v, ok := scope.Value(k); ok {
		return v
	}
	require.Fail(t, "no attribute", "%s has no %s", s.Name(), k)
	return attribute.Value{}
}

func status(t testing.TB, s sdktrace.ReadOnlySpan) string {
	for _, kv := range s.Attributes() {
		if kv.Key == semconv.GPUTimingStatusKey {
			return kv.Value.AsString()
		}
	}
	return semconv.GPUTimingStatusOk // the default if the span has no status
}

var soak = flag.Duration("soak", 3*time.Second,
	"how long the end-to-end test runs; it prints its figures when GPUSPAN_TEST_FIGURES is set")

// End to end on real threads: the times of spans differ from the stub's true times by no more than
// their stated error bound.
func TestSpansAreWithinTheirErrorBound(t *testing.T) {
	length := *soak
	if testing.Short() {
		length = time.Second
	}
	const streams, tick = 4, 500.0
	stub := ctest.CUDA(t)
	for name, v := range map[string]float64{"drift_ppm": 80, "tick": tick, "jitter_ns": 400, "devices": 2} {
		stub.Set(name, v)
	}
	set := settings.Default()
	set.Slots = 1024
	r := newRig(t, stub, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	var wg sync.WaitGroup
	begin := time.Now()
	handles := make([]backend.StreamHandle, streams)
	for i := range streams {
		handles[i] = appStream(t, r.back, i%2)
		s := r.prof.Stream(handles[i], fmt.Sprint("s", i))
		require.True(t, s.DeviceTimed())
		stub.Log(handles[i], 1<<20)
		op := gpuspan.NewOperation(fmt.Sprint("work", i))
		wg.Go(func() {
			for k := 0; k <= 100 || time.Since(begin) < length; k++ {
				x := op.Start(context.Background(), s)
				stub.Work(handles[i], time.Duration(20+k%7*90)*time.Microsecond)
				x.EndWith(gpuspan.Work{Bytes: 1 << 20})
				time.Sleep(time.Duration(200+k%5*300) * time.Microsecond)
			}
		})
	}
	wg.Wait()

	var errs, halves, lengths []float64
	for i := range streams {
		spans := r.flush(t, fmt.Sprint("work", i))
		h := handles[i]
		require.EqualValues(t, stub.Logged(h), 2*len(spans), "one start and one end event for each span")
		require.Greater(t, len(spans), 100)
		for k, s := range spans {
			require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
			half := value(t, s, semconv.GPUTimingErrorKey).AsFloat64() * 1e9
			start, end := stub.LoggedAt(h, int64(2*k)), stub.LoggedAt(h, int64(2*k+1))
			err := float64(s.StartTime().Sub(start))
			require.LessOrEqual(t, math.Abs(err), half+clockReads, "start of span %d of stream %d", k, i)
			require.LessOrEqual(t, math.Abs(float64(s.EndTime().Sub(end))), half+clockReads, "end of span %d of stream %d", k, i)
			errs = append(errs, math.Abs(err))
			halves = append(halves, half)
			length := float64(end.Sub(start))
			lengths = append(lengths, math.Abs(float64(s.EndTime().Sub(s.StartTime()))-length)-200e-6*length)
			require.Equal(t, fmt.Sprintf("GPU-00112233-4455-6677-8899-aabbccddee0%d", i%2),
				value(t, s, semconv.HWIDKey).AsString())
		}
	}
	if os.Getenv("GPUSPAN_TEST_FIGURES") != "" {
		fmt.Printf(
			"%d spans: error p50 %.0f p99 %.0f max %.0f ns, half width p50 %.0f p99 %.0f, duration error max %.0f ns\n",
			len(errs),
			quantile(errs, 0.5), quantile(errs, 0.99), quantile(errs, 1), quantile(halves, 0.5), quantile(halves, 0.99),
			quantile(lengths, 1))
	}
	require.Less(t, quantile(errs, 0.5), 5e3)
	require.LessOrEqual(t, quantile(lengths, 1), tick+10,
		"tick and rounding, beside the drift of 80 ppm that is not known at first")
	require.Empty(t, r.errors)
}

// clockReads is the error of the test's own clock conversion: half the time of reading two clocks,
// and the two halves of a time.Now.
const clockReads = 200

func quantile(v []float64, q float64) float64 {
	slices.Sort(v)
	return v[min(int(q*float64(len(v))), len(v)-1)]
}

func TestDriverThatNeedsAContextIsRecordedWithOne(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("record_needs_context", 1)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	require.True(t, s.DeviceTimed())
	var depth func() int32
	stub.Func(&depth, "stub_depth")
	op := gpuspan.NewOperation("op")
	onFreshThread(func() {
		x := op.Start(context.Background(), s)
		stub.Work(h, time.Millisecond)
		x.End()
		require.Zero(t, depth(), "the thread's contexts are as they were")
	})
	spans := r.flush(t, "op")
	require.Len(t, spans, 1)
	require.Equal(t, semconv.GPUTimingStatusOk, status(t, spans[0]))
	require.GreaterOrEqual(t, value(t, spans[0], semconv.GPUDurationKey).AsFloat64(), 0.999e-3)
}

func TestPollingThreadKeepsALivingContext(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	stub.Set("polls_need_context", 1)
	r := newRig(t, stub)
	s0, s1 := r.prof.Stream(appStream(t, r.back, 0), "s0"), r.prof.Stream(appStream(t, r.back, 1), "s1")
	op, other := gpuspan.NewOperation("op"), gpuspan.NewOperation("other")
	for range 3 {
		op.Start(context.Background(), s0).End()
		other.Start(context.Background(), s1).End()
	}
	for _, s := range append(r.flush(t, "op"), r.flush(t, "other")...) {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
	}
	var reset func(int32)
	stub.Func(&reset, "stub_primary_reset")
	reset(0) // the one of the polling thread
	op.Start(context.Background(), s0).End()
	for range 3 {
		other.Start(context.Background(), s1).End()
	}
	require.NotEqual(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[3]))
	spans := r.flush(t, "other")
	require.Len(t, spans, 6)
	for _, s := range spans {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
	}
}

func TestDestroyedContextRetiresOnlyItsStream(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	r := newRig(t, stub)
	h0, h1 := appStream(t, r.back, 0), appStream(t, r.back, 1)
	s0, s1 := r.prof.Stream(h0, "s0"), r.prof.Stream(h1, "s1")
	op, other := gpuspan.NewOperation("op"), gpuspan.NewOperation("other")
	op.Start(context.Background(), s0).End()
	require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[0]))

	var reset func(int32)
	stub.Func(&reset, "stub_primary_reset")
	reset(0)
	for range 3 {
		op.Start(context.Background(), s0).End()
		other.Start(context.Background(), s1).End()
	}
	spans := r.flush(t, "op")
	require.Len(t, spans, 4)
	require.NotEqual(t, semconv.GPUTimingStatusOk, status(t, spans[1]))
	for _, s := range r.flush(t, "other") {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
	}
	require.NotEmpty(t, r.errors)

	// The application creates a new context and new streams, which are timed again.
	fresh := appStream(t, r.back, 0)
	s2 := r.prof.Stream(fresh, "s2")
	require.True(t, s2.DeviceTimed())
	again := gpuspan.NewOperation("again")
	for range 3 {
		again.Start(context.Background(), s2).End()
	}
	for _, s := range r.flush(t, "again") {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, s))
	}
	s0.Close() // as the application should have done before
	require.NoError(t, r.prof.Flush(context.Background()))
	require.Zero(t, stub.Count("dead_destroys"))
}

// Objects that were destroyed with their context must not be destroyed again, whether a section, an
// anchor, Close or Shutdown notices first.
func TestNothingOfADestroyedContextIsDestroyedAgain(t *testing.T) {
	for _, name := range []string{"closed stream", "shutdown", "section, then shutdown"} {
		t.Run(name, func(t *testing.T) {
			stub := ctest.CUDA(t)
			r := newRig(t, stub)
			s := r.prof.Stream(appStream(t, r.back, 0), "s")
			op := gpuspan.NewOperation("op")
			op.Start(context.Background(), s).End()
			require.Len(t, r.flush(t, "op"), 1)
			var reset func(int32)
			stub.Func(&reset, "stub_primary_reset")
			before := stub.Count("live_events")
			reset(0)
			switch name {
			case "closed stream":
				s.Close()
			case "section, then shutdown":
				op.Start(context.Background(), s).End()
				require.Len(t, r.flush(t, "op"), 2)
			}
			require.NoError(t, r.prof.Shutdown(context.Background()))
			require.Zero(t, stub.Count("dead_destroys"))
			require.LessOrEqual(t, before, stub.Count("live_events"), "what the context took with it was not touched")
		})
	}
}

// Shutdown destroys every object of a context that still exists.
func TestShutdownDestroysItsObjects(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	events, streams := stub.Count("live_events"), stub.Count("live_streams")
	s := r.prof.Stream(h, "s")
	gpuspan.NewOperation("op").Start(context.Background(), s).End()
	require.Greater(t, stub.Count("live_events"), events)
	require.NoError(t, r.prof.Shutdown(context.Background()))
	require.Equal(t, events, stub.Count("live_events"))
	require.Equal(t, streams, stub.Count("live_streams"))
}

func TestAsynchronousDeviceErrorShowsOnTheSpans(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	stub.Work(h, 5*time.Millisecond)
	x.End()
	stub.FailStream(h, 700) // illegal address
	spans := r.flush(t, "op")
	require.Len(t, spans, 1)
	require.Equal(t, semconv.GPUTimingStatusDeviceError, status(t, spans[0]))
	require.ErrorContains(t, r.errors[0], "700")
}

func TestPerThreadStreamIsRefusedAndLegacyIsOptIn(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	newContext(t, stub, 0)
	require.False(t, r.prof.Stream(2, "per thread").DeviceTimed())
	require.False(t, r.prof.Stream(0, "legacy").DeviceTimed())
	require.Len(t, r.errors, 2)
	s := r.prof.Stream(0, "legacy", gpuspan.AllowLegacy())
	require.True(t, s.DeviceTimed())
	op := gpuspan.NewOperation("op")
	onFreshThread(func() { op.Start(context.Background(), s).End() })
	require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[0]))
}

func TestProfilerOfAFailedBackendTimesWithTheHost(t *testing.T) {
	b, err := cuda.Open(cuda.WithLibrary("/nonexistent/libcuda.so.1"))
	require.Error(t, err)
	require.Nil(t, b.Driver())
	prof, newErr := gpuspan.New(b)
	require.ErrorContains(t, newErr, err.Error())
	require.Equal(t, "host", prof.Source())
	_, infoErr := b.StreamInfo(64, 0)
	require.Equal(t, err, infoErr)
	require.NoError(t, prof.Shutdown(context.Background()))
	require.NoError(t, b.Close())
}
