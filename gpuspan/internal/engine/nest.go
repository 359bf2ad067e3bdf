// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"

	"go.opentelemetry.io/otel/trace"
)

// maxHeld bounds the records of all nests that wait for their outermost section. What comes beyond is measured and counted
// but gets no span.
const maxHeld = 8192

// settleInner takes a resolved section that lies in another out of its slot, which then serves the next section, so that a long outer
// section does not block short inner ones.
func (t *poller) settleInner(sl *slot) {
	root := sl.rec.root
	switch {
	case root.emitted:
		// Its outermost section was given up waiting for it: the span hangs directly below that one's.
		t.emit(&sl.rec, sl.stream, root.span, root.rec.node)
	case t.heldNow >= maxHeld:
		t.p.drop(dropNestLimit)
		t.count(context.Background(), &sl.rec, sl.stream, t.nodeOf(&root.rec))
	default:
		r := t.take()
		extra := r.extra
		*r = sl.rec
		r.heldOn = sl.stream
		sl.rec.extra = extra // the record keeps the slot's, the slot gets the record's empty one
		root.held = append(root.held, r)
		t.heldNow++
	}
	sl.stream.mu.Lock()
	sl.stream.release(sl)
	sl.stream.mu.Unlock()
	t.unref(root)
}

// nodeOf is an outermost section's node in the report, also before it is counted.
func (t *poller) nodeOf(root *record) int32 {
	if t.p.recorder == nil {
		return 0
	}
	defer t.p.guard("a section's place in the report was asked for")
	return int32(t.p.recorder.Node(0, root.op.op.cfg.Info))
}

// settleRoot handles a resolved outermost section.
func (t *poller) settleRoot(sl *slot) {
	sl.rec.done = true
	if sl.refs.Load() == 1 {
		t.complete(sl)
		return
	}
	sl.stream.mu.Lock()
	sl.state = slotHeld
	sl.stream.mu.Unlock()
	sl.resolved = t.p.clock.now()
	t.waiting = append(t.waiting, sl)
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
	for i := 0; i < len(t.waiting); {
		sl := t.waiting[i]
		if sl.refs.Load() == 1 {
			t.waiting = slices.Delete(t.waiting, i, i+1)
			t.complete(sl)
			continue
		}
		if !sl.emitted && (all || tooOld(sl.resolved, now, t.p.cfg.NestDeadline)) {
			t.emitNest(sl)
			sl.emitted = true
		}
		i++
	}
}

// complete emits a nest and frees the outermost section's slot.
func (t *poller) complete(sl *slot) {
	if !sl.emitted {
		t.emitNest(sl)
	}
	if w := sl.rec.op.op.cfg.Print; w != nil {
		t.print(w)
	}
	sl.emitted, sl.span = false, trace.SpanContext{}
	s := sl.stream
	s.mu.Lock()
	s.release(sl)
	s.mu.Unlock()
}

// emitNest makes the spans of a nest, parents before children.
func (t *poller) emitNest(sl *slot) {
	root := &sl.rec
	if len(sl.held) == 0 {
		t.emit(root, sl.stream, trace.SpanContext{}, 0)
		sl.span = root.span
		return
	}
	t.order = append(t.order[:0], root)
	t.order = append(t.order, sl.held...)
	slices.SortStableFunc(t.order, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.depth, b.depth), cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.id, b.id))
	})
	byID := t.byID
	for _, r := range t.order {
		byID[r.id] = r
	}
	for _, r := range slices.Backward(t.order) { // children first: what a parent says of them must be known
		r.sumUp()
		if p := byID[r.parent]; p != nil && p != r {
			p.adopt(r)
		}
	}
	for _, r := range t.order {
		s := r.heldOn
		if s == nil {
			s = sl.stream
		}
		p := byID[r.parent]
		if p == nil {
			p = root // its parent was given up
		}
		if r == root {
			t.emit(r, s, trace.SpanContext{}, 0)
		} else {
			t.emit(r, s, p.span, p.node)
		}
	}
	sl.span = root.span
	clear(byID)
	for i, r := range sl.held {
		t.put(r)
		sl.held[i] = nil
	}
	t.heldNow -= len(sl.held)
	if sl.held = sl.held[:0]; cap(sl.held) > 256 {
		sl.held = nil // one wide nest need not cost this slot its memory for ever
	}
	clear(t.order)
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

func (t *poller) take() *record {
	if n := len(t.spare); n > 0 {
		r := t.spare[n-1]
		t.spare = t.spare[:n-1]
		return r
	}
	return &record{}
}

func (t *poller) put(r *record) {
	e := r.extra
	if e != nil {
		e.reset()
	}
	*r = record{extra: e}
	if len(t.spare) < 1024 {
		t.spare = append(t.spare, r)
	}
}

// print writes the report where an operation wants it.
func (t *poller) print(w io.Writer) {
	defer t.p.guard("the report was printed")
	if t.p.recorder == nil {
		return
	}
	t.reportUntimed()
	if err := t.p.recorder.Summary().WriteText(w); err != nil {
		t.p.errors.report("print", fmt.Errorf("cannot print the report: %w", err))
	}
}
