// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// nestedRanges returns kernels below nested ranges of a host, in the order of their ends: children before parents, and
// the outermost range last.
func nestedRanges(rng *rand.Rand, kernels int) (all []drawn) {
	id, now := 1, 0
	open := []drawn{{trace: 1, id: 1, name: "main"}}
	end := func() {
		d := open[len(open)-1]
		d.end = now
		all, open = append(all, d), open[:len(open)-1]
	}
	begin := func(name string) {
		id++
		open = append(open, drawn{trace: 1, id: id, parent: open[len(open)-1].id, name: name, start: now})
	}
	for range kernels {
		for len(open) > 1 && rng.IntN(len(open)) > 1 {
			end()
		}
		for len(open) < 12 && rng.IntN(3) > 0 {
			begin(fmt.Sprint("f", rng.IntN(5)))
		}
		begin(fmt.Sprint("k", rng.IntN(3)))
		open[len(open)-1].device = 1
		now += 3
		end()
		now++
	}
	for len(open) > 0 {
		end()
	}
	return all
}

func addAll(b *Builder, all []drawn) {
	for part := range slices.Chunk(all, 7) {
		td := ptrace.NewTraces()
		ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
		for _, d := range part {
			d.write(ss)
		}
		b.Add(td, after)
	}
}

var untilTheEnd = Options{MaxGap: -1, Settle: math.MaxInt64, MaxWait: math.MaxInt64, Repeats: -1}

// With room for few spans, stacks are the same as with room for all.
func TestStacksAreWholeWhateverHasRoom(t *testing.T) {
	for seed := range uint64(8) {
		all := nestedRanges(rand.New(rand.NewPCG(seed, 1)), 2000)
		var want map[string]float64
		for _, room := range []int{1_000_000, 200, 80} {
			o := untilTheEnd
			o.MaxSpans = room
			b := New(o)
			addAll(b, all)
			b.Resolve(after, true)
			list := b.Take(math.MaxInt64)
			got, _ := byStack(list)
			if want == nil {
				want = got
				continue
			}
			require.True(t, maps.Equal(want, got), "seed %d, room for %d: %d of %d stacks", seed, room, len(got), len(want))
			samples := 0
			for _, p := range list {
				samples += len(p.Samples())
			}
			assert.Less(t, samples, 3*len(want), "equal stacks are merged, but for their idle time")
			require.Zero(t, b.Stats().Incomplete)
			require.Empty(t, b.grafts)
		}
	}
}

// Memory does not grow with the number of spans below a span that arrives last.
func TestMemoryIsBoundedBelowALateSpan(t *testing.T) {
	measure := func(kernels int) float64 {
		o := untilTheEnd
		o.MaxSpans = 2000
		b := New(o)
		before := heap()
		for i := 0; i < kernels; i += 1000 {
			all := nestedRanges(rand.New(rand.NewPCG(3, 4)), 1000)
			for k := range all {
				d := &all[k]
				d.id += 10_000 * i
				if d.parent > 1 {
					d.parent += 10_000 * i
				}
				d.start, d.end = d.start+4*i, d.end+4*i
			}
			addAll(b, all[:len(all)-1]) // main never arrives
		}
		used := float64(heap() - before)
		runtime.KeepAlive(b)
		return used
	}
	few, many := measure(40_000), measure(160_000)
	assert.Less(t, many, 1.3*few)
}

// Parents in a circle, each of which arrives after what is below it was counted, end at the root.
func TestCirclesOfLateParentsEnd(t *testing.T) {
	for _, last := range []int{2, 3} {
		o := untilTheEnd
		o.MaxSpans = 2
		b := New(o)
		addAll(b, []drawn{
			{trace: 1, id: 9, parent: 2, name: "k", device: 1, start: 0, end: 4},
			{trace: 2, id: 8, parent: 8, name: "k", device: 1, start: 10, end: 14},
			{trace: 2, id: 7, parent: 6, name: "k", device: 1, start: 20, end: 24},
		})
		for i, parent := range []int{3, last} {
			addAll(b, []drawn{{trace: 1, id: 2 + i, parent: parent, name: fmt.Sprint("p", 2+i), start: 0, end: 5}})
			addAll(b, []drawn{
				{trace: 3, id: 100 + i, parent: 50, name: "k", device: 1, start: 30 + 10*i, end: 34 + 10*i},
				{trace: 3, id: 200 + i, parent: 60, name: "k", device: 1, start: 50 + 10*i, end: 54 + 10*i},
			})
		}
		b.Resolve(after, true)
		require.EqualValues(t, 7*4000, Totals(b.Take(math.MaxInt64))[Time])
	}
}

// A profile that is taken before a late span arrives lacks it, and is complete otherwise.
func TestTakenProfilesHaveNoGrafts(t *testing.T) {
	o := untilTheEnd
	o.MaxSpans, o.Window = 50, time.Hour
	b := New(o)
	all := nestedRanges(rand.New(rand.NewPCG(1, 1)), 1000)
	addAll(b, all[:len(all)-1])
	require.NotEmpty(t, b.grafts)
	list := b.Current()
	for _, p := range list {
		for _, s := range p.Samples() {
			for _, f := range s.Stack.Frames(nil) {
				require.NotNil(t, f)
			}
		}
	}
	addAll(b, all[len(all)-1:])
	b.Resolve(after, true)
	require.EqualValues(t, 1000*3000, Totals(b.Take(math.MaxInt64))[Time])
}

// A span that never arrives is not awaited for longer than other spans.
func TestLateSpansAreAwaitedForAsLongAsOthers(t *testing.T) {
	o := Options{MaxSpans: 8, Repeats: -1, Window: time.Hour, Settle: time.Second, MaxWait: time.Minute}
	b := New(o)
	addAll(b, nestedRanges(rand.New(rand.NewPCG(1, 1)), 20)[:30])
	waiting := int64(0)
	for _, g := range b.grafts {
		waiting += g.spans
	}
	require.Positive(t, waiting)
	before := b.stats.Incomplete
	b.Resolve(after+int64(time.Minute)-1, false)
	require.NotEmpty(t, b.grafts)
	b.Resolve(after+int64(time.Minute), false)
	require.Empty(t, b.grafts)
	require.GreaterOrEqual(t, b.stats.Incomplete-before, waiting)
}
