// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package conformance validates telemetry against the registry of names (package semconv): spans,
// metrics and log records of any emitter in any language. The command `otelcol-gpu check` and the
// tests of the components use it.
//
// It checks names that begin with gpu., gpuspan. or hw., in capitals too, and accepts all others.
// Such a name must be in the registry, be where the registry allows it (resource, scope, span,
// metric, log) and have its type; a closed enumeration must have one of its values; strings and
// lists must not be empty and numbers must be finite, because unknown values are omitted; ratios
// are at most 1, durations, sizes and counts not negative. Spans and events must have the
// attributes that the registry requires of their type; metrics must have the registry's unit,
// instrument and attributes, a temporality and values. A scope's schema URL of this family must
// have a version that exists.
//
// A test of a component passes its output to Traces, Metrics or Logs:
//
//	require.NoError(t, conformance.Traces(sink.AllTraces()[0]))
package conformance

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// maxViolations limits the different violations of one report; further ones are counted.
const maxViolations = 1000

// Violation is one deviation from the registry.
type Violation struct {
	Where  string // where the first one is: `span "gemm"`, with the file and line if known
	What   string // `attribute gpu.duration: Int, want double`
	Remedy string // what to do; empty if What contains it
	Count  int64  // how often it was met
}

// String returns the violation on one line.
func (c *Violation) String() string {
	s := c.What
	if c.Where != "" {
		s = c.Where + ": " + s
	}
	if c.Remedy != "" {
		s += " (" + c.Remedy + ")"
	}
	if c.Count > 1 {
		s += fmt.Sprintf(" [%d times]", c.Count)
	}
	return s
}

// Report collects violations, each kind once. The zero value is ready for use.
type Report struct {
	// Strict adds the requirements for telemetry of other producers: GPU work names its device,
	// spans have IDs and times.
	Strict bool
	// Found is called for each new violation; may be nil.
	Found func(*Violation)

	Spans, Points, Records int64 // read
	GPUSpans               int64 // of Spans
	More                   int64 // different violations beyond the first 1000

	each   func(pcommon.Map) // is called with each set of attributes; nil: not needed
	source string            // file and line of violations; empty: none
	list   []*Violation
	known  map[string]*Violation
}

// Violations returns all violations, in the order in which they were found.
func (r *Report) Violations() []*Violation { return r.list }

// Err returns the joined violations, nil if there are none.
func (r *Report) Err() error {
	var errs []error
	for _, c := range r.list {
		errs = append(errs, errors.New(c.String()))
	}
	return errors.Join(errs...)
}

// Summary writes the number of items read and of violations.
func (r *Report) Summary(w io.Writer) {
	var times int64
	for _, c := range r.list {
		times += c.Count
	}
	fmt.Fprintf(w, "%d spans (%d GPU-related), %d metric points, %d log records: ",
		r.Spans, r.GPUSpans, r.Points, r.Records)
	switch {
	case len(r.list) == 0 && r.Spans+r.Points+r.Records == 0:
		fmt.Fprintln(w, "nothing to check")
	case len(r.list) == 0:
		fmt.Fprintln(w, "no violations")
	default:
		fmt.Fprintf(w, "%d violations of %d kinds\n", times+r.More, len(r.list))
	}
}

// violation counts a violation. Violations with equal kind and text are one; kind does not include
// a span's name.
func (r *Report) violation(kind, where, what, remedy string) {
	key := kind + "\x00" + what
	if c := r.known[key]; c != nil {
		c.Count++
		return
	}
	if len(r.list) >= maxViolations {
		r.More++
		return
	}
	if r.known == nil {
		r.known = map[string]*Violation{}
	}
	if r.source != "" {
		where = r.source + ": " + where
	}
	c := &Violation{Where: where, What: what, Remedy: remedy, Count: 1}
	r.known[key] = c
	r.list = append(r.list, c)
	if r.Found != nil {
		r.Found(c)
	}
}

// Traces returns every kind of violation in resources, scopes, spans, span events and links, nil if
// there is none.
func Traces(td ptrace.Traces) error { return check((*Report).Traces, td) }

// Metrics returns every kind of violation in resources, scopes, metrics and data points, nil if
// there is none.
func Metrics(md pmetric.Metrics) error { return check((*Report).Metrics, md) }

// Logs returns every kind of violation in resources, scopes, event names and log records, nil if
// there is none.
func Logs(ld plog.Logs) error { return check((*Report).Logs, ld) }

func check[T any](with func(*Report, T), what T) error {
	var r Report
	with(&r, what)
	return r.Err()
}

// ours reports whether a name is in one of the registry's namespaces, ignoring case.
func ours(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "gpu.") || strings.HasPrefix(name, "gpuspan.") || strings.HasPrefix(name, "hw.")
}

// byteOrderMark precedes text that programs on Windows wrote.
const byteOrderMark = "\ufeff"

// JSON checks OTLP in JSON: consecutive requests of traces, metrics and logs, as the Collector's
// file exporter writes them, one on each line or laid out over several. name is the file's, for
// violations. JSON returns an error for input that is not JSON or not OTLP; the input before it has
// been checked.
func (r *Report) JSON(name string, in io.Reader) error {
	defer func() { r.source = "" }()
	buffered := bufio.NewReader(in)
	if mark, _ := buffered.Peek(len(byteOrderMark)); string(mark) == byteOrderMark {
		_, _ = buffered.Discard(len(mark))
	}
	lines := &lineCounter{in: buffered}
	d := json.NewDecoder(lines)
	for {
		var raw json.RawMessage
		before := d.InputOffset()
		err := d.Decode(&raw)
		line := lines.at(d.InputOffset() - int64(len(raw)))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot read %s as JSON after line %d: %w", name, lines.at(before), err)
		}
		r.source = fmt.Sprintf("%s:%d", name, line)
		if err := r.request(raw); err != nil {
			return fmt.Errorf("cannot read %s:%d as OTLP: %w", name, line, err)
		}
	}
}

// request checks one request, with all its signals.
func (r *Report) request(raw []byte) error {
	var signals struct {
		Spans   json.RawMessage `json:"resourceSpans"`
		Metrics json.RawMessage `json:"resourceMetrics"`
		Logs    json.RawMessage `json:"resourceLogs"`
	}
	if json.Unmarshal(raw, &signals) != nil {
		return errors.New("a request must be a JSON object")
	}
	if signals.Spans == nil && signals.Metrics == nil && signals.Logs == nil {
		return errors.New("it has neither resourceSpans nor resourceMetrics nor resourceLogs")
	}
	return errors.Join(
		part(signals.Spans, raw, new(ptrace.JSONUnmarshaler).UnmarshalTraces, r.Traces),
		part(signals.Metrics, raw, new(pmetric.JSONUnmarshaler).UnmarshalMetrics, r.Metrics),
		part(signals.Logs, raw, new(plog.JSONUnmarshaler).UnmarshalLogs, r.Logs))
}

// part checks one signal of a request, if the request has it.
func part[T any](is json.RawMessage, raw []byte, read func([]byte) (T, error), check func(T)) error {
	if is == nil {
		return nil
	}
	v, err := read(raw)
	if err == nil {
		check(v)
	}
	return err
}

// lineCounter keeps the ends of lines that were read and not requested yet.
type lineCounter struct {
	in    io.Reader
	read  int64
	ends  []int64 // offsets of line ends, ascending
	lines int     // line ends before the first of ends
}

func (c *lineCounter) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	for rest, at := p[:n], c.read; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			break
		}
		at += int64(i) + 1
		c.ends = append(c.ends, at)
		rest = rest[i+1:]
	}
	c.read += int64(n)
	return n, err
}

// at returns the line of an offset, from 1. Offsets must not decrease.
func (c *lineCounter) at(offset int64) int {
	for len(c.ends) > 0 && c.ends[0] <= offset {
		c.ends = c.ends[1:]
		c.lines++
	}
	return c.lines + 1
}
