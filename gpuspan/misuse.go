// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/semconv"
)

// misuse counts calls that cannot be what the caller meant.
type misuse struct {
	staleParent       atomic.Int64 // Start within a section that has ended
	unmatchedEnd      atomic.Int64 // EndNamed without an open section of the name
	operationOverflow atomic.Int64 // sections of operations beyond maxOperations
	invalidWork       atomic.Int64 // Work that cannot be
}

// Misuse counts calls that cannot be what the caller meant, by kind, as the metric gpuspan.misuses does: `stale_parent` (a section was
// started within one that had ended), `unmatched_end` (EndNamed without an open section of the name), `name_overflow` and
// `operation_overflow` (more names or operations than are kept apart), `invalid_work` (negative bytes or items, FLOPs that are no number).
func (p *Profiler) Misuse() map[string]int64 {
	if p == nil {
		return nil
	}
	p.names.mu.RLock()
	names := p.names.dropped
	p.names.mu.RUnlock()
	return map[string]int64{
		semconv.GpuspanMisuseKindStaleParent:       p.misuse.staleParent.Load(),
		semconv.GpuspanMisuseKindUnmatchedEnd:      p.misuse.unmatchedEnd.Load(),
		semconv.GpuspanMisuseKindNameOverflow:      names,
		semconv.GpuspanMisuseKindOperationOverflow: p.misuse.operationOverflow.Load(),
		semconv.GpuspanMisuseKindInvalidWork:       p.misuse.invalidWork.Load(),
	}
}
