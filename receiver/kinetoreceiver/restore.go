// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"encoding/hex"
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/gpuspan/chrometrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// restorer restores the spans of a file that gpuspan/chrometrace wrote. The format is described there, in exact.go.
// Such files identify themselves before their first event; PyTorch's never do.
type restorer struct {
	spool   *spool
	base    *int64 // unix ns of ts 0, which precedes the events
	skip    func(why string)
	batch   ptrace.Traces
	spans   map[int64]ptrace.SpanSlice // of the batch by origin
	size    int
	limit   int // spans of a batch
	last    ptrace.Span
	hasLast bool
	origins []ptrace.ResourceSpans // resource and scope, without spans
	unknown ptrace.ResourceSpans   // of spans whose origin the file does not hold: too many, or truncated
	values  values
	n       int64
	batches int64
	latest  int64 // start, unix ns

	devices  []facts.Report // on the spans, the first maxRead, each with the first maxRead findings
	isDevice bool           // last is a device's
}

// maxRead are the devices of Stats and the findings of each; further ones are on their spans only.
const maxRead = 256

// Reasons for leaving out events of a restored file.
const (
	brokenIDs   = "trace_id, span_id or parent_span_id is not an identifier"
	brokenTimes = "start or end of a span is not a time"
	strayMark   = "event of a span that does not precede it"
	noSpan      = "point of a counter, which is not a span"
)

const originKey = "origin" // placeholder of a resource until the end of the file, which has it

func newRestorer(o Options, base *int64, skip func(string)) *restorer {
	r := &restorer{spool: newSpool(o.TempDir, o.MemoryLimit()), base: base, skip: skip, limit: o.BatchSpans}
	if r.limit <= 0 {
		r.limit = 1000
	}
	r.begin()
	return r
}

// another reports whether the writer's batch ended before a span: each batch is in time order. Separate batches are
// written again in the same order. Small batches are joined.
func (r *restorer) another(start int64) bool {
	const least = 20 // spans of a batch, on the average
	return start < r.latest && r.n >= least*r.batches
}

func (r *restorer) begin() {
	r.batch, r.spans, r.size, r.hasLast = ptrace.NewTraces(), map[int64]ptrace.SpanSlice{}, 0, false
}

// flush stores the batch until the whole file was read.
func (r *restorer) flush() error {
	if r.size == 0 {
		return nil
	}
	r.batches++
	m := ptrace.ProtoMarshaler{}
	b, err := m.MarshalTraces(r.batch)
	if err == nil {
		err = r.spool.put(b)
	}
	r.begin()
	return err
}

// event reads an event if it is, or belongs to, a span. Events without identifiers are the reader's, as in any file:
// programs may write them with gpuspan/chrometrace.
func (r *restorer) event(j *chromejson.Event) (mine bool, err error) {
	if j.Phase == 'i' && string(j.Cat) == "event" {
		r.mark(j)
		return true, nil
	}
	if j.Phase == 'C' {
		if string(j.Cat) != "load" { // that is made of spans
			r.skip(noSpan)
		}
		return true, nil
	}
	if j.Phase != 'X' {
		return false, nil
	}
	var ids identifiers
	var otel []byte
	chromejson.Fields(j.Args, func(k, v []byte) bool {
		switch string(k) {
		case "trace_id":
			ids.read(ids.trace[:], v)
		case "span_id":
			ids.read(ids.span[:], v)
		case "parent_span_id":
			ids.read(ids.parent[:], v)
		case "otel":
			otel = v
		}
		return true
	})
	switch {
	case !ids.any:
		return false, nil
	case string(otel) == `"again"`: // a step, drawn a second time
		return true, nil
	case ids.broken || ids.trace == pcommon.TraceID{} || ids.span == pcommon.SpanID{}:
		r.hasLast = false
		r.skip(brokenIDs)
		return true, nil
	}
	what := readNote(otel)
	start, end, ok := r.times(j, &what)
	if !ok {
		r.hasLast = false
		r.skip(brokenTimes)
		return true, nil
	}
	if r.size >= r.limit || r.another(start) { // here and not below: marks follow their span
		if err := r.flush(); err != nil {
			return true, err
		}
	}
	r.latest = start
	s := r.add(what.origin)
	s.SetTraceID(ids.trace)
	s.SetSpanID(ids.span)
	s.SetParentSpanID(ids.parent)
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(end))
	s.SetKind(ptrace.SpanKindInternal)
	s.SetName(string(unescape(j.Name, j.Escaped)))
	r.attributes(s, j.Args)
	if what.renamed {
		s.Attributes().PutStr(kernelName, s.Name())
		s.SetName(what.name)
	}
	if what.absent {
		s.Attributes().Remove(deviceOrdinal)
	}
	r.values.exactAttributes(s.Attributes(), what.attributes)
	r.device(s)
	r.last, r.hasLast = s, true
	return true, nil
}

// device records the devices of spans of a device's window.
func (r *restorer) device(s ptrace.Span) {
	d, ok := profiletrace.ReportOf(s)
	if r.isDevice = ok && len(r.devices) < maxRead; r.isDevice {
		r.devices = append(r.devices, d)
	}
}

// finding takes note of one on a device's window. Findings of steps are on their spans, as always.
func (r *restorer) verdict(e ptrace.SpanEvent) {
	if !r.isDevice {
		return
	}
	d := &r.devices[len(r.devices)-1]
	if v, ok := profiletrace.FindingOf(r.last.Name(), e); ok && len(d.Findings) < maxRead {
		d.Findings = append(d.Findings, v)
	}
}

func (r *restorer) add(origin int64) ptrace.Span {
	r.size++
	r.n++
	to, ok := r.spans[origin]
	if !ok {
		rs := r.batch.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutInt(originKey, origin)
		to = rs.ScopeSpans().AppendEmpty().Spans()
		r.spans[origin] = to
	}
	return to.AppendEmpty()
}

// times returns the span's: of the slice, where nothing else is noted.
func (r *restorer) times(j *chromejson.Event, what *note) (start, end int64, ok bool) {
	start, ok = chromejson.Micros(j.TS)
	length, is := chromejson.Micros(j.Dur)
	if !ok || !is || start < 0 || length < 0 || *r.base < 0 || start > math.MaxInt64-*r.base ||
		length > math.MaxInt64-*r.base-start {
		return 0, 0, false
	}
	start += *r.base
	end = start + length
	if what.hasStart {
		start = what.start
	}
	if what.hasEnd {
		end = what.end
	}
	return start, end, start >= 0 && end >= 0
}

// attributes reads args, which hold the span's kind, status and links too.
func (r *restorer) attributes(s ptrace.Span, args []byte) {
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "trace_id", "span_id", "parent_span_id", "otel":
		case "span.kind":
			if kind, ok := spanKinds[text(v)]; ok {
				s.SetKind(kind)
			}
		case "otel.status_code":
			switch text(v) {
			case "ERROR":
				s.Status().SetCode(ptrace.StatusCodeError)
			case "OK":
				s.Status().SetCode(ptrace.StatusCodeOk)
			}
		case "otel.status_description":
			s.Status().SetMessage(text(v))
		case "links":
			chromejson.Elements(v, func(v []byte) bool { link(s, text(v)); return true })
		case "loop":
			s.SetName(text(v))
		default:
			key, percent, ok := chrometrace.Attribute(string(chromejson.Text(k)))
			if !ok {
				return true
			}
			if _, ok := s.Attributes().Get(key); ok { // a field stated it less exactly
				s.Attributes().RemoveIf(func(k string, _ pcommon.Value) bool { return k == key })
			}
			to := r.values.put(s.Attributes(), key)
			r.values.setValue(to, v, 0)
			if percent && to.Type() == pcommon.ValueTypeDouble {
				to.SetDouble(to.Double() / 100)
			}
		}
		return true
	})
}

// mark adds an event to the preceding span.
func (r *restorer) mark(j *chromejson.Event) {
	at, ok := chromejson.Micros(j.TS)
	var ids identifiers
	if !r.hasLast || !ok || at < 0 || at > math.MaxInt64-max(*r.base, 0) {
		r.skip(strayMark)
		return
	}
	attributes := pcommon.NewMap()
	chromejson.Fields(j.Args, func(k, v []byte) bool {
		switch string(k) {
		case "span_id":
			ids.read(ids.span[:], v)
		case "otel":
			r.values.exactAttributes(attributes, readNote(v).attributes)
		default:
			r.values.setValue(r.values.put(attributes, string(chromejson.Text(k))), v, 0)
		}
		return true
	})
	if ids.broken || ids.span != r.last.SpanID() {
		r.skip(strayMark)
		return
	}
	e := r.last.Events().AppendEmpty()
	e.SetName(string(unescape(j.Name, j.Escaped)))
	e.SetTimestamp(pcommon.Timestamp(at + *r.base))
	attributes.MoveTo(e.Attributes())
	r.verdict(e)
}

type identifiers struct {
	trace       pcommon.TraceID
	span        pcommon.SpanID
	parent      pcommon.SpanID
	any, broken bool
}

func (i *identifiers) read(to, v []byte) {
	i.any = true
	if len(v) != 2*len(to)+2 || v[0] != '"' {
		i.broken = true
		return
	}
	if _, err := hex.Decode(to, v[1:len(v)-1]); err != nil {
		i.broken = true
	}
}

func link(s ptrace.Span, v string) {
	var t pcommon.TraceID
	var p pcommon.SpanID
	if len(v) != 2*(len(t)+len(p))+1 || v[2*len(t)] != ':' {
		return
	}
	if _, err := hex.Decode(t[:], []byte(v[:2*len(t)])); err != nil {
		return
	}
	if _, err := hex.Decode(p[:], []byte(v[2*len(t)+1:])); err != nil {
		return
	}
	l := s.Links().AppendEmpty()
	l.SetTraceID(t)
	l.SetSpanID(p)
}

// spanKinds are the kinds that a file states; without one, a span is internal.
var spanKinds = map[string]ptrace.SpanKind{
	"server": ptrace.SpanKindServer, "client": ptrace.SpanKindClient, "producer": ptrace.SpanKindProducer,
	"consumer": ptrace.SpanKindConsumer, "unspecified": ptrace.SpanKindUnspecified,
}

func unescape(v []byte, escaped bool) []byte {
	if escaped {
		return chromejson.Text(v)
	}
	return v
}
