// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// found returns the index of each span's outer span, -1 for none.
func found(spans []NestSpan) []int {
	out := make([]int, len(spans))
	for i := range out {
		out[i] = -1
	}
	spans = slices.Clone(spans)
	Nest(spans, func(inner, outer int) {
		out[inner] = outer
		spans[inner].Parent = [8]byte{9, byte(outer), byte(outer >> 8)}
	})
	return out
}

func on(stream int64, start, end int64) NestSpan {
	return NestSpan{Owner: 1, Stream: stream, Trace: [16]byte{1}, Parent: [8]byte{1}, Start: start, End: end}
}

func TestNestFindsSiblingsInsideOthersOnTheirStream(t *testing.T) {
	elsewhere, other := on(1, 12, 18), on(1, 12, 18)
	elsewhere.Owner, other.Parent = 2, [8]byte{2}
	none, second, beside := on(-1, 12, 18), on(1, 12, 18), on(1, 10, 20)
	beside.Trace = [16]byte{2} // two threads alternate on the stream
	second.Device = 1
	for name, tt := range map[string]struct {
		in   []NestSpan
		want []int
	}{
		"a phase and what runs in it": {
			[]NestSpan{on(1, 11, 13), on(1, 13, 18), on(1, 10, 20), on(1, 20, 30)},
			[]int{2, 2, -1, -1},
		},
		"levels":                     {[]NestSpan{on(1, 12, 13), on(1, 11, 14), on(1, 10, 20)}, []int{1, 2, -1}},
		"another stream between":     {[]NestSpan{on(1, 11, 13), on(2, 5, 14), on(1, 10, 20)}, []int{2, -1, -1}},
		"another stream runs beside": {[]NestSpan{on(2, 11, 13), on(1, 10, 20)}, []int{-1, -1}},
		"one after the other":        {[]NestSpan{on(1, 0, 10), on(1, 10, 20)}, []int{-1, -1}},
		"begins before":              {[]NestSpan{on(1, 9, 15), on(1, 10, 20)}, []int{-1, -1}},
		"another process's stream":   {[]NestSpan{elsewhere, on(1, 10, 20)}, []int{-1, -1}},
		"another device's stream":    {[]NestSpan{second, on(1, 10, 20)}, []int{-1, -1}},
		"work of another trace begins before and ends within": {
			[]NestSpan{on(1, 16, 18), beside, on(1, 15, 25)},
			[]int{2, -1, -1},
		},
		"another parent":                 {[]NestSpan{other, on(1, 10, 20)}, []int{-1, -1}},
		"on no stream":                   {[]NestSpan{none, on(-1, 10, 20)}, []int{-1, -1}},
		"the outer one before the inner": {[]NestSpan{on(1, 10, 20), on(1, 11, 13)}, []int{-1, -1}},
	} {
		assert.Equal(t, tt.want, found(tt.in), name)
	}
}

// Random nests in end order; the reference compares all pairs to find the narrowest enclosing
// sibling.
func TestNestEqualsComparisonOfAllPairs(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 11))
		var spans []NestSpan
		var fill func(stream, from, to int64, depth int)
		fill = func(stream, from, to int64, depth int) {
			for at := from; at < to-2; {
				start := at + r.Int64N(3)
				end := min(to, start+1+r.Int64N(40))
				if end <= start {
					break
				}
				spans = append(spans, on(stream, start, end))
				if depth > 0 && end-start > 4 {
					fill(stream, start+1, end-1, depth-1)
				}
				at = end
			}
		}
		for stream := range int64(3) {
			fill(stream, 0, 120, 3)
		}
		slices.SortStableFunc(spans, func(x, y NestSpan) int { return int(x.End - y.End) })
		want := make([]int, len(spans))
		for i, x := range spans {
			want[i] = -1
			for j, y := range spans {
				if i != j && x.Stream == y.Stream && y.Start <= x.Start && x.End <= y.End &&
					(want[i] < 0 || y.End-y.Start < spans[want[i]].End-spans[want[i]].Start) {
					want[i] = j
				}
			}
		}
		require.Equal(t, want, found(spans), "seed %d", seed)
	}
}

// BenchmarkNest measures the worst case: each span encloses the previous one.
func BenchmarkNest(b *testing.B) {
	for name, span := range map[string]func(i int64) NestSpan{
		"in order": func(i int64) NestSpan { return on(i%4, i*10, i*10+10) },
		"nested":   func(i int64) NestSpan { return on(1, 10_000-i, 10_000+i) },
	} {
		b.Run(name, func(b *testing.B) {
			var spans []NestSpan
			for i := range int64(4096) {
				spans = append(spans, span(i))
			}
			work := make([]NestSpan, len(spans))
			b.ReportAllocs()
			for b.Loop() {
				copy(work, spans)
				Nest(work, func(inner, _ int) { work[inner].Parent = [8]byte{9} })
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/4096, "ns/span")
		})
	}
}
