// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/hashindex"
)

// child is GPU work without links, which may belong to the request above it.
type child struct {
	key
	parent     pcommon.SpanID
	start, end uint64 // unix ns
	seen       int64  // when it arrived
	usage
	op     *operation
	source *source
	device string // hw.id
	kind   kind
	next   int32 // in the same trace, younger; of a free element the next free one
}

func (c *child) above() key { return key{Trace: c.Trace, Span: c.parent} }

func (c *child) id() key { return c.key.In(c.source.process) }

// children are the GPU work that waits for the requests of its trace. Tens of thousands wait in a
// busy service, so they are the elements of one array: as separate objects they made every cycle of
// the garbage collector several times as long.
type children struct {
	list   []child // the first is unused, so that index 0 means none
	free   int32   // head of the list of free elements
	at     hashindex.Index
	traces map[pcommon.TraceID]family
}

// family are the children of one trace, the oldest first.
type family struct{ first, last int32 }

func newChildren() children {
	return children{list: make([]child, 1), traces: map[pcommon.TraceID]family{}}
}

// find returns the child with a key in its process, nil if none waits. The pointer is valid until
// the next add.
func (w *children) find(k key) *child {
	if i, ok := w.at.Get(k.Hash(), w.is(&k)); ok {
		return &w.list[i]
	}
	return nil
}

func (w *children) is(k *key) func(at int32) bool {
	return func(at int32) bool { return w.list[at].id() == *k }
}

func (w *children) add(c child) {
	i := w.free
	if i == 0 {
		i = int32(len(w.list))
		w.list = append(w.list, child{})
	}
	w.free, w.list[i] = w.list[i].next, c
	id := c.id()
	w.at.Put(id.Hash(), i, w.is(&id))
	f, ok := w.traces[c.Trace]
	if ok {
		w.list[f.last].next = i
	} else {
		f.first = i
	}
	f.last = i
	w.traces[c.Trace] = f
}

// remove ends the wait of the children of a trace for which done returns true; done may change
// nothing but the children themselves.
func (w *children) remove(trace pcommon.TraceID, done func(*child) bool) {
	var left family
	for i := w.traces[trace].first; i != 0; {
		c := &w.list[i]
		next := c.next
		if done(c) {
			w.at.Delete(c.id().Hash(), i)
			*c = child{next: w.free}
			w.free = i
		} else {
			if c.next = 0; left.last != 0 {
				w.list[left.last].next = i
			} else {
				left.first = i
			}
			left.last = i
		}
		i = next
	}
	if left.first == 0 {
		delete(w.traces, trace)
		return
	}
	w.traces[trace] = left
}

// wait keeps GPU work without links until the requests of its trace are known, and the batches
// within it.
func (b *book) wait(s *span, now int64) {
	own := s.debt(s.device)
	if s.nested {
		own = debt{s.device, 0, s.rest, false}
		s.usage = usage{energy: s.rest, coverage: s.coverage, upper: s.upper}
	}
	if s.kind == leafWork && s.parent.IsEmpty() {
		b.stats.unassigned += own.energy
		return
	}
	if b.waiting.at.Len() >= b.cfg.MaxSpans {
		b.stats.lostChildren++
		b.stats.unassigned += own.energy
		own.paid = true
		b.lift(s.process, s.above(), own, now)
		return
	}
	b.waiting.add(child{
		key: s.key, parent: s.parent, start: s.start, end: s.end, seen: now, usage: s.usage,
		op: b.operation(s.operation), source: s.source, device: b.text(s.device), kind: s.kind,
	})
}

// adopt assigns to the ending requests of a trace the GPU work below them, as far as the spans
// between have arrived.
func (b *book) adopt(trace pcommon.TraceID, now int64) {
	b.waiting.remove(trace, func(c *child) bool {
		if !c.kind.adopted() {
			return false
		}
		r := b.ending[c.above()]
		above, around := b.ancestor(c, func(s *seenSpan) bool { return b.requests[s.key] != nil || b.ending[s.key] != nil })
		if above != nil {
			r = b.ending[above.key]
		}
		switch {
		case around != nil || r == nil:
			return false
		case b.had(c):
			b.joinRest(r, c, now)
		default:
			b.counted(c, now)
			b.join(r, c)
		}
		return true
	})
}

// join adds GPU work of the request's own trace to its usage record.
func (b *book) join(r *request, c *child) {
	own := c.debt(c.device)
	s := span{seenSpan: seenSpan{key: c.key, start: c.start, device: c.device}, end: c.end, usage: c.usage}
	a := b.account(r, c.op, c.source)
	a.batches++
	a.sizes++
	a.times(&s, 0)
	a.add(&s, c.items, own.time, own.energy)
	b.stats.charged += own.energy
}

// joinRest ends the wait of GPU work inside other GPU work. Energy that is no part of that is added
// to the request, or is unattributed without one.
func (b *book) joinRest(r *request, c *child, now int64) {
	rest := b.outside(c, now)
	if s := b.find(c.source.process, c.key); s != nil {
		s.counted = true
	}
	if rest == 0 {
		return
	}
	if r == nil {
		b.stats.unassigned += rest
		return
	}
	c.usage = usage{energy: rest, coverage: c.coverage, upper: c.upper}
	b.join(r, c)
}

// counted ends the wait of a child whose energy is accounted for. GPU work above it that has not
// arrived yet contains it too.
func (b *book) counted(c *child, now int64) {
	own := c.debt(c.device)
	own.paid = true
	b.lift(c.source.process, c.above(), own, now)
	if s := b.find(c.source.process, c.key); s != nil {
		s.counted = true
	}
}

// parentPatience is for how many idle periods a span that arrives after the work inside it is known
// to include that work.
const parentPatience = 10

// expire ends the wait of GPU work that no request has claimed. Below a span of kind server or
// consumer it is a request without batches; work inside other GPU work is part of it; the rest is
// unattributed. A trace waits as a whole, because its request may take long; when half of the room
// is used, its old work is released without waiting for its new work.
func (b *book) expire(now int64, all bool) {
	old := now - int64(b.cfg.Idle)
	crowded := b.waiting.at.Len() > b.cfg.MaxSpans/2
	for trace, f := range b.waiting.traces {
		limit := int64(math.MaxInt64)
		if !all && b.waiting.list[f.last].seen > old {
			if limit = old; !crowded || b.waiting.list[f.first].seen > old {
				continue
			}
		}
		var opened []*request
		b.waiting.remove(trace, func(c *child) bool {
			if c.seen > limit {
				return false
			}
			above, around := b.ancestor(c, func(s *seenSpan) bool {
				return s.entry || b.requests[s.key] != nil || b.closed.Find(s.key) != nil
			})
			switch {
			case around != nil || b.had(c):
				var r *request
				if above != nil && c.kind.adopted() {
					r = b.requests[above.key]
				}
				b.joinRest(r, c, now)
			case above == nil || !c.kind.adopted():
				b.stats.unassigned += c.debt(c.device).energy
				b.counted(c, now)
			default:
				r := b.requests[above.key]
				if r == nil {
					r = b.open(above.key, now)
					opened = append(opened, r)
				}
				b.counted(c, now)
				b.join(r, c)
			}
			return true
		})
		for _, r := range opened {
			if b.requests[r.key] == r {
				b.close(r, settled, now)
			}
		}
	}
	b.arrived.Expire(now - parentPatience*int64(b.cfg.Idle))
}
