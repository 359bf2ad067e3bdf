// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// covered is device time below the span above it that is counted already.
type covered struct {
	above      int32
	device     *timeline
	start, end uint64
	gaps       uint64 // time inside that is not counted, if pieces were folded into one
}

// countedBelow is what was counted below a span that has not arrived.
type countedBelow struct {
	pieces []covered
	energy float64 // J
}

// charge subtracts joules from the span around them, if that states its energy only with its
// descendants'.
func (b *Builder) charge(joules float64, r *resolved) {
	if joules == 0 {
		return
	}
	if r.fed >= 0 {
		if up := &b.spans[r.fed]; up.whole {
			up.energy = max(0, up.energy-joules)
		}
	} else if missing := b.hangs[r.hangs].missing; missing != (spanfacts.Key{}) {
		b.done.Sum(0, missing, 0).energy += joules
	}
}

// owe records device time that was counted below a span that has not arrived.
func (b *Builder) owe(k spanfacts.Key, c covered) {
	for b.pieces >= b.opts.MaxSpans && b.done.Waiting() > 1 {
		b.done.DropOldest()
	}
	list := b.done.Sum(0, k, 0)
	n := len(list.pieces)
	if n > 0 {
		if last := &list.pieces[n-1]; last.device == c.device && c.start <= last.end && c.end >= last.start {
			*last = join(*last, c)
			return
		}
	}
	if n >= maxOwed {
		list.pieces = fold(list.pieces)
		b.pieces -= n - len(list.pieces)
	}
	list.pieces = append(list.pieces, c)
	b.pieces++
}

// maxOwed bounds the pieces of time that wait for one span.
const maxOwed = 10_000

// fold merges every two neighbors into one piece. Their sum stays exact, but not their positions.
func fold(list []covered) []covered {
	slices.SortStableFunc(list, func(x, y covered) int { return cmp.Compare(x.start, y.start) })
	last := map[*timeline]int{} // in out: the neighbor of the next piece of the device
	out := list[:0]
	for _, c := range list {
		i, ok := last[c.device]
		if !ok {
			last[c.device] = len(out)
			out = append(out, c)
			continue
		}
		out[i] = join(out[i], c)
		delete(last, c.device)
	}
	return out
}

// join returns one piece for two of a device.
func join(x, y covered) covered {
	if y.start < x.start {
		x, y = y, x
	}
	end := max(x.end, y.end)
	sum := union([]covered{x, y}, x.start, end)
	x.end, x.gaps = end, end-x.start-uint64(sum)
	return x
}

// takeOwed subtracts from a span, or from the span with device time around it, what was counted
// below it before.
func (b *Builder) takeOwed(i int32, r *resolved) {
	below, ok := b.done.Take(0, b.spans[i].key)
	if !ok {
		return
	}
	b.pieces -= len(below.pieces)
	s := &b.spans[i]
	switch {
	case s.total == 0:
		b.charge(below.energy, r)
	case s.whole:
		s.energy = max(0, s.energy-below.energy)
	}
	missing := b.hangs[r.hangs].missing
	for _, c := range below.pieces {
		c.above = r.timed
		if s.time > 0 && s.placed && s.device == c.device {
			c.above = i
		} else if c.above >= 0 && b.spans[c.above].device != c.device {
			c.above = -1
		}
		switch {
		case c.above >= 0:
			b.covers = append(b.covers, c)
		case missing != (spanfacts.Key{}):
			b.owe(missing, c)
		}
	}
}

// union returns the length of the union of intervals, in the order of their start, within [start,
// end). The gaps of folded pieces have unknown positions: the result is the maximum of the union.
func union(list []covered, start, end uint64) (sum int64) {
	at, gaps := start, uint64(0)
	for _, c := range list {
		from, to := max(c.start, start), min(c.end, end)
		if to <= from {
			continue
		}
		solid := min(to-from, c.end-c.start-c.gaps)
		if to > at {
			outside := to - max(from, at)
			add := min(outside, solid)
			sum += int64(add)
			solid -= add
			gaps += outside - add
			at = to
		}
		filled := min(gaps, solid)
		sum += int64(filled)
		gaps -= filled
	}
	return sum
}
