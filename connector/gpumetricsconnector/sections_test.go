// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"maps"
	"math/rand/v2"
	pathpkg "path"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
)

func TestOperationsBelowAStepAreSectionsToo(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		attn := 0.020
		if rank == 2 {
			attn = 0.050
		}
		td := batch(t, rankOf(rank, 4),
			span{"attention", 0, 50_000, attrs{"gpu.operation.type": "section", "gpu.duration": attn}, 2, 1, ""},
			span{"mlp", 0, 50_000, attrs{"gpu.operation.type": "section", "gpu.duration": 0.03}, 3, 1, ""},
			span{"all_reduce", 0, 50_000, attrs{"gpu.operation.type": "collective", "gpu.duration": 0.07 - attn}, 4, 1, ""},
			span{"step", 0, 100_000, attrs{
				"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1,
				"gpu.step.duration": 0.08 + attn,
			}, 1, 0, ""})
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetTraceID([16]byte{byte(rank + 1)})
		}
		a.take(td, clock)
	}
	_, delay := scores(t, a, clock)
	assert.Len(t, delay, 1)
	assert.InEpsilon(t, 0.03, delay["2 attention"], 1e-9)
}

// nest returns a training step as reported by gpuspan, with a span for each phase and nested
// sections. The section at path slow and its ancestors take extra ms longer; if the path does not
// exist, only this rank has such a section.
func nest(t *testing.T, rank, index int, slow string, extra float64) []ptrace.Span {
	layers := []string{"layer.0/attention", "layer.0/mlp", "layer.1/attention", "layer.1/mlp"}
	leaves := map[string]float64{
		"data/load": 5, "forward/embed": 2, "forward/layer.0/attention/softmax": 1,
		"optimizer": 3,
	}
	for _, l := range layers {
		leaves["forward/"+l+"/gemm"] = 4
		leaves["backward/"+l+"/gemm"] = 8
	}
	leaves[slow] += extra
	type node struct {
		span
		ms float64
	}
	nodes := map[string]*node{}
	busy := 0.0
	for _, path := range slices.Sorted(maps.Keys(leaves)) {
		if path == "" {
			continue
		}
		busy += leaves[path]
		for at := path; at != "."; at = pathpkg.Dir(at) {
			if nodes[at] == nil {
				nodes[at] = &node{span: span{name: pathpkg.Base(at), id: byte(2 + len(nodes))}}
			}
			nodes[at].ms += leaves[path]
		}
	}
	step := attrs{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": index, "gpu.step.duration": 0.2,
		"gpu.step.phase.duration.comm": 0.2 - busy/1000, "gpu.step.overlap.duration": 0.0, "gpu.step.other.duration": 0.0,
	}
	spans := []span{}
	for path, n := range nodes {
		depth := uint64(strings.Count(path, "/"))
		n.start, n.end = 10*(depth+1), 200_000-10*(depth+1)
		n.a = attrs{"gpu.operation.type": "section", "gpu.duration": n.ms / 1000}
		n.parent = 1
		if depth > 0 {
			n.parent = nodes[pathpkg.Dir(path)].id
		} else if path != "checkpoint" {
			n.a["gpu.operation.category"] = path
			step["gpu.step.phase.duration."+path] = n.ms / 1000
		}
		spans = append(spans, n.span)
	}
	spans = append(spans, span{"train", 0, 200_000, step, 1, 0, ""})
	td := batch(t, rankOf(rank, 4), spans...)
	var out []ptrace.Span
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.SetTraceID([16]byte{byte(rank + 1), byte(index)})
		out = append(out, s)
	}
	return out
}

// send adds the batches of a rank in the given order.
func send(t *testing.T, a *aggregator, rank int, batches ...[]ptrace.Span) {
	for _, spans := range batches {
		td := batch(t, rankOf(rank, 4))
		for _, s := range spans {
			s.CopyTo(td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty())
		}
		a.take(td, clock)
	}
}

func TestTheFindingNamesTheDeepestSectionThatExplainsTheLoss(t *testing.T) {
	for slow, want := range map[string]struct {
		section string
		delay   float64 // ms
	}{
		"backward/layer.1/attention/gemm":   {"backward/layer.1/attention/gemm", 20},
		"forward/layer.0/attention/softmax": {"forward/layer.0/attention/softmax", 20},
		"data/load":                         {"data/load", 20},
		"optimizer":                         {"optimizer", 20},
		"checkpoint":                        {"checkpoint", 20}, // no other rank has it
		"forward/layer.0/recompute":         {"forward/layer.0/recompute", 20},
	} {
		for seed := range uint64(10) {
			a := newTest(t, nil)
			r := rand.New(rand.NewPCG(seed, 5))
			for rank := range 4 {
				extra := 0.0
				if rank == 2 {
					extra = 20
				}
				if slow != "checkpoint" && slow != "forward/layer.0/recompute" || rank == 2 {
					spans := nest(t, rank, 1, slow, extra)
					r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
					send(t, a, rank, spans)
				} else {
					send(t, a, rank, nest(t, rank, 1, "", 0))
				}
			}
			_, delay := scores(t, a, clock)
			require.Len(t, delay, 1, "%s, seed %d", slow, seed)
			assert.InEpsilon(t, want.delay/1000, delay["2 "+want.section], 1e-9, "%s, seed %d: %v", slow, seed, delay)
			assert.Zero(t, a.jobs.tree.count)
			assert.Zero(t, a.jobs.tree.Waiting())
		}
	}
}

// Batches of a rank arrive in the order of the spans' ends or in any other, and ranks may have
// equal IDs.
func TestSectionsOfANestMayArriveInSeveralBatches(t *testing.T) {
	for seed := range uint64(100) {
		a := newTest(t, nil)
		r := rand.New(rand.NewPCG(seed, 6))
		for rank := range 4 {
			spans := nest(t, rank, 1, "backward/layer.0/mlp/gemm", float64(rank/3*20))
			slices.SortStableFunc(spans, func(x, y ptrace.Span) int { return int(x.EndTimestamp()) - int(y.EndTimestamp()) })
			if seed%2 == 0 {
				r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
			}
			for _, s := range spans {
				if seed%4 < 2 {
					s.SetTraceID([16]byte{1})
				}
			}
			var batches [][]ptrace.Span
			for len(spans) > 0 {
				n := 1 + r.IntN(len(spans))
				batches, spans = append(batches, spans[:n]), spans[n:]
			}
			send(t, a, rank, batches...)
		}
		_, delay := scores(t, a, clock)
		assert.InEpsilon(t, 0.020, delay["3 backward/layer.0/mlp/gemm"], 1e-9, "seed %d: %v", seed, delay)
	}
}

// A section on an idle stream starts before its enclosing section, whose stream is still busy with
// earlier work.
func TestSectionsThatStartBeforeTheirParentBelongToIt(t *testing.T) {
	for seed := range uint64(20) {
		a := newTest(t, nil)
		r := rand.New(rand.NewPCG(seed, 7))
		for rank := range 4 {
			spans := nest(t, rank, 1, "backward/layer.1/mlp/gemm", float64(rank/3*20))
			for _, s := range spans[:len(spans)-1] { // in any order of start and end, many at the same time
				s.SetStartTimestamp(pcommon.Timestamp(epoch + 10*r.Uint64N(3)))
				s.SetEndTimestamp(pcommon.Timestamp(epoch + 100_000 + 10*r.Uint64N(3)))
			}
			r.Shuffle(len(spans), func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
			send(t, a, rank, spans)
		}
		_, delay := scores(t, a, clock)
		assert.InEpsilon(t, 0.020, delay["3 backward/layer.1/mlp/gemm"], 1e-9, "seed %d: %v", seed, delay)
		assert.Zero(t, a.jobs.tree.Waiting())
	}
}

func TestALossThatNoSectionExplainsIsTheirParents(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		spans := nest(t, rank, 1, "", 0)
		if rank == 1 { // 4 ms in each of 4 sections of 2 layers, and 2 ms between them
			for _, s := range spans {
				more := map[string]float64{
					"gemm": 4, "attention": 4, "mlp": 4, "layer.0": 8, "layer.1": 8,
					"backward": 18,
				}[s.Name()]
				if more == 0 || s.Name() != "backward" && !below(spans, s, "backward") {
					continue
				}
				v, _ := s.Attributes().Get("gpu.duration")
				v.SetDouble(v.Double() + more/1000)
			}
			step := spans[len(spans)-1].Attributes()
			for key, more := range map[string]float64{
				"gpu.step.phase.duration.backward": 0.018,
				"gpu.step.phase.duration.comm":     -0.018,
			} {
				v, _ := step.Get(key)
				v.SetDouble(v.Double() + more)
			}
		}
		send(t, a, rank, spans)
	}
	_, delay := scores(t, a, clock)
	assert.Len(t, delay, 1)
	assert.InEpsilon(t, 0.018, delay["1 backward"], 1e-9, "%v", delay)
}

func below(spans []ptrace.Span, s ptrace.Span, name string) bool {
	for _, up := range spans {
		if up.SpanID() == s.ParentSpanID() {
			return up.Name() == name || below(spans, up, name)
		}
	}
	return false
}

func TestHostSpansBetweenSectionsAreSkipped(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 4))
	for later := range 40 { // 0: all spans arrive at once; otherwise alone, in any order
		a := newTest(t, nil)
		for rank := range 4 {
			ms := 0.020 + float64(rank/3)*0.020
			td := batch(t, rankOf(rank, 4),
				span{"gemm", 10, 50_000, attrs{"gpu.operation.type": "kernel", "gpu.duration": ms}, 4, 3, ""},
				span{"aten::mm", 10, 20, nil, 3, 2, ""}, span{"nn.Module: Linear", 10, 30, nil, 2, 1, ""},
				span{"step", 0, 100_000, attrs{
					"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1,
					"gpu.step.duration": 0.08 + ms,
				}, 1, 0, ""})
			var spans []ptrace.Span
			for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
				s.SetTraceID([16]byte{byte(rank + 1)})
				spans = append(spans, s)
			}
			if later == 0 {
				send(t, a, rank, spans)
				continue
			}
			for _, i := range r.Perm(len(spans)) {
				send(t, a, rank, spans[i:i+1])
			}
		}
		_, delay := scores(t, a, clock)
		assert.InEpsilon(t, 0.020, delay["3 gemm"], 1e-9, "%v", delay)
	}
}

// Sections of a model that is called with the step's context are children of the step and siblings
// of their phase.
func TestSiblingSectionsAreAssignedToTheirPhase(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		conv := uint64(10_000 + rank/3*20_000) // µs
		op := func(category string) attrs {
			return attrs{"gpu.operation.type": "section", "gpu.operation.category": category, "gpu.stream.id": 1}
		}
		td := batch(t, rankOf(rank, 4),
			span{"conv", 1000, 1000 + conv, op("conv"), 3, 1, ""}, span{
				"head", 1000 + conv, 6000 + conv, op("matmul"), 4, 1,
				"",
			},
			span{"forward", 0, 6000 + conv, op("forward"), 2, 1, ""},
			span{"step", 0, 100_000, attrs{
				"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1, "gpu.step.duration": 0.1,
				"gpu.step.phase.duration.forward": 0.006 + float64(conv)/1e6,
				"gpu.step.phase.duration.comm":    0.09 - float64(conv)/1e6,
			}, 1, 0, ""})
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetTraceID([16]byte{byte(rank + 1)})
		}
		a.take(td, clock)
	}
	_, delay := scores(t, a, clock)
	assert.InEpsilon(t, 0.020, delay["3 forward/conv"], 1e-9, "%v", delay)
}

func TestPendingSectionsAreLimited(t *testing.T) {
	a := newTest(t, nil)
	op := attrs{"gpu.operation.type": "section", "gpu.duration": 0.001}
	r := rand.New(rand.NewPCG(1, 9))
	for i := range 40 {
		var spans []span
		for id := range 250 { // any parents: cycles, self-references, chains of any length
			spans = append(spans, span{
				fmt.Sprint("op", r.IntN(100)), r.Uint64N(5), 5 + r.Uint64N(5), op, byte(1 + id),
				byte(1 + r.IntN(250)), "",
			})
		}
		td := batch(t, rankOf(0, 4), spans...)
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetTraceID([16]byte{byte(i)})
		}
		a.take(td, clock)
	}
	n := a.jobs.tree.count
	for k := range 256 * 40 {
		key := spanfacts.Key{Trace: [16]byte{byte(k / 256)}, Span: [8]byte{byte(k)}}
		if d := a.jobs.tree.take(a.jobs.process, key); d != nil {
			require.LessOrEqual(t, levels(&d.Sections), 16)
			n -= d.Size()
			require.Equal(t, n, a.jobs.tree.count)
		}
	}
	require.Zero(t, n)
	var chain []span
	for id := range 120 { // each one the child of the previous one
		chain = append(chain, span{fmt.Sprint("op", id), uint64(id), uint64(1000 - id), op, byte(2 + id), byte(1 + id), ""})
	}
	a = newTest(t, nil)
	a.take(batch(t, rankOf(0, 4), chain...), clock)
	require.Equal(t, 1, a.jobs.tree.Waiting())
	below := a.jobs.tree.take(a.jobs.process, spanfacts.Key{Trace: [16]byte{1}, Span: [8]byte{1}})
	assert.Equal(t, 16, levels(&below.Sections))
}

// Below parents that form a cycle there is no step: nothing of them is kept.
func TestACycleOfParentsIsDropped(t *testing.T) {
	op := attrs{"gpu.operation.type": "section", "gpu.duration": 0.001}
	r := rand.New(rand.NewPCG(3, 11))
	for range 200 {
		n := 2 + r.IntN(8)
		circle := 1 + r.IntN(n)
		spans := make([]span, n)
		for i := range spans {
			parent := (i + 1) % circle // the next one in the cycle
			if i >= circle {
				parent = r.IntN(i) // below it
			}
			spans[i] = span{fmt.Sprint("op", i), 0, 10, op, byte(1 + i), byte(1 + parent), ""}
		}
		r.Shuffle(n, func(i, j int) { spans[i], spans[j] = spans[j], spans[i] })
		a := newTest(t, nil)
		a.take(batch(t, rankOf(0, 4), spans...), clock)
		require.Zero(t, a.jobs.tree.Waiting(), "%v", spans)
		require.Zero(t, a.jobs.tree.count)
	}
}

// Steps that never arrive leave pending sums. If they have too many parts in total, the oldest sums
// are evicted completely.
func TestPartsOfPendingSumsAreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const names = 64
	a := newTest(t, nil)
	tree := a.jobs.tree
	step := func(i int) spanfacts.Key {
		return spanfacts.Key{Trace: [16]byte{1}, Span: [8]byte{1, byte(i), byte(i >> 8), byte(i >> 16)}}
	}
	most := maxParts / names
	for i := range most + 10 {
		for name := range names {
			key := spanfacts.Key{Trace: [16]byte{1}, Span: [8]byte{2 + byte(name), byte(i), byte(i >> 8), byte(i >> 16)}}
			tree.own = treeSpan{key: key, name: fmt.Sprint("op", name), time: 1}
			tree.section(step(i).Span)
			require.LessOrEqual(t, tree.count, maxParts)
		}
	}
	assert.Equal(t, maxParts, tree.count)
	assert.Equal(t, most, tree.Waiting())
	for i := range most + 10 {
		sum := tree.take(0, step(i))
		if i < 10 {
			require.Nil(t, sum, "%d", i)
			continue
		}
		require.Equal(t, names, sum.Size(), "%d", i)
	}
}

// levels returns the nesting depth of sections.
func levels(p *straggler.Sections) (n int) {
	for _, x := range p.All() {
		n = max(n, 1+levels(x.Below))
	}
	return n
}
