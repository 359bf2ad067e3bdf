// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// Position is an operation at one position in the nesting of sections, so that the report's tree does not depend on
// sampling. Sections that are not timed count here too; each operation has one position as an outermost section, and
// one below each position in which it ran.
type Position struct {
	State  *OpState
	Parent *Position // nil: outermost
	depth  int

	Untimed work.Tally // runs without a slot: unsampled, captured in full pools …

	// ended keeps the last tickets whose work was added, so that a second EndWith of an untimed section adds nothing.
	ended [ticketRing]atomic.Int64

	children shared[*Position] // few: searched linearly
	Chunked  atomic.Bool       // the runs are chunks of the section around them

	// polling thread
	Reported work.TallySnapshot // untimed runs that the recorder has received
	Number   report.Node        // in the report; 0: unknown yet
}

const (
	// maxPositions bounds the positions of one profiler to half of what report.Collector holds. Sections beyond it count
	// as outermost.
	maxPositions = 2048
	maxDepth     = 64 // recursions
	maxChildren  = 64 // each is visited
)

// ticketRing is how many sections at one position may end between two Ends of the same untimed section such that the
// second one is still recognized. A power of two.
const ticketRing = 64

// child returns the position of an operation within pl.
func (pl *Position) child(p *Core, st *OpState) *Position {
	for _, c := range pl.children.All() {
		if c.State == st {
			return c
		}
	}
	return pl.addChild(p, st)
}

func (pl *Position) addChild(p *Core, st *OpState) *Position {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	siblings := pl.children.All()
	for _, c := range siblings {
		if c.State == st {
			return c
		}
	}
	if len(p.Positions.All()) >= maxPositions || len(siblings) >= maxChildren || pl.depth >= maxDepth {
		return &st.Outermost
	}
	c := &Position{State: st, Parent: pl, depth: pl.depth + 1}
	pl.children.Add(c)
	st.inner.Add(c)
	p.Positions.Add(c)
	return c
}

// run counts a section that is not timed.
func (pl *Position) run(p *Core) Section {
	return Section{Occupant: Occupant{ID: uint64(pl.Untimed.Count.Add(1))}, at: pl, p: p}
}

// countWork adds the work of a section that is not timed.
func (pl *Position) countWork(w *work.Work) {
	d := pl.State.Op.Cfg.Direction
	w.Once(d)
	pl.Untimed.Add(w, d)
}

// UntimedCount returns how often the operation ran without being timed.
func (st *OpState) UntimedCount() int64 {
	n := st.Outermost.Untimed.Count.Load()
	for _, pl := range st.inner.All() {
		n += pl.Untimed.Count.Load()
	}
	return n
}

// UntimedWork returns the work of untimed runs.
func (st *OpState) UntimedWork() work.TallySnapshot {
	sum := st.Outermost.Untimed.Load()
	for _, pl := range st.inner.All() {
		sum.Add(pl.Untimed.Load())
	}
	return sum
}
