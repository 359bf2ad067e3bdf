// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// maxOperations bounds the operations of one profiler. A program that makes an operation per request would otherwise
// grow without end; what is too many shares the state "(other)".
const maxOperations = 4096

const overflowName = "(other)"

// OpState is what one profiler knows of one operation. What the goroutines that start sections write is apart from what
// the polling thread writes, so that neither takes lines of the cache from the other.
type OpState struct {
	Op *Operation

	inner     shared[*Position] // within other sections
	Outermost Position          // as an outermost section

	// sections that took a slot, added by the polling thread when they are read back; and all steps, without a slot
	// when they end
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

// shared is a list that any goroutine reads, and one that holds the profiler's mutex adds to. Readers have the shorter
// slices, so the array can be shared.
type shared[T any] struct{ list atomic.Pointer[[]T] }

func (s *shared[T]) All() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *shared[T]) Set(list []T) { s.list.Store(&list) }
func (s *shared[T]) Add(v T)      { s.Set(append(s.All(), v)) }
