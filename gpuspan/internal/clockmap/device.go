// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "time"

// RecordCall has the shape of backend.Call: the event and the stream of one record.
type RecordCall interface{ ~struct{ Args [2]uintptr } }

// Device is the part of backend.Backend that anchors need. The statuses are those of package backend.
type Device[E, S ~uintptr, T ~int32, C RecordCall] interface {
	Now() time.Time
	Bind(device int) (unbind func(), st T)
	NewStream(device int) (S, T)
	FreeStream(device int, s S)
	NewEvents(device int, dst []E) T
	FreeEvents(device int, events []E)
	Record(c *C) T
	Query(e E) T
	Synchronize(e E) T
	Elapsed(a, b E) (ns float64, st T)
}

const (
	statusOK               = 0
	statusInvalidContext   = 201
	statusInvalidHandle    = 400
	statusNotReady         = 600
	statusContextDestroyed = 709
)
