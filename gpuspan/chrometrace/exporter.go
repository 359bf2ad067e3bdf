// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxHeld bounds the spans that wait for their step.
const maxHeld = 1 << 14

// Exporter is an sdktrace.SpanExporter for programs without a Collector. It writes
//
//   - one file for each active window of a loop's schedule, <host>_<pid>.<unix ms>.pt.trace.json, as the PyTorch
//     profiler names them, when there are step spans;
//   - all spans into one such file, complete at Shutdown, when there are none.
//
// A window is a sequence of steps with consecutive numbers. Spans are buffered until their step
// ends (at most 16,384 spans; then all of them are written to the open window); spans without a
// step are written to the window in which they began.
//
// Register it with a batching span processor. It is safe for concurrent use.
type Exporter struct {
	files  Files
	folder string
	worker string

	mu     sync.Mutex
	out    *Rotator
	held   []Event
	last   map[loopKey]int64 // number of the latest step
	until  int64             // end of the latest step of the open window, unix nanoseconds
	closed bool
}

type loopKey struct {
	process Process
	track   Track
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// ExporterOption configures an Exporter.
type ExporterOption interface{ apply(*Exporter) }

type exporterOption func(*Exporter)

func (f exporterOption) apply(e *Exporter) { f(e) }

// WithCompression sets the compression of the files, None or Gzip; default None.
func WithCompression(c Compression) ExporterOption {
	return exporterOption(func(e *Exporter) { e.files.Compression = c })
}

// WithWorker sets the prefix of file names; default <host name>_<process id>.
func WithWorker(name string) ExporterOption {
	return exporterOption(func(e *Exporter) {
		e.worker = cmp.Or(name, e.worker)
	})
}

// WithOnComplete sets a function that is called with the path of every complete file, like
// torch.profiler's on_trace_ready.
func WithOnComplete(f func(path string, s Stats)) ExporterOption {
	return exporterOption(func(e *Exporter) { e.files.OnComplete = f })
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// NewExporter returns an Exporter that writes to a folder, which it creates if it does not exist.
// It returns an error if it cannot create the folder or files in it.
func NewExporter(folder string, opts ...ExporterOption) (*Exporter, error) {
	host, _ := os.Hostname()
	e := &Exporter{
		folder: folder, worker: fmt.Sprintf("%s_%d", cmp.Or(host, "host"), os.Getpid()),
		last: map[loopKey]int64{},
	}
	options.All(opts, ExporterOption.apply)(e)
	e.worker = notInNames.ReplaceAllString(e.worker, "_")
	probe, err := e.rotator("")
	if err != nil {
		return nil, err
	}
	return e, probe.Close()
}

// rotator returns a rotator that writes one file per name: <worker><name>.pt.trace.json.
func (e *Exporter) rotator(name string) (*Rotator, error) {
	f := e.files
	f.Path = filepath.Join(e.folder, e.worker+name+".pt.trace.json")
	return NewRotator(f)
}

// ExportSpans implements sdktrace.SpanExporter. If it returns an error, the spans are lost, as with
// every SpanExporter. After Shutdown it returns ErrClosed.
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return ErrClosed
	}
	var steps []Event
	from := map[sourceKey]Event{}
	for _, s := range spans {
		key := sourceKey{s.Resource().Equivalent(), s.InstrumentationScope()}
		src, ok := from[key]
		if !ok {
			src = sourceOf(s)
			from[key] = src
		}
		ev := convert(src, s)
		e.held = append(e.held, ev)
		if _, ok := ev.step(); ok {
			steps = append(steps, ev)
		}
	}
	slices.SortStableFunc(steps, func(a, b Event) int { return cmp.Compare(a.Start, b.Start) })
	var errs error
	for i := range steps {
		errs = errors.Join(errs, e.step(&steps[i]))
	}
	if len(e.held) > maxHeld {
		errs = errors.Join(errs, e.write(len(e.held)))
	}
	return errs
}

// step writes a finished step and its descendants, into a new window if its number is not the next
// one. Times do not decide: if the host runs ahead, the spans of the next window's steps start
// before the spans of this one end.
func (e *Exporter) step(s *Event) error {
	var errs error
	n, _ := s.step()
	key := loopKey{s.Process, s.Track}
	if last, known := e.last[key]; e.out != nil && known && n != last+1 {
		// Spans that belong to no step go to the window in which they started.
		until, later := e.until, map[spanKey]bool{}
		for i := range e.held {
			if _, ok := e.held[i].step(); ok {
				later[e.held[i].key()] = true
			}
		}
		e.below(later)
		i := partition(e.held, func(ev *Event) bool {
			return ev.Start < until && !later[ev.key()] && (ev.Track.Kind != Stream || ev.Parent == [8]byte{})
		})
		errs = errors.Join(e.write(i), e.finish())
	}
	e.last[key] = n
	e.until = max(e.until, s.End, s.DeviceEnd)
	below := e.below(map[spanKey]bool{s.key(): true})
	return errors.Join(errs, e.write(partition(e.held, func(ev *Event) bool { return below[ev.key()] })))
}

func (e *Event) key() spanKey { return spanKey{e.Trace, e.Span} }

// below adds to a set of spans all buffered descendants.
func (e *Exporter) below(in map[spanKey]bool) map[spanKey]bool {
	for grown := true; grown; { // a pass for each level of nesting
		grown = false
		for i := range e.held {
			ev := &e.held[i]
			if k := ev.key(); !in[k] && in[spanKey{ev.Trace, ev.Parent}] {
				in[k], grown = true, true
			}
		}
	}
	return in
}

// partition moves the events that belong first, keeping the order of both parts, and returns their
// number.
func partition(events []Event, belongs func(*Event) bool) int {
	var rest []Event
	n := 0
	for i := range events {
		if belongs(&events[i]) {
			if n < i {
				events[n] = events[i]
			}
			n++
		} else {
			rest = append(rest, events[i])
		}
	}
	copy(events[n:], rest)
	return n
}

// write writes the first n buffered spans into the open window.
func (e *Exporter) write(n int) error {
	if n == 0 {
		return nil
	}
	var err error
	if e.out == nil {
		first := e.held[0].Start
		for i := range e.held[:n] {
			if s := e.held[i].Start; s > 0 {
				first = min(first, s)
			}
		}
		e.out, err = e.rotator(fmt.Sprintf(".%d", first/1_000_000))
	}
	if err == nil {
		err = e.out.Write(e.held[:n])
	}
	e.held = slices.Delete(e.held, 0, n)
	return err
}

func (e *Exporter) finish() error {
	if e.out == nil {
		return nil
	}
	err := e.out.Close()
	e.out = nil
	return err
}

// Shutdown implements sdktrace.SpanExporter: it completes the open file.
func (e *Exporter) Shutdown(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	err := e.write(len(e.held))
	return errors.Join(err, e.finish())
}

// step returns the number of a step; false if the event is not a step.
func (e *Event) step() (n int64, ok bool) {
	n, ok = valueOf(e.Args, semconv.GPUStepIndexKey).AsInt()
	return n, ok && valueOf(e.Args, semconv.GPUOperationTypeKey).str == semconv.GPUOperationTypeStep
}

// convert returns the event of a span; e has the fields of its resource and scope.
func convert(e Event, s sdktrace.ReadOnlySpan) Event {
	e.Name, e.Start, e.End = s.Name(), s.StartTime().UnixNano(), s.EndTime().UnixNano()
	e.Trace, e.Span, e.Args = s.SpanContext().TraceID(), s.SpanContext().SpanID(), arguments(s.Attributes())
	if k := s.SpanKind(); k != trace.SpanKindInternal {
		e.Kind = k.String()
	}
	switch st := s.Status(); st.Code {
	case codes.Error:
		e.Status, e.Message = "ERROR", st.Description
	case codes.Ok:
		e.Status = "OK"
	}
	for _, l := range s.Links() {
		e.Link(l.SpanContext.TraceID(), l.SpanContext.SpanID())
	}
	if s.Parent().TraceID() == s.SpanContext().TraceID() {
		e.Parent = s.Parent().SpanID()
	}
	for _, m := range s.Events() {
		e.Marks = append(e.Marks, Mark{Name: m.Name, Time: m.Time.UnixNano(), Args: arguments(m.Attributes)})
	}
	e.Classify()
	return e
}

type sourceKey struct {
	resource attribute.Distinct
	scope    instrumentation.Scope
}

// sourceOf returns what spans of one resource and scope share.
func sourceOf(s sdktrace.ReadOnlySpan) Event {
	r, scope := s.Resource(), s.InstrumentationScope()
	return Event{Process: ProcessOf(arguments(r.Attributes())), Scope: arguments(scope.Attributes.ToSlice())}
}

func arguments(attributes []attribute.KeyValue) []Arg {
	args := make([]Arg, 0, len(attributes)+4)
	for _, a := range attributes {
		args = append(args, Arg{string(a.Key), fromAttribute(a.Value)})
	}
	return args
}

func fromAttribute(v attribute.Value) Value {
	switch v.Type() {
	case attribute.BOOL:
		return Bool(v.AsBool())
	case attribute.INT64:
		return Int(v.AsInt64())
	case attribute.FLOAT64:
		return Float(v.AsFloat64())
	case attribute.BOOLSLICE:
		return list(v.AsBoolSlice(), Bool)
	case attribute.INT64SLICE:
		return list(v.AsInt64Slice(), Int)
	case attribute.FLOAT64SLICE:
		return list(v.AsFloat64Slice(), Float)
	case attribute.STRINGSLICE:
		return list(v.AsStringSlice(), String)
	}
	return String(v.String())
}

func list[T any](in []T, f func(T) Value) Value {
	out := make([]Value, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return List(out)
}
