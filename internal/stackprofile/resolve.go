// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"cmp"
	"math"
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/spantree"
)

// tree is the pending spans below one that has no pending parent, which carries it.
type tree struct {
	oldest, newest int64 // arrivals
	due            bool
}

// maxDepth bounds the walk up; cycles of parents end there.
const maxDepth = 1024

// Resolve counts the trees that are complete and have been quiet for the settle time, and trees in
// which a span has waited too long. all: every tree, at the end.
func (b *Builder) Resolve(now int64, all bool) {
	settle, wait := int64(b.opts.Settle), int64(b.opts.MaxWait)
	b.resolve(now, func(top *span, t *tree) bool {
		return all || b.complete(top) && now-t.newest >= settle || now-t.oldest >= wait
	})
	b.settleIdle(all)
}

// makeRoom counts complete trees early, and all trees where that is not enough.
func (b *Builder) makeRoom(now int64) {
	b.resolve(now, func(top *span, _ *tree) bool { return b.complete(top) })
	if len(b.spans) > b.opts.MaxSpans/2 {
		b.resolve(now, func(*span, *tree) bool { return true })
	}
	b.settleIdle(false)
}

// counted is what late spans below a span need to know about it.
type counted struct {
	stack      *Stack
	source     *Source
	device     *timeline // of the nearest span with device time; nil: there is none
	start, end uint64    // of that
	whole      bool      // the nearest span with energy has no energy attribute for itself, so it includes late spans
}

// counted returns a span that was counted, nil if it is not known.
func (b *Builder) counted(k spanfacts.Key) *counted {
	d, _ := b.done.Find(0, k)
	return d
}

// complete reports whether the stack of a span without a pending parent is known.
func (b *Builder) complete(top *span) bool {
	if top.up == noParent {
		return true
	}
	return b.counted(spanfacts.Key{Trace: top.key.Trace, Span: top.parent}) != nil
}

// resolve counts the trees that are due.
func (b *Builder) resolve(now int64, due func(top *span, t *tree) bool) {
	n := len(b.spans)
	if n == 0 {
		return
	}
	b.trees, b.top = slices.Grow(b.trees[:0], n)[:n], slices.Grow(b.top[:0], n)[:n]
	clear(b.trees)
	for i := range b.top {
		b.top[i] = unknown
	}
	for i := range b.spans {
		b.findTop(int32(i))
		s, t := &b.spans[i], &b.trees[b.top[i]]
		s.seen = min(s.seen, now) // the clock was set back
		if t.oldest == 0 || s.seen < t.oldest {
			t.oldest = s.seen
		}
		t.newest = max(t.newest, s.seen)
	}
	some := false
	for i := range b.spans {
		if b.top[i] == int32(i) {
			b.trees[i].due = due(&b.spans[i], &b.trees[i])
			some = some || b.trees[i].due
		}
	}
	if some {
		b.count()
		b.compact()
	}
}

// findTop follows parents from a span to the one without a pending parent.
func (b *Builder) findTop(i int32) {
	at := i
	b.path = b.path[:0]
	const onPath = -3
	for b.top[at] == unknown {
		s := &b.spans[at]
		b.top[at] = onPath
		b.path = append(b.path, at)
		if s.up == unknown {
			if up, ok := b.pending(spanfacts.Key{Trace: s.key.Trace, Span: s.parent}); ok && up != at {
				s.up = up
			}
		}
		if s.up < 0 || len(b.path) >= maxDepth {
			break
		}
		if b.top[s.up] == onPath { // a circle
			s.up = noParent
			break
		}
		at = s.up
	}
	last := b.path
	top := at
	if len(last) > 0 && last[len(last)-1] == at && b.spans[at].up >= 0 { // too deep
		b.spans[at].up = noParent
	} else if b.top[at] >= 0 {
		top = b.top[at]
	}
	for _, j := range last {
		b.top[j] = top
	}
}

// count adds the spans of the due trees to their windows.
func (b *Builder) count() {
	n := len(b.spans)
	if cap(b.found) > 4*n+1024 {
		b.found = nil
	}
	b.found = slices.Grow(b.found[:0], n)[:n]
	clear(b.found)
	stacks := b.found
	b.hangs = append(b.hangs[:0], hanging{})
	b.covers = b.covers[:0]
	for i := range b.spans {
		s := &b.spans[i]
		if !b.trees[b.top[i]].due {
			continue
		}
		b.stackOf(int32(i), stacks)
		r := &stacks[i]
		b.takeOwed(int32(i), r)
		b.charge(s.total, r)
		if s.time == 0 || !s.placed {
			continue
		}
		missing := b.hangs[r.hangs].missing
		switch above := r.timed; {
		case s.up >= 0 && above >= 0:
			b.covers = append(b.covers, covered{above, s.device, s.start, s.end, 0})
		case missing != (spanfacts.Key{}):
			b.owe(missing, covered{0, s.device, s.start, s.end, 0})
		}
	}
	slices.SortFunc(b.covers, func(x, y covered) int {
		return cmp.Or(cmp.Compare(x.above, y.above), cmp.Compare(x.start, y.start))
	})
	rest := b.covers
	for i := range b.spans {
		if !b.trees[b.top[i]].due {
			continue
		}
		k := 0
		for k < len(rest) && rest[k].above == int32(i) {
			k++
		}
		b.put(int32(i), &stacks[i], rest[:k])
		rest = rest[k:]
	}
}

// resolved holds what was found on the way up from a span.
type resolved struct {
	stack  *Stack
	source *Source
	timed  int32 // nearest span around it with device time on its device, or -1
	fed    int32 // nearest span around it with energy, or -1
	hangs  int32 // of its tree, in Builder.hangs
}

// hanging is where a tree's top hangs. The zero value is the root of a trace.
type hanging struct {
	missing spanfacts.Key // below a span that has not arrived
	late    counted       // below a span that was counted
}

// stackOf finds the stack of a span, and the stacks of the spans around it.
func (b *Builder) stackOf(i int32, stacks []resolved) {
	b.path = b.path[:0]
	for at := i; at >= 0 && stacks[at].stack == nil; at = b.spans[at].up {
		b.path = append(b.path, at)
	}
	for _, at := range slices.Backward(b.path) {
		s, r := &b.spans[at], &stacks[at]
		r.timed, r.fed = -1, -1
		if s.up >= 0 {
			up := &stacks[s.up]
			r.stack, r.source, r.hangs, r.fed = up.stack, up.source, up.hangs, up.fed
			if b.spans[s.up].total > 0 {
				r.fed = s.up
			}
			r.timed = b.timedAbove(s, s.up, stacks)
		} else {
			b.startStack(s, r)
		}
		if s.extra != nil {
			for _, f := range s.extra.above {
				r.stack = b.child(r.stack, f)
			}
		}
		// A section that shows a range of the host on the device is the range.
		if s.frame != nil && !(s.projected && s.frame.Name == r.stack.Frame.Name) {
			r.stack = b.child(r.stack, s.frame)
		}
	}
}

func (b *Builder) startStack(s *span, r *resolved) {
	r.source = s.source
	if s.up == unknown {
		key := spanfacts.Key{Trace: s.key.Trace, Span: s.parent}
		r.hangs = int32(len(b.hangs))
		if d := b.counted(key); d != nil {
			r.stack, r.source = d.stack, d.source
			b.hangs = append(b.hangs, hanging{late: *d})
			return
		}
		b.hangs = append(b.hangs, hanging{missing: key})
	}
	r.stack = b.rootOf(s.source)
	if s.extra != nil && !s.extra.link.Span.IsEmpty() { // work for requests is below their route
		if i, ok := b.pending(s.extra.link); ok {
			if f := b.spans[i].frame; f != nil && f.Kind == Route {
				r.stack = b.child(r.stack, f)
			}
		} else if d := b.counted(s.extra.link); d != nil && d.stack.Frame.Kind == Route {
			r.stack = b.child(r.stack, d.stack.Frame)
		}
	}
}

// timedAbove returns the nearest span with device time, from at on upwards, on the device of s.
func (b *Builder) timedAbove(s *span, at int32, stacks []resolved) int32 {
	for depth := 0; at >= 0 && depth < maxDepth; depth++ {
		x := &b.spans[at]
		if x.time > 0 && x.placed && (s.device == nil || x.device == s.device) {
			return at
		}
		next := stacks[at].timed
		if next < 0 && x.device == nil || s.device == nil || x.device == s.device {
			return next
		}
		at = x.up
	}
	return -1
}

// put adds a span's values to its window; below is the time covered by spans below it, by start.
func (b *Builder) put(i int32, r *resolved, below []covered) {
	s, top := &b.spans[i], &b.hangs[r.hangs]
	self := s.time
	if self > 0 && s.placed {
		self -= union(below, s.start, s.end)
		if d := top.late.device; d != nil && d == s.device && r.timed < 0 {
			b.stats.Late++
			inside := int64(min(s.end, top.late.end)) - int64(max(s.start, top.late.start))
			self = max(0, self-max(0, inside))
		}
	}
	if top.late.whole {
		s.energy = 0 // counted on the span around it
	}
	if top.missing != (spanfacts.Key{}) && (s.time > 0 || s.energy > 0) {
		b.stats.Incomplete++
	}
	var in *Profile
	if self > 0 || s.energy > 0 || s.extra != nil && len(s.extra.leaves) > 0 {
		in = b.profile(s.end, r.source)
		in.extend(s)
	}
	if self > 0 || s.energy > 0 {
		b.sample(in, r.stack, s.labels).add(float64(self)*s.weight, s.energy*1e6, s)
	}
	if s.extra != nil {
		for _, l := range s.extra.leaves {
			b.sample(in, b.child(r.stack, l.frame), s.labels).add(float64(l.time)*s.weight, 0, s)
		}
	}
	if s.device != nil && s.placed {
		s.device.pending = append(s.device.pending, activity{
			s.start, s.end, s.launch, r.stack, s.labels, r.source, s.key.In(s.process), s.weight > 1,
		})
	}
	if s.key.Span.IsEmpty() || s.gpu && s.frame.Kind >= Kernel {
		return
	}
	d := counted{stack: r.stack, source: r.source}
	switch {
	case s.total > 0:
		d.whole = s.whole
	case r.fed >= 0:
		d.whole = b.spans[r.fed].whole
	default:
		d.whole = top.late.whole
	}
	switch {
	case s.time > 0 && s.placed:
		d.device, d.start, d.end = s.device, s.start, s.end
	case r.timed >= 0:
		above := &b.spans[r.timed]
		d.device, d.start, d.end = above.device, above.start, above.end
	default:
		d.device, d.start, d.end = top.late.device, top.late.start, top.late.end
	}
	b.done.Add(spantree.Span{Key: s.key}, d, false, 0)
}

// compact removes the spans that were counted.
func (b *Builder) compact() {
	b.index.Clear()
	kept := b.spans[:0]
	for i := range b.spans {
		if b.trees[b.top[i]].due {
			continue
		}
		s := b.spans[i]
		if s.up >= 0 {
			s.up = unknown
		}
		if !s.key.Span.IsEmpty() {
			b.index.Put(s.key.Hash(), int32(len(kept)), func(at int32) bool { return kept[at].key == s.key })
		}
		kept = append(kept, s)
	}
	clear(b.spans[len(kept):])
	b.spans = kept
}

// µJ are rounded when a profile is written; sums of energies stay floating point until then.
func round(x float64) int64 {
	if x >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(math.Round(x))
}
