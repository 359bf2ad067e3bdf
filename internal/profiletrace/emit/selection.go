// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"container/heap"
	"math"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/link"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// selection decides what is kept if the rule selects more than the limits on a trace allow: steps
// first, then whatever is longest. It stores one cutoff per trace that overflowed.
type selection struct {
	p                  *Emitter
	maxSpans, maxBytes int
	traces             map[traceKey]*candidates
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

func (c candidate) Less(o candidate) bool {
	switch {
	case c.step != o.step:
		return o.step
	case c.duration != o.duration:
		return c.duration < o.duration
	}
	return c.seq > o.seq
}

type candidates struct {
	heap   event.Ordered[candidate]
	spans  int
	bytes  int
	cut    bool
	cutoff candidate // the greatest that was omitted
	bySize bool
}

func (p *Emitter) newSelection() *selection {
	windows := 1 + p.Devices() // always written
	return &selection{
		p: p, maxSpans: max(1, p.MaxSpans-windows), maxBytes: max(1, p.MaxBytes-windows*windowSpanSize),
		traces: map[traceKey]*candidates{},
	}
}

// offered is what events may bring as spans, whatever is around them.
type offered struct{ spans, bytes int }

// Offers sums what all events may bring, so that most profiles need no selecting sweep. The zero
// value is empty.
type Offers struct {
	all, operators offered
	named          int64 // annotations that mark the application's own work, and modules
}

// Add counts what an event may bring at a level.
func (o *Offers) Add(e *event.Event, in *link.Input, l Level) {
	if e.Kind == event.KindModule || e.Kind == event.KindAnnotation && !vocabulary.Automatic(in.Names.Name(e.Name)) {
		o.named++
	}
	var c candidate
	to := &o.all
	switch k := e.Kind; {
	case l.PerStep():
		return
	case k == event.KindStep, k == event.KindAnnotation && l != LevelSteps, k == event.KindModule && l == LevelAuto:
		c = hostCandidate(in.Names, l, k, e.Name)
	case l != LevelAuto:
		return
	case k == event.KindOperator:
		to, c = &o.operators, hostCandidate(in.Names, l, k, e.Name)
	case k == event.KindKernel && (e.Duration >= autoKernel || in.Communicates(e.Name)),
		k == event.KindCopy && e.Detail.Bytes >= autoCopy:
		c = deviceCandidate(in.Names, e.Name)
	}
	to.spans += c.spans
	to.bytes += c.size
}

// surelyFits reports whether the maximum that the events add reaches no limit, so that the
// selecting sweep is not needed.
func (p *Emitter) surelyFits(s *selection) bool {
	all := p.offers.all
	if p.standIn {
		all.spans += p.offers.operators.spans
		all.bytes += p.offers.operators.bytes
	}
	return !p.Detail.PerStep() && all.spans <= s.maxSpans && all.bytes <= s.maxBytes
}

func (s *selection) limited() bool { return s.maxSpans < unlimited || s.maxBytes < unlimited }

// unlimited is larger than any limit, after the windows were subtracted.
const unlimited = math.MaxInt / 2

func (s *selection) key(p *link.Process, st *link.Step) traceKey {
	if st != nil && s.p.Detail.PerStep() {
		return traceKey{p.Pid, st.Ordinal}
	}
	return traceKey{p.Pid, -1}
}

// Range offers the range. Nothing is decided yet, since later ones may be longer.
func (s *selection) Range(r *event.Record, _ *link.Node, depth int, p *link.Process, st *link.Step) *link.Node {
	if s.p.wantsRange(r, depth) {
		s.offer(s.key(p, st), s.hostCandidate(r))
	}
	return nil
}

// Activity offers the activity.
func (s *selection) Activity(a *link.Activity, _ *link.Node, p *link.Process) {
	if s.p.wants(a) {
		s.offer(s.key(p, a.Launch.Step), s.deviceCandidate(a))
	}
}

func (s *selection) hostCandidate(r *event.Record) candidate {
	c := hostCandidate(s.p.Names, s.p.Detail, r.Kind, r.Name)
	c.duration, c.seq = r.Duration, r.Seq
	return c
}

func hostCandidate(names *event.Names, l Level, k event.Kind, name uint32) candidate {
	length := len(names.Name(name))
	c := candidate{step: k == event.KindStep, spans: 1, size: hostSpanSize + length}
	if c.step {
		c.size += stepSpanSize
	}
	if l.projects(k) { // on one device, as nearly always
		c.spans, c.size = 2, c.size+sectionSpanSize+length
	}
	return c
}

func (s *selection) deviceCandidate(a *link.Activity) candidate {
	c := deviceCandidate(s.p.Names, a.Name)
	c.duration, c.seq = a.Duration, a.Seq
	return c
}

func deviceCandidate(names *event.Names, name uint32) candidate {
	return candidate{spans: 1, size: deviceSpanSize + min(len(names.Name(name)), maxText)}
}

// Upper estimates of the size of a span in OTLP without its names, from its attributes; a test
// checks them.
const (
	hostSpanSize    = 760  // with a summary
	stepSpanSize    = 2500 // more, with four findings
	deviceSpanSize  = 900
	sectionSpanSize = 450
	windowSpanSize  = 4000 // of the window or a device, with findings
)

func (s *selection) offer(k traceKey, c candidate) {
	t := boundedmap.Of(s.traces, k)
	if t.cut && c.Less(t.cutoff) {
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
		if !t.cut || t.cutoff.Less(least) {
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
	return t.cutoff.Less(c), t.bySize
}
