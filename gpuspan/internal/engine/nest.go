// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// maxHeld bounds the records of all nests that wait for their outermost section. What comes beyond is measured and
// counted but gets no span.
const maxHeld = 8192

// nest is an outermost section with those in it, all out of their slots: what becomes spans together.
type nest struct {
	stream *Stream
	root   *record // mostly own
	own    record
	held   []*record // sections in it, in the order in which they were read
	step   *slot     // instead of root: the boundaries of a step
	late   *nest     // below whose span root hangs: that nest was not waited for any longer
	around *opState  // of the outermost section of a root that gets no span; else nil
	expiry bool      // of a step that the device does not finish
	kept   bool      // late nests refer to this one

	// goroutine of the emitter, where kept
	span trace.SpanContext
	node int32
}

var recordPool = sync.Pool{New: func() any { return new(record) }}

func putRecord(r *record) {
	r.clear()
	recordPool.Put(r)
}

// clear empties a record but for its extra, which is empty then, too.
func (r *record) clear() {
	e := r.extra
	if e != nil {
		e.reset()
	}
	*r = record{claim: claim{extra: e}}
}

// put empties a nest whose spans exist, for the next one.
func (n *nest) put(spare *spareNests) {
	for i, r := range n.held {
		putRecord(r)
		n.held[i] = nil
	}
	if n.root != nil && n.root != &n.own {
		putRecord(n.root)
	}
	held := n.held[:0]
	if n.own.clear(); n.kept || cap(held) > 256 { // one wide nest need not cost memory for ever
		held = nil
	}
	if n.root, n.held = nil, held; n.kept {
		return
	}
	n.stream, n.step, n.late, n.around, n.expiry = nil, nil, nil, nil, false
	spare.put(n)
}

// count is how many records there are: that of a step's boundary or of the outermost section, and those of sections in
// it.
func (n *nest) count() int { return 1 + len(n.held) }

// record is the i-th of them.
func (n *nest) record(i int) *record {
	switch {
	case i > 0:
		return n.held[i-1]
	case n.step != nil:
		return &n.step.rec
	}
	return n.root
}

// spareNests go back from the emitter to the polling thread, many at a time: a pool of the runtime's takes one at a
// time from another processor.
type spareNests struct {
	mu   sync.Mutex
	list []*nest
}

// maxSpare bounds the memory that is kept after a burst, about 3 MiB.
const maxSpare = maxInFlight

func (s *spareNests) put(n *nest) {
	s.mu.Lock()
	if len(s.list) < maxSpare {
		s.list = append(s.list, n)
	}
	s.mu.Unlock()
}

// takeAll exchanges the list for an empty one.
func (s *spareNests) takeAll(empty []*nest) []*nest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.list
	s.list = empty[:0]
	return all
}

// settleInner passes on a resolved section that lies in another, so that a long outer section does not block short
// inner ones.
func (t *poller) settleInner(r *record, s *Stream, root *slot) {
	r.heldOn = s
	if root.nest == nil && t.heldNow < maxHeld {
		root.held = append(root.held, r)
		t.heldNow++
		return
	}
	n := t.newNestOf(s, r)
	// Where its outermost section was given up waiting for it, the span hangs directly below that one's.
	if n.late = root.nest; n.late == nil {
		t.p.drop(dropNestLimit)
		n.around = root.rec.op
	}
	t.queue(root.stream, n)
}

func (t *poller) newNest(s *Stream) *nest {
	if len(t.nests) == 0 {
		t.nests = t.p.emitter.spare.takeAll(t.nests)
	}
	var n *nest
	if last := len(t.nests) - 1; last >= 0 {
		n, t.nests = t.nests[last], t.nests[:last]
	} else {
		n = &nest{}
	}
	n.stream, n.root = s, &n.own
	return n
}

// newNestOf has a record that is out of its slot already.
func (t *poller) newNestOf(s *Stream, root *record) *nest {
	n := t.newNest(s)
	n.root = root
	return n
}

// settleRoot handles a resolved outermost section, whose slot is kept until the sections in it are resolved.
func (t *poller) settleRoot(sl *slot) {
	if sl.refs.Load() == 1 {
		t.complete(sl)
		return
	}
	sl.resolved = t.p.clock.now()
	sl.rec.done = true
	sl.hold()
	t.waiting = append(t.waiting, sl)
}

func (sl *slot) hold() {
	sl.stream.mu.Lock()
	sl.state = slotHeld
	sl.stream.mu.Unlock()
}

// unref drops a reference to an outermost slot. The slot's own reference goes last, in complete.
func (t *poller) unref(root *slot) {
	if root.refs.Add(-1) == 1 && root.rec.done && root.state == slotHeld {
		t.waiting = slices.DeleteFunc(t.waiting, func(o *slot) bool { return o == root })
		t.complete(root)
	}
}

// checkWaiting completes nests whose inner sections are gone, and gives up those that waited too long.
func (t *poller) checkWaiting(now int64, all bool) {
	t.waiting = slices.DeleteFunc(t.waiting, func(sl *slot) bool {
		if sl.refs.Load() == 1 {
			t.complete(sl)
			return true
		}
		if sl.nest == nil && (all || tooOld(sl.resolved, now, t.p.cfg.NestDeadline)) {
			t.part(sl, t.takeOut(sl))
		}
		return false
	})
}

// part passes a nest on before all sections in it are resolved. They will come late.
func (t *poller) part(sl *slot, r *record) {
	n := t.newNestOf(sl.stream, r)
	n.kept = true
	sl.nest = n
	t.takeHeld(sl, n)
	t.queue(sl.stream, n)
}

// complete passes on a nest and frees the outermost section's slot.
func (t *poller) complete(sl *slot) {
	if sl.nest != nil {
		sl.nest = nil
		t.free(sl)
		return
	}
	n := t.newNest(sl.stream)
	t.takeHeld(sl, n)
	sl.stream.mu.Lock()
	n.own.take(sl)
	sl.stream.release(sl)
	sl.stream.mu.Unlock()
	t.queue(n.stream, n)
}

func (t *poller) takeHeld(sl *slot, n *nest) {
	n.held, sl.held = sl.held, n.held
	t.heldNow -= len(n.held)
}

// queue lets a nest wait for the anchor that places it. Order is kept by stream.
func (t *poller) queue(s *Stream, n *nest) {
	s.inFlight.Add(int32(n.count()))
	s.unplaced = append(s.unplaced, queued{nest: n, read: t.passed.Load()})
	s.stamps = append(s.stamps, clockmap.Stamps{}) // its records have theirs
}

// adopt adds a child's work to what its parent may say of its children.
func (r *record) adopt(child *record) {
	r.childFLOPs += child.flops()
	if child.flags&flagChunk == 0 {
		return
	}
	r.childChunks = max(r.childChunks, child.chunks)
	w, from := child.work, child.op.op.cfg.Direction
	if from != r.op.op.cfg.Direction {
		r.adoptCopied(from, w.Read+w.Written+w.Bytes)
		w.Read, w.Written, w.Bytes = 0, 0, 0
	}
	r.childWork.add(&w)
	if e := child.extra; e != nil && e.moved {
		for d, n := range e.copied {
			r.adoptCopied(Direction(d), n)
		}
	}
}

// adoptCopied adds bytes that chunks moved in a direction. Device memory traffic has no place on a copy.
func (r *record) adoptCopied(d Direction, n int64) {
	switch {
	case n == 0 || d == DirectionUnset:
	case d == r.op.op.cfg.Direction:
		r.childWork.Bytes += n
	default:
		if r.childCopied == nil {
			r.childCopied = &[directions]int64{}
		}
		r.childCopied[d] += n
	}
}

// sumUp gives a section around chunks the sum of their work, unless it states some of its own.
func (r *record) sumUp() {
	if r.work.stated() || r.extra != nil && r.extra.moved {
		return
	}
	r.work, r.summed = r.childWork, true
	if r.childCopied == nil {
		return
	}
	if r.extra == nil {
		r.extra = &extra{}
	}
	r.extra.copied, r.extra.moved = *r.childCopied, true
}

// flops is what a section computed: its own statement, else the sum of its children's.
func (r *record) flops() float64 {
	if r.work.FLOPs != 0 && !r.summed { // chunks are some of the children
		return r.work.FLOPs
	}
	return r.childFLOPs
}
