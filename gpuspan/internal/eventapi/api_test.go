// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package eventapi_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// names are HIP's, whose streams and events need no current context.
var names = eventapi.Names{
	eventapi.EventCreate:               {"hipEventCreateWithFlags"},
	eventapi.EventDestroy:              {"hipEventDestroy"},
	eventapi.EventRecord:               {"hipEventRecord"},
	eventapi.EventQuery:                {"hipEventQuery"},
	eventapi.EventSynchronize:          {"hipEventSynchronize"},
	eventapi.EventElapsed:              {"hipEventElapsedTime_v2", "hipEventElapsedTime"},
	eventapi.StreamIsCapturing:         {"hipStreamIsCapturing"},
	eventapi.ThreadExchangeCaptureMode: {"hipThreadExchangeStreamCaptureMode"},
	eventapi.StreamCreateWithPriority:  {"hipStreamCreateWithPriority"},
	eventapi.StreamDestroy:             {"hipStreamDestroy"},
	eventapi.StreamPriorityRange:       {"hipDeviceGetStreamPriorityRange"},
	eventapi.MemGetInfo:                {"hipMemGetInfo"},
}

const (
	invalidValue = backend.Status(1)
	noMemory     = backend.Status(2)
)

// rig calls the functions of a driver stub. bound counts how often a device is made current.
type rig struct {
	eventapi.API
	stub    *ctest.Stub
	mode    func(*int32) int32
	bound   int
	refused backend.Status
}

func newRig(t *testing.T) *rig {
	r := &rig{stub: ctest.HIP(t)}
	lib, err := dl.Open(r.stub.Path)
	require.NoError(t, err)
	symbols := lib.Symbols()
	r.API = eventapi.New(symbols, names, func(backend.Context) (func(), backend.Status) {
		if r.refused != backend.StatusOK {
			return nil, r.refused
		}
		r.bound++
		return func() { r.bound-- }, backend.StatusOK
	})
	require.NoError(t, symbols.Err(), "the first name that exists is taken")
	var start func(uint32) int32
	r.stub.Func(&start, "hipInit")
	require.Zero(t, start(0))
	r.stub.Func(&r.mode, "hipThreadExchangeStreamCaptureMode")
	return r
}

// captureMode returns the capture mode of the calling thread.
func (r *rig) captureMode() int32 {
	mode := int32(0)
	r.mode(&mode)
	old := mode
	r.mode(&mode)
	return old
}

func TestMissingSymbolsAreNamed(t *testing.T) {
	lib, err := dl.Open(ctest.HIP(t).Path)
	require.NoError(t, err)
	symbols := lib.Symbols()
	without := names
	without[eventapi.MemGetInfo] = []string{"hipMemGetInfo_v9"}
	eventapi.New(symbols, without, nil)
	require.ErrorContains(t, symbols.Err(), "hipMemGetInfo_v9")
}

func TestEventsMeasureTheTimeBetweenThem(t *testing.T) {
	r := newRig(t)
	r.stub.Manual()
	s, st := r.NewStream(0)
	require.Equal(t, backend.StatusOK, st)
	ev := make([]backend.Event, 2)
	require.Equal(t, backend.StatusOK, r.CreateEvents(0, ev, 0))
	record := func(e backend.Event) {
		call := &backend.Call{Args: [2]uintptr{uintptr(e), s}}
		require.Equal(t, backend.StatusOK, r.Record(call))
	}
	record(ev[0])
	r.stub.Work(s, 3*time.Millisecond)
	record(ev[1])
	require.Equal(t, backend.StatusNotReady, r.Query(ev[1]))
	require.Equal(t, backend.StatusOK, r.Synchronize(ev[1]))
	require.Equal(t, backend.StatusOK, r.Query(ev[1]))
	ns, st := r.Elapsed(ev[0], ev[1])
	require.Equal(t, backend.StatusOK, st)
	require.InDelta(t, 3e6, ns, 1e5)
	r.FreeEvents(0, ev)
	r.FreeStream(0, s)
	require.Zero(t, r.stub.Count("live_events"))
	require.Zero(t, r.stub.Count("live_streams"))
	require.Zero(t, r.bound)
}

func TestEventsAreCreatedAllOrNone(t *testing.T) {
	r := newRig(t)
	r.stub.Fail("hipEventCreateWithFlags", int32(noMemory), 2, 1)
	ev := []backend.Event{7, 7, 7, 7}
	require.Equal(t, noMemory, r.CreateEvents(0, ev, 0))
	require.Equal(t, make([]backend.Event, 4), ev)
	require.Zero(t, r.stub.Count("live_events"))
	require.Zero(t, r.bound)
}

// A status for a destroyed context means that its events and streams were destroyed, too.
func TestObjectsOfADestroyedContextAreNotDestroyedAgain(t *testing.T) {
	r := newRig(t)
	ev := make([]backend.Event, 3)
	require.Equal(t, backend.StatusOK, r.CreateEvents(0, ev, 0))
	s, st := r.NewStream(0)
	require.Equal(t, backend.StatusOK, st)
	for _, gone := range []backend.Status{
		backend.StatusInvalidContext, backend.StatusInvalidHandle, backend.StatusContextDestroyed,
		backend.StatusDeinitialized,
	} {
		r.stub.Fail("hipEventQuery", int32(gone), 0, 1)
		r.stub.Fail("hipStreamIsCapturing", int32(gone), 0, 1)
		r.FreeEvents(0, ev)
		r.FreeStream(0, s)
		require.EqualValues(t, 3, r.stub.Count("live_events"), "status %d", gone)
		require.EqualValues(t, 1, r.stub.Count("live_streams"), "status %d", gone)
	}
	r.FreeEvents(0, ev)
	r.FreeStream(0, s)
	require.Zero(t, r.stub.Count("live_events"))
	require.Zero(t, r.stub.Count("live_streams"))
	r.FreeEvents(0, nil)
	r.FreeStream(0, 0)
}

func TestAStreamIsCapturingAlsoWhereItIsImplicit(t *testing.T) {
	r := newRig(t)
	s, st := r.NewStream(0)
	require.Equal(t, backend.StatusOK, st)
	ask := func() bool {
		captures, st := r.Capturing(s)
		require.Equal(t, backend.StatusOK, st)
		return captures
	}
	require.False(t, ask())
	var begin func(uintptr, int32) int32
	var end func(uintptr, *uintptr) int32
	r.stub.Func(&begin, "hipStreamBeginCapture")
	r.stub.Func(&end, "hipStreamEndCapture")
	require.Zero(t, begin(s, 2))
	require.True(t, ask())
	require.Zero(t, end(s, new(uintptr)))
	require.False(t, ask())
	r.stub.Fail("hipStreamIsCapturing", 906, 0, 1)
	require.True(t, ask())
	r.stub.Fail("hipStreamIsCapturing", int32(invalidValue), 0, 1)
	captures, st := r.Capturing(s)
	require.False(t, captures)
	require.Equal(t, invalidValue, st)
	r.FreeStream(0, s)
}

// Calls that would end captures are made in relaxed mode, and the thread's mode is restored
// regardless of their result.
func TestTheThreadsCaptureModeIsReturned(t *testing.T) {
	r := newRig(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const threadLocal = 1
	mode := int32(threadLocal)
	r.mode(&mode)
	r.stub.Set("memory_used", 5<<20)
	for _, fails := range []bool{false, true} {
		if fails {
			r.stub.Fail("hipMemGetInfo", int32(invalidValue), 0, 1)
		}
		used, st := r.MemoryUsage(0)
		if fails {
			require.Equal(t, invalidValue, st)
		} else {
			require.Equal(t, backend.StatusOK, st)
			require.EqualValues(t, 5<<20, used)
		}
		require.EqualValues(t, threadLocal, r.captureMode())
	}
	r.stub.Fail("hipThreadExchangeStreamCaptureMode", int32(invalidValue), 0, 1)
	_, st := r.MemoryUsage(0)
	require.Equal(t, invalidValue, st, "no call is made in a mode that could harm")
	r.stub.Fail("hipThreadExchangeStreamCaptureMode", int32(invalidValue), 0, 1)
	require.ErrorContains(t, r.Relax("HIP"),
		"cannot switch the polling thread to relaxed capture mode: HIP error 1")
	require.EqualValues(t, threadLocal, r.captureMode())
	require.NoError(t, r.Relax("HIP"))
	require.EqualValues(t, 2, r.captureMode())
	mode = 0
	r.mode(&mode)
}

func TestNothingIsMadeWithoutTheContext(t *testing.T) {
	r := newRig(t)
	r.refused = backend.StatusInvalidContext
	ev := make([]backend.Event, 1)
	require.Equal(t, backend.StatusInvalidContext, r.CreateEvents(0, ev, 0))
	_, st := r.NewStream(0)
	require.Equal(t, backend.StatusInvalidContext, st)
	_, st = r.MemoryUsage(0)
	require.Equal(t, backend.StatusInvalidContext, st)
	require.Zero(t, r.stub.Count("live_events")+r.stub.Count("live_streams"))
}

func TestErrorHasTheLibrarysText(t *testing.T) {
	e := eventapi.Error{API: "HIP", Call: "hipInit", Code: 100, Name: "hipErrorNoDevice", Text: "no device is detected"}
	require.EqualError(t, &e, "hipInit: hipErrorNoDevice (100): no device is detected")
	e.Name, e.Text = "", ""
	require.EqualError(t, &e, "hipInit: HIP error 100")
	var found *eventapi.Error
	require.True(t, errors.As(error(&e), &found))
}
