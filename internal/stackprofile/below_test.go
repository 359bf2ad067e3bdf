// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// onArrival counts spans one by one, each as soon as it arrives.
func onArrival(b *Builder, all []drawn, change func(i int, s ptrace.Span)) {
	for i, d := range all {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		d.write(ss)
		if change != nil {
			change(i, ss.At(0))
		}
		now := int64(epoch) + int64(time.Hour) + int64(i)*100
		b.Add(td, now)
		b.Resolve(now+50, false)
	}
}

// A parent that arrives after more pieces of its time were counted than are stored individually
// gets exactly the rest of its time.
func TestManyCountedPiecesOfALateParentDoNotCountTwice(t *testing.T) {
	const n = 3*maxOwed + 7
	all := make([]drawn, 0, n+1)
	for i := range n {
		all = append(all, drawn{trace: 1, id: i + 2, parent: 1, name: "k", device: 1 + i%2, start: 10 * i, end: 10*i + 4})
	}
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, d := range all {
		d.write(ss)
	}
	b := New(Options{Settle: 1, MaxWait: 2, Repeats: -1, Window: time.Hour})
	now := int64(epoch) + int64(time.Hour)
	b.Add(td, now)
	b.Resolve(now+50, true)
	require.Zero(t, b.Pending())
	onArrival(b, []drawn{{trace: 1, id: 1, name: "outer", device: 1, start: 0, end: 10 * n}}, nil)
	times, _ := byStack(b.Between(0, math.MaxUint64))
	children := (n + 1) / 2 // on the parent's device
	require.Equal(t, map[string]float64{
		"unknown_service;k":     4000 * n,
		"unknown_service;outer": float64(10_000*n - 4000*children),
	}, times)
	require.Zero(t, b.pieces, "no piece waits any more")
}

// Merging pieces never makes a parent's time count twice, however they overlap.
func TestMergedPiecesCoverAtMostTheirUnion(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 3))
		var list []covered
		marks := make([]bool, 2000)
		for range 1 + rng.IntN(60) {
			start := rng.IntN(1900)
			end := start + 1 + rng.IntN(90)
			list = append(list, covered{start: uint64(start), end: uint64(end)})
			for i := start; i < end; i++ {
				marks[i] = true
			}
		}
		want := int64(0)
		for _, m := range marks {
			if m {
				want++
			}
		}
		for len(list) > 1 {
			before := len(list)
			list = fold(list)
			require.Less(t, len(list), before)
			require.GreaterOrEqual(t, union(list, 0, 2000), want, "seed %d: less than the union would count twice", seed)
			require.LessOrEqual(t, union(list, 0, 2000), int64(2000))
		}
	}
}

// Waiting for missing spans takes bounded memory, and everything else is counted.
func TestWaitingPiecesAreBounded(t *testing.T) {
	b := New(Options{Settle: 1, MaxWait: 2, MaxSpans: 40, Repeats: -1, Window: time.Hour})
	var all []drawn
	for i := range 200 {
		all = append(all, drawn{
			trace: i/10 + 1, id: 1000 + i, parent: i/10 + 1, name: "k", device: 1, start: 10 * i, end: 10*i + 4,
		})
	}
	onArrival(b, all, nil)
	require.Equal(t, 40, b.pieces)
	sum := 0
	for i := range 20 {
		list, _ := b.done.Take(0, all[10*i].upKey())
		sum += len(list.pieces)
	}
	require.Equal(t, 40, sum)
	require.Equal(t, int64(16), b.Stats().Forgotten)
}

// Stacks are complete only if their outer spans arrive before they are counted.
func TestStacksCountedBeforeTheirOuterSpansAreReported(t *testing.T) {
	var all []drawn
	for i := range 200 {
		all = append(all, drawn{trace: 1, id: 1000 + i, parent: 1, name: "k", device: 1, start: 10 * i, end: 10*i + 4})
	}
	for _, room := range []int{40, 1000} {
		b := New(Options{Settle: time.Hour, MaxWait: time.Hour, MaxSpans: room, Repeats: -1})
		onArrival(b, all, nil)
		b.Resolve(1, true)
		require.Equal(t, int64(200), b.Stats().Incomplete)
	}
}

// Spans that state only their inclusive energy get the difference, in any order of arrival.
func TestNestedEnergyCountsOnce(t *testing.T) {
	outer := drawn{trace: 1, id: 1, name: "outer", device: 1, start: 0, end: 1000, energy: 10}
	host := drawn{trace: 1, id: 2, parent: 1, name: "host", start: 50, end: 950}
	inner := drawn{trace: 1, id: 3, parent: 2, name: "inner", device: 1, start: 100, end: 900, energy: 7}
	kernel := drawn{trace: 1, id: 4, parent: 3, name: "k", device: 1, start: 200, end: 300, energy: 2}
	only := func(_ int, s ptrace.Span) { // gpu.energy with descendants, no gpu.self_energy
		if v, ok := s.Attributes().Get("gpu.self_energy"); ok {
			s.Attributes().PutDouble("gpu.energy", v.Double())
			s.Attributes().Remove("gpu.self_energy")
		}
	}
	together := []drawn{kernel, inner, host, outer}
	want := map[string]float64{
		"unknown_service;outer":              3e6,
		"unknown_service;outer;host;inner":   5e6,
		"unknown_service;outer;host;inner;k": 2e6,
	}
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i, d := range together {
		d.write(ss)
		only(i, ss.At(i))
	}
	b := New(Options{Window: time.Hour})
	b.Add(td, int64(epoch)+int64(time.Hour))
	b.Resolve(int64(epoch)+int64(time.Hour), true)
	_, energy := byStack(b.Between(0, math.MaxUint64))
	require.Equal(t, want, energy)

	// Counted one by one, stacks differ, but the total energy equals the device's. Only a span
	// between two counted ones is too late.
	inner.parent = 1
	for _, order := range [][]drawn{
		{kernel, inner, outer}, {inner, kernel, outer}, {inner, outer, kernel}, {outer, inner, kernel},
	} {
		b := New(Options{Settle: 1, MaxWait: 2, Window: time.Hour})
		onArrival(b, order, only)
		require.Zero(t, b.Pending())
		require.InDelta(t, 10e6, Totals(b.Between(0, math.MaxUint64))[Energy], 1e-3, "%v", order)
	}
}

// A span sampled at one in four counts four times, its energy once, and idle time is unknown.
func TestSampledSpansCountWithTheirWeight(t *testing.T) {
	all := []drawn{
		{trace: 1, id: 1, name: "a", device: 1, start: 0, end: 100, energy: 3},
		{trace: 1, id: 2, parent: 1, name: "b", device: 1, start: 20, end: 50, energy: 1},
		{trace: 2, id: 3, name: "c", device: 1, start: 200, end: 300, energy: 1},
		{trace: 3, id: 4, name: "d", device: 1, start: 400, end: 450},
	}
	states := map[int]string{0: "ot=th:c", 1: "ot=th:c", 2: "v=1"}
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for i, d := range all {
		d.write(ss)
		ss.At(i).TraceState().FromRaw(states[i])
	}
	for weights, want := range map[bool][types]float64{true: {550_000, 5e6, 100_000}, false: {250_000, 5e6, 200_000}} {
		b := New(Options{Window: time.Hour, Weights: weights})
		b.Add(td, int64(epoch)+int64(time.Hour))
		b.Resolve(int64(epoch)+int64(time.Hour), true)
		require.Equal(t, want, Totals(b.Between(0, math.MaxUint64)))
	}
}

// The link of a stack is its slowest span, in each window.
func TestEachStackLinksToItsSlowestSpanOfTheWindow(t *testing.T) {
	minute := int(time.Minute / time.Microsecond)
	base := minute - int(epoch%uint64(time.Minute))/1000 // so that windows start at base + n minutes
	all := []drawn{
		{trace: 1, id: 1, name: "a", device: 1, start: base, end: base + 10},
		{trace: 2, id: 2, name: "a", device: 1, start: base + 100, end: base + 130},
		{trace: 3, id: 3, name: "a", device: 1, start: base + 200, end: base + 220},
		{trace: 4, id: 4, name: "b", device: 1, start: base + 300, end: base + 390},
		{trace: 5, id: 5, name: "a", device: 1, start: base + minute, end: base + minute + 5},
	}
	b := New(Options{Window: time.Minute, MaxGap: 1})
	td := ptrace.NewTraces()
	for _, d := range all {
		d.write(td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans())
	}
	b.Add(td, int64(epoch)+int64(time.Hour))
	b.Resolve(int64(epoch)+int64(time.Hour), true)
	ends := int64(epoch) + int64(base+minute)*1000
	require.Empty(t, b.Take(ends-1))
	list := b.Take(ends)
	require.Len(t, list, 1)
	list = append(list, b.Take(int64(epoch)+int64(time.Hour))...)
	require.Len(t, list, 2)
	links := func(p *Profile) map[string]byte {
		m := map[string]byte{}
		for _, s := range p.Samples() {
			m[text2(s.Stack)] = s.Link.Span[7]
		}
		return m
	}
	require.Equal(t, map[string]byte{"unknown_service;a": 2, "unknown_service;b": 4}, links(list[0]))
	require.Equal(t, map[string]byte{"unknown_service;a": 5}, links(list[1]))
}

// Rank 0 can be chosen in a pprof file, as the other ranks can.
func TestPprofKeepsRank0(t *testing.T) {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutInt("gpu.job.rank", 0)
	drawn{trace: 1, id: 1, name: "a", device: 1, start: 0, end: 10}.write(rs.ScopeSpans().AppendEmpty().Spans())
	b := New(Options{})
	b.Add(td, int64(epoch)+int64(time.Hour))
	b.Resolve(int64(epoch)+int64(time.Hour), true)
	var file bytes.Buffer
	require.NoError(t, WritePprof(&file, b.Between(0, math.MaxUint64), Time))
	p, err := profile.Parse(&file)
	require.NoError(t, err)
	require.Len(t, p.Sample, 1)
	require.True(t, p.Sample[0].HasLabel("gpu.job.rank", "0"), p.String())
}
