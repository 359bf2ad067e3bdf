// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/otelgpu/otelgpu/semconv"
)

// reportInterval is the least time between two reports of the same kind. What happens on every section would otherwise
// flood the application's error handler.
const reportInterval = 10 * time.Second

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

// guard ends a panic of code that is not this library's: backends, providers, annotators, recorders. Use it deferred,
// never under a mutex: the error handler is the application's.
func (p *Profiler) guard(doing string) {
	if r := recover(); r != nil {
		p.errors.report("panic", fmt.Errorf("recovered while %s: %v", doing, r))
	}
}

// misuse counts calls that cannot be what the caller meant.
type misuse struct {
	concurrentSteps   atomic.Int64 // a step of a loop while another one of it runs
	foreignStream     atomic.Int64 // StartOn or PhaseOn with a stream of another profiler
	staleParent       atomic.Int64 // Start within a section that has ended
	unmatchedEnd      atomic.Int64 // EndNamed without an open section of the name
	operationOverflow atomic.Int64 // sections of operations beyond maxOperations
	invalidWork       atomic.Int64 // what is stated and cannot be
}

func (p *Profiler) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	return map[string]int64{
		semconv.GpuspanMisuseKindConcurrentSteps:   p.misuse.concurrentSteps.Load(),
		semconv.GpuspanMisuseKindForeignStream:     p.misuse.foreignStream.Load(),
		semconv.GpuspanMisuseKindStaleParent:       p.misuse.staleParent.Load(),
		semconv.GpuspanMisuseKindUnmatchedEnd:      p.misuse.unmatchedEnd.Load(),
		semconv.GpuspanMisuseKindNameOverflow:      p.names.dropped.Load() + p.steps.dropped.Load(),
		semconv.GpuspanMisuseKindOperationOverflow: p.misuse.operationOverflow.Load(),
		semconv.GpuspanMisuseKindInvalidWork:       p.misuse.invalidWork.Load(),
	}
}
