// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventapi is the part of a backend that CUDA and HIP share: events, capture state and
// anchor streams, whose functions have the same arguments and statuses in both under different
// names.
package eventapi

import (
	"fmt"
	"runtime"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Functions that both APIs have under different names.
const (
	EventCreate = iota
	EventDestroy
	EventRecord
	EventQuery
	EventSynchronize
	EventElapsed
	StreamIsCapturing
	ThreadExchangeCaptureMode
	StreamCreateWithPriority
	StreamDestroy
	StreamPriorityRange
	MemGetInfo
	functions
)

// Names are the symbols of a driver library by function; if several are given the first that exists
// is used.
type Names [functions][]string

// API calls those functions. Every method may be called from any goroutine.
type API struct {
	// bind is the backend's, which makes a context (CUDA) or device (HIP) current on the locked OS
	// thread.
	bind func(backend.Context) (unbind func(), st backend.Status)
	fn   [functions]dl.Func
}

// New resolves the symbols; s.Err names the missing ones. bind is the backend's Bind.
func New(s *dl.Symbols, n Names, bind func(backend.Context) (func(), backend.Status)) API {
	a := API{bind: bind}
	for i, names := range n {
		a.fn[i] = s.Need(names...)
	}
	return a
}

// Now returns the host's clock.
func (a *API) Now() time.Time { return time.Now() }

// Record enqueues an event.
func (a *API) Record(c *backend.Call) backend.Status {
	return backend.Status(a.fn[EventRecord].Call(c.Args[0], c.Args[1]))
}

// Query reports whether an event has completed.
func (a *API) Query(e backend.Event) backend.Status {
	return backend.Status(a.fn[EventQuery].Call(uintptr(e)))
}

// Synchronize waits for an event in the driver, as a thread that cannot disturb captures.
func (a *API) Synchronize(e backend.Event) (st backend.Status) {
	return a.relaxed(func() backend.Status { return backend.Status(a.fn[EventSynchronize].Call(uintptr(e))) })
}

// Elapsed returns the time between two events in nanoseconds, which the driver gives as float32
// milliseconds.
func (a *API) Elapsed(from, to backend.Event) (float64, backend.Status) {
	f := dl.NewFrame()
	f.Args[0], f.Args[1], f.Args[2] = f.Addr(0), uintptr(from), uintptr(to)
	st := backend.Status(f.Call(a.fn[EventElapsed], 3))
	ms := f.Float32(0)
	f.Free()
	return float64(ms) * 1e6, st
}

// statusCaptureImplicit is returned for the legacy stream while a stream that it synchronizes with
// is capturing.
const statusCaptureImplicit = 906

// Capturing reports whether the stream captures a graph. An invalidated capture still is one, and
// so is an implicit one.
func (a *API) Capturing(s backend.StreamHandle) (bool, backend.Status) {
	f := dl.NewFrame()
	f.Args[0], f.Args[1] = s, f.Addr(0)
	st := backend.Status(f.Call(a.fn[StreamIsCapturing], 2))
	state := f.Int32(0)
	f.Free()
	if st == statusCaptureImplicit {
		return true, backend.StatusOK
	}
	return st == backend.StatusOK && state != 0, st
}

// captureModeRelaxed lets the thread make calls that would break other threads' captures in the
// default mode.
const captureModeRelaxed = 2

// Relax switches the calling OS thread, which must be locked, to relaxed capture mode. api is CUDA
// or HIP, for the error.
func (a *API) Relax(api string) error {
	if _, st := a.exchange(captureModeRelaxed); st != backend.StatusOK {
		return fmt.Errorf("cannot switch the polling thread to relaxed capture mode: %s error %d", api, st)
	}
	return nil
}

// exchange sets the calling OS thread's capture mode and returns the one before.
func (a *API) exchange(mode int32) (before int32, st backend.Status) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	f.Out[0] = uint64(uint32(mode))
	st = backend.Status(f.Call(a.fn[ThreadExchangeCaptureMode], 1))
	return f.Int32(0), st
}

// relaxed makes a call that would end captures, of other threads and of this one, in the default
// mode of an application's threads.
func (a *API) relaxed(call func() backend.Status) backend.Status {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, st := a.exchange(captureModeRelaxed)
	if st != backend.StatusOK {
		return st
	}
	defer a.exchange(before)
	return call()
}

// In runs f with a context or device current.
func (a *API) In(c backend.Context, f func() backend.Status) backend.Status {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := a.bind(c)
	if st != backend.StatusOK {
		return st
	}
	defer unbind()
	return f()
}

// CreateEvents fills dst with timing events: all of them, or none.
func (a *API) CreateEvents(c backend.Context, dst []backend.Event, flags uintptr) backend.Status {
	return a.In(c, func() backend.Status {
		f := dl.NewFrame()
		defer f.Free()
		for i := range dst {
			f.Args[0], f.Args[1] = f.Addr(0), flags
			if st := backend.Status(f.Call(a.fn[EventCreate], 2)); st != backend.StatusOK {
				a.destroy(dst[:i])
				clear(dst)
				return st
			}
			dst[i] = backend.Event(f.Out[0])
		}
		return backend.StatusOK
	})
}

// FreeEvents destroys events that were created together, unless their context is gone, and they
// with it.
func (a *API) FreeEvents(_ backend.Context, events []backend.Event) {
	if n := len(events); n > 0 && !contextGone(a.Query(events[n-1])) {
		a.destroy(events)
	}
}

// contextGone reports whether a status means that the context of the queried stream or event no
// longer exists. Everything created in it was destroyed with it, and must not be destroyed again:
// the behavior of drivers is undefined then.
func contextGone(st backend.Status) bool {
	switch st {
	case backend.StatusInvalidContext, backend.StatusInvalidHandle, backend.StatusContextDestroyed,
		backend.StatusDeinitialized:
		return true
	}
	return false
}

// destroy destroys events of a context that exists.
func (a *API) destroy(events []backend.Event) {
	for _, e := range events {
		if e != 0 {
			a.fn[EventDestroy].Call(uintptr(e))
		}
	}
}

const streamNonBlocking = 1

// NewStream creates a non-blocking stream of the highest priority.
func (a *API) NewStream(c backend.Context) (s backend.StreamHandle, st backend.Status) {
	st = a.In(c, func() backend.Status {
		f := dl.NewFrame()
		defer f.Free()
		f.Args[0], f.Args[1] = f.Addr(0), f.Addr(1)
		var highest int32 // 0 is the default priority, used if the range is not reported
		if f.Call(a.fn[StreamPriorityRange], 2) == 0 {
			highest = f.Int32(1)
		}
		f.Args[0], f.Args[1], f.Args[2] = f.Addr(0), streamNonBlocking, uintptr(int(highest))
		st := backend.Status(f.Call(a.fn[StreamCreateWithPriority], 3))
		s = backend.StreamHandle(f.Out[0])
		return st
	})
	return s, st
}

// FreeStream destroys a stream created by NewStream, unless its context is gone.
func (a *API) FreeStream(_ backend.Context, s backend.StreamHandle) {
	if s == 0 {
		return
	}
	if _, st := a.Capturing(s); !contextGone(st) {
		a.fn[StreamDestroy].Call(s)
	}
}

// MemoryUsage returns the memory in use on the device, by all processes, in bytes.
func (a *API) MemoryUsage(c backend.Context) (used int64, st backend.Status) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), f.Addr(1)
	st = a.In(c, func() backend.Status {
		return a.relaxed(func() backend.Status { return backend.Status(f.Call(a.fn[MemGetInfo], 2)) })
	})
	return int64(f.Out[1]) - int64(f.Out[0]), st
}

// Error is a call of a driver library that failed.
type Error struct {
	API  string // CUDA or HIP
	Call string // the function's name
	Code int32  // CUresult or hipError_t
	Name string // its name, e.g. CUDA_ERROR_NO_DEVICE; empty if the library does not know it
	Text string // the library's description; may be empty
}

// Error returns text such as `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Name == "" {
		s = fmt.Sprintf("%s: %s error %d", e.Call, e.API, e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

// Functions are the other functions of a driver library, by name; 0 for missing ones.
type Functions struct {
	API string // CUDA or HIP
	Of  map[string]dl.Func
	// Says returns the text of a status from one of the describing functions; empty if it is
	// unknown.
	Says func(describe dl.Func, code int32) string
	// Name and Text are those functions.
	Name, Text string
}

// Check returns the error for a status, nil for success.
func (f *Functions) Check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	e := &Error{API: f.API, Call: call, Code: code}
	for name, to := range map[string]*string{f.Name: &e.Name, f.Text: &e.Text} {
		if describe := f.Of[name]; describe != 0 {
			*to = f.Says(describe, code)
		}
	}
	return e
}

// Call makes a call whose arguments are numbers.
func (f *Functions) Call(name string, args ...uintptr) error {
	return f.Check(name, f.Of[name].Call(args...))
}

// Frame makes a call with the first n arguments of a frame.
func (f *Functions) Frame(name string, frame *dl.Frame, n int) error {
	return f.Check(name, frame.Call(f.Of[name], n))
}

// Value makes a call that writes a number through its first argument, and returns the number.
func (f *Functions) Value(name string, args ...uintptr) (uint64, error) {
	frame := dl.NewFrame()
	defer frame.Free()
	frame.Args[0] = frame.Addr(0)
	n := 1 + copy(frame.Args[1:], args)
	if err := f.Frame(name, frame, n); err != nil {
		return 0, err
	}
	return frame.Out[0], nil
}

// String calls one of the functions that write a text to (char *, int, device).
func (f *Functions) String(name string, device int32) (string, error) {
	frame := dl.NewFrame()
	defer frame.Free()
	b := frame.Buffer(0, 256)
	frame.Args[1], frame.Args[2] = uintptr(len(b)), uintptr(device)
	if err := f.Frame(name, frame, 3); err != nil {
		return "", err
	}
	return dl.CString(b), nil
}
