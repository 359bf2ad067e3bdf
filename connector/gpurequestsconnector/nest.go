// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"iter"
)

// The energy and the time of a span include its descendants on all devices, also below spans of the host. So if a batch
// is inside another one, its part is subtracted from the outer one: each joule is charged once, by the innermost batch.
//
//	iteration  links A, B      10 J  → A and B share 10 − 6 = 4 J
//	└─ layers                   8 J
//	   └─ decode  link A        6 J  → A
//
// Within a payload the order does not matter. When the inner batch came in an earlier payload, what it took waits for
// the outer one under the id of the first ancestor that is not known yet ([debt]). When the outer one came before, it
// was charged as a whole, and the inner one is not charged again. GPU work without links waits, and gives up its part
// as long as it does.

// debt is what batches on a device have subtracted from an ancestor that has not arrived yet.
type debt struct {
	device       string
	time, energy float64
}

// take subtracts from work what batches within it have.
func (u *usage) take(o debt) {
	u.innerTime += o.time
	u.innerEnergy += o.energy
}

// maxDepth bounds the walk up; cycles of parents end there.
const maxDepth = 64

// nest subtracts batches from the spans around them, and marks batches that were charged with the span around them.
func (b *book) nest(now int64) {
	for i := range b.spans {
		s := &b.spans[i]
		waiting, _ := b.debts.Take(s.key)
		for _, o := range waiting {
			if s.take(o); !s.batch {
				b.lift(s.above(), o, now)
			}
		}
		if s.batch {
			s.outer, s.nested = b.lift(s.above(), debt{s.device, s.time, s.energy}, now)
		}
	}
	for i := range b.spans {
		s, outer := &b.spans[i], b.spans[i].outer
		for depth := 0; !s.nested && outer >= 0 && depth < maxDepth; depth++ {
			s.nested, outer = b.spans[outer].nested, b.spans[outer].outer
		}
	}
}

// lift walks up from a span's parent and subtracts o from each GPU span, up to the first batch. It
// returns that batch's number (−1 if the payload has none), and whether the energy was counted with an earlier span.
func (b *book) lift(k key, o debt, now int64) (outer int, before bool) {
	for range maxDepth {
		if k.Span.IsEmpty() {
			return -1, false
		}
		i, here := b.index[k]
		var s *seenSpan
		if here = here && !b.spans[i].done; here {
			s = &b.spans[i].seenSpan
		} else if s, i = b.recent.Find(k), -1; s == nil {
			b.owe(k, o, now)
			return -1, false
		}
		switch {
		case s.kind == hostSpan:
			k.Span = s.parent
			continue
		case s.kind == requestSpan:
			return -1, false
		case !here && (s.batch || s.counted):
			return -1, true
		case here:
			b.spans[i].take(o)
		default:
			if c := b.waiting.find(k); c != nil {
				c.take(o)
			}
		}
		if s.batch {
			return i, false
		}
		k.Span = s.parent
	}
	return -1, false
}

// owe records what a span that has not arrived yet contains.
func (b *book) owe(k key, o debt, now int64) {
	list, _ := b.debts.At(k, now)
	for i := range *list {
		if x := &(*list)[i]; x.device == o.device {
			x.time += o.time
			x.energy += o.energy
			return
		}
	}
	o.device = b.text(o.device)
	*list = append(*list, o)
}

// ancestor walks up from a child while spans are known. It returns the first that stop accepts, and the GPU work in
// between that contains the child.
func (b *book) ancestor(c *child, stop func(*seenSpan) bool) (found, around *seenSpan) {
	first := true
	for s := range b.up(c.above()) {
		if first && s.kind != hostSpan && s.kind != requestSpan {
			first, around = false, s
		}
		if stop(s) {
			return s, around
		}
	}
	return nil, around
}

// had reports whether GPU work above a child, whose energy contains the child's, was counted before. A request may be
// between the two, so that the child belongs to the request as well.
func (b *book) had(c *child) bool {
	for parent := range b.up(c.above()) {
		switch {
		case parent.kind == hostSpan:
		case parent.kind == requestSpan:
			return false
		case parent.batch || parent.counted:
			return true
		}
	}
	return false
}

// up returns the spans from the one with a key upward, while they are known.
func (b *book) up(k key) iter.Seq[*seenSpan] {
	return func(yield func(*seenSpan) bool) {
		for range maxDepth {
			s := b.recent.Find(k)
			if s == nil || !yield(s) {
				return
			}
			k = s.above()
		}
	}
}
