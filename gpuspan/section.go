// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"math"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Section is one timed run of an [Operation]: a small value that may be copied, kept and ended from any goroutine. The
// zero Section does nothing. After End all methods do nothing, End included, also when the slot behind it serves another section.
//
// One exception: a section that only counts, as below a span that is not sampled, does not remember its End: that would make it 6 ns slower, 20
// instead of 14. Add and AddCopied still count after it, and so does the first EndWith.
type Section struct {
	slot *slot  // nil: not timed
	at   *place // nil: nothing at all
	id   uint64 // timed: of the section; else the ticket of an untimed run
	p    *Profiler
}

// Timed reports whether the section is being timed: it was started and not ended, profiling was on, its parent was sampled and a slot
// was free.
func (x Section) Timed() bool {
	if x.slot == nil {
		return false
	}
	s := x.slot.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	return x.live()
}

// live reports whether the section is open. The stream's mutex must be held.
func (x Section) live() bool { return x.slot.rec.id == x.id && x.slot.state == slotOpen }

// Start begins a section within this one, on the same stream. A section that has ended, or that is not timed, gives one
// that only counts.
func (x Section) Start(o *Operation) Section {
	if x.at == nil || o == nil || x.p.level.Load() < int32(o.verbosity) {
		return Section{}
	}
	if x.slot == nil {
		return x.untimed(o)
	}
	return x.startOn(o, x.slot.stream)
}

// StartOn begins a section within this one on another stream of the same profiler. On one of another profiler it does nothing and
// counts as misuse.
func (x Section) StartOn(o *Operation, s *Stream) Section {
	if x.at == nil || o == nil || s == nil || x.p.level.Load() < int32(o.verbosity) {
		return Section{}
	}
	if s.p != x.p {
		x.p.misuse.foreignStream.Add(1)
		return Section{}
	}
	if x.slot == nil {
		return x.untimed(o)
	}
	return x.startOn(o, s)
}

// untimed counts a run within this section that is not timed.
func (x Section) untimed(o *Operation) Section { return x.at.child(x.p, x.p.state(o)).run(x.p) }

func (x Section) startOn(o *Operation, s *Stream) Section {
	y, ok := s.beginIn(x, o, flagNone)
	if !ok {
		x.p.misuse.staleParent.Add(1)
		return x.p.untimed(o)
	}
	return y
}

// Add declares work in between; it adds to what [Section.EndWith] declares. A section has one precision, the one stated last: FLOPs of several belong in sections
// of their own.
func (x Section) Add(w Work) {
	if x.at == nil {
		return
	}
	if w.wrong() {
		x.p.mend(&w)
	}
	if x.slot == nil {
		x.at.untimed.add(&w, x.at.st.op.direction)
		return
	}
	s := x.slot.stream
	s.mu.Lock()
	if x.live() {
		x.slot.rec.work.add(&w)
	}
	s.mu.Unlock()
}

// AddCopied declares bytes that moved in a direction within the section, beside the device memory traffic that Work
// declares: so one section can hold both. Bytes of a section of a copy operation go into Work instead.
func (x Section) AddCopied(d Direction, bytes int64) {
	if x.at == nil || bytes == 0 {
		return
	}
	if d == DirectionUnset || d >= directions || bytes < 0 {
		x.p.misuse.invalidWork.Add(1)
		return
	}
	if x.slot == nil {
		x.at.untimed.copied[d].Add(bytes)
		return
	}
	x.with(func(e *extra) { e.copied[d] += bytes; e.moved = true })
}

// Link says that the section served the request of ctx too; the span links to the span of ctx. One batch serves many
// requests: gpu.batch.size is the number of those that have a span.
func (x Section) Link(ctx context.Context) { x.LinkItems(ctx, 0) }

// LinkItems is Link with the number of items of the batch that belong to the request. The link then carries it
// as gpu.operation.items, and the request's share of the section (gpu.batch.share): items divided by the items of all links that state
// them.
func (x Section) LinkItems(ctx context.Context, items int64) {
	if x.slot == nil {
		return
	}
	if items < 0 {
		x.p.misuse.invalidWork.Add(1)
		items = 0
	}
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return
	}
	x.with(func(e *extra) {
		e.batch++
		e.items += items
		if len(e.links) < maxLinks {
			e.links = append(e.links, trace.Link{SpanContext: sc})
			e.shares = append(e.shares, items)
		}
	})
}

// maxLinks bounds the links of one section; the SDK's default limit is the same. gpu.batch.size and the shares count the requests beyond it, too.
const maxLinks = 128

// Chunk says that the section is chunk i of n, counted from 0; n is 0 where it is not known. A section around chunks that states no work of
// its own gets the sum of theirs.
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
	s := x.slot.stream
	s.mu.Lock()
	if x.live() {
		r := &x.slot.rec
		r.chunk, r.chunks = int32(i), int32(n)
		r.flags |= flagChunk
	}
	s.mu.Unlock()
}

// SetAttributes puts attributes of the application's own on the span.
func (x Section) SetAttributes(kv ...attribute.KeyValue) {
	if x.slot == nil || len(kv) == 0 {
		return
	}
	x.with(func(e *extra) { e.attrs = append(e.attrs, kv...) })
}

// Shapes states the shapes of the operands (gpu.operation.shapes), each as [Shape] writes it.
func (x Section) Shapes(shapes ...string) {
	if x.slot != nil && len(shapes) > 0 {
		x.SetAttributes(semconv.GPUOperationShapesKey.StringSlice(shapes))
	}
}

// Kernel names the kernel that the section launched, and its module (may be empty).
func (x Section) Kernel(name, module string) {
	if x.slot == nil {
		return
	}
	if name != "" {
		x.SetAttributes(semconv.GPUKernelNameKey.String(validText(name)))
	}
	if module != "" {
		x.SetAttributes(semconv.GPUKernelModuleKey.String(validText(module)))
	}
}

// L2HitRatio states which part of the declared bytes the L2 cache served, 0 to 1.
func (x Section) L2HitRatio(r float64) {
	switch {
	case x.slot == nil:
	case r >= 0 && r <= 1:
		x.SetAttributes(semconv.GPUCacheL2HitRatioKey.Float64(r))
	default:
		x.p.misuse.invalidWork.Add(1)
	}
}

// Access states how the section walks its memory.
func (x Section) Access(a AccessPattern) {
	if v := a.String(); x.slot != nil && v != "" {
		x.SetAttributes(semconv.GPUIOAccessPatternKey.String(v))
	}
}

// Checksum states the checksum of the section's output, as [Checksum] computes it, so that two runs can be compared ([WithOutputLog]).
func (x Section) Checksum(sum uint64) {
	if x.slot != nil {
		x.with(func(e *extra) { e.checksum, e.summed = sum, true })
	}
}

// with changes the section's extra if the section is open.
func (x Section) with(f func(*extra)) {
	s := x.slot.stream
	s.mu.Lock()
	if x.live() {
		if x.slot.rec.extra == nil {
			x.slot.rec.extra = &extra{}
		}
		f(x.slot.rec.extra)
	}
	s.mu.Unlock()
}

// Context makes sections that are started with the result children of this one. Spans of the host started with it
// become siblings instead: the section's span does not exist until the device has finished. After End the result is as good as ctx.
// It allocates twice, 96 bytes in all, for sections that only count, too.
func (x Section) Context(ctx context.Context) context.Context {
	if x.at == nil || ctx == nil {
		return ctx
	}
	return trace.ContextWithSpan(ctx, &sectionSpan{Span: trace.SpanFromContext(ctx), section: x})
}

// sectionSpan carries a section in a context in the place of the span around it, so that Start finds both with one look-up. It is
// that span in all else.
type sectionSpan struct {
	trace.Span
	section Section
}

// End ends the section: it records an event and returns. Only sync modes immediate and group wait for the device.
func (x Section) End() {
	if x.slot != nil {
		x.finish(nil)
	}
}

// EndWith is End with the work of the section, in addition to what [Section.Add] declared.
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
		x.at.untimed.add(w, x.at.st.op.direction)
	}
}

// Record reports a run whose GPU time the caller has measured, as with events or a profiler of its own. start is on the
// wall clock; the zero time means that the run has just ended. The run is below the section or span of ctx, has no gpu.timing.source, and no range is annotated: it is over.
// With a negative d it only counts, also as misuse.
func (o *Operation) Record(ctx context.Context, s *Stream, start time.Time, d time.Duration, w Work) {
	if s == nil {
		return
	}
	if d < 0 && o != nil && s.p.level.Load() >= int32(o.verbosity) {
		s.p.misuse.invalidWork.Add(1)
		s.p.untimed(o).EndWith(w)
		return
	}
	x := s.begin(ctx, o, flagHost|flagGiven)
	if x.slot == nil {
		x.EndWith(w)
		return
	}
	s.mu.Lock()
	if x.live() {
		r := &x.slot.rec
		r.gpu = float64(d)
		if r.startNs = start.UnixNano(); start.IsZero() {
			r.startNs = s.p.clock.wall(r.hostStart) - int64(r.gpu)
		}
	}
	s.mu.Unlock()
	x.EndWith(w)
}

// add sums work. A precision that is stated wins over one that is not.
func (w *Work) add(o *Work) {
	w.Read += o.Read
	w.Written += o.Written
	w.Bytes += o.Bytes
	w.Items += o.Items
	w.FLOPs += o.FLOPs
	if o.Precision != PrecisionUnset {
		w.Precision = o.Precision
	}
}

// stated reports whether any work is.
func (w *Work) stated() bool {
	return w.Read != 0 || w.Written != 0 || w.Bytes != 0 || w.Items != 0 || w.FLOPs != 0
}
