// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

// node is a span of a test: id 1 is the step; times in ms after the step's start.
type node struct {
	id, parent byte
	start, end int
	a          attrs
}

const epoch = 1_700_000_000_000_000_000

func put(t testing.TB, td ptrace.Traces, n node) {
	t.Helper()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{n.id})
	if n.parent > 0 {
		s.SetParentSpanID(pcommon.SpanID{n.parent})
	}
	s.SetStartTimestamp(pcommon.Timestamp(epoch + n.start*1_000_000))
	s.SetEndTimestamp(pcommon.Timestamp(epoch + n.end*1_000_000))
	require.NoError(t, s.Attributes().FromRaw(n.a))
}

func section(category string, more attrs) attrs {
	a := with(attrs{"gpu.operation.type": "section", "gpu.flop.precision": "bf16"}, more)
	if category != "" {
		a["gpu.operation.category"] = category
	}
	return a
}

// A step of 100 ms. Data 0 to 20. Forward 20 to 50 declares 3e12 FLOP, which include its inner
// kernel's 1e12. Backward 50 to 90 declares none itself; it contains two sections of 2e12 and 4e12.
// Its communication 80 to 95 is a child of a host span.
var stepTree = []node{
	{1, 0, 0, 100, attrs{"gpu.operation.type": "step", "hw.model": "NVIDIA H200", "gpu.step.items": 64}},
	{2, 1, 0, 20, section("data", nil)},
	{3, 1, 20, 50, section("forward", attrs{"gpu.flop.count": 3e12})},
	{4, 3, 25, 35, section("", attrs{"gpu.flop.count": 1e12})},
	{5, 1, 50, 90, section("backward", nil)},
	{6, 5, 50, 60, section("", attrs{"gpu.flop.count": 2e12})},
	{7, 5, 60, 90, section("", attrs{"gpu.flop.count": 4e12})},
	{8, 1, 70, 72, attrs{"http.request.method": "POST"}},
	{9, 8, 80, 95, attrs{"gpu.operation.type": "collective"}},
}

var stepWant = attrs{
	"gpu.step.duration": 0.1, "gpu.step.covered.duration": 0.095, "gpu.flop.count": 9e12, "gpu.flop.precision": "bf16",
	"gpu.step.phase.duration.data": 0.02, "gpu.step.phase.duration.forward": 0.03,
	"gpu.step.phase.duration.backward": 0.04,
	"gpu.step.phase.duration.comm":     0.015, "gpu.step.overlap.duration": 0.01, "gpu.step.other.duration": 0.005,
	"gpu.step.item.rate": 640.0, "gpu.step.hfu": 0.09095502779181405, // 9e12 ÷ (0.1 × 989.5e12)
	"gpu.peak.source": "table",
}

func assembling(edit func(*AssembleConfig)) func(*Config) {
	return func(c *Config) {
		a := AssembleConfig{MaxSums: 100, MaxAge: time.Minute, MaxIntervals: 256}
		if edit != nil {
			edit(&a)
		}
		c.AssembleSteps = configoptional.Some(a)
	}
}

func stepOf(batches []ptrace.Traces) ptrace.Span {
	for _, td := range batches {
		for _, rs := range td.ResourceSpans().All() {
			if s := rs.ScopeSpans().At(0).Spans().At(0); s.SpanID() == (pcommon.SpanID{1}) {
				return s
			}
		}
	}
	return ptrace.NewSpan()
}

func TestStepTotalsAreAssembledInAnyOrderOfOneBatch(t *testing.T) {
	for range 50 {
		td := ptrace.NewTraces()
		for _, i := range rand.Perm(len(stepTree)) {
			put(t, td, stepTree[i])
		}
		process(t, newTestDeriver(t, assembling(nil)), td)
		assertGained(t, stepWant, gained(stepOf([]ptrace.Traces{td}), stepTree[0].a))
		require.NoError(t, conformance.Traces(td))
	}
}

// The device's clock is known to within an error, so a step's first section may start before the
// step, as may one on an idle stream before its enclosing section.
func TestSectionsThatStartBeforeTheirStepBelongToIt(t *testing.T) {
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		spans := []node{
			{1, 0, 10, 100, attrs{"gpu.operation.type": "step"}},
			{2, 1, 9, 30, section("forward", nil)},
			{3, 2, 8, 20, section("", attrs{"gpu.flop.count": 1e12})},
		}
		td := ptrace.NewTraces()
		for _, i := range order {
			put(t, td, spans[i])
		}
		d := newTestDeriver(t, assembling(nil))
		process(t, d, td)
		got := gained(stepOf([]ptrace.Traces{td}), spans[0].a)
		assert.Equal(t, 0.02, got["gpu.step.phase.duration.forward"], "%v", order)
		assert.Equal(t, 1e12, got["gpu.flop.count"], "%v", order)
		assert.Zero(t, d.steps.tree.Waiting())
	}
}

// Producers export spans in end order: children before parents, divided anywhere.
func TestStepTotalsAreAssembledOverBatches(t *testing.T) {
	byEnd := []int{1, 3, 2, 5, 7, 6, 4, 8, 0} // indexes of stepTree by end; 7, the host span, ends before its child
	for cut := 1; cut < len(byEnd); cut++ {
		d := newTestDeriver(t, assembling(nil))
		var batches []ptrace.Traces
		for _, part := range [][]int{byEnd[:cut], byEnd[cut:]} {
			td := ptrace.NewTraces()
			for _, i := range part {
				put(t, td, stepTree[i])
			}
			process(t, d, td)
			batches = append(batches, td)
		}
		assertGained(t, stepWant, gained(stepOf(batches), stepTree[0].a))
		assert.Zero(t, d.steps.tree.Waiting(), "no sum is left")
	}
}

// Ranks whose random generators are seeded alike draw the same IDs. Their spans arrive in any
// order, in any batches, and some again, before their steps or in one batch with them.
func TestStepTotalsDoNotDependOnOrderRepeatsOrOtherRanks(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		d := newTestDeriver(t, assembling(nil))
		var below, steps []ptrace.Traces
		for rank := range int64(2) {
			for i := range stepTree {
				td := ptrace.NewTraces()
				put(t, td, stepTree[i])
				of := td.ResourceSpans().At(0).Resource().Attributes()
				of.PutStr("gpu.job.id", "7")
				of.PutInt("gpu.job.rank", rank)
				if i == 0 {
					steps = append(steps, td)
					continue
				}
				for range 1 + r.IntN(2) {
					again := ptrace.NewTraces()
					td.CopyTo(again)
					below = append(below, again)
				}
			}
		}
		r.Shuffle(len(below), func(i, j int) { below[i], below[j] = below[j], below[i] })
		last := ptrace.NewTraces()
		steps[0].CopyTo(last)
		for _, td := range below {
			if r.IntN(4) > 0 {
				process(t, d, td)
				continue
			}
			td.ResourceSpans().MoveAndAppendTo(last.ResourceSpans())
		}
		process(t, d, last)
		process(t, d, steps[1])
		process(t, d, steps[0]) // again
		for _, td := range []ptrace.Traces{last, steps[1], steps[0]} {
			assertGained(t, stepWant, gained(stepOf([]ptrace.Traces{td}), stepTree[0].a))
		}
		assert.Zero(t, d.steps.tree.Waiting())
	}
}

func TestSpansThatArriveAfterTheirStepAreCounted(t *testing.T) {
	d := newTestDeriver(t, assembling(nil))
	for _, n := range []node{stepTree[1], stepTree[0]} {
		td := ptrace.NewTraces()
		put(t, td, n)
		_, evicted := d.steps.assemble(td, epoch)
		assert.Zero(t, evicted)
	}
	for _, tt := range []struct{ span, evicted int64 }{{2, 1}, {3, 1}, {2, 0}, {8, 0}} { // the parent of 8 is not known
		td := ptrace.NewTraces()
		put(t, td, stepTree[tt.span])
		_, evicted := d.steps.assemble(td, epoch)
		assert.Equal(t, tt.evicted, evicted, "span %d", tt.span)
	}
}

func TestTotalsOfTheStepItselfAreKept(t *testing.T) {
	own := attrs{
		"gpu.operation.type": "step", "gpu.step.duration": 0.2, "gpu.flop.count": 1e12,
		"gpu.step.phase.duration.data": 0.1, "gpu.step.covered.duration": 0.15,
	}
	td := ptrace.NewTraces()
	for _, n := range stepTree {
		if n.id == 1 {
			n.a = own
		}
		put(t, td, n)
	}
	process(t, newTestDeriver(t, assembling(nil)), td)
	assert.Empty(t, gained(stepOf([]ptrace.Traces{td}), own))
}

func TestFLOPsOfSeveralPrecisionsHaveNone(t *testing.T) {
	for name, tt := range map[string]struct {
		step, more attrs
		want       any
	}{
		"the same":     {nil, attrs{"gpu.flop.count": 2e12}, "bf16"},
		"of no FLOPs":  {nil, attrs{"gpu.flop.precision": "fp32"}, "bf16"},
		"two":          {nil, attrs{"gpu.flop.count": 2e12, "gpu.flop.precision": "fp32"}, nil},
		"of the step":  {attrs{"gpu.flop.precision": "fp8"}, attrs{"gpu.flop.count": 2e12}, "fp8"},
		"one unstated": {nil, attrs{"gpu.flop.count": 2e12, "gpu.flop.precision": ""}, nil},
	} {
		td := ptrace.NewTraces()
		put(t, td, node{1, 0, 0, 100, with(attrs{"gpu.operation.type": "step"}, tt.step)})
		put(t, td, node{2, 1, 0, 20, section("", attrs{"gpu.flop.count": 1e12})})
		put(t, td, node{3, 1, 20, 40, section("", tt.more)})
		process(t, newTestDeriver(t, assembling(nil)), td)
		assert.Equal(t, tt.want, stepOf([]ptrace.Traces{td}).Attributes().AsRaw()["gpu.flop.precision"], name)
	}
}

func TestPendingSumsAreLimited(t *testing.T) {
	d := newTestDeriver(t, assembling(func(a *AssembleConfig) { a.MaxSums = 3 }))
	now := time.Now().UnixNano()
	var evicted int64
	for i := range byte(20) {
		td := ptrace.NewTraces()
		put(t, td, node{i + 1, 100 + i, 0, 1, section("data", nil)})
		_, n := d.steps.assemble(td, now)
		evicted += n
	}
	assert.Equal(t, 3, d.steps.tree.Waiting())
	assert.EqualValues(t, 17, evicted)
	_, n := d.steps.assemble(ptrace.NewTraces(), now+int64(time.Minute))
	assert.EqualValues(t, 3, n)
	assert.Zero(t, d.steps.tree.Waiting())
}
