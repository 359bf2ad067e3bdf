// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// The totals of a graph equal those in the samples for any limit of nodes, and parents precede
// children.
func TestGraphHasEveryValueOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	x := New(Options{Repeats: -1, Window: time.Minute, MaxGap: -1})
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, d := range draw(rng, 400) {
		d.write(ss)
	}
	now := int64(epoch) + int64(time.Hour)
	x.Add(td, now)
	x.Resolve(now, true)
	list := x.Between(0, math.MaxInt64)
	want := Totals(list)
	require.Equal(t, Totals(x.Between(0, math.MaxUint64)), want, "a copy of all windows has everything")
	require.Positive(t, want[Time])
	all := NewGraph(list, math.MaxInt)
	require.Zero(t, all.Merged)
	require.Greater(t, len(all.Nodes), 60)
	for _, most := range []int{0, 5, 50, math.MaxInt} {
		g := NewGraph(list, most)
		var sum [types]float64
		for i, n := range g.Nodes {
			require.Less(t, n.Parent, i)
			require.Less(t, n.Frame, len(g.Frames))
			for k, v := range n.Values {
				sum[k] += v
			}
		}
		for k := range want {
			require.InEpsilon(t, 1+want[k], 1+sum[k], 1e-9)
		}
		if most < len(all.Nodes) {
			require.Positive(t, g.Merged)
			require.Less(t, len(g.Nodes), most+40, "beyond the limit only the stack that is under way is added")
		}
	}
}

// Copies of an interval do not change with the builder, and contain only the windows that overlap
// the interval.
func TestBetweenCopiesTheWindowsOfATime(t *testing.T) {
	x := New(Options{Repeats: -1, Window: 15 * time.Second})
	add := func(id, at int) {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		drawn{trace: id, id: id, name: "n", device: 1, start: at, end: at + 10}.write(ss)
		x.Add(td, int64(epoch)+int64(time.Hour))
		x.Resolve(int64(epoch)+int64(time.Hour), true)
	}
	add(1, 0)
	start := epoch - epoch%uint64(15*time.Second)
	got := x.Between(start, start+1)
	require.Len(t, got, 1)
	one := Totals(got)
	require.Positive(t, one[Time])
	add(2, 20)
	require.Equal(t, one, Totals(got), "a copy")
	require.Equal(t, 2*one[Time], Totals(x.Between(start, start+1))[Time])
	require.Empty(t, x.Between(0, start), "the window begins later")
	require.Empty(t, x.Between(start+uint64(15*time.Second), math.MaxInt64), "the window has ended")
	require.Len(t, x.Between(start+uint64(15*time.Second)-1, math.MaxInt64), 1)
}

// Ranks and devices of one stack are separate nodes, below the same nodes.
func TestGraphDistinguishesTags(t *testing.T) {
	td := ptrace.NewTraces()
	for rank := range 3 {
		rs := td.ResourceSpans().AppendEmpty()
		if rank < 2 {
			rs.Resource().Attributes().PutInt("gpu.job.rank", int64(rank))
		}
		ss := rs.ScopeSpans().AppendEmpty().Spans()
		drawn{trace: rank + 1, id: 2*rank + 1, name: "step", start: 0, end: 100}.write(ss)
		drawn{trace: rank + 1, id: 2*rank + 2, parent: 2*rank + 1, name: "gemm", device: rank + 1, start: 0, end: 10 + rank}.write(ss)
	}
	x := New(Options{})
	x.Add(td, int64(epoch)+int64(time.Hour))
	x.Resolve(int64(epoch)+int64(time.Hour), true)
	g := NewGraph(x.Between(0, math.MaxUint64), 100)
	times := map[GraphTags]float64{}
	for _, n := range g.Nodes {
		if n.Values[Time] > 0 {
			require.Equal(t, "step", g.Frames[g.Nodes[n.Parent].Frame].Name)
			times[g.Tags[n.Tags]] += n.Values[Time]
		}
	}
	require.Equal(t, map[GraphTags]float64{
		{Rank: "0", Device: "b"}: 10_000, {Rank: "1", Device: "c"}: 11_000, {Device: "d"}: 12_000,
	}, times)
	require.Len(t, g.Nodes, 5, "service, step, and gemm three times")
}
