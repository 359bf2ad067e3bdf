// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
)

// child is GPU work without links, which may belong to the request above it.
type child struct {
	span
	seen int64
}

// wait keeps GPU work without links until the requests of its trace are known, and the batches within it.
func (b *book) wait(s *span, now int64) {
	if i, ok := b.index[s.above()]; ok {
		if x := &b.spans[i]; x.work() && contains(gpuWork, x.device, s.device) {
			return // the span around it has it, and so has what is around that; of a step on another device only the step
		}
	}
	own := s.debt()
	if s.kind == leafWork && s.parent.IsEmpty() {
		b.stats.unassigned += own.energy
		return
	}
	if len(b.waiting) >= b.cfg.MaxSpans {
		b.stats.lostChildren++
		b.stats.unassigned += own.energy
		b.lift(s.above(), own, now)
		return
	}
	c := &child{*s, now}
	op := b.operation(s.operation)
	c.operation = *op
	c.device = b.text(s.device)
	b.traces[s.Trace] = append(b.traces[s.Trace], c)
	b.waiting[s.key] = c
}

// adopt assigns to the ending requests of a trace the GPU work below them, as far as the spans between have arrived.
func (b *book) adopt(trace pcommon.TraceID, now int64) {
	all := b.traces[trace]
	if len(all) == 0 {
		return
	}
	left := slices.DeleteFunc(all, func(c *child) bool {
		if !c.adopted() {
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
			delete(b.waiting, c.key)
		default:
			b.join(r, c, now)
		}
		return true
	})
	if len(left) == 0 {
		delete(b.traces, trace)
		return
	}
	b.traces[trace] = left
}

// join adds GPU work of the request's own trace to its account.
func (b *book) join(r *request, c *child, now int64) {
	b.counted(c, now)
	own := c.debt()
	a := b.account(r, b.operation(c.operation), c.source)
	a.batches++
	a.sizes++
	a.times(&c.span, 0)
	a.add(&c.span, c.items, own.time, own.energy)
	b.stats.charged += own.energy
}

// counted ends the wait of a child whose energy is accounted for. GPU work above it that has not arrived yet contains
// it too.
func (b *book) counted(c *child, now int64) {
	delete(b.waiting, c.key)
	b.lift(c.above(), c.debt(), now)
	if s := b.recent.Find(c.key); s != nil {
		s.counted = true
	}
}

// parentPatience is for how many idle periods a span that arrives after the work inside it is known to include that
// work.
const parentPatience = 10

// expire ends the wait of GPU work that no request has claimed. Below a span of kind server or consumer it is a request
// without batches; work inside other GPU work is part of it; the rest is unattributed. A trace waits as a whole,
// because its request may take long; when half of the room is used, its old work is released without waiting for its
// new work.
func (b *book) expire(now int64, all bool) {
	old := now - int64(b.cfg.Idle)
	crowded := len(b.waiting) > b.cfg.MaxSpans/2
	for trace, list := range b.traces {
		if !all && list[len(list)-1].seen > old {
			fresh := 0
			for crowded && list[fresh].seen <= old {
				fresh++
			}
			if fresh == 0 {
				continue
			}
			b.traces[trace], list = slices.Clone(list[fresh:]), list[:fresh]
		} else {
			delete(b.traces, trace)
		}
		var opened []*request
		for _, c := range list {
			above, around := b.ancestor(c, func(s *seenSpan) bool {
				return s.entry || b.requests[s.key] != nil || b.closed.Find(s.key) != nil
			})
			switch {
			case around != nil && contains(gpuWork, around.device, c.device) || b.had(c):
				delete(b.waiting, c.key)
			case above == nil || around != nil || !c.adopted():
				b.stats.unassigned += c.debt().energy
				b.counted(c, now)
			default:
				r := b.requests[above.key]
				if r == nil {
					r = b.open(above.key, now)
					opened = append(opened, r)
				}
				b.join(r, c, now)
			}
		}
		for _, r := range opened {
			if b.requests[r.key] == r {
				b.close(r, settled, now)
			}
		}
	}
	b.debts.Expire(now - parentPatience*int64(b.cfg.Idle))
	b.inner.Expire(now - parentPatience*int64(b.cfg.Idle))
}
