// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

func (x Section) Timed() (timed bool) {
	x.change(func(*Record) { timed = true })
	return timed
}

// live reports whether the section is open. The stream's mutex must be held.
func (x Section) live() bool { return x.Slot.Rec.ID == x.id && x.Slot.state == slotOpen }

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

func (x Section) Elapsed() (e *elapsed.Value) {
	x.with(func(extra *Extra) { e = elapsed.Ask(&extra.Elapsed) })
	return e
}

func (x Section) Events() (start, end uintptr) {
	x.change(func(r *Record) {
		if r.Flags&(flagLent|FlagHost) == flagLent && !x.Slot.stream.closed {
			start, end = x.Slot.start.Args[0], x.Slot.end.Args[0]
		}
	})
	return start, end
}

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
