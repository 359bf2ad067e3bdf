// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// Section is one timed run of an [Operation]: a small value that may be copied, stored and ended
// from any goroutine. The zero Section does nothing. After End all methods do nothing, including
// End, even if its slot has been reused for another section.
//
// One exception: a section that is only counted, as below an unsampled span, does not record its
// End, which would take another 6 ns (20 instead of 14). Add, AddCopied and the first EndWith still
// count after it.
type Section struct{ section section.Section }

// Start starts a section of the operation on a stream, below the span of ctx. It records an event
// and returns; it never waits for the device. The result does nothing if o or s is nil, if
// profiling is off, or if the operation's verbosity is above the profiler's.
//
// A section below a span that is not sampled is counted with its work but not timed, unless
// [settings.MetricsAll] is set.
func (o *Operation) Start(ctx context.Context, s *Stream) Section {
	if o == nil || s == nil { // Begin checks everything else, so that this is inlined into the caller
		return Section{}
	}
	return Section{s.stream.Begin(ctx, o.operation, section.FlagNone)}
}

// Launch runs f between Start and End of a section of type `graph`. Use it around the launch of a
// CUDA graph: events are recorded before and after the launch, outside of the graph. f always runs,
// even if nothing is timed. To declare the work of a launch, start a section of an operation with
// [Graph] instead.
func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	o.real().Launch(ctx, s.real(), f)
}

// Foreign starts a section whose two events are recorded by foreign code, on a stream of
// [ForeignEvents] or on one whose handle that code knows.
func (o *Operation) Foreign(ctx context.Context, s *Stream) Foreign {
	return Foreign{Section{o.real().Open(ctx, s.real())}}
}

// RecordMeasured records a run whose GPU time d the caller has measured, for example with its own
// events or another profiler. start is on the wall clock; the zero time means that the run has just
// ended. The run is below the section or span of ctx, has no gpu.timing.source, and is not
// annotated, because it is over. If d is negative or longer than a year, or start is before 1970 or
// after 2199, the run is only counted, and counts as misuse.
func (o *Operation) RecordMeasured(ctx context.Context, s *Stream, start time.Time, d time.Duration, w Work) {
	o.real().Record(ctx, s.real(), start, d, work.Work(w))
}

// Timed reports whether the section is being timed: it was started and not ended, profiling was on,
// its parent was sampled and a slot was free.
func (x Section) Timed() bool { return x.section.Timed() }

// Start starts a section within this one, on the same stream. If this one has ended, or is not
// timed, the new one is only counted.
func (x Section) Start(o *Operation) Section {
	return Section{x.section.Start(o.real())}
}

// StartOn starts a section within this one on another stream of the same profiler. On a stream of
// another profiler it does nothing and counts as misuse.
func (x Section) StartOn(o *Operation, s *Stream) Section {
	return Section{x.section.StartOn(o.real(), s.real())}
}

// Add declares work before the end of the section; [Section.EndWith] adds to it. A section has one
// precision, the last one declared: use separate sections for FLOPs of several precisions.
func (x Section) Add(w Work) { x.section.Add(work.Work(w)) }

// AddCopied declares bytes that moved in a direction within the section, in addition to the device
// memory traffic that Work declares, so that one section can state both. Bytes of a section of a
// copy operation belong in Work instead.
func (x Section) AddCopied(d Direction, bytes int64) { x.section.AddCopied(d, bytes) }

// Link records that the section also served the request of ctx: its span gets a link to the span of
// ctx. A span links to at most 1,024 requests, sampled ones first, and an SDK keeps 128 links by
// default (SpanLimits.LinkCountLimit); if links are missing, gpu.batch.size is the number of
// requests.
func (x Section) Link(ctx context.Context) { x.section.Link(ctx) }

// LinkItems is like Link, with the number of items of the batch that belong to the request, whose
// share of the section is that number divided by the items of all requests. The link carries it as
// gpu.operation.items, unless the requests have equal parts of the section's own items;
// gpu.batch.share is stated where requests have no link.
func (x Section) LinkItems(ctx context.Context, items int64) { x.section.LinkItems(ctx, items) }

// Chunk records that the section is chunk i of n, counted from 0; n is 0 if it is unknown. A
// section around chunks that declares no work gets the sum of the chunks' work.
func (x Section) Chunk(i, n int) { x.section.Chunk(i, n) }

// SetAttributes adds attributes of the application to the span.
func (x Section) SetAttributes(kv ...attribute.KeyValue) { x.section.SetAttributes(kv...) }

// Fail marks the section as failed: its span has the status error, with the text of err. Its times
// and work count like any other section's. A nil err does nothing; the last error counts.
func (x Section) Fail(err error) {
	if err != nil {
		x.section.Fail(cmp.Or(err.Error(), "failed"))
	}
}

// Checksum records the checksum of the section's output, as outputs.Checksum computes it, so that
// two runs can be compared ([WithOutputLog]).
func (x Section) Checksum(sum uint64) { x.section.Checksum(sum) }

// Context returns a context in which started sections become children of this one. Host spans
// started with it become siblings instead, because the section's span does not exist until the
// device has finished. After End the result is equivalent to ctx. It allocates twice, 96 bytes in
// total, even for sections that are only counted.
func (x Section) Context(ctx context.Context) context.Context { return x.section.Context(ctx) }

// End ends the section: it records an event and returns. Only sync modes immediate and group wait
// for the device.
func (x Section) End() { x.section.End() }

// EndWith is like End, with the work of the section, in addition to what [Section.Add] declared.
func (x Section) EndWith(w Work) {
	// Field by field, which is inlined into the caller and uses registers: a copy of Work costs a
	// quarter of a section.
	x.section.EndWork(w.Read, w.Written, w.Bytes, w.Items, w.FLOPs, w.Precision)
}

// Foreign is a section of [Operation.Foreign]. Pass its events to the code that records them, and
// call Recorded when it has enqueued both. Otherwise [Section.End] ends the section with host
// times.
type Foreign struct{ Section }

// Events returns the two events of the section: each is a CUevent or hipEvent_t, to be recorded
// once on the foreign stream, start before the section's work and end after it. Both are 0 if the
// section is not timed: then record nothing. Foreign code must not record them after Recorded or
// End, nor after Stream.Close or Shutdown.
func (x Foreign) Events() (start, end uintptr) { return x.section.Events() }

// Recorded ends the section after both of its events have been enqueued, with its work. Call it in
// the order in which the events of a stream were enqueued: their times are read in that order. If
// the events were swapped or not recorded, the span has gpu.timing.status `device_error`, host
// times and an error that names the fault.
func (x Foreign) Recorded(w Work) { x.section.Recorded(work.Work(w)) }

// Elapsed requests the section's measured time. Call it before End. It allocates twice, so use it
// only if the program itself needs the time, for example for a progress line or a response header.
func (x Section) Elapsed() *Elapsed {
	return (*Elapsed)(x.section.Elapsed())
}

// Elapsed is the measured time of a section or step, available after the device has finished and
// the times have been read. A nil Elapsed, as of a section that is not timed, has no time.
type Elapsed elapsed.Value

// Done returns a channel that is closed when the result of Get is final: after the times have been
// read, or when the section is abandoned.
func (e *Elapsed) Done() <-chan struct{} { return (*elapsed.Value)(e).Done() }

// Get returns the time on the device. It returns false before Done is closed, and for sections
// without a GPU time: host-timed, captured, dropped.
func (e *Elapsed) Get() (time.Duration, bool) { return (*elapsed.Value)(e).Get() }

// StartNamed starts a section of an operation that is only known by name, below the span of ctx.
// The first Settings.Names names of a profiler become operations, all others share "(other)"; names
// are truncated to 4,096 bytes. It takes one lookup more than [Operation.Start].
func (s *Stream) StartNamed(ctx context.Context, name string) Section {
	return Section{s.real().StartNamed(ctx, name)}
}

// EndNamed ends the last started section of that name that is still open on the stream, for code
// that cannot store a Section between start and end. If there is none, it counts `unmatched_end`
// ([Profiler.Misuse]).
func (s *Stream) EndNamed(name string, w Work) {
	s.real().EndNamed(name, work.Work(w))
}
