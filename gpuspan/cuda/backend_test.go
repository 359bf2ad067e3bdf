// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"runtime"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

// open returns a backend on a stub.
func open(t testing.TB, stub *ctest.Stub) *cuda.Backend {
	t.Helper()
	b, err := cuda.Open(cuda.WithLibrary(stub.Path))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// appStream creates a stream as an application would, in the primary context.
func appStream(t testing.TB, b *cuda.Backend, device int) backend.StreamHandle {
	t.Helper()
	d := b.Driver()
	dev, err := d.Device(device)
	require.NoError(t, err)
	ctx, err := d.RetainPrimary(dev)
	require.NoError(t, err)
	var s driver.Stream
	require.NoError(t, d.Do(ctx, func() (err error) { s, err = d.NewStream(); return err }))
	return backend.StreamHandle(s)
}

func TestOpenNamesMissingParts(t *testing.T) {
	_, err := cuda.Open(cuda.WithLibrary("/nonexistent/libcuda.so.1"))
	require.ErrorContains(t, err,
		"cannot load the CUDA driver (install it, or name it in GPUSPAN_CUDA_LIBRARY): /nonexistent/libcuda.so.1: ")

	t.Setenv("GPUSPAN_CUDA_LIBRARY", "/elsewhere/libcuda.so")
	_, err = cuda.Open()
	require.ErrorContains(t, err, "/elsewhere/libcuda.so")

	libc := ctest.HIP(t).Path // a library, but not this one
	_, err = cuda.Open(cuda.WithLibrary(libc))
	require.ErrorContains(t, err, "cannot use the CUDA driver: "+libc+" lacks cuInit, cuDriverGetVersion, ")

	stub := ctest.CUDA(t)
	stub.Set("devices", 0)
	_, err = cuda.Open(cuda.WithLibrary(stub.Path))
	require.EqualError(t, err, "cannot initialize the CUDA driver "+stub.Path+
		": cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected")
	var e *driver.Error
	require.ErrorAs(t, err, &e)
	require.EqualValues(t, 100, e.Code)
}

func TestDevicesHaveTheirIdentity(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	b := open(t, stub)
	require.Equal(t, "cuda_event", b.Name())
	devices, err := b.Devices()
	require.NoError(t, err)
	require.Equal(t, []backend.Device{
		{
			Ordinal: 0, UUID: "GPU-00112233-4455-6677-8899-aabbccddee00", Model: "NVIDIA Stub GPU", Vendor: "NVIDIA",
			PCIBDF: "0000:1a:00.0", MemoryTotal: 16 << 30, DriverVersion: devices[0].DriverVersion,
		},
		{
			Ordinal: 1, UUID: "GPU-00112233-4455-6677-8899-aabbccddee01", Model: "NVIDIA Stub GPU", Vendor: "NVIDIA",
			PCIBDF: "0000:1b:00.0", MemoryTotal: 16 << 30, DriverVersion: devices[0].DriverVersion,
		},
	}, devices)
	major, minor, err := b.Driver().Version()
	require.NoError(t, err)
	require.Equal(t, []int{12, 8}, []int{major, minor})
}

func TestMIGInstanceHasItsOwnIdentityAndAParent(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("mig", 1)
	devices, err := open(t, stub).Devices()
	require.NoError(t, err)
	require.Equal(t, "MIG-40516273-8495-a6b7-c8d9-eafb0c1d2e00", devices[0].UUID)
	require.Equal(t, "GPU-00112233-4455-6677-8899-aabbccddee00", devices[0].Parent)
}

func TestOldDriverWorksWithoutTheNewerFunctions(t *testing.T) {
	stub := ctest.OldCUDA(t)
	b := open(t, stub)
	devices, err := b.Devices()
	require.NoError(t, err)
	require.Equal(t, "GPU-00112233-4455-6677-8899-aabbccddee00", devices[0].UUID)
	events := make([]backend.Event, 2)
	require.Zero(t, b.NewEvents(0, events))
	_, st := b.Elapsed(events[0], events[1]) // never recorded
	require.EqualValues(t, 400, st)
	b.FreeEvents(0, events)
}

func TestFailingIdentityIsAbsentNotAnError(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	for _, f := range []string{"cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuDeviceGetPCIBusId", "cuDeviceTotalMem_v2"} {
		stub.Fail(f, 999, 0, 100)
	}
	devices, err := b.Devices()
	require.NoError(t, err)
	require.Equal(t, []backend.Device{{
		Model: "NVIDIA Stub GPU", Vendor: "NVIDIA",
		DriverVersion: devices[0].DriverVersion,
	}}, devices)
	stub.Fail("cuDeviceGetName", 999, 0, 1)
	_, err = b.Devices()
	require.EqualError(t, err, "cannot identify CUDA device 0: cuDeviceGetName: CUDA error 999")
}

func TestDriverVersionIsReadFromTheKernelModule(t *testing.T) {
	for text, want := range map[string]string{
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023\nGCC version:  gcc version 12.2.0": "535.104.05",
		"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build  (dvs-builder@U16)  Tue Jan 1":            "570.86.10",
		"NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.65  Release Build":                                            "580.65",
		"": "", "nonsense 12.2.0": "",
	} {
		require.Equal(t, want, cuda.DriverVersion(text), text)
	}
}

func TestEventsMeasureTheDurationOfWork(t *testing.T) {
	stub := ctest.CUDA(t).Manual()
	b := open(t, stub)
	s := appStream(t, b, 0)
	events := make([]backend.Event, 2)
	require.Zero(t, b.NewEvents(0, events))

	require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(events[0]), s}}))
	stub.Work(s, time.Millisecond)
	require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(events[1]), s}}))
	require.Equal(t, backend.StatusNotReady, b.Query(events[1]))
	stub.Advance(2 * time.Millisecond)
	require.Equal(t, backend.StatusOK, b.Query(events[1]))
	ns, st := b.Elapsed(events[0], events[1])
	require.Zero(t, st)
	require.InDelta(t, 1e6, ns, 1)
	require.Zero(t, b.Synchronize(events[1]))
	b.FreeEvents(0, events)
	require.Zero(t, stub.Count("live_events"))
}

func TestNewEventsIsAllOrNothing(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	stub.Fail("cuEventCreate", 2, 3, 1)
	events := make([]backend.Event, 5)
	require.EqualValues(t, 2, b.NewEvents(0, events))
	require.Equal(t, make([]backend.Event, 5), events)
	require.Zero(t, stub.Count("live_events"))
	require.Equal(t, backend.StatusInvalidValue, b.NewEvents(7, events))
}

func TestAnchorStreamIsNonBlockingAndFirst(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	s, st := b.NewStream(0)
	require.Zero(t, st)
	var flags, priority func(uintptr) int32
	stub.Func(&flags, "stub_stream_flags")
	stub.Func(&priority, "stub_stream_priority")
	require.EqualValues(t, 1, flags(s))
	require.EqualValues(t, -5, priority(s))
	b.FreeStream(0, s)
	require.Zero(t, stub.Count("live_streams"))
}

func TestStreamInfoFindsDeviceAndKind(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	b := open(t, stub)
	for device := range 2 {
		info, err := b.StreamInfo(appStream(t, b, device), 0)
		require.NoError(t, err)
		require.Equal(t, device, info.Device)
		require.NotZero(t, info.Context)
		require.Equal(t, backend.StreamExplicit, info.Kind)
	}
	info, err := b.StreamInfo(2, 0)
	require.NoError(t, err)
	require.Equal(t, backend.StreamPerThread, info.Kind)
}

func TestLegacyStreamBelongsToTheCurrentContext(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("devices", 2)
	b := open(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, st := b.Current()
	require.Equal(t, backend.StatusInvalidContext, st)
	for _, h := range []backend.StreamHandle{0, 1} {
		info, err := b.StreamInfo(h, 0)
		require.ErrorContains(t, err,
			"no context is current on the thread that registers the legacy stream (register it on the locked OS thread that uses the device, ")
		require.Equal(t, backend.StreamLegacy, info.Kind)
	}
	ctx := newContext(t, stub, 1)
	current, st := b.Current()
	require.Zero(t, st)
	require.EqualValues(t, ctx, current)
	for _, h := range []backend.StreamHandle{0, 1} {
		info, err := b.StreamInfo(h, current)
		require.NoError(t, err)
		require.Equal(t, backend.StreamInfo{Device: 1, Context: current, Kind: backend.StreamLegacy}, info)
	}
	var refs func(int32) int64
	stub.Func(&refs, "stub_primary_refs")
	require.Zero(t, refs(0)+refs(1), "no context was made")
}

// newContext creates a context of the application, current on the calling thread.
func newContext(t testing.TB, stub *ctest.Stub, device int32) uintptr {
	t.Helper()
	var create func(unsafe.Pointer, uint32, int32) int32
	stub.Func(&create, "cuCtxCreate_v2")
	ctx := new(uintptr)
	require.Zero(t, create(unsafe.Pointer(ctx), 0, device))
	return *ctx
}

func TestContextThatReplacesADestroyedOneIsTaken(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	var destroy func(uintptr) int32
	stub.Func(&destroy, "cuCtxDestroy_v2")
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for range 2 {
		ctx := newContext(t, stub, 0)
		s, err := b.Driver().NewStream()
		require.NoError(t, err)
		info, err := b.StreamInfo(backend.StreamHandle(s), 0)
		require.NoError(t, err)
		require.Equal(t, backend.StreamInfo{Context: backend.Context(ctx)}, info)
		events := make([]backend.Event, 1)
		require.Zero(t, b.NewEvents(0, events))
		require.Zero(t, b.Record(&backend.Call{Args: [2]uintptr{uintptr(events[0]), uintptr(s)}}))
		require.Zero(t, destroy(ctx))
		require.Equal(t, backend.StatusInvalidContext, b.Query(events[0]), "no context is left on the thread")
		require.Equal(t, backend.StatusContextDestroyed, b.Record(
			&backend.Call{Args: [2]uintptr{uintptr(events[0]), uintptr(s)}}))
		require.NotZero(t, b.NewEvents(0, events))
	}
}

func TestCloseReturnsPrimaryContexts(t *testing.T) {
	stub := ctest.CUDA(t)
	b, err := cuda.Open(cuda.WithLibrary(stub.Path))
	require.NoError(t, err)
	var refs func(int32) int64
	stub.Func(&refs, "stub_primary_refs")
	require.Zero(t, refs(0), "Open makes no context")
	_, st := b.NewStream(0)
	require.Zero(t, st)
	require.EqualValues(t, 1, refs(0))
	require.NoError(t, b.Close())
	require.Zero(t, refs(0))
	_, st = b.Bind(0)
	require.Equal(t, backend.StatusDeinitialized, st)
	_, st = b.MemoryUsage(0)
	require.NotZero(t, st)
	require.Zero(t, refs(0), "and makes no other afterwards")
}

// onFreshThread runs f on a new OS thread without a context, which exits afterwards.
func onFreshThread(f func()) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked: the thread exits
		f()
	})
	wg.Wait()
}

func TestBindMakesTheContextCurrentAndRestores(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	s := appStream(t, b, 0)
	_, err := b.StreamInfo(s, 0)
	require.NoError(t, err)
	events := make([]backend.Event, 1)
	require.Zero(t, b.NewEvents(0, events))
	stub.Set("record_needs_context", 1)
	call := &backend.Call{Args: [2]uintptr{uintptr(events[0]), s}}
	onFreshThread(func() {
		require.Equal(t, backend.StatusInvalidContext, b.Record(call))
		unbind, st := b.Bind(0)
		require.Zero(t, st)
		require.Zero(t, b.Record(call))
		unbind()
		require.Equal(t, backend.StatusInvalidContext, b.Record(call))
		unbind, st = b.Bind(9)
		require.Equal(t, backend.StatusInvalidValue, st)
		unbind()
	})
}

func TestMemoryUsage(t *testing.T) {
	stub := ctest.CUDA(t)
	stub.Set("memory_used", 3<<30)
	b := open(t, stub)
	used, st := b.MemoryUsage(0)
	require.Zero(t, st)
	require.EqualValues(t, 3<<30, used)
}

func TestOnlyCapturingKeepsACaptureValid(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	s := appStream(t, b, 0)
	var begin func(backend.StreamHandle, int32) int32
	var end func(backend.StreamHandle, unsafe.Pointer) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	stub.Func(&end, "cuStreamEndCapture")
	events := make([]backend.Event, 1)
	require.Zero(t, b.NewEvents(0, events))
	graph := new(uintptr)

	capture := func(meanwhile func()) int32 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		require.Zero(t, begin(s, 0))
		on, st := b.Capturing(s)
		require.Zero(t, st)
		require.True(t, on)
		onFreshThread(meanwhile)
		return end(s, unsafe.Pointer(graph))
	}
	require.Zero(t, capture(func() {
		require.NoError(t, b.ThreadInit())
		require.Zero(t, b.Query(events[0]))
	}))
	require.EqualValues(t, 901, capture(func() { // without the relaxed mode the stub behaves as CUDA documents
		require.EqualValues(t, 900, b.Query(events[0]))
	}))
	on, st := b.Capturing(s)
	require.Zero(t, st)
	require.False(t, on)
	stub.Fail("cuThreadExchangeStreamCaptureMode", 3, 0, 1)
	require.EqualError(t, b.ThreadInit(), "cannot switch the polling thread to relaxed capture mode: CUDA error 3")
}

func TestLegacyStreamCapturesImplicitly(t *testing.T) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	newContext(t, stub, 0)
	var create func(unsafe.Pointer, uint32) int32
	stub.Func(&create, "cuStreamCreate")
	var begin func(uintptr, int32) int32
	stub.Func(&begin, "cuStreamBeginCapture_v2")
	blocking := new(uintptr)
	require.Zero(t, create(unsafe.Pointer(blocking), 0))
	on, st := b.Capturing(0)
	require.Zero(t, st)
	require.False(t, on)
	require.Zero(t, begin(*blocking, 0))
	on, st = b.Capturing(0)
	require.Zero(t, st)
	require.True(t, on)
}
