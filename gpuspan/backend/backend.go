// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package backend defines what a device API must implement so that package gpuspan can time work on it: events recorded
// on streams, and the time between them. gpuspan/cuda, gpuspan/hip and gpuspan/simgpu implement it.
package backend

import (
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Event is a backend's timing event: a CUevent, a hipEvent_t, or an index of a simulated device.
type Event uintptr

// StreamHandle is a backend's stream: a cudaStream_t or CUstream, a hipStream_t, or a simulated stream's number.
type StreamHandle uintptr

// Context is where streams and events are created: the ordinal of a device for the context that the backend itself uses
// on it, or the driver's handle of another (a CUcontext). HIP and simulated devices have no others.
type Context uintptr

// StreamInfo is what a backend knows about a stream.
type StreamInfo struct {
	Device  int // ordinal
	Context Context
	Kind    StreamKind
}

// Status is a result of the driver. CUDA and HIP use the same numbers for all that the library distinguishes; any other
// number is passed through as the driver reported it.
type Status int32

// The statuses that the library acts on.
const (
	StatusPanic            Status = -1  // the method panicked; no driver returns this
	StatusOK               Status = 0   // done
	StatusInvalidValue     Status = 1   // an argument is out of range
	StatusDeinitialized    Status = 4   // the driver is shutting down: silent
	StatusInvalidContext   Status = 201 // no current context, or the context was destroyed
	StatusInvalidHandle    Status = 400 // no such stream or event
	StatusNotReady         Status = 600 // the event has not happened yet
	StatusContextDestroyed Status = 709 // the context of the stream or event was destroyed
	StatusUnsupported      Status = 801 // not on this device or by this driver
	StatusCaptureUnjoined  Status = 904 // a capture was ended with work that is not joined to it
	StatusCapturedEvent    Status = 907 // an event that was recorded in a capture has no time
)

// Call holds the arguments of one event record for the life of a slot, so that a backend that calls the driver
// through argument arrays (purego) needs no allocation: Args[0] is the Event, Args[1] the StreamHandle.
type Call struct{ Args [2]uintptr }

// Device is one GPU as this process sees it.
type Device struct {
	Ordinal       int    // as the process sees it (after CUDA_VISIBLE_DEVICES)
	UUID          string // `GPU-<uuid>` or `MIG-<uuid>`: the value of hw.id; empty when unknown
	Parent        string // `GPU-<uuid>` of the physical GPU when UUID names a MIG instance, else empty
	Model         string // as the driver reports it, e.g. "NVIDIA H200"
	Vendor        string // "NVIDIA", "AMD", "simulated"
	DriverVersion string // as the driver reports it, e.g. "580.65.06"; empty if unknown
	PCIBDF        string // e.g. "0000:17:00.0"; empty when unknown
	MemoryTotal   int64  // bytes; 0 when unknown

	// Peaks are its limits if the backend or the program knows them, as for a simulated device; nil: from the table of
	// models. Reports use them; they are not part of the device's identity.
	Peaks *report.Peaks
}

// StreamKind is how a stream handle may be used.
type StreamKind uint8

// Kinds of stream.
const (
	StreamExplicit  StreamKind = iota // created by the application
	StreamLegacy                      // the NULL stream (0 or 1): serialises with every blocking stream; opt-in
	StreamPerThread                   // handle 2: means "this OS thread"; refused
)

// Backend is a device API that can record events on streams. Package gpuspan never calls a driver by itself:
// gpuspan/cuda, gpuspan/hip and gpuspan/simgpu implement this interface.
//
// Record, Capturing, Bind, Current, MemoryUsage and Synchronize may be called by the application's goroutines, several
// at the same time; Record, Capturing and Bind must not allocate, and none may block beyond what the driver itself
// does. Now may be called from anywhere. All other methods are called from one goroutine locked to its OS thread (the
// polling thread), after ThreadInit.
//
// Implementations embed [Unimplemented], so that a method which a later version adds does not break them.
type Backend interface {
	// Name is the value of gpu.timing.source: "cuda_event", "hip_event" or "simulated".
	Name() string
	// Devices lists the GPUs that the process sees.
	Devices() ([]Device, error)
	// Now is the host clock that spans are placed on: unix nanoseconds that advance monotonically between
	// wall-clock reads (time.Now for real devices, the device's own clock for simgpu). A time that carries a monotonic
	// reading is taken to come from time.Now, and the library then reads the clock itself, which costs half as much.
	Now() time.Time
	// ThreadInit prepares the polling thread: relaxed capture mode, so that polling cannot break the application's
	// captures.
	ThreadInit() error
	// Current returns the context that is current on the calling OS thread, to which the legacy stream belongs. It is
	// called by the goroutine that registers that stream. StatusInvalidContext: there is none.
	Current() (Context, Status)
	// StreamInfo resolves the device, context and kind of a stream, once, at registration (never while capturing).
	// current is for the legacy stream; on other threads it would be another one.
	StreamInfo(s StreamHandle, current Context) (StreamInfo, error)
	// Bind makes a context current on the caller's locked OS thread and returns what restores it.
	Bind(c Context) (unbind func(), st Status)
	// NewStream creates a non-blocking stream of the highest priority. NewAnchorStream creates one for clock anchors: each
	// event on it has a time of its own, even if nothing runs in between. FreeStream destroys either.
	NewStream(c Context) (StreamHandle, Status)
	NewAnchorStream(c Context) (StreamHandle, Status)
	FreeStream(c Context, s StreamHandle)
	// NewEvents fills dst with timing events of the context; FreeEvents destroys them.
	NewEvents(c Context, dst []Event) Status
	FreeEvents(c Context, events []Event)
	// Capturing reports whether the stream is capturing a graph (the only stream query that is legal then).
	Capturing(s StreamHandle) (bool, Status)
	// Record enqueues an event on a stream.
	Record(c *Call) Status
	// Query returns StatusOK if the event has completed, StatusNotReady if not. It also returns StatusOK for an event that
	// was never recorded: the library keeps that state itself.
	Query(e Event) Status
	// Synchronize waits for an event; used for sync modes immediate and group, by the caller of End, which has made the
	// event's context current by Bind, and for slow anchors. Neither it nor MemoryUsage may disturb captures in progress.
	Synchronize(e Event) Status
	// Elapsed returns the GPU time from a to b in nanoseconds, computed from the driver's float32 milliseconds.
	Elapsed(a, b Event) (ns float64, st Status)
	// MemoryUsage returns the memory in use on the context's device, in bytes. The caller has made the context current by
	// Bind.
	MemoryUsage(c Context) (used int64, st Status)
	// Close releases what the backend holds. No method is called afterwards.
	Close() error
}

// StatusError is a status of the driver as an error. Errors passed to the error handler or returned by [gpuspan.New]
// wrap it if the driver returned one; errors.As finds it.
type StatusError struct {
	Call   string // the call that failed
	Status Status // the driver's result
}

// Error returns the call, the status and, if known, its name.
func (e *StatusError) Error() string {
	if name := e.Status.Name(); name != "" {
		return fmt.Sprintf("%s: status %d (%s)", e.Call, int32(e.Status), name)
	}
	return fmt.Sprintf("%s: status %d", e.Call, int32(e.Status))
}

// Name returns CUDA's and HIP's name of the statuses that callers meet in practice; empty for others.
func (s Status) Name() string {
	if s.Capture() {
		return "stream capture"
	}
	return statusNames[s]
}

var statusNames = map[Status]string{
	StatusPanic:            "the backend panicked",
	StatusOK:               "success",
	StatusInvalidValue:     "invalid value",
	StatusDeinitialized:    "driver shut down",
	StatusInvalidContext:   "invalid context",
	StatusInvalidHandle:    "invalid handle",
	StatusNotReady:         "not ready",
	46:                     "device unavailable",
	214:                    "uncorrectable ECC error",
	700:                    "illegal address",
	702:                    "launch timeout",
	StatusContextDestroyed: "context destroyed",
	719:                    "launch failure",
	StatusUnsupported:      "not supported",
	805:                    "no connection to the MPS server",
	806:                    "MPS server failed",
	807:                    "MPS server not ready",
	810:                    "MPS client terminated",
	999:                    "unknown error",
}

// Capture reports whether the status was caused by a graph capture, which is not an error.
func (s Status) Capture() bool { return s >= 900 && s <= 907 }

// Unimplemented is embedded by implementations of [Backend]. Methods that an implementation does not define return that
// they are not supported, and the library works without them: a backend with nothing else has no devices.
type Unimplemented struct{}

var _ Backend = Unimplemented{}

var errUnimplemented = errors.New("the backend does not implement it")

// Name returns "unknown".
func (Unimplemented) Name() string { return "unknown" }

// Devices fails.
func (Unimplemented) Devices() ([]Device, error) { return nil, errUnimplemented }

// Now returns time.Now.
func (Unimplemented) Now() time.Time { return time.Now() }

// ThreadInit does nothing.
func (Unimplemented) ThreadInit() error { return nil }

// Current reports that no context is current.
func (Unimplemented) Current() (Context, Status) { return 0, StatusInvalidContext }

// StreamInfo fails.
func (Unimplemented) StreamInfo(StreamHandle, Context) (StreamInfo, error) {
	return StreamInfo{}, errUnimplemented
}

// Bind does nothing: for devices whose calls need no context to be current.
func (Unimplemented) Bind(Context) (unbind func(), st Status) { return func() {}, StatusOK }

// NewStream returns an error, because it is not supported.
func (Unimplemented) NewStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// NewAnchorStream returns an error, because it is not supported.
func (Unimplemented) NewAnchorStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// FreeStream does nothing.
func (Unimplemented) FreeStream(Context, StreamHandle) {}

// NewEvents returns an error, because it is not supported.
func (Unimplemented) NewEvents(Context, []Event) Status { return StatusUnsupported }

// FreeEvents does nothing.
func (Unimplemented) FreeEvents(Context, []Event) {}

// Capturing returns false, for devices without graphs.
func (Unimplemented) Capturing(StreamHandle) (bool, Status) { return false, StatusOK }

// Record returns StatusUnsupported.
func (Unimplemented) Record(*Call) Status { return StatusUnsupported }

// Query returns StatusUnsupported.
func (Unimplemented) Query(Event) Status { return StatusUnsupported }

// Synchronize returns StatusUnsupported.
func (Unimplemented) Synchronize(Event) Status { return StatusUnsupported }

// Elapsed returns StatusUnsupported.
func (Unimplemented) Elapsed(_, _ Event) (ns float64, st Status) { return 0, StatusUnsupported }

// MemoryUsage returns StatusUnsupported.
func (Unimplemented) MemoryUsage(Context) (used int64, st Status) { return 0, StatusUnsupported }

// Close does nothing.
func (Unimplemented) Close() error { return nil }
