// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// nestedRanges returns kernels below nested ranges of a host, in the order of their ends: children
// before parents, and the outermost range last.
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

// Memory does not grow with the number of spans below a span that arrives last.
func TestMemoryIsBoundedBelowALateSpan(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
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
