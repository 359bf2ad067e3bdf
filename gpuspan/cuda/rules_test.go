// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

// work puts 5 ms on the NULL stream of the current context.
func work(t testing.TB, r *rig) {
	t.Helper()
	r.stub.Set("launch_ns", 5e6)
	p, err := r.back.Driver().Alloc(64)
	require.NoError(t, err)
	require.NoError(t, r.back.Driver().Set(p, 0, 64, 0))
}

func TestLegacyStreamIsTimedInTheCallersContext(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	r := newRig(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	op := gpuspan.NewOperation("op")

	s := r.prof.Stream(0, "too early", gpuspan.AllowLegacy())
	require.False(t, s.DeviceTimed())
	require.ErrorContains(t, r.errors[0], "no context is current on the thread that registers the legacy stream")

	for device := range 2 {
		newContext(t, stub, int32(device))
		s := r.prof.Stream(0, "legacy", gpuspan.AllowLegacy())
		require.True(t, s.DeviceTimed())
		require.Same(t, s, r.prof.Stream(0, "legacy", gpuspan.AllowLegacy()))
		work(t, r) // keeps the stream busy, so that the section lasts as long as its work
		x := op.Start(context.Background(), s)
		work(t, r)
		x.End()
	}
	for device, span := range r.flush(t, "op") {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, span))
		require.InDelta(t, 5e-3, value(t, span, semconv.GPUDurationKey).AsFloat64(), 1e-4)
		scope := span.InstrumentationScope().Attributes
		ordinal, _ := scope.Value(semconv.GPUDeviceOrdinalKey)
		require.EqualValues(t, device, ordinal.AsInt64())
	}
	var refs func(int32) int64
	stub.Func(&refs, "stub_primary_refs")
	require.Zero(t, refs(0)+refs(1), "no primary context was made")
}

func TestSectionsOnTheLegacyStreamLeaveCapturesOfBlockingStreamsWhole(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	newContext(t, stub, 0)
	s := r.prof.Stream(0, "legacy", gpuspan.AllowLegacy())
	var create func(unsafe.Pointer, uint32) int32
	stub.Func(&create, "cuStreamCreate")
	blocking := new(uintptr)
	require.Zero(t, create(unsafe.Pointer(blocking), 0))
	end := beginCapture(t, stub, *blocking)
	onFreshThread(func() { gpuspan.NewOperation("op").Start(context.Background(), s).End() })
	require.Zero(t, end(), "the capture survived")
	require.Equal(t, semconv.GPUTimingStatusCaptured, status(t, r.flush(t, "op")[0]))
}

// beginCapture captures in the default mode on the calling thread until end is called.
func beginCapture(t testing.TB, stub *ctest.Stub, s uintptr) (end func() int32) {
	t.Helper()
	var begin func(uintptr, int32) int32
	var finish func(uintptr, unsafe.Pointer) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	stub.Func(&finish, "cuStreamEndCapture")
	require.Zero(t, begin(s, 0))
	return func() int32 { return finish(s, unsafe.Pointer(new(uintptr))) }
}

func TestWaitingAndMemoryUsageLeaveCapturesOfOtherThreadsWhole(t *testing.T) {
	for name, change := range map[string]func(*settings.Settings){
		"immediate":    func(s *settings.Settings) { s.Sync = settings.SyncImmediate },
		"group":        func(s *settings.Settings) { s.Sync = settings.SyncGroup },
		"memory usage": func(s *settings.Settings) { s.MemoryUsage = true },
	} {
		t.Run(name, func(t *testing.T) {
			stub := ctest.CUDA(t)
			set := settings.Default()
			change(&set)
			r := newRig(t, stub, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
			capturing, other := appStream(t, r.back, 0), appStream(t, r.back, 0)
			s := r.prof.Stream(other, "other")
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			end := beginCapture(t, stub, capturing)
			onFreshThread(func() {
				begin := time.Now()
				x := gpuspan.NewOperation("op").Start(context.Background(), s)
				stub.Work(other, 3*time.Millisecond)
				x.End()
				if set.Sync != settings.Default().Sync {
					require.GreaterOrEqual(t, time.Since(begin), 3*time.Millisecond, "End waited")
				}
			})
			require.Zero(t, end(), "the capture survived")
			span := r.flush(t, "op")[0]
			require.Equal(t, semconv.GPUTimingStatusOk, status(t, span))
			if set.MemoryUsage {
				require.EqualValues(t, 1<<30, value(t, span, semconv.GPUMemoryUsageKey).AsInt64())
			}
		})
	}
}

// The stub fails the test if the destroyed stream is used.
func TestSectionEndedAfterItsStreamIsIgnored(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	s := r.prof.Stream(h, "s")
	var x gpuspan.Section
	for ctx := range train.NewLoop(r.prof, "train", s).Steps(context.Background()) {
		x = gpuspan.NewOperation("op").Start(ctx, s)
		s.Close()
		d := r.back.Driver()
		require.NoError(t, d.Do(driver.Context(primary(t, r.back)), func() error { return d.FreeStream(driver.Stream(h)) }))
		break // ends the step
	}
	x.End()
	require.Equal(t, semconv.GPUTimingStatusTimeout, status(t, r.flush(t, "op")[0]))
}

func primary(t testing.TB, b *cuda.Backend) backend.Context {
	t.Helper()
	dev, err := b.Driver().Device(0)
	require.NoError(t, err)
	c, err := b.Driver().RetainPrimary(dev)
	require.NoError(t, err)
	return backend.Context(c)
}

func TestEndAfterShutdownMakesNoContext(t *testing.T) {
	stub := ctest.CUDA(t)
	set := settings.Default()
	set.MemoryUsage = true
	r := newRig(t, stub, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }))
	h := appStream(t, r.back, 0) // keeps one reference
	s := r.prof.Stream(h, "s")
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	require.NoError(t, r.prof.Shutdown(context.Background()))
	var refs func(int32) int64
	stub.Func(&refs, "stub_primary_refs")
	require.EqualValues(t, 1, refs(0))
	x.End()
	op.Start(context.Background(), s).End()
	require.EqualValues(t, 1, refs(0))
}

func TestStreamsOfSeveralContextsOfADeviceAreTimed(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	op := gpuspan.NewOperation("op")
	handles := []backend.StreamHandle{appStream(t, r.back, 0)}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 2 {
		newContext(t, stub, 0)
		s, err := r.back.Driver().NewStream()
		require.NoError(t, err)
		handles = append(handles, backend.StreamHandle(s))
	}
	for _, h := range handles {
		stub.Log(h, 100)
		s := r.prof.Stream(h, "")
		stub.Work(h, 20*time.Millisecond)
		x := op.Start(context.Background(), s)
		stub.Work(h, time.Millisecond)
		x.End()
	}
	spans := r.flush(t, "op")
	require.Len(t, spans, len(handles))
	for i, span := range spans {
		require.Equal(t, semconv.GPUTimingStatusOk, status(t, span))
		require.InDelta(t, 1e-3, value(t, span, semconv.GPUDurationKey).AsFloat64(), 1e-5)
		half := value(t, span, semconv.GPUTimingErrorKey).AsFloat64() * 1e9
		require.InDelta(t, 0, float64(span.EndTime().Sub(stub.LoggedAt(handles[i],
			stub.Logged(handles[i])-1))), half+300)
	}
	require.Empty(t, r.errors)
}

// After cudaDeviceReset, the runtime may reuse the handle of an old stream.
func TestHandleThatReturnsAfterAResetIsTimedAgain(t *testing.T) {
	stub := ctest.CUDA(t)
	r := newRig(t, stub)
	h := appStream(t, r.back, 0)
	op := gpuspan.NewOperation("op")
	s := r.prof.Stream(h, "s")
	stub.FailStream(h, 709)
	op.Start(context.Background(), s).End()
	require.Equal(t, semconv.GPUTimingStatusDeviceError, status(t, r.flush(t, "op")[0]))
	require.Same(t, s, r.prof.Stream(h, "s"), "still dead")
	stub.FailStream(h, 0)
	again := r.prof.Stream(h, "s")
	require.NotSame(t, s, again)
	require.True(t, again.DeviceTimed())
	op.Start(context.Background(), again).End()
	require.Equal(t, semconv.GPUTimingStatusOk, status(t, r.flush(t, "op")[1]))
}

func TestSectionsWhoseEventsForeignCodeRecords(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	r := newRig(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	newContext(t, stub, 1)
	private, err := r.back.Driver().NewStream() // not registered with gpuspan
	require.NoError(t, err)
	var record func(uintptr, driver.Stream) int32
	stub.Func(&record, "cuEventRecord")

	s := r.prof.Stream(0, "engine", gpuspan.ForeignEvents())
	require.True(t, s.DeviceTimed())
	require.Same(t, s, r.prof.Stream(0, "engine", gpuspan.ForeignEvents()))
	require.NotSame(t, s, r.prof.Stream(0, "second engine", gpuspan.ForeignEvents()))
	op := gpuspan.NewOperation("op")

	// keeps the stream busy, so that sections last as long as their work
	stub.Work(uintptr(private), 20*time.Millisecond)
	x := op.Foreign(context.Background(), s)
	start, end := x.Events()
	require.Zero(t, record(start, private))
	stub.Work(uintptr(private), time.Millisecond)
	require.Zero(t, record(end, private))
	x.Recorded(gpuspan.Work{Items: 3})
	a, b := x.Events()
	require.Zero(t, a+b, "over")
	x.Recorded(gpuspan.Work{Items: 3})

	op.Foreign(context.Background(), s).End() // no work was recorded
	y := op.Start(context.Background(), s)    // gpuspan does not know the stream
	y.End()
	spans := r.flush(t, "op")
	require.Len(t, spans, 3)
	require.InDelta(t, 1e-3, value(t, spans[0], semconv.GPUDurationKey).AsFloat64(), 1e-5)
	require.EqualValues(t, 3, value(t, spans[0], semconv.GPUOperationItemsKey).AsInt64())
	for _, span := range spans[1:] {
		require.Equal(t, semconv.GPUTimingSourceHost, value(t, span, semconv.GPUTimingSourceKey).AsString())
	}
	require.True(t, s.DeviceTimed())
	require.Empty(t, r.errors)

	// Driver calls and the library's work together on a stream with a known handle.
	known := r.prof.Stream(uintptr(private), "known")
	stub.Work(uintptr(private), 20*time.Millisecond)
	z := op.Foreign(context.Background(), known)
	start, end = z.Events()
	require.Zero(t, record(start, private))
	stub.Work(uintptr(private), time.Millisecond)
	require.Zero(t, record(end, private))
	z.Recorded(gpuspan.Work{})
	w := op.Start(context.Background(), known)
	stub.Work(uintptr(private), 2*time.Millisecond)
	w.End()
	spans = r.flush(t, "op")[3:]
	require.InDelta(t, 1e-3, value(t, spans[0], semconv.GPUDurationKey).AsFloat64(), 1e-5)
	require.InDelta(t, 2e-3, value(t, spans[1], semconv.GPUDurationKey).AsFloat64(), 1e-5)
}
