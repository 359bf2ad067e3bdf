// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/semconv"
)

// misuse counts calls that cannot be what the caller meant.
type misuse struct {
	concurrentSteps   atomic.Int64 // a step of a loop while another one of it runs
	foreignStream     atomic.Int64 // StartOn or PhaseOn with a stream of another profiler
	staleParent       atomic.Int64 // Start within a section that has ended
	unmatchedEnd      atomic.Int64 // EndNamed without an open section of the name
	operationOverflow atomic.Int64 // sections of operations beyond maxOperations
	invalidWork       atomic.Int64 // what is stated and cannot be
}

// Misuse is gpuspan.Profiler.Misuse.
func (p *Profiler) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	return map[string]int64{
		semconv.GpuspanMisuseKindConcurrentSteps:   p.misuse.concurrentSteps.Load(),
		semconv.GpuspanMisuseKindForeignStream:     p.misuse.foreignStream.Load(),
		semconv.GpuspanMisuseKindStaleParent:       p.misuse.staleParent.Load(),
		semconv.GpuspanMisuseKindUnmatchedEnd:      p.misuse.unmatchedEnd.Load(),
		semconv.GpuspanMisuseKindNameOverflow:      p.names.overflowed() + p.steps.overflowed(),
		semconv.GpuspanMisuseKindOperationOverflow: p.misuse.operationOverflow.Load(),
		semconv.GpuspanMisuseKindInvalidWork:       p.misuse.invalidWork.Load(),
	}
}
