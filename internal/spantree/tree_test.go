// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spantree

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// paths are the sums of most tests: every span in it, with the names of the spans through which it
// moved up.
type paths map[string]int

// named is a span of a test: its name is added to the paths that move through it; "" adds nothing,
// "stop" ends them.
type named string

func (n named) above(path string) (string, bool) {
	if n == "" {
		return path, true
	}
	return string(n) + "/" + path, n != "stop"
}

func newPaths(own *string, spans, sums int, dropped func(paths)) *Tree[named, paths] {
	return New(Rules[named, paths]{
		MaxSpans: spans, MaxSums: sums,
		Dropped: func(p *paths) {
			if dropped != nil {
				dropped(*p)
			}
		},
		Lift: func(n *named, isOwn bool, below, into *paths) bool {
			if *into == nil {
				*into = paths{}
			}
			for path, count := range *below {
				if path, ok := n.above(path); ok {
					(*into)[path] += count
				}
			}
			if isOwn {
				(*into)[*own]++
			}
			return len(*into) > 0
		},
	})
}

// tested is a span of a random forest.
type tested struct {
	Span
	named
	own    string // "": it contributes nothing itself
	up     int    // index of the parent, -1 if that is outside and never arrives
	lost   bool
	parent spanfacts.Key
}

func id(n uint64) (s pcommon.SpanID) {
	binary.BigEndian.PutUint64(s[:], n)
	return s
}

// forest returns the spans of 1 to 4 processes, in half of the cases with equal IDs.
func forest(r *rand.Rand, loss float64) (spans []tested) {
	equal := r.IntN(2) == 0
	for n := range 1 + r.IntN(4) {
		first, process := len(spans), r.Uint64()
		if n == 0 {
			process = 0
		}
		for i := range 1 + r.IntN(30) {
			s := tested{up: -1, lost: r.Float64() < loss}
			s.Process = process
			s.Trace = pcommon.TraceID{1 + byte(i%2)}
			if !equal {
				s.Trace[1] = byte(n)
			}
			s.Span.Key.Span, s.Parent = id(uint64(i)+1), id(1<<20)
			if i > 1 && r.IntN(8) > 0 {
				s.up = first + i - 2*(1+r.IntN((i+1)/2))
				if s.up < first {
					s.up = -1
				}
			}
			if s.up >= 0 {
				s.Parent = spans[s.up].Span.Key.Span
			}
			s.parent = spanfacts.Key{Trace: s.Trace, Span: s.Parent}
			s.named = []named{"", "", named(fmt.Sprint("n", i)), named(fmt.Sprint("m", i)), "stop"}[r.IntN(5)]
			if r.IntN(2) == 0 {
				s.own = fmt.Sprint(n, " ", s.Trace[0], " ", i)
			}
			spans = append(spans, s)
		}
	}
	return spans
}

type place struct {
	process uint64
	spanfacts.Key
}

// expected computes from the whole forest which sums wait, and for which spans.
func expected(spans []tested) map[place]paths {
	want := map[place]paths{}
	for i := range spans {
		s, path, ok := &spans[i], spans[i].own, true
		if s.own == "" || s.lost {
			continue
		}
		for ok && s.up >= 0 && !spans[s.up].lost {
			s = &spans[s.up]
			path, ok = s.above(path)
		}
		if at := (place{s.Process, s.parent}); ok {
			if want[at] == nil {
				want[at] = paths{}
			}
			want[at][path]++
		}
	}
	return want
}

func TestSumsDoNotDependOnArrivalRepeatsOrOtherProcesses(t *testing.T) {
	for seed := range uint64(1500) {
		r := rand.New(rand.NewPCG(seed, 1))
		spans := forest(r, []float64{0, 0, 0.1}[seed%3])
		var sent []int
		for i := range spans {
			if !spans[i].lost {
				for range 1 + r.IntN(3) {
					sent = append(sent, i)
				}
			}
		}
		r.Shuffle(len(sent), func(i, j int) { sent[i], sent[j] = sent[j], sent[i] })
		var own string
		tree := newPaths(&own, len(spans), len(spans), func(p paths) { t.Error("dropped", p) })
		seen := map[int]bool{}
		for _, i := range sent {
			own = spans[i].own
			require.Equal(t, !seen[i], tree.Add(spans[i].Span, spans[i].named, own != "", r.Int64N(100)-50), "a repeat is not added")
			seen[i] = true
			kept, parent := tree.Find(spans[i].Process, spans[i].Key)
			require.Equal(t, spans[i].named, *kept)
			require.Equal(t, spans[i].Parent, parent)
		}
		want := expected(spans)
		assert.Equal(t, len(want), tree.Waiting(), "seed %d", seed)
		for at, sum := range want {
			got, ok := tree.Take(at.process, at.Key)
			require.True(t, ok, "seed %d", seed)
			require.Equal(t, sum, got, "seed %d", seed)
		}
		assert.Zero(t, tree.Waiting())
	}
}

// newCounts returns a tree whose sums are numbers of spans, and the number of spans that were
// dropped.
func newCounts(spans, sums int) (tree *Tree[struct{}, int], dropped *int) {
	dropped = new(int)
	return New(Rules[struct{}, int]{
		MaxSpans: spans, MaxSums: sums,
		Dropped: func(n *int) { *dropped += *n },
		Lift: func(_ *struct{}, isOwn bool, below, into *int) bool {
			*into += *below
			if isOwn {
				*into++
			}
			return *into > 0
		},
	}), dropped
}

func TestEverySpanIsTakenOrDroppedWithinTheBounds(t *testing.T) {
	seeds := uint64(800)
	if testing.Short() {
		seeds = 200
	}
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 2))
		maxSpans, maxSums := 1+r.IntN(12), 1+r.IntN(12)
		tree, dropped := newCounts(maxSpans, maxSums)
		added, taken, now := 0, 0, int64(0)
		for range 300 {
			s := Span{Process: r.Uint64N(2) << 32, Parent: id(1 + r.Uint64N(20))} // cycles, and spans that are their own parents
			s.Trace, s.Span = pcommon.TraceID{1}, id(r.Uint64N(20))
			switch now += r.Int64N(3) - 1; r.IntN(12) {
			case 0:
				tree.Expire(now - 10)
			case 1:
				n, _ := tree.Take(s.Process, s.Key)
				taken += n
			case 2:
				tree.DropOldest()
			default:
				if tree.Add(s, struct{}{}, true, now) {
					added++
				}
			}
			require.LessOrEqual(t, tree.count[arrived], maxSpans)
			require.LessOrEqual(t, tree.Waiting(), maxSums)
			require.LessOrEqual(t, len(tree.nodes), 2+maxSpans+maxSums, "nodes are used again")
			require.Equal(t, tree.index.Len(), tree.count[arrived]+tree.count[awaited])
		}
		for tree.Waiting() > 0 {
			tree.DropOldest()
		}
		require.Equal(t, added, taken+*dropped, "seed %d", seed)
	}
}

func knows(t *Tree[struct{}, int], s Span) bool {
	kept, _ := t.Find(s.Process, s.Key)
	return kept != nil
}

func TestOldestSumsAndSpansAreDroppedFirst(t *testing.T) {
	tree, dropped := newCounts(2, 2)
	span := func(n, parent uint64) Span {
		s := Span{Parent: id(parent)}
		s.Trace, s.Span = pcommon.TraceID{1}, id(n)
		return s
	}
	for n := range uint64(3) {
		tree.Add(span(1+n, 11+n), struct{}{}, true, int64(n))
	}
	assert.Equal(t, 1, *dropped)
	sum, ok := tree.Take(0, span(11, 0).Key)
	assert.False(t, ok, "%d", sum)
	assert.False(t, knows(tree, span(1, 0)))
	assert.True(t, knows(tree, span(2, 0)), "which is now young again")
	assert.True(t, tree.Add(span(1, 0), struct{}{}, true, 3), "a forgotten span is new again")
	assert.False(t, knows(tree, span(3, 0)))
	tree.Expire(1)
	assert.Equal(t, 2, *dropped)
	assert.Equal(t, 1, tree.Waiting())
	tree.Expire(3)
	assert.Equal(t, 3, *dropped)
	assert.True(t, knows(tree, span(1, 0)))
}

func TestSpansWithLateChildrenAreNotForgotten(t *testing.T) {
	tree, _ := newCounts(4, 4)
	for n := range uint64(21) { // the first is the parent of all others
		s := Span{Parent: id(min(n, 1) + 1)}
		s.Trace, s.Span = pcommon.TraceID{1}, id(n+2)
		tree.Add(s, struct{}{}, true, 0)
	}
	sum, _ := tree.Take(0, spanfacts.Key{Trace: pcommon.TraceID{1}, Span: id(1)})
	assert.Equal(t, 21, sum)
}

func TestASumMayBeAddedForASpanThatHasNotArrived(t *testing.T) {
	tree, _ := newCounts(4, 4)
	k := spanfacts.Key{Trace: pcommon.TraceID{1}, Span: id(2)}
	*tree.Sum(7, k, 0) += 5
	*tree.Sum(7, k, 0) += 6
	assert.Equal(t, 1, tree.Waiting())
	tree.Add(Span{Process: 7, Key: k, Parent: id(1)}, struct{}{}, false, 0)
	assert.Zero(t, *tree.Sum(7, spanfacts.Key{Trace: k.Trace, Span: id(3)}, 0))
	k.Span = id(1)
	sum, _ := tree.Take(7, k)
	assert.Equal(t, 11, sum)
}

func TestChainsBelowAnArrivedSpanHaveALimit(t *testing.T) {
	for _, tt := range []struct{ length, dropped int }{{maxDepth, 0}, {maxDepth + 1, 1}} {
		tree, dropped := newCounts(2*maxDepth, 2*maxDepth)
		for n := range uint64(tt.length) { // the root first
			s := Span{Parent: id(n + 1)}
			s.Trace, s.Span = pcommon.TraceID{1}, id(n+2)
			require.True(t, tree.Add(s, struct{}{}, true, 0))
		}
		assert.Equal(t, tt.dropped, *dropped, "%d spans", tt.length)
		sum, _ := tree.Take(0, spanfacts.Key{Trace: pcommon.TraceID{1}, Span: id(1)})
		assert.Equal(t, tt.length-tt.dropped, sum)
	}
}

func TestSpansWithoutIDsAreRefused(t *testing.T) {
	tree, _ := newCounts(1, 1)
	s := Span{Parent: id(1)}
	s.Span = id(2)
	assert.False(t, tree.Add(s, struct{}{}, true, 0))
	s.Trace, s.Span = pcommon.TraceID{1}, id(0)
	assert.False(t, tree.Add(s, struct{}{}, true, 0))
	assert.Zero(t, tree.index.Len())
}

// A tree makes nothing new for a span once it has its memory.
func TestSpansAreNotAllocated(t *testing.T) {
	tree, _ := newCounts(100, 100)
	n := uint64(0)
	step := func() {
		for range 1000 {
			n++
			s := Span{Parent: id(n | 7)}
			s.Trace, s.Span = pcommon.TraceID{1}, id(n)
			tree.Add(s, struct{}{}, true, int64(n))
		}
	}
	step()
	assert.Zero(t, testing.AllocsPerRun(10, step))
}

// BenchmarkAdd measures spans in the order of their ends, in steps of 32 spans with phases of 8.
func BenchmarkAdd(b *testing.B) {
	for _, spans := range []int{1 << 12, 1 << 16} {
		b.Run(fmt.Sprint(spans), func(b *testing.B) {
			tree, _ := newCounts(spans, 1<<12)
			s := Span{Process: 7}
			s.Trace = pcommon.TraceID{1}
			b.ReportAllocs()
			n := uint64(0)
			for b.Loop() {
				n++
				s.Key.Span, s.Parent = id(n), id(n|7)
				if n&7 == 7 {
					s.Parent = id(n | 31 | 1<<63)
				}
				tree.Add(s, struct{}{}, true, int64(n))
				if n&31 == 31 {
					tree.Take(7, spanfacts.Key{Trace: s.Trace, Span: s.Parent})
				}
			}
		})
	}
}
