// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package summarytable sums GPU spans by operation and draws them as a tree on a terminal.
//
// It is an exporter's end: it reads what the processors put on the spans and computes only sums and
// the rates of sums.
package summarytable

import (
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spantree"
)

// Limits of a table. Operations beyond maxOperations, and operations at more than maxPositions
// positions, are summed as others; nesting of spans that are further apart than maxSpans spans is
// not detected.
const (
	maxOperations = 2000
	maxPositions  = 4 * maxOperations
	maxSpans      = 1 << 15
)

var others = &key{name: "(other operations)"}

// position is an operation below another, nil if it is outermost. Operations are pointers of
// Table.names.
type position struct{ parent, op *key }

// Table is safe for concurrent use. The zero value is not usable; see [New].
type Table struct {
	mu    sync.Mutex
	names map[key]*key
	ops   map[position]*stats
	steps map[position]*stats
	late  map[rankOf]*lateness
	serve map[string]*requests // by service
	fill  map[string]*facts.Launched
	spans int64
	gpu   int64

	// A span counts as outermost until its parent arrives. Its operation is kept, nil for a host
	// span.
	arrived *spantree.Tree[*key, map[position]*stats]
	own     *nestedSpan // the span that is being added

	batch   []nestedSpan // spans of the batch that is being added
	streams []spanfacts.NestSpan
}

// New returns an empty table.
func New() *Table {
	t := &Table{
		names: map[key]*key{}, ops: map[position]*stats{}, steps: map[position]*stats{},
		late: map[rankOf]*lateness{}, serve: map[string]*requests{}, fill: map[string]*facts.Launched{},
	}
	t.arrived = spantree.New(spantree.Rules[*key, map[position]*stats]{
		Lift: t.lift, MaxSpans: maxSpans, MaxSums: maxSpans / 2,
	})
	return t
}

// Add adds the GPU spans of a batch; it keeps no reference to it.
func (t *Table) Add(td ptrace.Traces) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var resource spanfacts.Resource
	var scope spanfacts.Scope
	for _, rs := range td.ResourceSpans().All() {
		resource.Load(rs.Resource().Attributes())
		for _, ss := range rs.ScopeSpans().All() {
			scope.Load(&resource, ss.Scope().Attributes())
			for _, span := range ss.Spans().All() {
				t.add(span, &resource, &scope)
			}
		}
	}
	t.settle()
}

// nestedSpan is a span of the batch.
type nestedSpan struct {
	spantree.Span
	op *key
	stats
}

// settle adds the spans of the batch to their operations. A span inside a sibling on its stream is
// part of it, as in gpu_join.
func (t *Table) settle() {
	spanfacts.Nest(t.streams, func(inner, outer int) {
		p := t.batch[outer].Key
		t.batch[inner].Parent, t.streams[inner].Trace, t.streams[inner].Parent = p.Span, p.Trace, p.Span
	})
	for i := range t.batch {
		t.put(&t.batch[i])
	}
	t.batch, t.streams = t.batch[:0], t.streams[:0]
}

func (t *Table) add(span ptrace.Span, resource *spanfacts.Resource, scope *spanfacts.Scope) {
	t.spans++
	var f spanfacts.Facts
	gpu := f.Load(span, scope)
	switch {
	case span.Kind() == ptrace.SpanKindServer:
		t.request(resource.Service, spanfacts.Elapsed(f.Start, f.End))
	case !gpu:
		t.straggler(span, resource.Rank)
	}
	at := spantree.Span{Process: resource.Process(), Key: f.Key, Parent: f.Parent}
	if !gpu || !f.Kind.Work() {
		t.arrived.Add(at, nil, false, 0)
		return
	}
	t.gpu++
	x := nestedSpan{at, t.name(keyOf(span, &f)), statsOf(&f)}
	if f.Kind == spanfacts.Step {
		lookup(t.steps, position{op: x.op}).add(&x.stats, 1)
		return
	}
	t.batch = append(t.batch, x)
	t.streams = append(t.streams, spanfacts.NestSpan{
		Owner: at.Process, Device: f.Device.Number(), Stream: f.Stream, Trace: f.Key.Trace, Parent: f.Parent,
		Start: int64(f.Start), End: int64(f.End),
	})
}

// name returns the one pointer for an operation.
func (t *Table) name(k key) *key {
	p := t.names[k]
	if p == nil {
		if len(t.names) >= maxOperations {
			return others
		}
		p = &key{strings.Clone(k.name), strings.Clone(k.kind), strings.Clone(k.category)}
		t.names[*p] = p
	}
	return p
}

func lookup(m map[position]*stats, p position) *stats {
	return boundedmap.Bounded(m, p, position{op: others}, maxPositions)
}

func (t *Table) put(s *nestedSpan) {
	t.own = s
	if t.arrived.Add(s.Span, s.op, true, 0) || s.Trace.IsEmpty() || s.Key.Span.IsEmpty() {
		lookup(t.ops, position{op: s.op}).add(&s.stats, 1)
	}
}

// lift adds an operation to those below the span above it. What is below an operation is not
// outermost.
func (t *Table) lift(op **key, own bool, below, into *map[position]*stats) bool {
	if *into == nil {
		*into = map[position]*stats{}
	}
	if own {
		lookup(*into, position{op: *op}).add(&t.own.stats, 1)
	}
	for p, x := range *below {
		if *op == nil {
			lookup(*into, p).add(x, 1)
			continue
		}
		lookup(t.ops, p).add(x, -1)
		lookup(t.ops, position{*op, p.op}).add(x, 1)
	}
	return own || *op == nil
}
