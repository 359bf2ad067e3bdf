// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"errors"
	"time"
)

// Unimplemented is embedded by implementations of [Backend]. A method that an implementation has not answers that it is
// not supported, and the library does without what it is for: a backend with nothing else has no devices.
type Unimplemented struct{}

var _ Backend = Unimplemented{}

var errUnimplemented = errors.New("the backend does not implement it")

// Name is "unknown".
func (Unimplemented) Name() string { return "unknown" }

// Devices fails.
func (Unimplemented) Devices() ([]Device, error) { return nil, errUnimplemented }

// Now is time.Now.
func (Unimplemented) Now() time.Time { return time.Now() }

// ThreadInit does nothing.
func (Unimplemented) ThreadInit() error { return nil }

// Current says that no context is current.
func (Unimplemented) Current() (Context, Status) { return 0, StatusInvalidContext }

// StreamInfo fails.
func (Unimplemented) StreamInfo(StreamHandle, Context) (StreamInfo, error) {
	return StreamInfo{}, errUnimplemented
}

// Bind does nothing: for devices whose calls need no context to be current.
func (Unimplemented) Bind(Context) (unbind func(), st Status) { return func() {}, StatusOK }

// NewStream is not supported.
func (Unimplemented) NewStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// NewAnchorStream is not supported.
func (Unimplemented) NewAnchorStream(Context) (StreamHandle, Status) { return 0, StatusUnsupported }

// FreeStream does nothing.
func (Unimplemented) FreeStream(Context, StreamHandle) {}

// NewEvents is not supported.
func (Unimplemented) NewEvents(Context, []Event) Status { return StatusUnsupported }

// FreeEvents does nothing.
func (Unimplemented) FreeEvents(Context, []Event) {}

// Capturing is false: for devices without graphs.
func (Unimplemented) Capturing(StreamHandle) (bool, Status) { return false, StatusOK }

// Record is not supported.
func (Unimplemented) Record(*Call) Status { return StatusUnsupported }

// Query is not supported.
func (Unimplemented) Query(Event) Status { return StatusUnsupported }

// Synchronize is not supported.
func (Unimplemented) Synchronize(Event) Status { return StatusUnsupported }

// Elapsed is not supported.
func (Unimplemented) Elapsed(_, _ Event) (ns float64, st Status) { return 0, StatusUnsupported }

// MemoryUsage is not supported.
func (Unimplemented) MemoryUsage(Context) (used int64, st Status) { return 0, StatusUnsupported }

// Close does nothing.
func (Unimplemented) Close() error { return nil }
