// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package optable sums GPU spans by operation and draws them as a table on a terminal.
//
// It is an exporter's end: it reads what the processors put on the spans and derives nothing of its own but sums and
// the rates of sums.
package optable

import (
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Limits of what a table holds. Operations beyond maxOperations are summed under [overflow]; the nesting of spans that
// are further apart than maxSpans spans is not seen.
const (
	maxOperations = 2000
	maxSpans      = 1 << 18
	overflow      = "(other operations)"
)

// Table is safe for concurrent use. The zero value is not usable; see [New].
type Table struct {
	mu    sync.Mutex
	ops   map[key]*stats
	steps map[key]*stats
	nest  nesting
	spans int64

	batch   []nestedSpan // spans of the batch that is being added
	streams []spanfacts.NestSpan
	gpu     int64
}

// New makes an empty table.
func New() *Table {
	return &Table{ops: map[key]*stats{}, steps: map[key]*stats{}, nest: newNesting(maxSpans)}
}

// Add takes the GPU spans of a batch; it keeps no reference to it.
func (t *Table) Add(td ptrace.Traces) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for i, rs := range td.ResourceSpans().All() {
		resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&resource, ss.Scope().Attributes())
			for _, span := range ss.Spans().All() {
				t.add(span, &scope, uint64(i))
			}
		}
	}
	t.settle()
}

// nestedSpan is what nesting has to know of a span.
type nestedSpan struct {
	key, parent spanfacts.Key
	seconds     float64
}

// settle takes the spans of the batch into the nesting. One that lies within a sibling on its stream is part of it, as for gpu_join.
func (t *Table) settle() {
	spanfacts.Nest(t.streams, func(inner, outer int) {
		p := t.batch[outer].key
		t.batch[inner].parent, t.streams[inner].Trace, t.streams[inner].Parent = p, p.Trace, p.Span
	})
	for _, s := range t.batch {
		t.nest.add(s.key, s.parent, s.seconds)
	}
	t.batch, t.streams = t.batch[:0], t.streams[:0]
}

func (t *Table) add(span ptrace.Span, scope *spanfacts.Scope, owner uint64) {
	t.spans++
	var f spanfacts.Facts
	if !f.Load(span, scope) || !f.Kind.Work() {
		return
	}
	t.gpu++
	if f.Kind == spanfacts.Step {
		lookup(t.steps, keyOf(span, &f)).add(&f)
		return
	}
	lookup(t.ops, keyOf(span, &f)).add(&f)
	t.batch = append(t.batch, nestedSpan{f.Key, spanfacts.Key{Trace: f.Key.Trace, Span: f.Parent}, secondsOf(&f)})
	t.streams = append(t.streams, spanfacts.NestSpan{
		Owner: owner, Device: f.Device.Ordinal, Stream: f.Stream, Trace: f.Key.Trace, Parent: f.Parent, Start: int64(f.Start), End: int64(f.End),
	})
}

func lookup(m map[key]*stats, k key) *stats {
	s, ok := m[k]
	if !ok {
		if len(m) >= maxOperations {
			k = key{name: overflow}
			if s, ok = m[k]; ok {
				return s
			}
		}
		s = &stats{}
		m[k] = s
	}
	return s
}

// nesting finds the time of outermost GPU spans, which shares are shares of: a span whose parent is no GPU span.
// Parents may come before or after their children; both directions are remembered for the last n spans.
type nesting struct {
	known     map[spanfacts.Key]struct{}
	waiting   spanfacts.Waiting[float64] // seconds counted as outermost, by the parent that may still come
	order     []spanfacts.Key
	next      int
	outermost float64
}

func newNesting(n int) nesting {
	return nesting{
		known: map[spanfacts.Key]struct{}{}, waiting: spanfacts.Waiting[float64]{Max: n}, order: make([]spanfacts.Key, 0, n),
	}
}

func (n *nesting) add(id, parent spanfacts.Key, seconds float64) {
	if _, nested := n.known[parent]; !nested {
		n.outermost += seconds
		if !parent.Span.IsEmpty() {
			sum, _ := n.waiting.At(parent, 0)
			*sum += seconds
		}
	}
	if children, ok := n.waiting.Take(id); ok { // they were nested after all
		n.outermost -= children
	}
	n.known[id] = struct{}{}
	if len(n.order) < cap(n.order) {
		n.order = append(n.order, id)
	} else {
		delete(n.known, n.order[n.next])
		n.order[n.next] = id
		n.next = (n.next + 1) % len(n.order)
	}
}
