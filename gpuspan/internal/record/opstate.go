// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// maxOperations bounds the operations of one profiler. A program that creates an operation per request would otherwise
// use memory without limit; operations beyond it share the state "(other)".
const maxOperations = 4096

const overflowName = "(other)"

// OpState is the state of one operation in one profiler. Fields written by goroutines that start sections are apart
// from those written by the polling thread, so that neither takes cache lines from the other.
type OpState struct {
	Op *Operation

	inner     shared[*Position] // within other sections
	Outermost Position          // as an outermost section

	// sections that took a slot, added by the polling thread when they are read; and all steps, added without a slot when
	// they end
	Timed work.Tally
}

func NewOpState(o *Operation) *OpState {
	st := &OpState{Op: o}
	st.Outermost.State = st
	return st
}

// State finds the profiler's state of an operation: an index into a slice that is replaced, never changed.
func (p *Core) State(o *Operation) *OpState {
	if st := p.known(o); st != nil {
		return st
	}
	return p.register(o)
}

// known is like state, but never creates one; it is small enough to be inlined into the paths that only count.
func (p *Core) known(o *Operation) *OpState {
	if ops := *p.Ops.Load(); int(o.id) < len(ops) {
		return ops[o.id]
	}
	return nil
}

func (p *Core) register(o *Operation) *OpState {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	old := *p.Ops.Load()
	if int(o.id) < len(old) && old[o.id] != nil {
		return old[o.id]
	}
	if p.opCount >= maxOperations {
		if p.overflow == nil {
			p.overflow = NewOpState(NewOperation(overflowName))
			p.OpList.Add(p.overflow)
		}
		p.Misuses.operationOverflow.Add(1)
		return p.overflow
	}
	p.opCount++
	ops := make([]*OpState, max(len(old), int(o.id)+1))
	copy(ops, old)
	st := NewOpState(o)
	ops[o.id] = st
	p.OpList.Add(st)
	p.Ops.Store(&ops)
	return st
}

// shared is a list that any goroutine reads, and that is appended to under the profiler's mutex. Readers have the
// shorter slices, so the array can be shared.
type shared[T any] struct{ list atomic.Pointer[[]T] }

func (s *shared[T]) All() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *shared[T]) Set(list []T) { s.list.Store(&list) }
func (s *shared[T]) Add(v T)      { s.Set(append(s.All(), v)) }
