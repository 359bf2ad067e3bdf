// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"cmp"
	"slices"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// assembler sums up what lies below each step. When the parent of a sum comes, the sum is added to the grandparent's,
// or put on the span if that is a step. No span is held back, only sums.
type assembler struct {
	cfg AssembleConfig

	mu   sync.Mutex
	sums spanfacts.Waiting[partial]
}

func newAssembler(cfg AssembleConfig) *assembler {
	return &assembler{cfg: cfg, sums: spanfacts.Waiting[partial]{Max: cfg.MaxSums}}
}

// assemble takes a batch. Within it order does not matter: spans are taken by start, latest first, so that children
// come before parents. now is unix ns.
func (a *assembler) assemble(td ptrace.Traces, now int64) (assembled, evicted int64) {
	type scoped struct {
		ptrace.Span
		scope *spanfacts.Scope
	}
	var spans []scoped
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			scope := new(spanfacts.Scope)
			scope.Load(nil, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				spans = append(spans, scoped{s, scope})
			}
		}
	}
	slices.SortStableFunc(spans, func(x, y scoped) int {
		return cmp.Or(cmp.Compare(y.StartTimestamp(), x.StartTimestamp()), cmp.Compare(x.EndTimestamp(), y.EndTimestamp()))
	})
	a.mu.Lock()
	defer a.mu.Unlock()
	evicted = int64(a.sums.Expire(now - int64(a.cfg.MaxAge)))
	var f spanfacts.Facts
	for _, s := range spans {
		f.Load(s.Span, s.scope)
		done, gone := a.span(s.Span, &f, now)
		if done {
			assembled++
		}
		evicted += gone
	}
	return assembled, evicted
}

// span takes one span; it reports whether it was a step that got totals, and how many sums were given up for want
// of room.
func (a *assembler) span(s ptrace.Span, f *spanfacts.Facts, now int64) (completed bool, evicted int64) {
	below, some := a.sums.Take(f.Key)
	if f.Kind == spanfacts.Step {
		return some && below.complete(s, f), 0
	}
	if f.Kind.Work() {
		below.addSpan(f, a.cfg.MaxIntervals)
		some = true
	}
	if !some || f.Parent.IsEmpty() || f.Key.Trace.IsEmpty() {
		return false, 0
	}
	at, dropped := a.sums.At(spanfacts.Key{Trace: f.Key.Trace, Span: f.Parent}, now)
	at.merge(&below, a.cfg.MaxIntervals)
	return false, int64(dropped)
}
