// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"sync/atomic"
)

// StepState is the part of a step that its sections need.
type StepState struct {
	Core      *Core
	Owner     any             // the step; of package tree
	Ctx       context.Context // of the step: the parent of its outermost sections
	Timed     bool            // otherwise its sections only count
	Recorded  bool            // otherwise its sections only keep events warm, and nothing is reported of them
	Device    *Device         // on which the boundaries are timed
	around    *StepState      // to which the loop's stream returns; under the stream's mutex
	Open      atomic.Int32    // sections that are not resolved
	Running   atomic.Int32    // unresolved sections that have not ended
	Lost      atomic.Int32    // sections without a slot
	Cancelled atomic.Bool     // the iteration is not a step
}

type stepKey struct{}

// WithStep returns the context of a step's body.
func WithStep(ctx context.Context, st *StepState) context.Context {
	return context.WithValue(ctx, stepKey{}, st)
}

// stepOf returns the step that a section belongs to: its context's, otherwise the one that runs on its stream.
func stepOf(ctx context.Context, p *Core, s *Stream) *StepState {
	if ctx != nil {
		if st, ok := ctx.Value(stepKey{}).(*StepState); ok && st.Core == p {
			return st
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.step
}

// SetStep makes st the step of sections on the stream that have none in their context. It may start within another
// step, as an evaluation's steps do within a training step.
func (s *Stream) SetStep(st *StepState) {
	s.Mu.Lock()
	st.around, s.step = s.step, st
	s.Mu.Unlock()
}

// ClearStep returns the stream to the step around st.
func (s *Stream) ClearStep(st *StepState) {
	s.Mu.Lock()
	for at := &s.step; *at != nil; at = &(*at).around {
		if *at == st {
			*at, st.around = st.around, nil
			break
		}
	}
	s.Mu.Unlock()
}
