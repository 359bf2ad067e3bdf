// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package backend defines what a device API must implement so that package gpuspan can time work on
// it: events recorded on streams, and the time between them. gpuspan/cuda, gpuspan/hip and
// gpuspan/simgpu implement it.
package backend

import (
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Event is a backend's timing event: a CUevent, a hipEvent_t, or an index of a simulated device.
type Event uintptr

// StreamHandle is a backend's stream: a cudaStream_t or CUstream, a hipStream_t, or a simulated
// stream's number. It is what gpuspan.Profiler.Stream takes.
type StreamHandle = uintptr

// Context identifies the context of streams and events: the ordinal of a device for the context
// that the backend itself uses on it, or the driver's handle of another (a CUcontext). HIP and
// simulated devices have no other contexts.
type Context uintptr

// StreamInfo describes a stream.
type StreamInfo struct {
	Device  int        // ordinal
	Context Context    // context that the stream belongs to
	Kind    StreamKind // kind of the handle
}

// Status is a result code of the driver. CUDA and HIP use the same numbers for all codes that the
// library distinguishes; other numbers are passed through as the driver reported them.
type Status int32

// Statuses that the library handles.
const (
	StatusPanic            Status = -1  // the method panicked; no driver returns this
	StatusOK               Status = 0   // done
	StatusInvalidValue     Status = 1   // an argument is out of range
	StatusDeinitialized    Status = 4   // the driver is shutting down; not reported
	StatusInvalidContext   Status = 201 // no current context, or the context was destroyed
	StatusInvalidHandle    Status = 400 // no such stream or event
	StatusNotReady         Status = 600 // the event has not happened yet
	StatusContextDestroyed Status = 709 // the context of the stream or event was destroyed
	StatusUnsupported      Status = 801 // not on this device or by this driver
	StatusCaptureUnjoined  Status = 904 // a capture was ended with work that is not joined to it
	StatusCapturedEvent    Status = 907 // an event that was recorded in a capture has no time
)

// Call holds the arguments of one event record for the life of a slot, so that a backend that calls
// the driver through argument arrays (purego) needs no allocation: Args[0] is the Event, Args[1]
// the StreamHandle.
type Call struct {
	Args [2]uintptr // the Event and the StreamHandle
}

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

	// Peaks are the device's limits if the backend or the program knows them, as for a simulated
	// device; nil: from the table of package peaks. Reports use them; they are not part of the
	// device's identity.
	Peaks *report.Peaks
}

// StreamKind is the kind of a stream handle.
type StreamKind uint8

// Kinds of stream.
const (
	StreamExplicit  StreamKind = iota // created by the application
	StreamLegacy                      // the NULL stream (0 or 1): serializes with every blocking stream; opt-in
	StreamPerThread                   // handle 2, the stream of the calling OS thread; rejected
)

// Backend is a device API that can record events on streams. Package gpuspan never calls a driver
// by itself: gpuspan/cuda, gpuspan/hip and gpuspan/simgpu implement this interface.
//
// Record, Capturing, Bind, Current, MemoryUsage and Synchronize may be called by the application's
// goroutines, several at the same time; Record, Capturing and Bind must not allocate, and none may
// block beyond what the driver itself does. Now may be called from anywhere. All other methods are
// called by one goroutine at a time, locked to its OS thread, after ThreadInit on that thread:
// Devices on one of its own, because a driver may hang there, the others on the polling thread.
//
// Implementations embed [Unimplemented], so that a method which a later version adds does not break
// them.
type Backend interface {
	// Name returns the value of gpu.timing.source: "cuda_event", "hip_event" or "simulated".
	Name() string
	// Devices lists the GPUs that the process sees. On an error the library uses none.
	Devices() ([]Device, error)
	// Now returns the time of the host clock that spans are placed on (time.Now for real devices,
	// the simulation's clock for simgpu). If the time has a monotonic reading, the library assumes
	// time.Now and reads the clock itself, which costs half as much.
	Now() time.Time
	// ThreadInit prepares the polling thread: it selects relaxed capture mode, so that polling
	// cannot invalidate the application's captures.
	ThreadInit() error
	// Current returns the context that is current on the calling OS thread, to which the legacy
	// stream belongs, or StatusInvalidContext if there is none. It is called by the goroutine that
	// registers that stream.
	Current() (Context, Status)
	// StreamInfo returns the device, context and kind of a stream, or an error if the handle is
	// invalid or the stream is capturing. It is called once, at registration. current is the
	// context of the legacy stream.
	StreamInfo(s StreamHandle, current Context) (StreamInfo, error)
	// Bind makes a context current on the caller's locked OS thread and returns the function that
	// restores the previous one.
	Bind(c Context) (unbind func(), st Status)
	// NewStream creates a non-blocking stream of the highest priority.
	NewStream(c Context) (StreamHandle, Status)
	// NewAnchorStream creates a stream for clock anchors: each event on it has its own time, even
	// if nothing runs in between.
	NewAnchorStream(c Context) (StreamHandle, Status)
	// FreeStream destroys a stream of NewStream or NewAnchorStream.
	FreeStream(c Context, s StreamHandle)
	// NewEvents fills dst with timing events of the context: all of them, or none.
	NewEvents(c Context, dst []Event) Status
	// FreeEvents destroys events of NewEvents.
	FreeEvents(c Context, events []Event)
	// Capturing reports whether the stream is capturing a graph, the only query that is permitted
	// during a capture.
	Capturing(s StreamHandle) (bool, Status)
	// Record enqueues an event on a stream.
	Record(c *Call) Status
	// Query returns StatusOK if the event has completed or was never recorded, StatusNotReady if it
	// has not completed, and any other status for an error.
	Query(e Event) Status
	// Synchronize waits for an event: in sync modes immediate and group it is called by End, after
	// Bind of the event's context, and otherwise for slow anchors. Neither it nor MemoryUsage may
	// invalidate captures in progress.
	Synchronize(e Event) Status
	// Elapsed returns the GPU time from a to b in nanoseconds, computed from the driver's float32
	// milliseconds.
	Elapsed(a, b Event) (ns float64, st Status)
	// MemoryUsage returns the memory in use on the context's device, in bytes. The caller has made
	// the context current by Bind.
	MemoryUsage(c Context) (used int64, st Status)
	// Close releases the backend's resources. No method is called afterwards.
	Close() error
}

// StatusError is an error with a status of the driver. Errors passed to the error handler or
// returned by gpuspan.New wrap it if they were caused by one; errors.As finds it.
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

// Name returns the name of common statuses in CUDA and HIP; empty for others.
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

// Unimplemented is embedded by implementations of [Backend]. Methods that an implementation does
// not define report that they are not supported, and the library works without them: a backend that
// only embeds it has no devices.
type Unimplemented struct{}

var _ Backend = Unimplemented{}

var errUnimplemented = errors.New("the backend does not implement it")

// Name returns "unknown".
func (Unimplemented) Name() string { return "unknown" }

// Devices returns an error.
func (Unimplemented) Devices() ([]Device, error) { return nil, errUnimplemented }

// Now returns time.Now.
func (Unimplemented) Now() time.Time { return time.Now() }

// ThreadInit does nothing.
func (Unimplemented) ThreadInit() error { return nil }

// Current reports that no context is current.
func (Unimplemented) Current() (Context, Status) { return 0, StatusInvalidContext }

// StreamInfo returns an error.
func (Unimplemented) StreamInfo(StreamHandle, Context) (StreamInfo, error) {
	return StreamInfo{}, errUnimplemented
}

// Bind does nothing, for devices without contexts.
func (Unimplemented) Bind(Context) (unbind func(), st Status) { return func() {}, StatusOK }

// NewStream returns StatusUnsupported.
func (Unimplemented) NewStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// NewAnchorStream returns StatusUnsupported.
func (Unimplemented) NewAnchorStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// FreeStream does nothing.
func (Unimplemented) FreeStream(Context, StreamHandle) {}

// NewEvents returns StatusUnsupported.
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
