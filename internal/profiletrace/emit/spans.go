// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// spans writes spans into batches of bounded size.
type spans struct {
	p       *Emitter
	ctx     context.Context
	emit    consumer.ConsumeTracesFunc
	batch   ptrace.Traces
	scopes  map[scopeKey]ptrace.ScopeSpans // of the batch
	last    [2]lastScope                   // of the host and of a device
	within  map[int64]ptrace.ResourceSpans // of the batch, by process
	count   int
	written int64
	cut     int64
	err     error
	texts   []*text                     // by name
	limits  map[int64]*occupancy.Device // by device
}

// scopeKey identifies an instrumentation scope: each device of a process has one, and so has the
// host.
type scopeKey struct {
	pid      int64
	isDevice bool
	device   int64
}

// lastScope is where the last span went: the next one mostly goes there, too.
type lastScope struct {
	key   scopeKey
	spans ptrace.SpanSlice
	known bool
}

func newSpans(ctx context.Context, p *Emitter, emit consumer.ConsumeTracesFunc) *spans {
	s := &spans{
		p: p, ctx: ctx, emit: emit, texts: make([]*text, p.Names.Len()),
		limits: map[int64]*occupancy.Device{},
	}
	s.reset()
	return s
}

func (s *spans) reset() {
	s.batch, s.scopes, s.count = ptrace.NewTraces(), map[scopeKey]ptrace.ScopeSpans{}, 0
	s.within, s.last = map[int64]ptrace.ResourceSpans{}, [2]lastScope{}
}

func (s *spans) flush() error {
	if s.err == nil && s.count > 0 {
		for _, rs := range s.batch.ResourceSpans().All() {
			rs.ScopeSpans().RemoveIf(func(ss ptrace.ScopeSpans) bool { return ss.Spans().Len() == 0 })
		}
		s.err = s.emit(s.ctx, s.batch)
	}
	s.reset()
	return s.err
}

// limitsOf returns what LimitsOf does, once for each device.
func (s *spans) limitsOf(ordinal int64) *occupancy.Device {
	l, ok := s.limits[ordinal]
	if !ok {
		of := s.p.LimitsOf(ordinal)
		l = &of
		s.limits[ordinal] = l
	}
	return l
}

// new returns a span of the host.
func (s *spans) new(p *link.Process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	return s.in(scopeKey{pid: p.Pid}, p, c, parent, start, end)
}

// on returns a span of a device, whose scope states the device and who timed it; the span repeats
// ordinal and hw.id.
func (s *spans) on(device int64, p *link.Process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	return s.in(scopeKey{p.Pid, true, device}, p, c, parent, start, end)
}

func (s *spans) in(k scopeKey, p *link.Process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	if s.count >= s.p.BatchSpans {
		_ = s.flush()
	}
	last := &s.last[0]
	if k.isDevice {
		last = &s.last[1]
	}
	if !last.known || last.key != k {
		*last = lastScope{k, s.scopeOf(k, p).Spans(), true}
	}
	s.count++
	s.written++
	sp := last.spans.AppendEmpty()
	sp.SetTraceID(c.trace)
	sp.SetSpanID(c.span)
	sp.SetParentSpanID(parent)
	sp.SetKind(ptrace.SpanKindInternal)
	sp.SetStartTimestamp(pcommon.Timestamp(s.p.Meta.Base + start))
	sp.SetEndTimestamp(pcommon.Timestamp(s.p.Meta.Base + end))
	return sp
}

// scopeOf returns the scope in the batch, which is made when it is not there.
func (s *spans) scopeOf(k scopeKey, p *link.Process) ptrace.ScopeSpans {
	if ss, ok := s.scopes[k]; ok {
		return ss
	}
	rs, ok := s.within[p.Pid]
	if !ok {
		rs = s.batch.ResourceSpans().AppendEmpty()
		s.resource(rs.Resource().Attributes(), p)
		s.within[p.Pid] = rs
		s.scope(rs, scopeKey{pid: p.Pid}) // the host's is the first, and is removed if it stays empty
	}
	if k.isDevice {
		s.scope(rs, k)
	}
	return s.scopes[k]
}

func (s *spans) scope(rs ptrace.ResourceSpans, k scopeKey) {
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(s.p.Scope)
	ss.Scope().SetVersion(s.p.Version)
	ss.SetSchemaUrl(semconv.SchemaURL)
	if k.isDevice {
		m := ss.Scope().Attributes()
		s.identity(m, k.device)
		putText(m, semconv.GPUTimingSourceKey, s.p.Meta.TimingSource)
	}
	s.scopes[k] = ss
}

// names writes which device a span belongs to.
func (s *spans) names(m pcommon.Map, ordinal int64) {
	putInt(m, semconv.GPUDeviceOrdinalKey, ordinal)
	putText(m, semconv.HWIDKey, s.p.Meta.DeviceOf(ordinal).ID)
}

// identity sets names and the model for spans that represent a device as a whole.
func (s *spans) identity(m pcommon.Map, ordinal int64) {
	s.names(m, ordinal)
	putText(m, semconv.HWModelKey, s.p.ModelOf(ordinal))
}

// text is what spans show of a name.
type text struct {
	name, full string // as the name of a span, and as an attribute
	kernel     string // of a kernel: the name of its span
	phase      string
}

// text finds them once for each name.
func (s *spans) text(id uint32) *text {
	t := s.texts[id]
	if t == nil {
		name := s.p.Names.Name(id)
		t = &text{
			name: spanfacts.DistinctText(name, maxName), full: spanfacts.ValidText(name, maxText), phase: vocabulary.Phase(name),
		}
		s.texts[id] = t
	}
	return t
}

func (s *spans) kernelText(id uint32) *text {
	t := s.text(id)
	if t.kernel == "" {
		t.kernel = spanfacts.DistinctText(s.p.ShortName(id), maxName)
	}
	return t
}

// topNames returns the names with most time, longest first.
func topNames(times map[string]int64) []string {
	list := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b))
	})
	return list[:min(topKernels, len(list))]
}

func (s *spans) resource(m pcommon.Map, p *link.Process) {
	meta, o := &s.p.Meta, &s.p.Config
	putText(m, semconv.ServiceNameKey, cmp.Or(meta.Service, s.p.Service))
	if p.Known && p.Pid >= 0 {
		m.PutInt(string(semconv.ProcessPidKey), p.Pid)
	}
	putText(m, semconv.HostNameKey, meta.Host)
	putText(m, semconv.GPUJobIDKey, s.p.job())
	if meta.HasRank {
		m.PutInt(string(semconv.GPUJobRankKey), meta.Rank)
	}
	if meta.HasLocalRank {
		m.PutInt(string(semconv.GPUJobLocalRankKey), meta.LocalRank)
	}
	if meta.WorldSize > 0 {
		m.PutInt(string(semconv.GPUJobWorldSizeKey), meta.WorldSize)
	}
	m.PutStr(string(semconv.GPUTraceDetailKey), o.Detail.String())
	for _, from := range []map[string]string{meta.Resource, o.Resource} {
		for _, k := range slices.Sorted(maps.Keys(from)) { // the same file gives the same bytes
			PutResource(m, k, from[k])
		}
	}
}

// PutResource puts an attribute that was written as text. This project's whole numbers become
// integers.
func PutResource(m pcommon.Map, k, v string) {
	switch attribute.Key(k) {
	case semconv.GPUJobRankKey, semconv.GPUJobLocalRankKey, semconv.GPUJobWorldSizeKey, semconv.ProcessPidKey:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			m.PutInt(k, n)
			return
		}
	}
	m.PutStr(spanfacts.ValidText(k, maxText), spanfacts.ValidText(v, maxText))
}
