// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"fmt"
	"sync"
	"time"
)

// reportInterval is the least time between two reports of the same kind. What happens on every section would otherwise
// flood the application's error handler.
const reportInterval = 10 * time.Second

// maxReportKinds bounds the memory of a reporter.
const maxReportKinds = 64

// reporter hands errors to the application's error handler, rate-limited by kind. It never panics.
type reporter struct {
	handle func(error)

	mu    sync.Mutex
	kinds map[string]*reportKind
}

type reportKind struct {
	last       time.Time
	suppressed int64
}

// report hands err on unless an error of the same kind was handed on less than reportInterval ago.
func (r *reporter) report(kind string, err error) {
	if err == nil {
		return
	}
	now := time.Now()
	r.mu.Lock()
	k := r.kinds[kind]
	if k == nil {
		if len(r.kinds) >= maxReportKinds {
			r.mu.Unlock()
			return
		}
		if r.kinds == nil {
			r.kinds = make(map[string]*reportKind)
		}
		k = &reportKind{}
		r.kinds[kind] = k
	} else if now.Sub(k.last) < reportInterval {
		k.suppressed++
		r.mu.Unlock()
		return
	}
	n := k.suppressed
	k.last, k.suppressed = now, 0
	r.mu.Unlock()

	if n > 0 {
		err = fmt.Errorf("gpuspan: %w (and %d more like it)", err, n)
	} else {
		err = fmt.Errorf("gpuspan: %w", err)
	}
	defer func() { _ = recover() }() // the handler is the application's
	r.handle(err)
}

// guard ends a panic of code that is not this library's: backends, providers, annotators, recorders. Use it deferred, never under a mutex:
// the error handler is the application's.
func (p *Profiler) guard(doing string) {
	if r := recover(); r != nil {
		p.errors.report("panic", fmt.Errorf("recovered while %s: %v", doing, r))
	}
}

// statusError is a driver's answer as an error.
func statusError(call string, st Status) error {
	if name := st.name(); name != "" {
		return fmt.Errorf("%s: status %d (%s)", call, int32(st), name)
	}
	return fmt.Errorf("%s: status %d", call, int32(st))
}

// name is what CUDA and HIP call the statuses that callers meet in practice; empty for others.
func (s Status) name() string {
	switch s {
	case statusPanic:
		return "the backend panicked"
	case StatusOK:
		return "success"
	case StatusInvalidValue:
		return "invalid value"
	case StatusDeinitialized:
		return "driver shut down"
	case StatusInvalidContext:
		return "invalid context"
	case StatusInvalidHandle:
		return "invalid handle"
	case StatusNotReady:
		return "not ready"
	case 700:
		return "illegal address"
	case 702:
		return "launch timeout"
	case StatusContextDestroyed:
		return "context destroyed"
	case 719:
		return "launch failure"
	case StatusUnsupported:
		return "not supported"
	case 900, 901, 902, 903, StatusCaptureUnjoined, 905, 906, StatusCapturedEvent:
		return "stream capture"
	case 999:
		return "unknown error"
	}
	return ""
}

// capture reports whether the status says that a graph capture was in the way, which is no error.
func (s Status) capture() bool { return s >= 900 && s <= 907 }
