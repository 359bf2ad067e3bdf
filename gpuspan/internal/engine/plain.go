// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
)

// plain is an outermost section with none in it and in no step, which was timed and says nothing but its work, as most
// are. It travels by value: three processors pass it on to each other, and most of what a section costs beside reading
// clocks is that each fetches its memory from another. A nest takes three times as many lines of the cache.
type plain struct {
	times
	ctx                context.Context
	op                 *opState
	work               Work
	hostStart, hostEnd int64 // hostClock
	occurrence         int64
}

// plain reports whether a section that ended and was timed is one.
func (sl *slot) plain() bool {
	r := &sl.rec
	return r.root == sl && r.flags&^flagsPlain == 0 && r.step == nil && sl.nest == nil && len(sl.held) == 0 &&
		sl.refs.Load() == 1
}

// queued waits for the anchor that places it, then for its span. The stamps by which a plain one is placed stay with
// the polling thread, in Stream.stamps.
type queued struct {
	nest *nest // nil: it is plain
	read int64 // hostClock
	plain
}

// count is how many records there are.
func (q *queued) count() int {
	if q.nest == nil {
		return 1
	}
	return q.nest.count()
}

// queuePlain passes on a plain section. Its slot is given back by releasePlain, and nobody else writes to it before.
func (t *poller) queuePlain(s *Stream, sl *slot, stamps *clockmap.Stamps) {
	s.unplaced = append(s.unplaced, queued{read: t.passed.Load()})
	s.stamps = append(s.stamps, *stamps)
	r, q := &sl.rec, &s.unplaced[len(s.unplaced)-1]
	q.ctx, q.op, q.work, q.hostStart, q.hostEnd = r.ctx, r.op, r.work, r.hostStart, r.hostEnd
	q.occurrence = t.counted.number(r.op, &r.work)
}

// counted are plain sections of one operation that were numbered and are still to be added to its tally, many at a
// time.
type counted struct {
	op   *opState
	n    int64
	last int64 // occurrence
	work Work
}

func (c *counted) number(op *opState, w *Work) (occurrence int64) {
	if c.op != op || c.work.Precision != w.Precision {
		c.add()
		*c = counted{op: op, last: op.timed.count.Load() + op.untimedCount(), work: Work{Precision: w.Precision}}
	}
	c.n++
	c.last++
	c.work.add(w)
	return c.last
}

// add adds them to the tally, before others are numbered and when a pass over a stream is over.
func (c *counted) add() {
	if c.n == 0 {
		return
	}
	c.op.timed.count.Add(c.n)
	c.op.timed.add(&c.work, c.op.op.cfg.Direction)
	*c = counted{}
}

// releasePlain gives slots back that queuePlain has read, some at a time.
func (s *Stream) releasePlain(list []int32) {
	s.inFlight.Add(int32(len(list)))
	for len(list) > 0 {
		n := min(len(list), freeTogether)
		s.mu.Lock()
		for _, i := range list[:n] {
			sl := &s.slots[i]
			sl.rec.ctx, sl.state = nil, slotFree
			s.free = append(s.free, i)
		}
		s.mu.Unlock()
		list = list[n:]
	}
}

// freeTogether bounds how long a caller of Start waits for the stream's mutex: about 10 ns for each.
const freeTogether = 32

// plain makes the span of a plain section. The record is that of all of them.
func (t *emitter) plain(s *Stream, q *queued) {
	r := &t.one
	r.times, r.ctx, r.op, r.work, r.hostStart, r.hostEnd = q.times, q.ctx, q.op, q.work, q.hostStart, q.hostEnd
	r.occurrence, r.device, r.timed = q.occurrence, s.device, true
	r.gpu = float64(q.endNs - q.startNs)
	q.ctx, q.op = nil, nil
	t.emit(r, s, trace.SpanContext{}, 0)
	if w := r.op.op.cfg.Print; w != nil {
		t.print(w)
	}
	r.ctx = nil
}
