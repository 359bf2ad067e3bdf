// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx

import (
	"encoding/hex"
	"os"
	"strconv"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
)

var (
	_ gpuspan.Annotator     = (*Annotator)(nil)
	_ gpuspan.StepAnnotator = (*Annotator)(nil)
)

// Annotator creates a range for each section. A nil Annotator does nothing.
type Annotator struct {
	domain *domain // nil without a tool
	ids    IDs
	ops    sync.Map // *gpuspan.Operation → operation
}

// operation is the registration of an operation with the tool.
type operation struct {
	name     string
	text     uintptr // 0: the tool takes no registrations
	category uint32
}

// Open attaches to the tool that the environment variable NVTX_INJECTION64_PATH (or [WithLibrary])
// names. Without a tool, the normal case outside of a profiler, it returns an Annotator that does
// nothing and no error. If the tool cannot be loaded, is not an NVTX tool or rejects the program,
// it returns such an Annotator and an error.
func Open(opts ...Option) (*Annotator, error) {
	c := config{domain: "gpuspan"}
	options.All(opts, Option.apply)(&c)
	cl, err := attach(c.library)
	if err != nil || cl == nil {
		return &Annotator{}, err
	}
	return &Annotator{domain: newDomain(cl, c.domain), ids: c.ids}, nil
}

// Enabled reports whether a tool is attached.
func (a *Annotator) Enabled() bool { return a != nil && a.domain != nil }

// RangeStart starts the range of a section, which carries the IDs of sc, and returns the ID of the
// range; 0 without a tool.
func (a *Annotator) RangeStart(o *gpuspan.Operation, sc trace.SpanContext) uint64 {
	return a.start(o, sc, noStep)
}

// StepStart starts the range of a step, with its number in addition to the IDs, and returns the ID
// of the range; 0 without a tool.
func (a *Annotator) StepStart(o *gpuspan.Operation, sc trace.SpanContext, step int64) uint64 {
	return a.start(o, sc, step)
}

const noStep = -1

func (a *Annotator) start(o *gpuspan.Operation, sc trace.SpanContext, step int64) uint64 {
	if a == nil || a.domain == nil {
		return 0
	}
	op, ok := a.ops.Load(o)
	if !ok {
		op = a.register(o)
	}
	known := op.(*operation)
	sampled := sc.IsSampled() && sc.IsValid()
	if sampled && a.ids == IDsInPayload {
		a.mark(sc, step)
	}
	e := newEvent(known.category)
	switch {
	case a.ids == IDsInMessage && sampled:
		e.ascii(appendIDs(append(e.start(), known.name...), sc))
	case known.text == 0:
		e.ascii(append(e.start(), known.name...))
	default:
		e.messageType, e.message = messageRegistered, known.text
	}
	if a.ids == IDsInPayload && sc.HasSpanID() {
		e.number(sc.SpanID())
	}
	return a.domain.call(domainRangeStartEx, e)
}

// mark writes the trace ID of a span before the range that has the span ID as its payload, because
// a payload has no room for both.
func (a *Annotator) mark(sc trace.SpanContext, step int64) {
	e := newEvent(0)
	traceID, spanID := sc.TraceID(), sc.SpanID()
	b := hex.AppendEncode(append(e.start(), "traceparent=00-"...), traceID[:])
	b = append(hex.AppendEncode(append(b, '-'), spanID[:]), "-01"...)
	if step != noStep {
		b = strconv.AppendInt(append(b, " step="...), step, 10)
	}
	e.ascii(b)
	e.number(spanID)
	a.domain.call(domainMarkEx, e)
}

// maxName leaves room for both ids in a text.
const maxName = maxText - len(" trace_id= span_id=") - 32 - 16

func appendIDs(b []byte, sc trace.SpanContext) []byte {
	b = b[:min(len(b), maxName)]
	traceID, spanID := sc.TraceID(), sc.SpanID()
	b = hex.AppendEncode(append(b, " trace_id="...), traceID[:])
	return hex.AppendEncode(append(b, " span_id="...), spanID[:])
}

// register registers an operation with the tool at its first section. Operations are few and live
// as long as the process.
func (a *Annotator) register(o *gpuspan.Operation) any {
	op, _ := a.ops.LoadOrStore(o, &operation{
		name: o.Name(), text: a.domain.register(o.Name()), category: a.domain.category(o.Info().Category),
	})
	return op
}

// RangeEnd ends a range.
func (a *Annotator) RangeEnd(id uint64) {
	if a == nil || a.domain == nil || id == 0 {
		return
	}
	if fn := a.domain.client.fn(domainRangeEnd); fn != 0 {
		fn.Call(a.domain.handle, uintptr(id))
	}
}

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct {
	library string
	domain  string
	ids     IDs
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary sets the path of the injection library; default, and if empty: the path in
// NVTX_INJECTION64_PATH.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// WithDomain sets the name of the NVTX domain of ranges; default `gpuspan`.
func WithDomain(name string) Option { return optionFunc(func(c *config) { c.domain = name }) }

// IDs selects how ranges carry the IDs of their span, or of its parent if no IDs are reserved
// (gpuspan.WithIDGenerator).
type IDs uint8

const (
	// IDsInPayload puts the span ID into the payload, as an unsigned number, and writes before
	// ranges of sampled traces a mark with the same payload and the text "traceparent=00-<trace
	// id>-<span id>-01", for steps followed by " step=<number>". The text of the range is the name
	// of the operation, so that the profiler's summaries have one row for each operation, and its
	// capture ranges (nsys profile -c nvtx -p name@domain) match it. This is the default.
	IDsInPayload IDs = iota
	// IDsInMessage puts both IDs into the text of ranges of sampled traces: they are visible, but
	// every range has a different name.
	IDsInMessage
	// NoIDs omits the IDs.
	NoIDs
)

// WithIDs selects how ranges carry IDs; default [IDsInPayload].
func WithIDs(ids IDs) Option { return optionFunc(func(c *config) { c.ids = ids }) }

// Exit ends the program with a code, like [os.Exit], and like it runs no deferred functions: call
// it last, instead of returning from main. If a tool is attached, it calls the C library's exit, so
// that the tool's atexit handlers run: Nsight Systems writes its buffered ranges there, and would
// otherwise lose the last dozens. If no tool was attached by [Open], it calls os.Exit.
func Exit(code int) {
	if attached() {
		if libc, err := dl.Open("libc.so.6", "libc.so"); err == nil {
			if exit := libc.Lookup("exit"); exit != 0 {
				exit.Call(uintptr(code))
			}
		}
	}
	os.Exit(code) //nolint:forbidigo // what the caller asked for
}
