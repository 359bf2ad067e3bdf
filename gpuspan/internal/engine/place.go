// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"sync/atomic"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// place is an operation at one place in the nesting of sections, so that the report's tree is the same whether traces
// are sampled or not. Sections that are not timed count here; each operation has a place as an outermost section, and
// one below each place that it ran in.
type place struct {
	st     *opState
	parent *place // nil: outermost
	depth  int

	untimed tally // runs without a slot: unsampled, captured in full pools …

	// ended remembers the last tickets whose work was added, so that a second EndWith of an untimed section adds nothing.
	ended [ticketRing]atomic.Int64

	children shared[*place] // few: found by looking at each
	chunked  atomic.Bool    // the runs are chunks of what runs around them

	// polling thread
	reported tallySnapshot // what the recorder has of untimed
	number   report.Node   // in the report; 0: not known yet
}

const (
	// maxPlaces bounds the places of one profiler to half of what report.Collector holds. What comes beyond these limits
	// counts as outermost.
	maxPlaces   = 2048
	maxDepth    = 64 // recursions
	maxChildren = 64 // each is looked at
)

// ticketRing is how many sections of one place may end between two Ends of the same untimed section and still have
// the second one recognised. A power of two.
const ticketRing = 64

// child finds the place of an operation within pl.
func (pl *place) child(p *Profiler, st *opState) *place {
	for _, c := range pl.children.all() {
		if c.st == st {
			return c
		}
	}
	return pl.addChild(p, st)
}

func (pl *place) addChild(p *Profiler, st *opState) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	siblings := pl.children.all()
	for _, c := range siblings {
		if c.st == st {
			return c
		}
	}
	if len(p.places.all()) >= maxPlaces || len(siblings) >= maxChildren || pl.depth >= maxDepth {
		return &st.outermost
	}
	c := &place{st: st, parent: pl, depth: pl.depth + 1}
	pl.children.add(c)
	st.inner.add(c)
	p.places.add(c)
	return c
}

// run counts a section that is not timed.
func (pl *place) run(p *Profiler) Section {
	return Section{at: pl, id: uint64(pl.untimed.count.Add(1)), p: p}
}

// untimedCount is how often the operation ran without being timed.
func (st *opState) untimedCount() int64 {
	n := st.outermost.untimed.count.Load()
	for _, pl := range st.inner.all() {
		n += pl.untimed.count.Load()
	}
	return n
}

// untimedWork is what it did then.
func (st *opState) untimedWork() tallySnapshot {
	sum := st.outermost.untimed.load()
	for _, pl := range st.inner.all() {
		sum.add(pl.untimed.load())
	}
	return sum
}

func (s *tallySnapshot) add(o tallySnapshot) {
	s.count, s.items = s.count+o.count, s.items+o.items
	s.read, s.written = s.read+o.read, s.written+o.written
	for i := range s.copied {
		s.copied[i] += o.copied[i]
	}
	for i := range s.flops {
		s.flops[i] += o.flops[i]
	}
}

// node is the place's number in the report.
func (pl *place) node(rec report.Recorder) report.Node {
	if pl == nil {
		return 0
	}
	if pl.number == 0 {
		pl.number = rec.Node(pl.parent.node(rec), pl.st.op.cfg.Info)
	}
	return pl.number
}

// report tells the recorder of the runs since it was last told. Polling thread.
func (pl *place) report(rec report.Recorder) {
	now, last := pl.untimed.load(), pl.reported
	if now == last {
		return
	}
	pl.reported = now
	w := Work{Read: now.read - last.read, Written: now.written - last.written}
	var copied [directions]int64
	for d := range copied {
		copied[d] = now.copied[d] - last.copied[d]
	}
	var s report.Sample
	s.Memory, s.PCIe = w.io(DirectionUnset, &copied)
	s.Items = now.items - last.items
	n, stated := now.count-last.count, false
	for i := range now.flops {
		f := now.flops[i] - last.flops[i]
		if f == 0 {
			continue
		}
		s.FLOPs, s.Precision = f, Precision(i).String()
		pl.tell(rec, n, s)
		n, s.Items, s.Memory, s.PCIe, stated = 0, 0, report.IO{}, report.IO{}, true
	}
	if !stated {
		pl.tell(rec, n, s)
	}
}

// tell passes runs on, and the work of chunks also to what runs around them, unless that states work of its own where
// it is not timed either.
func (pl *place) tell(rec report.Recorder, n int64, s report.Sample) {
	rec.Untimed(pl.node(rec), n, s)
	for pl.chunked.Load() && pl.parent != nil && !pl.parent.untimed.stated() {
		pl = pl.parent
		rec.Untimed(pl.node(rec), 0, s)
	}
}

func (t *tally) stated() bool {
	s := t.load()
	s.count = 0
	return s != tallySnapshot{}
}
