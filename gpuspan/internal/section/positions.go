// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"sync"
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// maxOperations bounds the operations of one profiler. A program that creates an operation per
// request would otherwise use memory without limit; operations beyond it share the state "(other)".
const maxOperations = 4096

// OpState is the state of one operation in one profiler. Fields written by goroutines that start
// sections are apart from those written by the polling thread, so that neither takes cache lines
// from the other.
type OpState struct {
	*Operation

	inner     shared[*Position] // within other sections
	Outermost Position          // as an outermost section

	// sections that took a slot, added by the polling thread when they are read; and all steps,
	// added without a slot when they end
	Timed work.Tally
}

func NewOpState(o *Operation) *OpState {
	st := &OpState{Operation: o}
	st.Outermost.State = st
	return st
}

// operations are the operations of a profiler, and their positions in the nesting of sections.
type operations struct {
	states    atomic.Pointer[[]*OpState] // by Operation.id; replaced, never changed
	mu        sync.Mutex
	list      shared[*OpState]  // in order of registration
	positions shared[*Position] // of sections within others, parents first
	overflow  *OpState
	overflows atomic.Int64 // how often there were too many operations
}

// state returns the profiler's state of an operation.
func (p *operations) state(o *Operation) *OpState {
	if st := p.known(o); st != nil {
		return st
	}
	return p.register(o)
}

// known is like state, but never creates one; it is small enough to be inlined into the paths that
// only count.
func (p *operations) known(o *Operation) *OpState {
	if ops := *p.states.Load(); int(o.id) < len(ops) {
		return ops[o.id]
	}
	return nil
}

func (p *operations) register(o *Operation) *OpState {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := *p.states.Load()
	if int(o.id) < len(old) && old[o.id] != nil {
		return old[o.id]
	}
	if len(p.list.all()) >= maxOperations {
		if p.overflow == nil {
			p.overflow = NewOpState(NewOperation(overflowName))
			p.list.add(p.overflow)
		}
		p.overflows.Add(1)
		return p.overflow
	}
	ops := make([]*OpState, max(len(old), int(o.id)+1))
	copy(ops, old)
	st := NewOpState(o)
	ops[o.id] = st
	p.list.add(st)
	p.states.Store(&ops)
	return st
}

// shared is a list that any goroutine reads, and that is appended to under the profiler's mutex.
// Readers have the shorter slices, so the array can be shared.
type shared[T any] struct{ list atomic.Pointer[[]T] }

func (s *shared[T]) all() []T {
	if list := s.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (s *shared[T]) set(list []T) { s.list.Store(&list) }

func (s *shared[T]) add(v T) { s.set(append(s.all(), v)) }

// Position is an operation at one position in the nesting of sections, so that the report's tree
// does not depend on sampling. Sections that are not timed count here too; each operation has one
// position as an outermost section, and one below each position in which it ran.
type Position struct {
	State  *OpState
	Parent *Position // nil: outermost
	depth  int

	untimed work.Tally // runs without a slot: unsampled, captured in full pools …

	// ended keeps the last tickets whose work was added, so that a second EndWith of an untimed
	// section adds nothing.
	ended [ticketRing]atomic.Int64

	children shared[*Position] // few: searched linearly
	chunked  atomic.Bool       // the runs are chunks of the section around them

	// goroutine of the exporter
	reported work.TallySnapshot // untimed runs that TakeUntimed returned
	Number   statistics.Node    // in the report; 0: unknown yet
}

const (
	// maxPositions bounds the positions of one profiler to half of what a statistics.Collector holds.
	// Sections beyond it count as outermost.
	maxPositions = 2048
	maxDepth     = 64 // recursions
	maxChildren  = 64 // each is visited
)

// ticketRing is how many sections at one position may end between two Ends of the same untimed
// section such that the second one is still recognized. A power of two.
const ticketRing = 64

// child returns the position of an operation within pl.
func (pl *Position) child(p *operations, st *OpState) *Position {
	for _, c := range pl.children.all() {
		if c.State == st {
			return c
		}
	}
	return pl.addChild(p, st)
}

func (pl *Position) addChild(p *operations, st *OpState) *Position {
	p.mu.Lock()
	defer p.mu.Unlock()
	siblings := pl.children.all()
	for _, c := range siblings {
		if c.State == st {
			return c
		}
	}
	if len(p.positions.all()) >= maxPositions || len(siblings) >= maxChildren || pl.depth >= maxDepth {
		return &st.Outermost
	}
	c := &Position{State: st, Parent: pl, depth: pl.depth + 1}
	pl.children.add(c)
	st.inner.add(c)
	p.positions.add(c)
	return c
}

// TakeUntimed returns the untimed runs since the last call; false: none.
func (pl *Position) TakeUntimed() (work.TallySnapshot, bool) {
	now := pl.untimed.Load()
	since := now.Minus(&pl.reported)
	pl.reported = now
	return since, since != work.TallySnapshot{}
}

// Around returns the section around chunks, whose work is theirs; nil if there is none or it
// declares its own.
func (pl *Position) Around() *Position {
	if !pl.chunked.Load() || pl.Parent == nil || pl.Parent.untimed.Stated() {
		return nil
	}
	return pl.Parent
}

// countWork adds the work of a section that is not timed.
func (pl *Position) countWork(w *work.Work) {
	d := pl.State.Cfg.Direction
	w.Once(d)
	pl.untimed.Add(w, d)
}

// untimedCount returns how often the operation ran without being timed.
func (st *OpState) untimedCount() int64 {
	n := st.Outermost.untimed.Count.Load()
	for _, pl := range st.inner.all() {
		n += pl.untimed.Count.Load()
	}
	return n
}

// UntimedWork returns the work of untimed runs.
func (st *OpState) UntimedWork() work.TallySnapshot {
	sum := st.Outermost.untimed.Load()
	for _, pl := range st.inner.all() {
		sum.Add(pl.untimed.Load())
	}
	return sum
}
