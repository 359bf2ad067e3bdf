// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package intervals

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// marked counts the ns that the intervals cover, one by one.
func marked(list []Interval, within Interval) (n int64) {
	for t := within.Start; t < within.End; t++ {
		if slices.ContainsFunc(list, func(v Interval) bool { return v.Start <= t && t < v.End }) {
			n++
		}
	}
	return n
}

func random(r *rand.Rand) []Interval {
	list := make([]Interval, 1+r.IntN(20))
	for i := range list {
		start := r.Int64N(90)
		list[i] = Interval{start, start + r.Int64N(10)}
	}
	return list
}

func TestLengthEqualsTheCountOfCoveredNanoseconds(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		list := random(r)
		within := Interval{r.Int64N(50), 50 + r.Int64N(60)}
		var s Set
		for _, v := range list {
			s.Add(v, 0)
		}
		require.Equal(t, marked(list, Interval{0, 200}), s.Length())
		require.Equal(t, marked(list, within), s.Within(within))
		gaps := s.Gaps(within)
		require.Equal(t, within.End-within.Start-s.Within(within), gaps.Length())
		for _, gap := range gaps {
			require.Zero(t, marked(list, gap))
			require.Less(t, gap.Start, gap.End, "a gap has a length")
		}
		for i, v := range s {
			require.Less(t, v.Start, v.End, "an interval has a length")
			require.True(t, i == 0 || s[i-1].End < v.Start, "touching intervals are one")
		}
		var united Set
		united.AddAll(s, 0)
		require.Equal(t, s, united)
		slices.SortFunc(list, func(a, b Interval) int { return cmp.Compare(a.Start, b.Start) })
		var u, clipped Ordered
		between := int64(0)
		for _, v := range list {
			between += u.Add(v.Start, v.End)
			clipped.Clip(v.Start, v.End, within.Start, within.End)
		}
		require.Equal(t, s.Length(), u.Length)
		require.Equal(t, u.Extent(), u.Length+between)
		require.Equal(t, s.Within(within), clipped.Length)
		require.Equal(t, clipped.Any, clipped.Length > 0)
	}
}

func TestAddJoinsAcrossTheSmallestGapAtTheLimit(t *testing.T) {
	for _, c := range []struct {
		limit    int
		add, set Set
	}{
		{3, Set{{0, 10}, {100, 110}, {13, 20}, {200, 210}}, Set{{0, 20}, {100, 110}, {200, 210}}},
		{3, Set{{0, 10}, {100, 110}, {113, 120}, {200, 210}}, Set{{0, 10}, {100, 120}, {200, 210}}},
		{3, Set{{0, 10}, {100, 110}, {200, 210}, {213, 220}}, Set{{0, 10}, {100, 110}, {200, 220}}},
		{1, Set{{0, 1}, {5, 6}}, Set{{0, 6}}},
	} {
		var s Set
		s.AddAll(c.add, c.limit)
		assert.Equal(t, c.set, s)
	}
}

func TestUnixLimitsTimesToTheLargest(t *testing.T) {
	var s Set
	s.Add(Unix(5, 1<<63+5), 0)
	assert.Equal(t, int64(1<<63-1-5), s.Length())
	s.Add(Unix(1<<63+1, 1<<63+2), 0)
	assert.Len(t, s, 1)
}

func TestEmptyIntervalsExtendAUnion(t *testing.T) {
	var u Ordered
	assert.Zero(t, u.Extent())
	u.Add(5, 5)
	assert.Equal(t, int64(3), u.Add(8, 8))
	assert.Equal(t, Ordered{Start: 5, End: 8, Any: true}, u)
}

func TestCompactKeepsTheSet(t *testing.T) {
	const long = int64(1<<32 - 1) // the longest that is kept as one
	var s Set
	at := int64(1_700_000_000_000_000_000)
	for _, gap := range []int64{1, long - 1, long, long + 1, 3 * long} {
		for _, length := range []int64{1, long - 1, long, long + 1, 3 * long} {
			s.Add(Interval{at + gap, at + gap + length}, 0)
			at += gap + length
		}
	}
	require.Len(t, s, 25)
	c := s.Compact()
	assert.Equal(t, s, c.Set())
	c = Set(nil).Compact()
	assert.Empty(t, c.Set())
	for seed := range uint64(50) {
		s = nil
		for _, v := range random(rand.New(rand.NewPCG(seed, 2))) {
			s.Add(v, 0)
		}
		c = s.Compact()
		assert.True(t, slices.Equal(s, c.Set()))
	}
}
