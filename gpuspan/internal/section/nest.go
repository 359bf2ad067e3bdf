// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"slices"
	"sync"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Count returns how many records there are: the record of a step's boundary or of the outermost
// section, and the sections in it.
func (n *Nest) Count() int { return 1 + len(n.Held) }

// Record returns the i-th of them.
func (n *Nest) Record(i int) *Record {
	switch {
	case i > 0:
		return n.Held[i-1]
	case n.Step != nil:
		return &n.Step.Rec
	}
	return n.Root
}

// Put clears a nest whose spans have ended, for the next one.
func (n *Nest) Put(spare *SpareNests) {
	for i, r := range n.Held {
		putRecord(r)
		n.Held[i] = nil
	}
	if n.Root != nil && n.Root != &n.own {
		putRecord(n.Root)
	}
	held := n.Held[:0]
	if n.own.clear(); n.Kept || cap(held) > 256 { // one wide nest need not cost memory forever
		held = nil
	}
	if n.Root, n.Held = nil, held; n.Kept {
		return
	}
	n.Stream, n.Step, n.Late, n.Around, n.Expiry = nil, nil, nil, nil, false
	spare.put(n)
}

// maxSpare bounds the memory that is kept after a burst, about 3 MiB.
const maxSpare = MaxInFlight

func (s *SpareNests) put(n *Nest) {
	s.mu.Lock()
	if len(s.list) < maxSpare {
		s.list = append(s.list, n)
	}
	s.mu.Unlock()
}

// takeAll exchanges the list for an empty one.
func (s *SpareNests) takeAll(empty []*Nest) []*Nest {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.list
	s.list = empty[:0]
	return all
}

var recordPool = sync.Pool{New: func() any { return new(Record) }}

func putRecord(r *Record) {
	r.clear()
	recordPool.Put(r)
}

// clear clears a record except its extra, which is empty then, too.
func (r *Record) clear() {
	e := r.Extra
	if e != nil {
		e.reset()
	}
	*r = Record{Extra: e}
}

// Count returns how many records there are.
func (q *Stamped) Count() int {
	if q.Nest == nil {
		return 1
	}
	return q.Nest.Count()
}

// MaxInFlight bounds the sections of a stream that are read and not yet exported, about 0.5 KiB
// each. Beyond it sections stay in their slots, and sections without a slot are counted as dropped.
const MaxInFlight = 4096

// MaxHeld bounds the records of all nests that wait for their outermost section. Further records
// are measured and counted but get no span.
const MaxHeld = 8192

// takeOut copies a record out of its slot, which does not change.
func takeOut(sl *Slot) *Record {
	r := recordPool.Get().(*Record)
	sl.stream.Mu.Lock()
	r.take(sl)
	sl.stream.Mu.Unlock()
	return r
}

// free releases a slot whose record is not needed.
func free(sl *Slot) {
	sl.stream.Mu.Lock()
	sl.stream.release(sl)
	sl.stream.Mu.Unlock()
}

func (t *Poller) newNest(s *Stream) *Nest {
	if len(t.nests) == 0 {
		t.nests = t.spare.takeAll(t.nests)
	}
	var n *Nest
	if last := len(t.nests) - 1; last >= 0 {
		n, t.nests = t.nests[last], t.nests[:last]
	} else {
		n = &Nest{}
	}
	n.Stream, n.Root = s, &n.own
	return n
}

// newNestOf returns the nest of a record that is out of its slot already.
func (t *Poller) newNestOf(s *Stream, root *Record) *Nest {
	n := t.newNest(s)
	n.Root = root
	return n
}

// settleRoot handles a resolved outermost section, whose slot is kept until the sections in it are
// resolved.
func (t *Poller) settleRoot(sl *Slot) {
	if sl.refs.Load() == 1 {
		t.complete(sl)
		return
	}
	sl.resolved = t.p.Clock.Now()
	sl.Rec.done = true
	sl.hold()
	t.waiting = append(t.waiting, sl)
}

// settleInner passes on a resolved section that is inside another, so that a long outer section
// does not block short inner ones.
func (t *Poller) settleInner(r *Record, s *Stream, root *Slot) {
	r.HeldOn = s
	if root.nest == nil && t.heldNow < MaxHeld {
		root.held = append(root.held, r)
		t.heldNow++
		return
	}
	n := t.newNestOf(s, r)
	// if its outermost section was abandoned while waiting for it, the parent is that section's
	// span.
	if n.Late = root.nest; n.Late == nil {
		t.p.drop(dropNestLimit)
		n.Around = root.Rec.Op
	}
	t.queue(root.stream, n)
}

// settleBoundary passes on the resolved boundaries of a step.
func (t *Poller) settleBoundary(sl *Slot) {
	sl.hold()
	n := t.newNest(sl.stream)
	n.Step = sl
	t.queue(sl.stream, n)
}

// unref drops a reference to an outermost slot. The slot's own reference goes last, in complete.
func (t *Poller) unref(root *Slot) {
	if root.refs.Add(-1) == 1 && root.Rec.done && root.state == SlotHeld {
		t.waiting = slices.DeleteFunc(t.waiting, func(o *Slot) bool { return o == root })
		t.complete(root)
	}
}

// CheckWaiting completes nests whose inner sections are gone, and abandons nests that waited too
// long.
func (t *Poller) CheckWaiting(now int64, all bool) {
	t.waiting = slices.DeleteFunc(t.waiting, func(sl *Slot) bool {
		if sl.refs.Load() == 1 {
			t.complete(sl)
			return true
		}
		if sl.nest == nil && (all || TooOld(sl.resolved, now, t.p.Cfg.NestDeadline)) {
			t.part(sl, takeOut(sl))
		}
		return false
	})
}

// part passes a nest on before all sections in it are resolved. The rest follows late.
func (t *Poller) part(sl *Slot, r *Record) {
	n := t.newNestOf(sl.stream, r)
	n.Kept = true
	sl.nest = n
	t.takeHeld(sl, n)
	t.queue(sl.stream, n)
}

// complete passes on a nest and frees the outermost section's slot.
func (t *Poller) complete(sl *Slot) {
	if sl.nest != nil {
		sl.nest = nil
		free(sl)
		return
	}
	n := t.newNest(sl.stream)
	t.takeHeld(sl, n)
	sl.stream.Mu.Lock()
	n.own.take(sl)
	sl.stream.release(sl)
	sl.stream.Mu.Unlock()
	t.queue(n.Stream, n)
}

func (t *Poller) takeHeld(sl *Slot, n *Nest) {
	n.Held, sl.held = sl.held, n.Held
	t.heldNow -= len(n.Held)
}

// nestsPending reports whether a nest waits for its deadline. Nests past their deadline are not
// visited: an inner section wakes the thread if it ends after all.
func (t *Poller) nestsPending() bool {
	return slices.ContainsFunc(t.waiting, func(sl *Slot) bool { return sl.nest == nil })
}

// plainSlot reports whether a timed section that ended is plain.
func plainSlot(sl *Slot) bool {
	r := &sl.Rec
	return r.root == sl && r.Flags&^flagsPlain == 0 && r.Step == nil && sl.nest == nil && len(sl.held) == 0 &&
		sl.refs.Load() == 1
}

// queuePlain passes on a plain section. Its slot is released by releasePlain, and not written
// before.
func (t *Poller) queuePlain(s *Stream, sl *Slot, stamps *clockmap.Stamps) {
	s.Unplaced = append(s.Unplaced, Stamped{Read: t.p.passed.Load()})
	s.Stamps = append(s.Stamps, *stamps)
	r, q := &sl.Rec, &s.Unplaced[len(s.Unplaced)-1]
	q.Ctx, q.Op, q.Work, q.HostStart, q.HostEnd = r.Ctx, r.Op, r.Work, r.HostStart, r.HostEnd
	q.Work.Once(r.Op.Cfg.Direction)
	q.Occurrence = t.counted.Number(r.Op, &q.Work)
}

func (c *Counted) Number(op *OpState, w *work.Work) (occurrence int64) {
	if c.op != op || c.work.Precision != w.Precision {
		c.Add()
		*c = Counted{op: op, last: op.Timed.Count.Load() + op.untimedCount(), work: work.Work{Precision: w.Precision}}
	}
	c.n++
	c.last++
	c.work.Add(w)
	return c.last
}

// Add adds them to the tally, before others are numbered and at the end of a pass over a stream.
func (c *Counted) Add() {
	if c.n == 0 {
		return
	}
	c.op.Timed.Count.Add(c.n)
	c.op.Timed.Add(&c.work, c.op.Cfg.Direction)
	*c = Counted{}
}

// freeTogether bounds how long a caller of Start waits for the stream's mutex: about 10 ns for
// each.
const freeTogether = 32

// releasePlain frees slots that queuePlain has read, some at a time.
func releasePlain(s *Stream, list []*Slot) {
	s.InFlight.Add(int32(len(list)))
	for len(list) > 0 {
		n := min(len(list), freeTogether)
		s.Mu.Lock()
		for _, sl := range list[:n] {
			sl.Rec.Ctx, sl.state = nil, slotFree
			s.Free = append(s.Free, sl)
		}
		s.Mu.Unlock()
		list = list[n:]
	}
}
