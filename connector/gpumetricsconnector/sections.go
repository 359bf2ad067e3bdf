// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

const (
	// maxSums limits the spans for whose descendants sums are kept, maxParts the sums of all of them, about 100 bytes
	// each.
	maxSums, maxParts = 1 << 16, 1 << 18
	// maxHosts limits the walk through host spans; a cycle of parents ends there too.
	maxHosts = 128
)

// sectionTree sums up operations by name, level by level, until a step takes the sums of its descendants. Spans of a
// batch may be in any order; over batches children precede parents, which is how they end.
type sectionTree struct {
	sums  spanfacts.Waiting[straggler.Sections]
	count int // parts in sums

	// of the current batch
	spans   []treeSpan
	streams []spanfacts.NestSpan // the same
	order   spanfacts.Order      // of spans
	hosts   []hostSpan
	ups     map[spanfacts.Key]spanfacts.Key // parents of hosts
}

type treeSpan struct {
	spanfacts.NestSpan
	key            spanfacts.Key
	time           float64
	name, category string
}

func (s *treeSpan) parent() spanfacts.Key { return spanfacts.Key{Trace: s.Trace, Span: s.Parent} }

// hostSpan is a span that is not of the GPU.
type hostSpan struct{ key, parent spanfacts.Key }

// add adds a span of the batch; process identifies its process.
func (t *sectionTree) add(process uint64, f *facts) {
	key := f.Key.In(process)
	t.spans = append(t.spans, treeSpan{
		key: key, time: f.Time, name: f.Name, category: f.Category,
		NestSpan: spanfacts.NestSpan{
			Owner: process, Device: f.Device.Number(), Stream: f.Stream, Trace: key.Trace, Parent: f.Parent,
			Start: int64(f.Start), End: int64(f.End),
		},
	})
}

// addHost adds a host span of the batch, so that the spans below it count for the span above it.
func (t *sectionTree) addHost(process uint64, f *facts) {
	t.hosts = append(t.hosts, hostSpan{f.Key.In(process), f.parent().In(process)})
}

// settle adds the spans of the batch to the sums, children before parents.
func (t *sectionTree) settle() {
	if len(t.spans) > 0 || t.sums.Len() > 0 {
		for _, h := range t.hosts {
			t.ups[h.key] = h.parent
		}
		for i := range t.spans {
			s := &t.spans[i]
			up := t.above(s.parent())
			s.Trace, s.Parent = up.Trace, up.Span
			t.streams = append(t.streams, s.NestSpan)
		}
		spanfacts.Nest(t.streams, func(inner, outer int) {
			x := &t.streams[inner]
			x.Trace, x.Parent = t.spans[outer].key.Trace, t.spans[outer].key.Span
			t.spans[inner].NestSpan = *x
		})
		t.streams = t.streams[:0]
		t.order.Reset()
		for i := range t.spans {
			t.order.Add(t.spans[i].key, t.spans[i].parent())
		}
		for _, i := range t.order.ChildrenFirst() {
			t.span(&t.spans[i])
		}
		clear(t.spans) // their strings share the batch's memory
		for _, h := range t.hosts {
			t.lift(h.key, t.above(h.parent))
		}
		clear(t.ups)
	}
	t.spans, t.hosts = t.spans[:0], t.hosts[:0]
}

// above returns the first of a span and its ancestors that is not a host span of this batch.
func (t *sectionTree) above(key spanfacts.Key) spanfacts.Key {
	for range maxHosts {
		up, ok := t.ups[key]
		if !ok {
			break
		}
		key = up
	}
	return key
}

// span adds a span, with its descendants, to the sums of its parent.
func (t *sectionTree) span(s *treeSpan) {
	below := t.take(s.key)
	parent := s.parent()
	if parent.Span.IsEmpty() {
		return
	}
	for t.count >= maxParts && t.sums.Len() > 0 {
		t.sums.DropOldest()
	}
	at, _ := t.sums.At(parent, 0)
	name, category := s.name, s.category
	if at.Find(name) == nil {
		name, category = strings.Clone(name), strings.Clone(category)
	}
	extent := straggler.Extent{Start: uint64(s.Start), End: uint64(s.End)}
	if !spanfacts.Sound(extent.Start, extent.End) {
		extent = straggler.Extent{}
	}
	t.count += at.Add(name, category, s.time, extent, below)
}

// lift moves the sums that wait for a host span, whose batch arrived later, to its parent.
func (t *sectionTree) lift(host, up spanfacts.Key) {
	if below := t.take(host); below != nil && !up.Span.IsEmpty() && up != host {
		at, _ := t.sums.At(up, 0)
		t.count += at.Join(below)
	}
}

// take removes and returns the sums of a span's descendants; nil if unknown.
func (t *sectionTree) take(key spanfacts.Key) *straggler.Sections {
	below, ok := t.sums.Take(key)
	if !ok {
		return nil
	}
	t.count -= below.Size()
	return &below
}
