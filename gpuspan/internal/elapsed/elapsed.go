// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package elapsed holds measured times that callers wait for.
package elapsed

import (
	"sync"
	"time"
)

// Value is the measured time of a section or step. The zero Value has none.
type Value struct {
	done   chan struct{}
	settle sync.Once
	d      time.Duration
	known  bool
}

// Ask returns the Value that at points to, and creates it at the first call.
func Ask(at **Value) *Value {
	if *at == nil {
		*at = &Value{done: make(chan struct{})}
	}
	return *at
}

// Set stores the measurement; only the first call has an effect. A nil Value was not requested.
func (e *Value) Set(d time.Duration, known bool) {
	if e != nil {
		e.settle.Do(func() { e.d, e.known = d, known; close(e.done) })
	}
}

// Done returns a channel that is closed when the time is known, or known to be missing.
func (e *Value) Done() <-chan struct{} {
	if e == nil || e.done == nil {
		return closed
	}
	return e.done
}

var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// Get returns the time, and false while it is not known.
func (e *Value) Get() (d time.Duration, ok bool) {
	if e == nil {
		return 0, false
	}
	select {
	case <-e.done:
		return e.d, e.known
	default:
		return 0, false
	}
}
