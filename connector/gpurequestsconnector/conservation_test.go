// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// forest is random GPU work: trees of sections, some of which are batches that link to requests.
type forest struct {
	nodes    []node
	requests int
	total    float64
}

type node struct {
	parent int  // −1: the engine's root, which is not a GPU span
	host   bool // host work between others
	device byte
	self   float64
	links  []int // numbers of requests
	weight []int // items of each; 0: none stated
}

// order lists the nodes, parents first or children first; children have higher numbers.
func (f *forest) order(childrenFirst bool) []int {
	order := make([]int, len(f.nodes))
	for i := range order {
		order[i] = i
	}
	if childrenFirst {
		slices.Reverse(order)
	}
	return order
}

func grow(rng *rand.Rand) forest {
	f := forest{requests: 1 + rng.IntN(6)}
	for i := range 1 + rng.IntN(20) {
		n := node{parent: -1, self: rng.Float64() * 10, device: 'a' + byte(rng.IntN(2)*rng.IntN(2))}
		if i > 0 && rng.IntN(3) > 0 {
			n.parent = rng.IntN(i)
		}
		if rng.IntN(4) == 0 {
			n.host, n.self = true, 0
		} else if rng.IntN(2) == 0 {
			stated := rng.IntN(2) == 0
			for range 1 + rng.IntN(5) {
				n.links = append(n.links, rng.IntN(f.requests))
				w := 0
				if stated {
					w = 1 + rng.IntN(50)
				}
				n.weight = append(n.weight, w)
			}
		}
		f.total += n.self
		f.nodes = append(f.nodes, n)
	}
	return f
}

// inclusive returns the energy of a node and its descendants on all devices, as gpu_join writes it.
func (f *forest) inclusive(i int) float64 {
	e := f.nodes[i].self
	for j := range f.nodes {
		if f.nodes[j].parent == i {
			e += f.inclusive(j)
		}
	}
	return e
}

// above returns the nearest GPU span above a node, which includes the node's energy.
func (f *forest) above(i int) int {
	for p := f.nodes[i].parent; p >= 0; p = f.nodes[p].parent {
		if !f.nodes[p].host {
			return p
		}
	}
	return -1
}

// truth computes bottom-up: each node's own energy belongs to the nearest batch at or above it, and
// is divided there.
func (f *forest) truth() (of []float64, nobody float64) {
	of = make([]float64, f.requests)
	for i := range f.nodes {
		holder := i
		for holder >= 0 && len(f.nodes[holder].links) == 0 {
			holder = f.above(holder)
		}
		if holder < 0 {
			nobody += f.nodes[i].self
			continue
		}
		h := &f.nodes[holder]
		sum := 0
		for _, w := range h.weight {
			sum += w
		}
		for k, r := range h.links {
			if sum == 0 {
				of[r] += f.nodes[i].self / float64(len(h.links))
			} else {
				of[r] += f.nodes[i].self * float64(h.weight[k]) / float64(sum)
			}
		}
	}
	return of, nobody
}

func id(n int) (out pcommon.SpanID) {
	binary.BigEndian.PutUint64(out[:], uint64(n)+1)
	return out
}

func (f *forest) span(i int, to ptrace.Span) {
	n := &f.nodes[i]
	to.SetName(fmt.Sprint("op", i%3))
	to.SetTraceID(pcommon.TraceID{0xee})
	to.SetSpanID(id(i))
	to.SetParentSpanID(id(1_000_000))
	if n.parent >= 0 {
		to.SetParentSpanID(id(n.parent))
	}
	to.SetStartTimestamp(at(float64(i)))
	to.SetEndTimestamp(at(float64(i + 1)))
	if n.host {
		return
	}
	to.Attributes().PutStr("gpu.operation.type", "section")
	to.Attributes().PutStr("hw.id", "GPU-"+string(n.device))
	to.Attributes().PutDouble("gpu.energy", f.inclusive(i))
	if f.inclusive(i) != n.self {
		to.Attributes().PutDouble("gpu.self_energy", n.self)
	}
	for k, r := range n.links {
		l := to.Links().AppendEmpty()
		l.SetTraceID(pcommon.TraceID{1})
		l.SetSpanID(id(2_000_000 + r))
		if n.weight[k] > 0 {
			l.Attributes().PutInt("gpu.operation.items", int64(n.weight[k]))
		}
	}
}

// deliver divides an order of nodes into random payloads, which have the spans of each rank.
func (f *forest) deliver(b *book, order []int, rng *rand.Rand, ranks int) {
	td := ptrace.NewTraces()
	for _, i := range order {
		for rank := range ranks {
			if td.ResourceSpans().Len() <= rank {
				rs := td.ResourceSpans().AppendEmpty()
				rs.ScopeSpans().AppendEmpty()
				if ranks > 1 {
					rs.Resource().Attributes().PutInt("gpu.job.rank", int64(rank))
				}
			}
			spans := td.ResourceSpans().At(rank).ScopeSpans().At(0).Spans()
			f.span(i, spans.AppendEmpty())
			for rng != nil && rng.IntN(8) == 0 { // a sender includes retried data
				f.span(i, spans.AppendEmpty())
			}
		}
		if rng != nil && rng.IntN(3) == 0 {
			b.take(td, clock)
			td = ptrace.NewTraces()
		}
	}
	b.take(td, clock)
}

func (f *forest) accounts(b *book) []float64 {
	of := make([]float64, f.requests)
	for _, r := range b.due(clock, true) {
		for _, a := range r.accounts {
			of[int(binary.BigEndian.Uint64(r.Span[:]))-2_000_001] += a.energy
		}
	}
	return of
}

// All energy of the devices is charged to requests by the shares of the innermost enclosing batch,
// or is unattributed. Children arrive before their parents, as SDKs send them, divided into any
// payloads; or in any order in one payload. Ranks may draw the same IDs.
func TestEnergyIsChargedOnce(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 77))
		f := grow(rng)
		want, nobody := f.truth()
		b := newTest(t, nil)
		ranks := 1 + int(seed/2%3)
		for r := range want {
			want[r] *= float64(ranks)
		}
		if order := rng.Perm(len(f.nodes)); seed%2 == 0 {
			f.deliver(b, f.order(true), rng, ranks)
		} else {
			f.deliver(b, order, nil, ranks)
		}
		require.InDeltaSlice(t, want, f.accounts(b), 1e-9, "seed %d", seed)
		require.InDelta(t, nobody*float64(ranks), b.stats.unassigned, 1e-9, "seed %d", seed)
		require.InDelta(t, f.total*float64(ranks), b.stats.charged+b.stats.unassigned, 1e-9, "seed %d", seed)
	}
}

// Parents arrive before their children, as gpuspan sends them, or in any order, in any payloads: a
// batch after its enclosing batch has nothing left to charge, but no energy is charged twice or
// lost.
func TestEnergyIsConservedInAnyOrder(t *testing.T) {
	for seed := range uint64(4000) {
		rng := rand.New(rand.NewPCG(seed, 78))
		f := grow(rng)
		b := newTest(t, nil)
		order := f.order(false)
		if seed%2 == 0 {
			order = rng.Perm(len(f.nodes))
		}
		f.deliver(b, order, rng, 1)
		sum := 0.0
		for _, e := range f.accounts(b) {
			sum += e
		}
		require.InDelta(t, sum, b.stats.charged, 1e-9, "seed %d", seed)
		require.InDelta(t, f.total, b.stats.charged+b.stats.unassigned, 1e-9, "seed %d", seed)
	}
}

// Requests of the same trace start and end at any time, are closed early, settle, become idle, and
// reopen: all usage records plus the unattributed energy add up to the energy of the spans.
func TestEnergyIsConservedWhileRequestsComeAndGo(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 79))
		f := grow(rng)
		b := newTest(t, func(c *Config) { c.MaxRequests = 5 + rng.IntN(4) })
		order := f.order(seed%2 == 0)
		now, sum, own := clock, 0., rng.IntN(len(order)+2)
		due := func(all bool) {
			for _, r := range b.due(now, all) {
				sum += r.energy()
			}
		}
		for n, i := range order {
			td := ptrace.NewTraces()
			ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty()
			f.span(i, ss.Spans().AppendEmpty())
			if n == own { // the enclosing request
				root := ss.Spans().AppendEmpty()
				root.SetTraceID(pcommon.TraceID{0xee})
				root.SetSpanID(id(1_000_000))
				root.SetKind(ptrace.SpanKindServer)
				root.SetStartTimestamp(at(0))
				root.SetEndTimestamp(at(100))
			}
			b.take(td, now)
			if rng.IntN(3) == 0 {
				now += int64(rng.IntN(40)) * 1e9
				due(false)
			}
		}
		now += 1e9
		due(true)
		due(true)
		require.Zero(t, b.stats.lostRequests)
		require.InDelta(t, sum, b.stats.charged, 1e-9, "seed %d", seed)
		require.InDelta(t, f.total, b.stats.charged+b.stats.unassigned, 1e-9, "seed %d", seed)
		require.Zero(t, b.waiting.at.Len(), "seed %d", seed)
	}
}

// A correction of unassigned energy that was reported already reduces what is reported next.
func TestCountersOfEnergyDoNotFall(t *testing.T) {
	b := newTest(t, nil)
	sum := 0.
	for _, x := range []float64{3, -4, 0, 3} {
		b.stats.unassigned += x
		now := b.read()
		require.GreaterOrEqual(t, now.unassigned, 0.)
		sum += now.unassigned
	}
	require.Equal(t, 3., sum)
}
