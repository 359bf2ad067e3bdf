// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"container/heap"
	"math"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

// selection decides what is kept if the rule selects more than the limits on a trace allow: steps first, then whatever
// is longest. It stores one cutoff per trace that overflowed.
type selection struct {
	*rule
	maxSpans, maxBytes int
	perStep            bool
	traces             map[traceKey]*candidates
	p                  *Profile
}

// traceKey identifies a trace in two sweeps over the same events.
type traceKey struct {
	pid  int64
	step int64 // ordinal, -1: the window
}

// candidate ranks a span: the greater one is kept.
type candidate struct {
	step     bool
	duration int64
	seq      uint32
	spans    int // it may bring
	size     int
}

func (c candidate) less(o candidate) bool {
	switch {
	case c.step != o.step:
		return o.step
	case c.duration != o.duration:
		return c.duration < o.duration
	}
	return c.seq > o.seq
}

type candidates struct {
	heap   ordered[candidate]
	spans  int
	bytes  int
	cut    bool
	cutoff candidate // the greatest that was omitted
	bySize bool
}

func (p *Profile) newSelection(r *rule) *selection {
	windows := 1 + p.devices() // always written
	return &selection{
		rule: r, maxSpans: max(1, p.opts.maxSpans()-windows), maxBytes: max(1, p.opts.maxBytes()-windows*windowSpanSize),
		perStep: p.opts.Detail.perStep(), traces: map[traceKey]*candidates{}, p: p,
	}
}

// offered is what all events of a kind may bring as spans, whatever is around them.
type offered struct{ spans, bytes int }

// offer counts what an event may add, if surelyFits needs it.
func (p *Profile) offer(e *Event) {
	if p.opts.Detail.perStep() || p.opts.Detail == LevelSteps && e.Kind != KindStep {
		return
	}
	var c candidate
	switch {
	case !e.Kind.Device():
		c = p.hostCandidate(e.Kind, e.Name)
	case e.Kind == KindKernel && (e.Duration >= autoKernel || p.communicates(e.Name)),
		e.Kind == KindCopy && e.Detail.Bytes >= autoCopy:
		c = p.deviceCandidate(e.Name)
	}
	p.offers[e.Kind].spans += c.spans
	p.offers[e.Kind].bytes += c.size
}

// surelyFits reports whether the maximum that the events add reaches no limit, so that the selecting sweep is not
// needed.
func (p *Profile) surelyFits(s *selection) bool {
	var kinds []Kind
	switch s.level {
	case LevelSteps:
		kinds = []Kind{KindStep}
	case LevelAnnotations:
		kinds = []Kind{KindStep, KindAnnotation}
	case LevelAuto:
		if kinds = []Kind{KindStep, KindAnnotation, KindModule, KindKernel, KindCopy}; s.standIn {
			kinds = append(kinds, KindOperator)
		}
	default:
		return false
	}
	var all offered
	for _, k := range kinds {
		all.spans += p.offers[k].spans
		all.bytes += p.offers[k].bytes
	}
	return all.spans <= s.maxSpans && all.bytes <= s.maxBytes
}

func (s *selection) limited() bool { return s.maxSpans < unlimited || s.maxBytes < unlimited }

// unlimited is larger than any limit, after the windows were subtracted.
const unlimited = math.MaxInt / 2

func (s *selection) key(p *process, st *step) traceKey {
	if st != nil && s.perStep {
		return traceKey{p.pid, st.ordinal}
	}
	return traceKey{p.pid, -1}
}

// host returns the first sweep's: it decides nothing, since later ones may be longer.
func (s *selection) host(r *record, depth int, p *process, st *step) bool {
	if s.rule.host(r, depth) {
		s.offer(s.key(p, st), s.hostCandidate(r))
	}
	return false
}

func (s *selection) device(a *activity, _ *node, p *process) {
	if s.rule.device(a) {
		s.offer(s.key(p, a.launch.step), s.deviceCandidate(a))
	}
}

func (s *selection) opened(*node, *record) {}

func (s *selection) hostCandidate(r *record) candidate {
	c := s.p.hostCandidate(r.kind, r.name)
	c.duration, c.seq = r.duration, r.seq
	return c
}

func (p *Profile) hostCandidate(k Kind, name uint32) candidate {
	length := len(p.Names.Name(name))
	c := candidate{step: k == KindStep, spans: 1, size: hostSpanSize + length}
	if c.step {
		c.size += stepSpanSize
	}
	if p.opts.Detail.projects(k) { // on one device, as nearly always
		c.spans, c.size = 2, c.size+sectionSpanSize+length
	}
	return c
}

func (s *selection) deviceCandidate(a *activity) candidate {
	c := s.p.deviceCandidate(a.name)
	c.duration, c.seq = a.duration, a.seq
	return c
}

func (p *Profile) deviceCandidate(name uint32) candidate {
	return candidate{spans: 1, size: deviceSpanSize + min(len(p.Names.Name(name)), maxText)}
}

// Upper estimates of the size of a span in OTLP without its names, from its attributes; a test checks them.
const (
	hostSpanSize    = 760  // with a summary
	stepSpanSize    = 2500 // more, with four findings
	deviceSpanSize  = 900
	sectionSpanSize = 450
	windowSpanSize  = 4000 // of the window or a device, with findings
)

func (s *selection) offer(k traceKey, c candidate) {
	t := boundedmap.Of(s.traces, k)
	if t.cut && c.less(t.cutoff) {
		return
	}
	heap.Push(&t.heap, c)
	t.bytes += c.size
	t.spans += c.spans
	for len(t.heap) > 1 && (t.spans > s.maxSpans || t.bytes > s.maxBytes) {
		t.bySize = t.spans <= s.maxSpans
		least := heap.Pop(&t.heap).(candidate)
		t.bytes -= least.size
		t.spans -= least.spans
		if !t.cut || t.cutoff.less(least) {
			t.cut, t.cutoff = true, least
		}
	}
}

// keeps returns the second sweep's decision on what the rule wants.
func (s *selection) keeps(k traceKey, c candidate) (keep, bySize bool) {
	t := s.traces[k]
	if t == nil || !t.cut {
		return true, false
	}
	return t.cutoff.less(c), t.bySize
}
