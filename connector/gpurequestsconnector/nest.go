// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"iter"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// The energy and the time of a span include its descendants on all devices, also below spans of the
// host. So if a batch is inside another one, its part is subtracted from the outer one: each joule
// is charged once, by the innermost batch.
//
//	iteration  links A, B      10 J  → A and B share 10 − 6 = 4 J
//	└─ layers                   8 J
//	   └─ decode  link A        6 J  → A
//
// Within a payload the order does not matter. When the inner batch came in an earlier payload, what
// it took waits for the outer one under the id of the first ancestor that is not known yet
// ([debt]). When the outer one came before, it was charged as a whole, and the inner one is not
// charged again. GPU work without links waits, and gives up its part as long as it does.
//
// A span has only the descendants that gpu_join knew when it released the span, and without energy
// it has none. So what arrives is claimed from the energy that the spans above it state of their
// descendants, and the rest is counted by itself.

// debt is what batches on a device have subtracted from an ancestor that has not arrived yet.
type debt struct {
	device       string
	time, energy float64
	paid         bool // it is accounted for already, not only when the ancestor is known
}

// take subtracts from work what batches within it have, and returns the energy that was no part of
// it.
func (s *span) take(o debt) (rest float64) {
	rest = s.claim(o.energy)
	s.innerTime += o.time
	s.innerEnergy += o.energy - rest
	if o.paid {
		s.paid += o.energy - rest
	}
	return rest
}

// maxDepth bounds the walk up; cycles of parents end there.
const maxDepth = 64

// nest subtracts batches from the spans around them, and marks batches that were charged with the
// span around them.
func (b *book) nest(now int64) {
	for i := range b.spans {
		s := &b.spans[i]
		waited := b.pending(s)
		s.waited = waited.inner
		for _, o := range waited.debts {
			if s.take(o); s.batch {
				o.time = 0
			}
			b.lift(s.process, s.above(), o, now)
		}
	}
	for i := range b.spans {
		if s := &b.spans[i]; s.batch {
			s.outer, s.rest, s.nested = b.lift(s.process, s.above(), debt{s.device, s.time, s.energy - s.paid, false}, now)
		}
	}
	for i := range b.spans {
		s, top := &b.spans[i], -1
		for outer, depth := s.outer, 0; outer >= 0 && depth < maxDepth; depth++ {
			if b.spans[outer].nested {
				top = outer // whose rest includes this batch's
			}
			outer = b.spans[outer].outer
		}
		if top >= 0 && !s.nested {
			s.nested, s.rest = true, min(s.debt(s.device).energy, b.spans[top].rest)
			b.spans[top].rest -= s.rest
		}
		if i, ok := b.index[s.above().In(s.process)]; ok && !s.batch && s.kind != requestSpan && b.spans[i].work() {
			s.nested, s.rest = true, b.spans[i].claim(s.debt(s.device).energy)
		}
	}
}

// lift walks up from a span's parent and subtracts o from each GPU span, up to the first batch. It
// returns that batch's number (−1 if the payload has none), whether the span was counted with an
// earlier span, and the energy that no earlier span has.
func (b *book) lift(process uint64, k key, o debt, now int64) (outer int, rest float64, before bool) {
	outer = -1
	for range maxDepth {
		if k.Span.IsEmpty() {
			break
		}
		i, here := b.index[k.In(process)]
		if !here {
			i, here = b.index[k]
		}
		var s *seenSpan
		if here = here && !b.spans[i].done; here {
			s = &b.spans[i].seenSpan
		} else if s = b.find(process, k); s == nil {
			b.owe(process, k, o, now)
			break
		}
		switch {
		case s.kind == hostSpan:
		case s.kind == requestSpan:
			return outer, o.energy, before
		case !here && (s.batch || s.counted):
			before = true
			left := s.claim(o.energy)
			if o.paid {
				b.refund(process, s, o.energy-left)
			}
			o.time, o.energy = 0, left
		case here:
			left := b.spans[i].take(o)
			if s.batch {
				if outer < 0 {
					outer = i
				}
				if o.time = 0; !o.paid { // the batch's own energy has it
					o.energy = left
				}
			}
		default:
			if c := b.waiting.find(k.In(process)); c != nil {
				c.innerTime += o.time
				c.innerEnergy += o.energy - s.claim(o.energy)
			}
		}
		if o.time == 0 && o.energy == 0 && (before || outer >= 0) {
			break
		}
		k.Span = s.parent
	}
	return outer, o.energy, before
}

// division is how the energy of a batch was divided among requests.
type division struct {
	op     *operation
	source *source
	parts  []spanfacts.LinkShare
}

// maxDivisions bounds the batches whose division is known.
const maxDivisions = 256

// refund corrects a span that was charged with energy that was charged to batches inside it, too: a
// span between them arrived after both. A request that is closed keeps it; what is unassigned is
// then less.
func (b *book) refund(process uint64, s *seenSpan, energy float64) {
	left := energy
	if d := b.outer.Find(s.key.In(process)); d != nil {
		for i := range d.parts {
			if r := b.requests[d.parts[i].Key]; r != nil {
				part := d.parts[i].Share * energy
				b.account(r, d.op, d.source).energy -= part
				b.stats.charged -= part
				left -= part
			}
		}
	}
	b.stats.unassigned -= left
}

// owe records what a span that has not arrived yet contains.
func (b *book) owe(process uint64, k key, o debt, now int64) {
	list := &b.arrived.Sum(process, k, now).debts
	for i := range *list {
		if x := &(*list)[i]; x.device == o.device {
			x.time += o.time
			x.energy += o.energy
			return
		}
	}
	o.device, o.paid = b.text(o.device), true // by the time the span arrives
	*list = append(*list, o)
}

// ancestor walks up from a child while spans are known. It returns the first that stop accepts, and
// the GPU work in between that contains the child.
func (b *book) ancestor(c *child, stop func(*seenSpan) bool) (found, around *seenSpan) {
	first := true
	for s := range b.up(c.source.process, c.above()) {
		if first && s.kind != hostSpan && s.kind != requestSpan {
			first, around = false, s
		}
		if stop(s) {
			return s, around
		}
	}
	return nil, around
}

// outside returns the energy of GPU work that no GPU work above it includes.
func (b *book) outside(c *child, now int64) float64 {
	own, k := c.debt(c.device), c.above()
	own.time = 0
	for range maxDepth {
		if k.Span.IsEmpty() {
			break
		}
		s := b.find(c.source.process, k)
		if s == nil {
			b.owe(c.source.process, k, own, now)
			break
		}
		if s.kind == requestSpan {
			break
		}
		if s.kind != hostSpan {
			if own.energy = s.claim(own.energy); own.energy == 0 {
				break
			}
		}
		k = s.above()
	}
	return own.energy
}

// had reports whether GPU work above a child, whose energy contains the child's, was counted
// before. A request may be between the two, so that the child belongs to the request as well.
func (b *book) had(c *child) bool {
	for parent := range b.up(c.source.process, c.above()) {
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
func (b *book) up(process uint64, k key) iter.Seq[*seenSpan] {
	return func(yield func(*seenSpan) bool) {
		for range maxDepth {
			s := b.find(process, k)
			if s == nil || !yield(s) {
				return
			}
			k = s.above()
		}
	}
}
