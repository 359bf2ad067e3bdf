// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

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

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// spans writes spans into batches of bounded size.
type spans struct {
	p       *Profile
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
	texts   []*text // by name
	reports []facts.Report
	noGPU   *finding.Finding       // of a profile without activities of a device
	steps   map[int64][]facts.Step // by device, likewise limits
	limits  map[int64]*occupancy.Device
}

// scopeKey identifies an instrumentation scope: each device of a process has one, and so has the host.
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

func newSpans(ctx context.Context, p *Profile, emit consumer.ConsumeTracesFunc) *spans {
	s := &spans{
		p: p, ctx: ctx, emit: emit, texts: make([]*text, p.Names.Len()), steps: map[int64][]facts.Step{},
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

// deviceOf returns the file's description of a device. Files with one model return it for any ordinal: some number
// their devices differently in the list and in the rows.
func (p *Profile) deviceOf(ordinal int64) (stated Device) {
	for i := range p.Meta.Devices {
		switch d := &p.Meta.Devices[i]; {
		case d.Ordinal == ordinal:
			return *d
		case i == 0:
			stated.Model, stated.Limits = d.Model, d.Limits
		default:
			if d.Model != p.Meta.Devices[0].Model {
				stated.Model = ""
			}
			if d.Limits != p.Meta.Devices[0].Limits {
				stated.Limits = occupancy.Device{}
			}
		}
	}
	return stated
}

// modelOf returns the model that the file states, else the one that the options name.
func (p *Profile) modelOf(ordinal int64) string {
	return cmp.Or(p.deviceOf(ordinal).Model, p.opts.Device)
}

// limitsOf returns what limits the blocks on a device, as the file states it, else only the multiprocessors of its
// model.
func (p *Profile) limitsOf(ordinal int64) occupancy.Device {
	l := p.deviceOf(ordinal).Limits
	l.Multiprocessors = cmp.Or(l.Multiprocessors, int64(facts.PeakOf(p.modelOf(ordinal)).SMs))
	return l
}

// limitsOf returns what Profile.limitsOf does.
func (s *spans) limitsOf(ordinal int64) *occupancy.Device {
	l, ok := s.limits[ordinal]
	if !ok {
		of := s.p.limitsOf(ordinal)
		l = &of
		s.limits[ordinal] = l
	}
	return l
}

// new returns a span of the host.
func (s *spans) new(p *process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	return s.in(scopeKey{pid: p.pid}, p, c, parent, start, end)
}

// on returns a span of a device, whose scope states the device and who timed it; the span repeats ordinal and hw.id.
func (s *spans) on(device int64, p *process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	return s.in(scopeKey{p.pid, true, device}, p, c, parent, start, end)
}

func (s *spans) in(k scopeKey, p *process, c spanRef, parent pcommon.SpanID, start, end int64) ptrace.Span {
	if s.count >= s.p.opts.BatchSpans {
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
func (s *spans) scopeOf(k scopeKey, p *process) ptrace.ScopeSpans {
	if ss, ok := s.scopes[k]; ok {
		return ss
	}
	rs, ok := s.within[p.pid]
	if !ok {
		rs = s.batch.ResourceSpans().AppendEmpty()
		s.resource(rs.Resource().Attributes(), p)
		s.within[p.pid] = rs
		s.scope(rs, scopeKey{pid: p.pid}) // the host's is the first, and is removed if it stays empty
	}
	if k.isDevice {
		s.scope(rs, k)
	}
	return s.scopes[k]
}

func (s *spans) scope(rs ptrace.ResourceSpans, k scopeKey) {
	ss := rs.ScopeSpans().AppendEmpty()
	ss.Scope().SetName(s.p.source.Scope)
	ss.Scope().SetVersion(s.p.opts.Version)
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
	putText(m, semconv.HWIDKey, s.p.deviceOf(ordinal).ID)
}

// identity sets names and the model for spans that represent a device as a whole.
func (s *spans) identity(m pcommon.Map, ordinal int64) {
	s.names(m, ordinal)
	putText(m, semconv.HWModelKey, s.p.modelOf(ordinal))
}

// text is what spans show of a name.
type text struct {
	name, full    string // as the name of a span, and as an attribute
	short, kernel string // of a kernel: shortNameOf, and that as the name of a span
	phase         string
}

// text finds them once for each name.
func (s *spans) text(id uint32) *text {
	t := s.texts[id]
	if t == nil {
		name := s.p.Names.Name(id)
		t = &text{name: distinct(name, maxName), full: validText(name, maxText), phase: phase(name)}
		s.texts[id] = t
	}
	return t
}

func (s *spans) kernelText(id uint32) *text {
	t := s.text(id)
	if t.kernel == "" {
		t.short = shortNameOf(s.p.Names.Name(id))
		t.kernel = distinct(t.short, maxName)
	}
	return t
}

func (s *spans) shortName(id uint32) string { return s.kernelText(id).short }

// topNames returns the names with most time, longest first.
func topNames(times map[string]int64) []string {
	list := slices.SortedFunc(maps.Keys(times), func(a, b string) int {
		return cmp.Or(cmp.Compare(times[b], times[a]), cmp.Compare(a, b))
	})
	return list[:min(topKernels, len(list))]
}

func (s *spans) resource(m pcommon.Map, p *process) {
	meta, o := &s.p.Meta, &s.p.opts
	putText(m, semconv.ServiceNameKey, cmp.Or(meta.Service, o.ServiceName))
	if p.known {
		m.PutInt(string(semconv.ProcessPidKey), p.pid)
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

// PutResource puts an attribute that was written as text. This project's whole numbers become integers.
func PutResource(m pcommon.Map, k, v string) {
	switch attribute.Key(k) {
	case semconv.GPUJobRankKey, semconv.GPUJobLocalRankKey, semconv.GPUJobWorldSizeKey, semconv.ProcessPidKey:
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			m.PutInt(k, n)
			return
		}
	}
	m.PutStr(k, v)
}
