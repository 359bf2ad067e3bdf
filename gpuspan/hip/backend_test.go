// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/hip"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/semconv"
)

func open(t testing.TB, stub *ctest.Stub) *hip.Backend {
	t.Helper()
	b, err := hip.Open(hip.WithLibrary(stub.Path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// appStream creates a stream as an application would.
func appStream(t testing.TB, stub *ctest.Stub, device int32) backend.StreamHandle {
	t.Helper()
	var set func(int32) int32
	var create func(unsafe.Pointer, uint32, int32) int32
	stub.Func(&set, "hipSetDevice")
	stub.Func(&create, "hipStreamCreateWithPriority")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.Zero(t, set(device))
	s := new(backend.StreamHandle)
	require.Zero(t, create(unsafe.Pointer(s), 1, 0))
	require.Zero(t, set(0))
	return *s
}

func onFreshThread(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread()
		f()
	})
	wg.Wait()
}

func TestOpenNamesMissingParts(t *testing.T) {
	_, err := hip.Open(hip.WithLibrary("/nonexistent/libamdhip64.so"))
	require.ErrorContains(t, err,
		"cannot load HIP (install ROCm, or name libamdhip64 in GPUSPAN_HIP_LIBRARY): /nonexistent/libamdhip64.so: ")
	t.Setenv("GPUSPAN_HIP_LIBRARY", "/elsewhere/libamdhip64.so")
	_, err = hip.Open()
	require.ErrorContains(t, err, "/elsewhere/libamdhip64.so")

	other := ctest.CUDA(t).Path
	_, err = hip.Open(hip.WithLibrary(other))
	require.ErrorContains(t, err, "cannot use HIP: "+other+" lacks hipEventCreateWithFlags, ")

	stub := ctest.HIP(t)
	stub.Set("devices", 0)
	_, err = hip.Open(hip.WithLibrary(stub.Path))
	require.EqualError(t, err, "cannot initialize HIP "+stub.Path+
		": hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected")
}

func TestDevicesHaveTheirIdentity(t *testing.T) {
	stub := ctest.HIP(t)
	stub.Set("devices", 2)
	b := open(t, stub)
	require.Equal(t, "hip_event", b.Name())
	devices, err := b.Devices()
	require.NoError(t, err)
	require.Equal(t, backend.Device{
		Ordinal: 1, UUID: "GPU-1a2b3c4d5e6f7081", Model: "AMD Instinct Stub", Vendor: "AMD", PCIBDF: "0000:c1:00.0",
		MemoryTotal: 16 << 30, DriverVersion: devices[1].DriverVersion,
	}, devices[1])
	for form, want := range []string{"GPU-1a2b3c4d5e6f7080", "GPU-10111213-1415-1617-1819-1a1b1c1d1e1f", "", ""} {
		stub.Set("uuid_form", float64(form))
		devices, err = b.Devices()
		require.NoError(t, err)
		require.Equal(t, want, devices[0].UUID)
	}
	stub.Fail("hipDeviceGetUuid", 1, 0, 2)
	devices, err = b.Devices()
	require.NoError(t, err)
	require.Empty(t, devices[0].UUID)
	stub.Fail("hipDeviceGetName", 1, 0, 1)
	_, err = b.Devices()
	require.ErrorContains(t, err, "cannot identify HIP device 0: hipDeviceGetName")
}

func TestEventsMeasureTheDurationOfWorkOnAnyThread(t *testing.T) {
	stub := ctest.HIP(t).Manual()
	stub.Set("devices", 2)
	b := open(t, stub)
	s := appStream(t, stub, 1)
	info, err := b.StreamInfo(s, 0)
	require.NoError(t, err)
	require.Equal(t, backend.StreamInfo{Device: 1, Context: 1}, info)
	d := info.Context
	events := make([]backend.Event, 2)
	require.Zero(t, b.NewEvents(d, events))
	onFreshThread(func() { // records need no current device
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(events[0]), s}}))
		stub.Work(s, time.Millisecond)
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(events[1]), s}}))
	})
	require.Equal(t, backend.StatusNotReady, b.Query(events[1]))
	stub.Advance(2 * time.Millisecond)
	require.Equal(t, backend.StatusOK, b.Query(events[1]))
	ns, st := b.Elapsed(events[0], events[1])
	require.Zero(t, st)
	require.InDelta(t, 1e6, ns, 1)
	ns, st = b.Elapsed(events[1], events[0])
	require.Zero(t, st)
	require.InDelta(t, -1e6, ns, 1)
	b.FreeEvents(d, events)
	require.Zero(t, stub.Count("live_events"))

	wrong := make([]backend.Event, 1)
	require.Zero(t, b.NewEvents(0, wrong))
	require.Equal(t, backend.StatusInvalidHandle, b.Record(&backend.Call{Args: [2]uintptr{uintptr(wrong[0]), s}}))
	require.Equal(t, backend.StatusInvalidValue, b.NewEvents(2, wrong))
}

func TestSpecialStreams(t *testing.T) {
	stub := ctest.HIP(t)
	stub.Set("devices", 2)
	b := open(t, stub)
	onFreshThread(func() {
		unbind, st := b.Bind(1)
		require.Zero(t, st)
		defer unbind()
		current, st := b.Current()
		require.Zero(t, st)
		info, err := b.StreamInfo(0, current)
		require.NoError(t, err)
		require.Equal(t, backend.StreamInfo{Device: 1, Context: 1, Kind: backend.StreamLegacy}, info)
	})
	info, err := b.StreamInfo(2, 0)
	require.NoError(t, err)
	require.Equal(t, backend.StreamPerThread, info.Kind)
}

func TestAnchorsHaveMarkersOfTheirOwn(t *testing.T) {
	stub := ctest.HIP(t).Manual()
	b := open(t, stub)
	s, st := b.NewAnchorStream(0)
	require.Zero(t, st)
	var priority func(uintptr) int32
	stub.Func(&priority, "stub_stream_priority")
	require.EqualValues(t, -1, priority(s))
	var markers func(int32) int64
	stub.Func(&markers, "stub_markers")
	events := make([]backend.Event, 3)
	require.Zero(t, b.NewEvents(0, events))
	for _, e := range events {
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(e), s}}))
		stub.Advance(time.Millisecond)
	}
	ns, st := b.Elapsed(events[0], events[2])
	require.Zero(t, st)
	require.InDelta(t, 2e6, ns, 1)
	require.Zero(t, markers(0))

	plain, st := b.NewStream(0) // what would happen without the write
	require.Zero(t, st)
	for _, e := range events[:2] {
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(e), plain}}))
		stub.Advance(time.Millisecond)
	}
	require.EqualValues(t, 1, markers(0))

	b.FreeStream(0, plain)
	stub.Advance(time.Millisecond)
	for _, e := range events[:2] { // the other stream still has its anchors
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(e), s}}))
		stub.Advance(time.Millisecond)
	}
	require.EqualValues(t, 1, markers(0))
	b.FreeStream(0, s)
	require.Zero(t, stub.Count("live_streams"))
}

func TestNewStreamFailsWhole(t *testing.T) {
	stub := ctest.HIP(t)
	b := open(t, stub)
	stub.Fail("hipMalloc", 2, 0, 1)
	s, st := b.NewAnchorStream(0)
	require.EqualValues(t, 2, st)
	require.Zero(t, s)
	require.Zero(t, stub.Count("live_streams"))
}

func TestQueryRefusedByACaptureIsNotReady(t *testing.T) {
	stub := ctest.HIP(t)
	b := open(t, stub)
	s := appStream(t, stub, 0)
	events := make([]backend.Event, 1)
	require.Zero(t, b.NewEvents(0, events))
	var begin func(backend.StreamHandle, int32) int32
	stub.Func(&begin, "hipStreamBeginCapture")
	require.Zero(t, begin(s, 0))
	on, st := b.Capturing(s)
	require.Zero(t, st)
	require.True(t, on)
	onFreshThread(func() { require.Equal(t, backend.StatusNotReady, b.Query(events[0])) })
	onFreshThread(func() {
		require.NoError(t, b.ThreadInit())
		require.Equal(t, backend.StatusOK, b.Query(events[0]))
	})
}

func TestBindSetsAndRestoresTheDevice(t *testing.T) {
	stub := ctest.HIP(t)
	stub.Set("devices", 3)
	b := open(t, stub)
	var device func() int32
	stub.Func(&device, "stub_device")
	onFreshThread(func() {
		unbind, st := b.Bind(2)
		require.Zero(t, st)
		require.EqualValues(t, 2, device())
		inner, st := b.Bind(1)
		require.Zero(t, st)
		require.EqualValues(t, 1, device())
		inner()
		require.EqualValues(t, 2, device())
		unbind()
		require.EqualValues(t, 0, device())
		_, st = b.Bind(3)
		require.Equal(t, backend.StatusInvalidValue, st)
	})
}

func TestMemoryUsage(t *testing.T) {
	stub := ctest.HIP(t)
	stub.Set("memory_used", 5<<30)
	used, st := open(t, stub).MemoryUsage(0)
	require.Zero(t, st)
	require.EqualValues(t, 5<<30, used)
}

func TestProfilerOfAFailedBackendTimesWithTheHost(t *testing.T) {
	b, err := hip.Open(hip.WithLibrary("/nonexistent/libamdhip64.so"))
	require.Error(t, err)
	prof, newErr := gpuspan.New(b)
	require.ErrorContains(t, newErr, err.Error())
	require.Equal(t, "host", prof.Source())
	require.NoError(t, prof.Shutdown(context.Background()))
}

// On the stub, the times of a section agree with the true times.
func TestSectionsAreTimed(t *testing.T) {
	stub := ctest.HIP(t)
	stub.Set("drift_ppm", -60)
	b := open(t, stub)
	spans := tracetest.NewSpanRecorder()
	prof, err := gpuspan.New(b, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	h := appStream(t, stub, 0)
	s := prof.Stream(h, "s")
	require.True(t, s.DeviceTimed())
	stub.Log(h, 1000)
	op := gpuspan.NewOperation("op")
	const n = 50
	var before, after [n]time.Time // the submission of the start
	for k := range n {
		before[k] = time.Now()
		x := op.Start(context.Background(), s)
		after[k] = time.Now()
		stub.Work(h, 200*time.Microsecond)
		x.End()
		time.Sleep(2 * time.Millisecond)
	}
	require.NoError(t, prof.Shutdown(context.Background()))
	require.Len(t, spans.Ended(), n)
	for k, span := range spans.Ended() {
		scope := span.InstrumentationScope().Attributes
		stated, _ := scope.Value(semconv.GPUTimingErrorKey) // unless the span has its own
		for _, kv := range span.Attributes() {
			if kv.Key == semconv.GPUTimingErrorKey {
				stated = kv.Value
			}
		}
		half := time.Duration(stated.AsFloat64() * 1e9)
		require.Positive(t, half)
		// The stream is idle, so the previous work's marker is the marker of the start, and the
		// section begins when it is submitted.
		require.WithinRange(t, span.StartTime(), before[k].Add(-half-300), after[k].Add(half+300))
		require.InDelta(t, 0, float64(span.EndTime().Sub(stub.LoggedAt(h, int64(2*k+1)))), float64(half+300))
	}
	require.Zero(t, stub.Count("live_events"))
	require.Zero(t, stub.Count("live_streams")-1) // the application's own
}
