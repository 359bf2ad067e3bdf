// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

type Section struct {
	slot *slot  // nil: not timed
	at   *place // nil: nothing at all
	id   uint64 // timed: of the section; else the ticket of an untimed run
	p    *Profiler
}

func (x Section) Timed() (timed bool) {
	x.change(func(*record) { timed = true })
	return timed
}

// live reports whether the section is open. The stream's mutex must be held.
func (x Section) live() bool { return x.slot.rec.id == x.id && x.slot.state == slotOpen }

func (x Section) Start(o *Operation) Section {
	if x.slot != nil {
		return x.StartOn(o, x.slot.stream)
	}
	if x.at == nil || o == nil || x.p.level.Load() < int32(o.cfg.Verbosity) {
		return Section{}
	}
	return x.untimed(o)
}

func (x Section) StartOn(o *Operation, s *Stream) Section {
	if x.at == nil || o == nil || s == nil || x.p.level.Load() < int32(o.cfg.Verbosity) {
		return Section{}
	}
	if s.p != x.p {
		x.p.misuse.foreignStream.Add(1)
		return Section{}
	}
	if x.slot == nil {
		return x.untimed(o)
	}
	y, ok := s.beginIn(x, o, flagNone)
	if !ok {
		x.p.misuse.staleParent.Add(1)
		return x.p.untimed(o)
	}
	return y
}

// untimed counts a run within this section that is not timed.
func (x Section) untimed(o *Operation) Section { return x.at.child(x.p, x.p.state(o)).run(x.p) }

func (x Section) Add(w Work) {
	if x.at == nil {
		return
	}
	if w.wrong() {
		x.p.mend(&w)
	}
	if x.slot == nil {
		x.at.untimed.add(&w, x.at.st.op.cfg.Direction)
		return
	}
	x.change(func(r *record) { r.work.add(&w) })
}

func (x Section) AddCopied(d Direction, bytes int64) {
	if x.at == nil || bytes == 0 {
		return
	}
	if d == DirectionUnset || d >= directions || impossible(bytes) {
		x.p.misuse.invalidWork.Add(1)
		return
	}
	if x.slot == nil {
		x.at.untimed.copied[d].Add(bytes)
		return
	}
	x.with(func(e *extra) { e.copied[d] += bytes; e.moved = true })
}

func (x Section) Link(ctx context.Context) { x.LinkItems(ctx, 0) }

func (x Section) LinkItems(ctx context.Context, items int64) {
	if x.slot == nil {
		return
	}
	if impossible(items) {
		x.p.misuse.invalidWork.Add(1)
		items = 0
	}
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return
	}
	x.with(func(e *extra) { e.link(sc, items) })
}

func (x Section) Chunk(i, n int) {
	if x.at == nil {
		return
	}
	if i < 0 || n < 0 || n > 0 && i >= n || max(i, n) > math.MaxInt32 {
		x.p.misuse.invalidWork.Add(1)
		return
	}
	if x.slot == nil {
		x.at.chunked.Store(true)
		return
	}
	x.change(func(r *record) {
		r.chunk, r.chunks = int32(i), int32(n)
		r.flags |= flagChunk
	})
}

func (x Section) SetAttributes(kv ...attribute.KeyValue) {
	if len(kv) != 0 {
		x.with(func(e *extra) { e.attrs = append(e.attrs, kv...) })
	}
}

func (x Section) Checksum(sum uint64) {
	x.with(func(e *extra) { e.checksum, e.summed = sum, true })
}

// change changes what is known of the section if it is open.
func (x Section) change(f func(*record)) {
	if x.slot == nil {
		return
	}
	s := x.slot.stream
	s.mu.Lock()
	if x.live() {
		f(&x.slot.rec)
	}
	s.mu.Unlock()
}

// with changes the section's extra if the section is open.
func (x Section) with(f func(*extra)) { x.change(func(r *record) { f(r.more()) }) }

func (x Section) Context(ctx context.Context) context.Context {
	if x.at == nil || ctx == nil {
		return ctx
	}
	around := spanOf(ctx)
	if in, ok := around.(*sectionSpan); ok {
		around = in.Span
	}
	return trace.ContextWithSpan(ctx, &sectionSpan{Span: around, section: x})
}

// sectionSpan carries a section in a context in the place of the span around it, so that Start finds both with one
// look-up. It is that span in all else.
type sectionSpan struct {
	trace.Span
	section Section
}

func (x Section) End() {
	if x.slot != nil {
		x.finish(nil)
	}
}

func (x Section) EndWith(w Work) {
	if x.at != nil {
		x.endWith(&w)
	}
}

func (x Section) endWith(w *Work) {
	if w.wrong() {
		x.p.mend(w)
	}
	if x.slot != nil {
		x.finish(w)
		return
	}
	// Untimed: only the work counts, once.
	if x.at.ended[x.id%ticketRing].Swap(int64(x.id)) != int64(x.id) {
		x.at.untimed.add(w, x.at.st.op.cfg.Direction)
	}
}

// longestRun is the longest that a run takes, and what is no time of one lies before firstTime or after lastTime: years
// that times in ns and sums of them hold.
const longestRun = 366 * 24 * time.Hour

var firstTime, lastTime = time.Unix(0, 0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func possibleRun(d time.Duration) bool { return d >= 0 && d <= longestRun }
func possibleTime(t time.Time) bool    { return !t.Before(firstTime) && !t.After(lastTime) }

func (o *Operation) Record(ctx context.Context, s *Stream, start time.Time, d time.Duration, w Work) {
	if s == nil {
		return
	}
	possible := possibleRun(d) && (start.IsZero() || possibleTime(start))
	if !possible && o != nil && s.p.level.Load() >= int32(o.cfg.Verbosity) {
		s.p.misuse.invalidWork.Add(1)
		s.p.untimed(o).EndWith(w)
		return
	}
	x := s.begin(ctx, o, flagHost|flagGiven)
	if x.slot == nil {
		x.EndWith(w)
		return
	}
	x.change(func(r *record) {
		r.gpu = float64(d)
		if r.startNs = start.UnixNano(); start.IsZero() {
			r.startNs = justEnded
		}
	})
	x.EndWith(w)
}

func (o *Operation) Open(ctx context.Context, s *Stream) (x Section) {
	if s != nil {
		x = s.begin(ctx, o, flagLent)
	}
	return
}

func (x Section) Events() (start, end uintptr) {
	x.change(func(r *record) {
		if r.flags&(flagLent|flagHost) == flagLent && !x.slot.stream.closed {
			start, end = x.slot.start.Args[0], x.slot.end.Args[0]
		}
	})
	return start, end
}

func (x Section) Recorded(w Work) {
	x.change(func(r *record) {
		if r.flags&flagLent != 0 {
			r.flags |= flagRecorded
		}
	})
	x.EndWith(w)
}
