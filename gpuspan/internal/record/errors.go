// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/semconv"
)

// Guard recovers from panics of code outside of this library: backends, providers, annotators, recorders. Use it
// deferred, never under a mutex: the error handler is the application's.
func (p *Core) Guard(doing string) {
	if r := recover(); r != nil {
		p.Errors.Report("panic", fmt.Errorf("recovered while %s: %v", doing, r))
	}
}

// misuse counts calls that the caller cannot have intended.
type misuse struct {
	ConcurrentSteps   atomic.Int64 // a step of a loop while another one of it runs
	ForeignStream     atomic.Int64 // StartOn or PhaseOn with a stream of another profiler
	staleParent       atomic.Int64 // Start within a section that has ended
	unmatchedEnd      atomic.Int64 // EndNamed without an open section of the name
	operationOverflow atomic.Int64 // sections of operations beyond maxOperations
	InvalidWork       atomic.Int64 // impossible values
	Unended           atomic.Int64 // sections that were abandoned, and phases that their step ended
}

func (p *Core) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	return map[string]int64{
		semconv.GpuspanMisuseKindConcurrentSteps:   p.Misuses.ConcurrentSteps.Load(),
		semconv.GpuspanMisuseKindForeignStream:     p.Misuses.ForeignStream.Load(),
		semconv.GpuspanMisuseKindStaleParent:       p.Misuses.staleParent.Load(),
		semconv.GpuspanMisuseKindUnmatchedEnd:      p.Misuses.unmatchedEnd.Load(),
		semconv.GpuspanMisuseKindNameOverflow:      p.Names.dropped.Load() + p.Steps.dropped.Load(),
		semconv.GpuspanMisuseKindOperationOverflow: p.Misuses.operationOverflow.Load(),
		semconv.GpuspanMisuseKindInvalidWork:       p.Misuses.InvalidWork.Load(),
		semconv.GpuspanMisuseKindUnended:           p.Misuses.Unended.Load(),
	}
}
