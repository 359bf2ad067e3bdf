// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/binary"
	"io"
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

// TestLanesHoldNestedIntervalsOnly compares lanes with the definition: an accepted interval nests
// in, or is disjoint from, all others in its lane.
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

// Nested intervals are evicted, too, when there are too many, and later rejected ones do not search
// from the root each time.
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

// A parent that arrives after its children, as a span that ends last does, is in their lane even if
// what is inside some of them was dropped.
func TestLateParentIsInTheLaneOfItsForgottenChildren(t *testing.T) {
	l := &lane{}
	const n = 100
	for i := int64(1); i <= n; i++ {
		for k := range int64(9) {
			require.True(t, l.insert(100*i+10*k+1, 100*i+10*k+6, 0))
		}
		require.True(t, l.insert(100*i, 100*i+95, 0))
	}
	require.Equal(t, 10*n, l.root.count())
	l.forget()
	require.LessOrEqual(t, l.root.count(), 10*n/2+n/2)
	require.False(t, l.insert(122, 124, 0), "what was inside is unknown")
	require.True(t, l.insert(9922, 9924, 0))
	require.True(t, l.insert(99, 100*(n+1), 0), "their parent")
	for left := l.root.count(); left > 2; left = l.root.count() {
		l.forget()
		require.Less(t, l.root.count(), left)
	}
}

// What a file of millions of spans retains, in any order of parents and children, is bounded.
func TestLongFileRetainsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("writes a million spans")
	}
	for name, parentFirst := range map[string]bool{"parents first": true, "children first": false} {
		t.Run(name, func(t *testing.T) {
			w := NewWriter(io.Discard)
			track := Track{Kind: Host, ID: 7}
			span := uint64(0)
			write := func(children int, start, length, every int64) {
				events := make([]Event, children)
				for i := range events {
					span++
					at := start + int64(i)*every
					events[i] = Event{Process: Process{PID: 1}, Track: track, Name: "x", Start: at, End: at + length}
					binary.BigEndian.PutUint64(events[i].Span[:], span)
				}
				require.NoError(t, w.Write(events))
			}
			var before, after runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			at := int64(1_700_000_000_000_000_000)
			for range 60_000 {
				if parentFirst {
					write(1, at, 1000, 0)
				}
				write(10, at+10, 50, 90)
				if !parentFirst {
					write(1, at, 1000, 0)
				}
				at += 2000
			}
			runtime.GC()
			runtime.ReadMemStats(&after)
			require.EqualValues(t, 660_000, w.Stats().Events)
			require.Len(t, w.order[0].order[0].lanes, 1)
			require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(14<<20))
			runtime.KeepAlive(w)
		})
	}
}
