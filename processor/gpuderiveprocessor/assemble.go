// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"cmp"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// assembler sums up what lies below each step. Children end, and so arrive, before their parents: a sum waits under
// the parent's id, and when the parent comes it is added to the grandparent's, or put on the span if that is a step. No
// span is held back, only sums; those whose span does not come are given up by age and number.
type assembler struct {
	cfg AssembleConfig

	mu    sync.Mutex
	sums  map[spanKey]*partial
	order []waiting // oldest first; entries of sums that were taken remain until they reach the front
}

type spanKey struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

type waiting struct {
	key  spanKey
	born int64
}

func newAssembler(cfg AssembleConfig) *assembler {
	return &assembler{cfg: cfg, sums: make(map[spanKey]*partial)}
}

// assemble takes a batch. Within it order does not matter: spans are taken by start, latest first, so that children come before
// parents. now is unix ns.
func (a *assembler) assemble(td ptrace.Traces, now int64) (assembled, evicted int64) {
	var spans []ptrace.Span
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				spans = append(spans, s)
			}
		}
	}
	slices.SortStableFunc(spans, func(x, y ptrace.Span) int {
		return cmp.Or(cmp.Compare(y.StartTimestamp(), x.StartTimestamp()), cmp.Compare(x.EndTimestamp(), y.EndTimestamp()))
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	evicted = a.expire(now)
	var f facts
	for _, s := range spans {
		f.load(s)
		done, gone := a.span(s, &f, now)
		if done {
			assembled++
		}
		evicted += gone
	}
	return assembled, evicted
}

// span takes one span; it reports whether it was a step that got totals, and how many sums were given up for want
// of room.
func (a *assembler) span(s ptrace.Span, f *facts, now int64) (completed bool, evicted int64) {
	key := spanKey{s.TraceID(), s.SpanID()}
	below := a.sums[key]
	delete(a.sums, key)
	if f.kind == semconv.GPUOperationTypeStep {
		return below != nil && below.complete(s, f), 0
	}
	if f.kind != "" {
		if below == nil {
			below = &partial{}
		}
		below.addSpan(s, f, a.cfg.MaxIntervals)
	}
	if below == nil || s.ParentSpanID().IsEmpty() || s.TraceID().IsEmpty() {
		return false, 0
	}
	key.span = s.ParentSpanID()
	if at, ok := a.sums[key]; ok {
		at.merge(below, a.cfg.MaxIntervals)
		return false, 0
	}
	for len(a.sums) >= a.cfg.MaxSums {
		evicted += a.evict()
	}
	below.born = now
	a.sums[key] = below
	a.order = append(a.order, waiting{key, now})
	return false, evicted
}

// expire gives up what is too old, and forgets the order of sums that were taken.
func (a *assembler) expire(now int64) (evicted int64) {
	for len(a.order) > 0 && a.order[0].born <= now-int64(a.cfg.MaxAge) {
		evicted += a.evict()
	}
	if len(a.order) > 2*len(a.sums)+64 {
		a.order = slices.DeleteFunc(a.order, func(w waiting) bool { return !a.waits(w) })
	}
	return evicted
}

// evict takes the oldest entry of the order; it counts 1 if its sum still waited.
func (a *assembler) evict() int64 {
	w := a.order[0]
	a.order = a.order[1:]
	if !a.waits(w) {
		return 0
	}
	delete(a.sums, w.key)
	return 1
}

func (a *assembler) waits(w waiting) bool {
	p, ok := a.sums[w.key]
	return ok && p.born == w.born
}
