// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import "go.opentelemetry.io/collector/pdata/pcommon"

// The energy and the time of a span contain those of its descendants. So where a batch lies within another one, its
// part is taken off the outer one: each joule is charged once, by the innermost batch.
//
//	iteration  links A, B      10 J  → A and B share 10 − 6 = 4 J
//	└─ layers                   8 J
//	   └─ decode  link A        6 J  → A
//
// Within a payload the order does not matter. When the inner batch came in an earlier payload, what it took waits for
// the outer one under the id of the first ancestor that is not known yet (owed). When the outer one came before, it
// was charged as a whole, and the inner one is not charged again. GPU work without links waits, and gives up its part
// as long as it does.

// owed is what batches have taken from an ancestor that has not come yet.
type owed struct {
	time, energy float64
}

// maxDepth bounds the way up; parents that form a circle end there.
const maxDepth = 64

// nest takes what batches have off the spans around them, and marks batches that were charged with the span around
// them.
func (b *book) nest(now int64) {
	clear(b.index)
	for i := range b.spans {
		b.index[b.spans[i].key] = i
	}
	for i := range b.spans {
		s := &b.spans[i]
		if o, ok := b.owed.Take(s.key); ok {
			s.innerTime += o.time
			s.innerEnergy += o.energy
			if !s.batch {
				b.lift(s, o, now)
			}
		}
		if s.batch {
			s.outer, s.nested = b.lift(s, owed{s.time, s.energy}, now)
		}
	}
	for i := range b.spans {
		s, outer := &b.spans[i], b.spans[i].outer
		for depth := 0; !s.nested && outer >= 0 && depth < maxDepth; depth++ {
			s.nested, outer = b.spans[outer].nested, b.spans[outer].outer
		}
	}
}

// lift goes up from a span and takes o off each GPU span on the way, up to the first batch. It returns that batch's
// number, −1 where there is none in the payload, and whether the energy was counted with a span that came before.
func (b *book) lift(s *span, o owed, now int64) (outer int, before bool) {
	parent := s.parent
	for range maxDepth {
		if parent.IsEmpty() {
			return -1, false
		}
		k := key{Trace: s.Trace, Span: parent}
		if i, ok := b.index[k]; ok {
			x := &b.spans[i]
			if x.kind == requestSpan {
				return -1, false
			}
			x.innerTime += o.time
			x.innerEnergy += o.energy
			if x.batch {
				return i, false
			}
			parent = x.parent
			continue
		}
		known := b.recent.find(k)
		if known == nil {
			x, _ := b.owed.At(k, now)
			x.time += o.time
			x.energy += o.energy
			return -1, false
		}
		if known.batch || known.counted || known.kind == hostSpan || known.kind == requestSpan {
			return -1, known.batch || known.counted
		}
		if c := b.waiting[k]; c != nil {
			c.innerTime += o.time
			c.innerEnergy += o.energy
		}
		parent = known.parent
	}
	return -1, false
}

// ancestor goes up from a parent while spans are known. It returns the first that stop accepts, and whether GPU work
// lies on the way.
func (b *book) ancestor(k key, parent pcommon.SpanID, stop func(*seenSpan) bool) (found *seenSpan, inWork bool) {
	for range maxDepth {
		if parent.IsEmpty() {
			return nil, inWork
		}
		s := b.recent.find(key{Trace: k.Trace, Span: parent})
		if s == nil {
			return nil, inWork
		}
		inWork = inWork || s.kind != hostSpan && s.kind != requestSpan
		if stop(s) {
			return s, inWork
		}
		parent = s.parent
	}
	return nil, inWork
}
