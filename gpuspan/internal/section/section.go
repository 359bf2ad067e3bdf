// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Section is gpuspan.Section. Once it has ended, or another one has its slot, all methods do
// nothing.
type Section struct {
	Slot *Slot     // nil: not timed
	id   uint64    // timed: of the section; else the ticket of an untimed run
	at   *Position // nil: nothing at all
	p    *Core
}

func (x Section) Timed() (timed bool) {
	x.change(func(*Record) { timed = true })
	return timed
}

// live reports whether the section is open. The stream's mutex must be held.
func (x Section) live() bool { return x.Slot.Rec.ID == x.id && x.Slot.state == slotOpen }

func (x Section) Start(o *Operation) Section {
	if x.Slot != nil {
		return x.StartOn(o, x.Slot.stream)
	}
	if x.at == nil || o == nil || x.p.level.Load() < int32(o.Cfg.Verbosity) {
		return Section{}
	}
	return x.untimed(o)
}

func (x Section) StartOn(o *Operation, s *Stream) Section {
	if x.at == nil || o == nil || s == nil || x.p.level.Load() < int32(o.Cfg.Verbosity) {
		return Section{}
	}
	if s.Core != x.p {
		x.p.CountMisuse(ForeignStream)
		return Section{}
	}
	if x.Slot == nil {
		return x.untimed(o)
	}
	y, ok := s.beginIn(x, o, FlagNone)
	if !ok {
		x.p.CountMisuse(staleParent)
		return x.p.Untimed(o)
	}
	return y
}

// untimed counts a run within this section that is not timed.
func (x Section) untimed(o *Operation) Section { return x.at.child(x.p, x.p.State(o)).run(x.p) }

func (x Section) Add(w work.Work) {
	if x.at == nil {
		return
	}
	if w.Wrong() {
		x.p.CountMisuse(InvalidWork)
		w.Sanitize()
	}
	if x.Slot == nil {
		x.at.countWork(&w)
		return
	}
	x.change(func(r *Record) { r.Work.Add(&w) })
}

func (x Section) AddCopied(d work.Direction, bytes int64) {
	if x.at == nil || bytes == 0 {
		return
	}
	if d == work.DirectionUnset || d >= work.Directions || work.Impossible(bytes) {
		x.p.CountMisuse(InvalidWork)
		return
	}
	if x.Slot == nil {
		x.at.untimed.Copied[d].Add(bytes)
		return
	}
	x.with(func(e *Extra) { e.Copied[d] += bytes; e.Moved = true })
}

func (x Section) Link(ctx context.Context) { x.LinkItems(ctx, 0) }

func (x Section) LinkItems(ctx context.Context, items int64) {
	if x.Slot == nil {
		return
	}
	if work.Impossible(items) {
		x.p.CountMisuse(InvalidWork)
		items = 0
	}
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return
	}
	x.with(func(e *Extra) { e.link(sc, items) })
}

func (x Section) Chunk(i, n int) {
	if x.at == nil {
		return
	}
	if i < 0 || n < 0 || n > 0 && i >= n || max(i, n) > math.MaxInt32 {
		x.p.CountMisuse(InvalidWork)
		return
	}
	if x.Slot == nil {
		x.at.chunked.Store(true)
		return
	}
	x.change(func(r *Record) {
		r.Chunk, r.Chunks = int32(i), int32(n)
		r.Flags |= FlagChunk
	})
}

func (x Section) SetAttributes(kv ...attribute.KeyValue) {
	if len(kv) != 0 {
		x.with(func(e *Extra) { e.Attrs = append(e.Attrs, kv...) })
	}
}

func (x Section) Fail(text string) {
	x.with(func(e *Extra) { e.Error = text })
}

func (x Section) Checksum(sum uint64) {
	x.with(func(e *Extra) { e.Checksum, e.Summed = sum, true })
}

// change modifies the record of the section if it is open.
func (x Section) change(f func(*Record)) {
	if x.Slot == nil {
		return
	}
	s := x.Slot.stream
	s.Mu.Lock()
	if x.live() {
		f(&x.Slot.Rec)
	}
	s.Mu.Unlock()
}

// with modifies the section's extra if the section is open.
func (x Section) with(f func(*Extra)) { x.change(func(r *Record) { f(r.more()) }) }

func (x Section) Context(ctx context.Context) context.Context {
	if x.at == nil || ctx == nil {
		return ctx
	}
	around := SpanOf(ctx)
	if in, ok := around.(*ContextSpan); ok {
		around = in.Span
	}
	return trace.ContextWithSpan(ctx, &ContextSpan{Span: around, section: x})
}

// ContextSpan replaces the span around a section in a context and carries the section too, so that
// Start finds both with one lookup. In all other respects it is that span.
type ContextSpan struct {
	trace.Span
	section Section
}

func (x Section) End() {
	if x.Slot != nil {
		x.end(nil)
	}
}

func (x Section) EndWith(w work.Work) {
	if x.at != nil {
		x.end(&w)
	}
}

// EndWork is like EndWith, with arguments that all fit in registers.
func (x Section) EndWork(read, written, bytes, items int64, flops float64, p work.Precision) {
	if x.at != nil {
		w := work.Work{Read: read, Written: written, Bytes: bytes, Items: items, FLOPs: flops, Precision: p}
		x.end(&w)
	}
}

// endUntimed counts the work of a section that is not timed, once.
func (x Section) endUntimed(w *work.Work) {
	if x.at.ended[x.id%ticketRing].Swap(int64(x.id)) != int64(x.id) {
		x.at.countWork(w)
	}
}

// longestRun is the longest accepted run. Accepted times are between firstTime and lastTime: years
// whose times in ns, and sums of them, fit the integers.
const longestRun = 366 * 24 * time.Hour

var firstTime, lastTime = time.Unix(0, 0), time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

func PossibleRun(d time.Duration) bool { return d >= 0 && d <= longestRun }
func PossibleTime(t time.Time) bool    { return !t.Before(firstTime) && !t.After(lastTime) }

func (o *Operation) Record(ctx context.Context, s *Stream, start time.Time, d time.Duration, w work.Work) {
	if s == nil {
		return
	}
	possible := PossibleRun(d) && (start.IsZero() || PossibleTime(start))
	if !possible && o != nil && s.Core.level.Load() >= int32(o.Cfg.Verbosity) {
		s.Core.CountMisuse(InvalidWork)
		s.Core.Untimed(o).EndWith(w)
		return
	}
	x := s.Begin(ctx, o, FlagHost|FlagGiven)
	if x.Slot == nil {
		x.EndWith(w)
		return
	}
	x.change(func(r *Record) {
		r.GPU = float64(d)
		if r.StartNs = start.UnixNano(); start.IsZero() {
			r.StartNs = justEnded
		}
	})
	x.EndWith(w)
}

func (o *Operation) Open(ctx context.Context, s *Stream) Section { return s.Begin(ctx, o, flagLent) }

func (x Section) Events() (start, end uintptr) {
	x.change(func(r *Record) {
		if r.Flags&(flagLent|FlagHost) == flagLent && !x.Slot.stream.closed {
			start, end = x.Slot.start.Args[0], x.Slot.end.Args[0]
		}
	})
	return start, end
}

func (x Section) Recorded(w work.Work) {
	x.change(func(r *Record) {
		if r.Flags&flagLent != 0 {
			r.Flags |= flagRecorded
		}
	})
	x.EndWith(w)
}
