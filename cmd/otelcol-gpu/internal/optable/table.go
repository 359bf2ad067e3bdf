// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package optable sums GPU spans by operation and draws them as a table on a terminal.
//
// It is an exporter's end: it reads what the processors put on the spans and derives nothing of its own but sums and
// the rates of sums.
package optable

import (
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
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
	gpu   int64
}

// New makes an empty table.
func New() *Table {
	return &Table{ops: map[key]*stats{}, steps: map[key]*stats{}, nest: newNesting(maxSpans)}
}

// Add takes the GPU spans of a batch; it keeps no reference to it.
func (t *Table) Add(td ptrace.Traces) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				t.add(span)
			}
		}
	}
}

func (t *Table) add(span ptrace.Span) {
	t.spans++
	f := read(span)
	if !f.gpu {
		return
	}
	t.gpu++
	if f.key.kind == semconv.GPUOperationTypeStep {
		lookup(t.steps, f.key).add(f)
		return
	}
	lookup(t.ops, f.key).add(f)
	t.nest.add(spanID{span.TraceID(), span.SpanID()}, spanID{span.TraceID(), span.ParentSpanID()}, f.seconds)
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

type spanID struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// nesting finds the time of outermost GPU spans, which shares are shares of: a span whose parent is no GPU span.
// Parents may come before or after their children; both directions are remembered for the last n spans.
type nesting struct {
	known     map[spanID]struct{}
	waiting   map[spanID]float64 // seconds counted as outermost, by the parent that may still show up
	order     []spanID
	next      int
	outermost float64
}

func newNesting(n int) nesting {
	return nesting{known: map[spanID]struct{}{}, waiting: map[spanID]float64{}, order: make([]spanID, 0, n)}
}

func (n *nesting) add(id, parent spanID, seconds float64) {
	if _, nested := n.known[parent]; !nested {
		n.outermost += seconds
		if !parent.span.IsEmpty() {
			n.waiting[parent] += seconds
		}
	}
	if children, ok := n.waiting[id]; ok { // they were nested after all
		n.outermost -= children
		delete(n.waiting, id)
	}
	n.known[id] = struct{}{}
	if len(n.order) < cap(n.order) {
		n.order = append(n.order, id)
	} else {
		delete(n.known, n.order[n.next])
		n.order[n.next] = id
		n.next = (n.next + 1) % len(n.order)
	}
	if len(n.waiting) > cap(n.order) {
		clear(n.waiting)
	}
}
