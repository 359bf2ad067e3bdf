// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package chrometrace writes spans as Chrome traces (the JSON of the Trace Event Format), for
// ui.perfetto.dev, chrome://tracing, speedscope and readers of the PyTorch profiler's files.
//
// # Format
//
//	{"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":B,"traceEvents":[
//	{"ph":"X","cat":"kernel","name":N,"pid":P,"tid":T,"ts":µs,"dur":µs,"args":{…}},   a span
//	{"ph":"s","id":I,"cat":"ac2g","name":"ac2g","pid":P,"tid":T,"ts":µs},             an arrow leaves a launch …
//	{"ph":"f","bp":"e",…},                                                            … and ends at the device's work
//	{"ph":"C","name":N,"pid":P,"ts":µs,"args":{UNIT:V}},                              a point of a counter
//	{"ph":"i","s":"t",…},                                                             an event of a span
//	{"ph":"M","name":"thread_name",…}                                                 names and order, at the end
//	]}
//
// Times are microseconds with three decimals, exact to the nanosecond, since B, midnight (UTC) a
// week before the first span: as doubles they remain exact for three months. Spans of other times
// go to the next file. A dur may have more decimals, down to an eighth of a nanosecond, so that ts
// + dur, added as doubles, equals the ts of a slice that begins where this one ends, as some
// viewers need. One process (pid) represents one service and rank; one track (tid) represents a
// stream, a host thread, or the steps of a loop. Slices of one track always nest: a slice that
// would overlap goes to a second track of the same name. Attributes become args of the same name,
// except where PyTorch has other names (device, stream, correlation …).
//
// A step of gpuspan is drawn twice: on its loop's track with its host time, and on a track of the
// device from boundary to boundary. The span itself extends from the host's start to the device's
// end.
//
// # Completeness
//
// A file gets its name when it is complete. Until then it is NAME.<n>.partial in the same folder.
// If a batch cannot be written (disk full), it is removed from an uncompressed file, and writing
// can continue once there is space.
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
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
	"github.com/otelgpu/otelgpu/semconv"
)

// ErrClosed is returned by exports after Shutdown.
var ErrClosed = chrometrace.ErrClosed

// Stats holds the counters of a file.
type Stats struct {
	Events    int64 // spans written
	Counters  int64 // counter points written
	Flows     int64 // arrows written
	NoTime    int64 // spans dropped: start is zero, over a week before the file's first, or over three months after it
	Backwards int64 // spans that ended before they began, written with duration 0
	Crowded   int64 // spans dropped: more than 1024 overlapping rows on one track
}

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
	files  chrometrace.Files
	folder string
	worker string

	mu     sync.Mutex
	out    *chrometrace.Rotator
	held   []chrometrace.Event
	last   map[loopKey]int64 // number of the latest step
	until  int64             // end of the latest step of the open window, unix nanoseconds
	closed bool
}

type loopKey struct {
	process chrometrace.Process
	track   chrometrace.Track
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// ExporterOption configures an Exporter.
type ExporterOption interface{ apply(*Exporter) }

type exporterOption func(*Exporter)

func (f exporterOption) apply(e *Exporter) { f(e) }

// WithGzip compresses the files.
func WithGzip() ExporterOption {
	return exporterOption(func(e *Exporter) { e.files.Compression = chrometrace.Gzip })
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
	return exporterOption(func(e *Exporter) {
		e.files.OnComplete = func(path string, s chrometrace.Stats) { f(path, Stats(s)) }
	})
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
func (e *Exporter) rotator(name string) (*chrometrace.Rotator, error) {
	f := e.files
	f.Path = filepath.Join(e.folder, e.worker+name+".pt.trace.json")
	return chrometrace.NewRotator(f)
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
	var steps []chrometrace.Event
	from := map[sourceKey]chrometrace.Event{}
	for _, s := range spans {
		key := sourceKey{s.Resource().Equivalent(), s.InstrumentationScope()}
		src, ok := from[key]
		if !ok {
			src = sourceOf(s)
			from[key] = src
		}
		ev := convert(src, s)
		e.held = append(e.held, ev)
		if _, ok := numberOf(&ev); ok {
			steps = append(steps, ev)
		}
	}
	slices.SortStableFunc(steps, func(a, b chrometrace.Event) int { return cmp.Compare(a.Start, b.Start) })
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
func (e *Exporter) step(s *chrometrace.Event) error {
	var errs error
	n, _ := numberOf(s)
	key := loopKey{s.Process, s.Track}
	if last, known := e.last[key]; e.out != nil && known && n != last+1 {
		// Spans that belong to no step go to the window in which they started.
		until, later := e.until, map[spanKey]bool{}
		for i := range e.held {
			if _, ok := numberOf(&e.held[i]); ok {
				later[keyOf(&e.held[i])] = true
			}
		}
		e.below(later)
		i := partition(e.held, func(ev *chrometrace.Event) bool {
			return ev.Start < until && !later[keyOf(ev)] && (ev.Track.Kind != chrometrace.Stream || ev.Parent == [8]byte{})
		})
		errs = errors.Join(e.write(i), e.finish())
	}
	e.last[key] = n
	e.until = max(e.until, s.End, s.DeviceEnd)
	below := e.below(map[spanKey]bool{keyOf(s): true})
	return errors.Join(errs, e.write(partition(e.held, func(ev *chrometrace.Event) bool { return below[keyOf(ev)] })))
}

type spanKey struct {
	trace [16]byte
	span  [8]byte
}

func keyOf(e *chrometrace.Event) spanKey { return spanKey{e.Trace, e.Span} }

// below adds to a set of spans all buffered descendants.
func (e *Exporter) below(in map[spanKey]bool) map[spanKey]bool {
	for grown := true; grown; { // a pass for each level of nesting
		grown = false
		for i := range e.held {
			ev := &e.held[i]
			if k := keyOf(ev); !in[k] && in[spanKey{ev.Trace, ev.Parent}] {
				in[k], grown = true, true
			}
		}
	}
	return in
}

// partition moves the events that belong first, keeping the order of both parts, and returns their
// number.
func partition(events []chrometrace.Event, belongs func(*chrometrace.Event) bool) int {
	var rest []chrometrace.Event
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

// numberOf returns the number of a step; false if the event is not a step.
func numberOf(e *chrometrace.Event) (n int64, ok bool) {
	isStep := false
	for _, a := range e.Args {
		switch a.Key {
		case string(semconv.GPUStepIndexKey):
			n, ok = a.Value.AsInt()
		case string(semconv.GPUOperationTypeKey):
			v, _ := a.Value.AsString()
			isStep = v == semconv.GPUOperationTypeStep
		}
	}
	return n, ok && isStep
}

// convert returns the event of a span; e has the fields of its resource and scope.
func convert(e chrometrace.Event, s sdktrace.ReadOnlySpan) chrometrace.Event {
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
		e.Marks = append(e.Marks, chrometrace.Mark{Name: m.Name, Time: m.Time.UnixNano(), Args: arguments(m.Attributes)})
	}
	e.Classify()
	return e
}

type sourceKey struct {
	resource attribute.Distinct
	scope    instrumentation.Scope
}

// sourceOf returns what spans of one resource and scope share.
func sourceOf(s sdktrace.ReadOnlySpan) chrometrace.Event {
	r, scope := s.Resource(), s.InstrumentationScope()
	return chrometrace.Event{
		Process: chrometrace.ProcessOf(arguments(r.Attributes())), Scope: arguments(scope.Attributes.ToSlice()),
	}
}

func arguments(attributes []attribute.KeyValue) []chrometrace.Arg {
	args := make([]chrometrace.Arg, 0, len(attributes)+4)
	for _, a := range attributes {
		args = append(args, chrometrace.Arg{Key: string(a.Key), Value: fromAttribute(a.Value)})
	}
	return args
}

func fromAttribute(v attribute.Value) chrometrace.Value {
	switch v.Type() {
	case attribute.BOOL:
		return chrometrace.Bool(v.AsBool())
	case attribute.INT64:
		return chrometrace.Int(v.AsInt64())
	case attribute.FLOAT64:
		return chrometrace.Float(v.AsFloat64())
	case attribute.BOOLSLICE:
		return list(v.AsBoolSlice(), chrometrace.Bool)
	case attribute.INT64SLICE:
		return list(v.AsInt64Slice(), chrometrace.Int)
	case attribute.FLOAT64SLICE:
		return list(v.AsFloat64Slice(), chrometrace.Float)
	case attribute.STRINGSLICE:
		return list(v.AsStringSlice(), chrometrace.String)
	}
	return chrometrace.String(v.String())
}

func list[T any](in []T, f func(T) chrometrace.Value) chrometrace.Value {
	out := make([]chrometrace.Value, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return chrometrace.List(out)
}
