// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// graft is where the stacks of spans begin that were counted early, below a span that has not arrived. When that span
// arrives, its own stack replaces the graft, and all stacks above the graft's follow.
type graft struct {
	stack *Stack
	spans int64 // with time or energy, below it: incomplete if the span does not arrive
	since int64 // when it was made, unix ns
}

const (
	maxGraftDepth  = 2 * maxDepth // frames and grafts up to the root; deeper stacks are not extended
	leastMergeSize = 1 << 14      // samples
)

// graftBelow returns the graft for a span that has not arrived, nil if there are too many. Until it arrives, its stack
// is the given one.
func (b *Builder) graftBelow(missing spanfacts.Key, stack *Stack) *graft {
	g := b.grafts[missing]
	if g == nil {
		if len(b.grafts) >= max(1, b.opts.MaxSpans/4) {
			return nil
		}
		g = &graft{stack: &Stack{Up: stack, depth: stack.depth, open: true}, since: b.now}
		if b.grafts == nil {
			b.grafts = map[spanfacts.Key]*graft{}
		}
		b.grafts[missing] = g
	}
	return g
}

// join replaces a graft with the stack of its span, which has arrived.
func (b *Builder) join(k spanfacts.Key, r *resolved) {
	g := b.grafts[k]
	if g == nil {
		return
	}
	delete(b.grafts, k)
	g.stack.open = false
	b.joined++
	depth := 0
	for s := r.stack; s != nil; s = s.Up {
		if depth++; s == g.stack || depth > maxGraftDepth { // a circle of parents, or a chain without an end
			b.lacksOuter(g)
			return
		}
	}
	g.stack.Up = r.stack
	switch top := &b.hangs[r.hangs]; {
	case top.graft != nil:
		top.graft.spans += g.spans
	case top.missing != (spanfacts.Key{}):
		b.lacksOuter(g)
	}
}

// lacksOuter counts the spans below a graft as incomplete.
func (b *Builder) lacksOuter(g *graft) {
	b.stats.Incomplete += g.spans
	b.stats.Early += g.spans
}

// abandonGrafts gives up waiting for the spans of the grafts that were made at or before a time.
func (b *Builder) abandonGrafts(before int64) {
	for k, g := range b.grafts {
		if g.since <= before {
			delete(b.grafts, k)
			g.stack.open = false
			b.lacksOuter(g)
			b.joined++
		}
	}
}

// mergeJoined merges samples whose stacks have become equal.
func (b *Builder) mergeJoined() {
	if b.joined == 0 {
		return
	}
	m := merger{}
	for _, w := range b.windows {
		m.merge(w)
	}
	b.joined, b.mergeAt = 0, max(leastMergeSize, 2*b.Stacks())
}

// withoutGrafts removes the grafts from the stacks of a window. Spans that arrive later do not change it any more.
func (b *Builder) withoutGrafts(w *window) {
	if b.joined > 0 || len(b.grafts) > 0 {
		m := merger{final: true}
		m.merge(w)
	}
}

// merger makes stacks without the grafts that were replaced.
type merger struct {
	final  bool // without any graft
	equal  map[stackKey]*Stack
	merged map[*Stack]*Stack
	path   []*Stack
}

func (m *merger) merge(w *window) {
	if m.equal == nil {
		m.equal, m.merged = map[stackKey]*Stack{}, map[*Stack]*Stack{}
	}
	w.samples = 0
	for _, p := range w.profiles {
		samples := make(map[sampleKey]*Sample, len(p.samples)/2)
		for k, s := range p.samples {
			k.stack = m.of(k.stack)
			same := samples[k]
			if same == nil {
				s.Stack = k.stack
				samples[k] = s
				continue
			}
			for i, v := range s.Values {
				same.Values[i] += v
			}
			if order := cmp.Compare(s.slowest, same.slowest); order > 0 || order == 0 && before(s.Link, same.Link) {
				same.slowest, same.Link = s.slowest, s.Link
			}
		}
		p.samples = samples
		w.samples += len(samples)
	}
}

// before orders spans that are equally slow, so that a file gives the same profile each time.
func before(a, b spanfacts.Key) bool {
	return cmp.Or(bytes.Compare(a.Trace[:], b.Trace[:]), bytes.Compare(a.Span[:], b.Span[:])) < 0
}

// of returns the stack without grafts that were replaced, the same for equal frames.
func (m *merger) of(s *Stack) *Stack {
	m.path = m.path[:0]
	var up *Stack
	for ; s != nil; s = s.Up {
		if x, ok := m.merged[s]; ok {
			up = x
			break
		}
		m.path = append(m.path, s)
		if s.open && !m.final {
			break
		}
	}
	for _, at := range slices.Backward(m.path) {
		s := at
		switch key := (stackKey{up, s.Frame}); {
		case s.open && !m.final:
			up = s
		case s.Frame == nil, up != nil && up.depth >= maxGraftDepth:
		case m.equal[key] != nil:
			up = m.equal[key]
		default:
			depth := int32(1)
			if up != nil {
				depth += up.depth
			}
			if s.Up != up || s.depth != depth {
				s = &Stack{Up: up, Frame: s.Frame, depth: depth}
			}
			m.equal[key] = s
			up = s
		}
		m.merged[at] = up
	}
	return up
}
