// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package summarytable sums GPU spans by operation and draws them as a tree on a terminal.
//
// It is an exporter's end: it reads what the processors put on the spans and computes only sums and
// the rates of sums.
package summarytable

import (
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// Limits of a table. Operations beyond maxOperations, and operations at more than maxPositions positions, are summed as
// others; nesting of spans that are further apart than maxSpans spans is not detected.
const (
	maxOperations = 2000
	maxPositions  = 4 * maxOperations
	maxSpans      = 1 << 15
)

var others = &key{name: "(other operations)"}

// position is an operation below another, nil if it is outermost. Operations are pointers of Table.names.
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

	// Spans and their parents arrive in any order. A span counts as outermost until its parent is known.
	known   boundedmap.Recent[spanfacts.Key, *key]
	waiting spanfacts.Waiting[[]part]

	batch   []nestedSpan // spans of the batch that is being added
	streams []spanfacts.NestSpan
}

// part is what an operation has below one span.
type part struct {
	op *key
	stats
}

// New returns an empty table.
func New() *Table {
	return &Table{
		names: map[key]*key{}, ops: map[position]*stats{}, steps: map[position]*stats{},
		late: map[rankOf]*lateness{}, serve: map[string]*requests{}, fill: map[string]*facts.Launched{},
		known: boundedmap.NewRecent[spanfacts.Key, *key](maxSpans), waiting: spanfacts.Waiting[[]part]{Max: maxSpans / 2},
	}
}

// Add adds the GPU spans of a batch; it keeps no reference to it.
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
				t.add(span, &resource, &scope, uint64(i))
			}
		}
	}
	t.settle()
}

// nestedSpan is a span of the batch.
type nestedSpan struct {
	key, parent spanfacts.Key
	part
}

// settle adds the spans of the batch to their operations. A span inside a sibling on its stream is part of it, as in
// gpu_join.
func (t *Table) settle() {
	spanfacts.Nest(t.streams, func(inner, outer int) {
		p := t.batch[outer].key
		t.batch[inner].parent, t.streams[inner].Trace, t.streams[inner].Parent = p, p.Trace, p.Span
	})
	for i := range t.batch {
		t.put(&t.batch[i])
	}
	t.batch, t.streams = t.batch[:0], t.streams[:0]
}

func (t *Table) add(span ptrace.Span, resource *spanfacts.Resource, scope *spanfacts.Scope, owner uint64) {
	t.spans++
	var f spanfacts.Facts
	gpu := f.Load(span, scope)
	switch {
	case span.Kind() == ptrace.SpanKindServer:
		t.request(resource.Service, spanfacts.Elapsed(f.Start, f.End))
	case !gpu:
		t.straggler(span, resource.Rank)
	}
	if !gpu || !f.Kind.Work() {
		return
	}
	t.gpu++
	x := part{t.name(keyOf(span, &f)), statsOf(&f)}
	if f.Kind == spanfacts.Step {
		lookup(t.steps, position{op: x.op}).add(&x.stats, 1)
		return
	}
	t.batch = append(t.batch, nestedSpan{f.Key, spanfacts.Key{Trace: f.Key.Trace, Span: f.Parent}, x})
	t.streams = append(t.streams, spanfacts.NestSpan{
		Owner: owner, Device: f.Device.Number(), Stream: f.Stream, Trace: f.Key.Trace, Parent: f.Parent,
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
	parent := t.known.Get(s.parent)
	lookup(t.ops, position{parent, s.op}).add(&s.stats, 1)
	if parent == nil && !s.parent.Span.IsEmpty() {
		below, _ := t.waiting.At(s.parent, 0)
		i := slices.IndexFunc(*below, func(x part) bool { return x.op == s.op })
		if i < 0 {
			i = len(*below)
			*below = append(*below, part{op: s.op})
		}
		(*below)[i].add(&s.stats, 1)
	}
	below, _ := t.waiting.Take(s.key)
	for i := range below { // they are not outermost
		x := &below[i]
		lookup(t.ops, position{op: x.op}).add(&x.stats, -1)
		lookup(t.ops, position{s.op, x.op}).add(&x.stats, 1)
	}
	t.known.Put(s.key, s.op)
}
