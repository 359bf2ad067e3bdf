// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Allocated bytes measure how many slots are copied.
func TestDeepNestingCostsNoMoreForEachInterval(t *testing.T) {
	for name, fill := range map[string]func(t *testing.T, l *lane, n int64){
		"outermost first": func(t *testing.T, l *lane, n int64) {
			for i := range n {
				require.True(t, l.insert(i, 4*n-i, 0))
			}
		},
		"innermost first": func(t *testing.T, l *lane, n int64) {
			for i := n; i > 0; i-- {
				require.True(t, l.insert(i, 4*n-i, 0))
			}
		},
		"what is within first": func(t *testing.T, l *lane, n int64) {
			for i := range n {
				require.True(t, l.insert(2*i+1, 2*i+2, 0))
			}
			for i := range n {
				require.True(t, l.insert(2*i, 8*n-i, 0))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			work := func(n int64) (bytes uint64, levels int) {
				l := &lane{}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				fill(t, l, n)
				runtime.ReadMemStats(&after)
				return after.TotalAlloc - before.TotalAlloc, l.down
			}
			few, fewLevels := work(1 << 11)
			many, manyLevels := work(1 << 13)
			require.Less(t, many, 6*few, "four times as many intervals")
			require.LessOrEqual(t, manyLevels, 5*fewLevels)
		})
	}
}

// TestLanesHoldNestedIntervalsOnly compares lanes with the definition: an accepted interval nests in, or is disjoint
// from, all others in its lane.
func TestLanesHoldNestedIntervalsOnly(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for range 300 {
		l := &lane{}
		var taken [][2]int64
		for range 120 {
			start := r.Int64N(60)
			end := start + 1 + r.Int64N(20)
			fits := true
			for _, x := range taken {
				disjoint := end <= x[0] || x[1] <= start
				inside := x[0] <= start && end <= x[1]
				around := start < x[0] && x[1] <= end || start == x[0] && end == x[1]
				fits = fits && (disjoint || inside || around)
			}
			require.Equal(t, fits, l.insert(start, end, 0), "[%d, %d) among %v", start, end, taken)
			if fits {
				taken = append(taken, [2]int64{start, end})
			}
		}
		require.Equal(t, len(taken), l.root.count())
	}
}

// Nested intervals are evicted, too, when there are too many, and later rejected ones do not search from the root each
// time.
func TestChainsAreForgotten(t *testing.T) {
	l := &lane{}
	const n = 1 << 13
	for range n {
		require.True(t, l.insert(5, 10, 0))
	}
	for left := n; left > 2; left = l.root.count() {
		l.forget()
		require.LessOrEqual(t, l.root.count(), left/2+1)
	}
	l = &lane{}
	for range n {
		l.insert(5, 10, 0)
	}
	l.forget()
	l.down = 0
	for range n {
		require.False(t, l.insert(5, 10, 0), "what is there is frozen")
	}
	require.LessOrEqual(t, l.down, 4*n)
}
