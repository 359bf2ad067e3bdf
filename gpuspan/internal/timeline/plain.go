// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// plainSlot reports whether a timed section that ended is plain.
func plainSlot(sl *record.Slot) bool {
	r := &sl.Rec
	return r.Root == sl && r.Flags&^record.FlagsPlain == 0 && r.Step == nil && sl.Nest == nil && len(sl.Held) == 0 &&
		sl.Refs.Load() == 1
}

// queuePlain passes on a plain section. Its slot is released by releasePlain, and not written before.
func (t *reader) queuePlain(s *record.Stream, sl *record.Slot, stamps *clockmap.Stamps) {
	s.Unplaced = append(s.Unplaced, record.Stamped{Read: t.p.Polling.Passed.Load()})
	s.Stamps = append(s.Stamps, *stamps)
	r, q := &sl.Rec, &s.Unplaced[len(s.Unplaced)-1]
	q.Ctx, q.Op, q.Work, q.HostStart, q.HostEnd = r.Ctx, r.Op, r.Work, r.HostStart, r.HostEnd
	q.Work.Once(r.Op.Op.Cfg.Direction)
	q.Occurrence = t.counted.Number(r.Op, &q.Work)
}

// Counted is a batch of plain sections of one operation that were numbered and are still to be added to its tally.
type Counted struct {
	op   *record.OpState
	n    int64
	last int64 // occurrence
	work work.Work
}

func (c *Counted) Number(op *record.OpState, w *work.Work) (occurrence int64) {
	if c.op != op || c.work.Precision != w.Precision {
		c.Add()
		*c = Counted{op: op, last: op.Timed.Count.Load() + op.UntimedCount(), work: work.Work{Precision: w.Precision}}
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
	c.op.Timed.Add(&c.work, c.op.Op.Cfg.Direction)
	*c = Counted{}
}

// releasePlain frees slots that queuePlain has read, some at a time.
func releasePlain(s *record.Stream, list []*record.Slot) {
	s.InFlight.Add(int32(len(list)))
	for len(list) > 0 {
		n := min(len(list), freeTogether)
		s.Mu.Lock()
		for _, sl := range list[:n] {
			sl.Rec.Ctx, sl.State = nil, record.SlotFree
			s.Free = append(s.Free, sl)
		}
		s.Mu.Unlock()
		list = list[n:]
	}
}

// freeTogether bounds how long a caller of Start waits for the stream's mutex: about 10 ns for each.
const freeTogether = 32
