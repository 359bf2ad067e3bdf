// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// newFinder returns an aggregator whose spans are consumed.
func newFinder(t testing.TB, edit func(*Config)) *aggregator {
	a := newTest(t, edit)
	a.jobs.spans = true
	return a
}

// said returns the spans of an aggregator's findings, and checks that they follow the registry and
// are not GPU spans.
func said(t testing.TB, a *aggregator, now int64) ptrace.Traces {
	t.Helper()
	a.output(now, false)
	td := findingSpans(a.findings(), func(s pcommon.InstrumentationScope) { s.SetName("scope") })
	require.NoError(t, conformance.Traces(td))
	for _, rs := range td.ResourceSpans().All() {
		for _, s := range rs.ScopeSpans().At(0).Spans().All() {
			var f facts
			assert.False(t, f.load(s, nil), "must not be counted again")
		}
	}
	require.Empty(t, a.findings(), "said once")
	return td
}

// only returns the single span and its resource.
func only(t testing.TB, td ptrace.Traces) (map[string]any, ptrace.Span) {
	t.Helper()
	require.Equal(t, 1, td.SpanCount())
	rs := td.ResourceSpans().At(0)
	return rs.Resource().Attributes().AsRaw(), rs.ScopeSpans().At(0).Spans().At(0)
}

func µs(s pcommon.Timestamp) uint64 { return (uint64(s) - epoch) / 1000 }

func TestAFindingIsInTheSlowRanksTrace(t *testing.T) {
	a := newFinder(t, nil)
	for rank := range 4 {
		extra := 0.0
		if rank == 2 {
			extra = 20
		}
		spans := nest(t, rank, 7, "backward/layer.1/attention/gemm", extra)
		step := spans[len(spans)-1]
		step.TraceState().FromRaw("ot=th:8")
		step.SetFlags(0x301) // sampled; the parent is remote
		send(t, a, rank, spans)
	}
	td := said(t, a, clock)
	resource, s := only(t, td)
	assert.Equal(t, map[string]any{
		"service.name": "trainer", "gpu.job.id": "j1", "gpu.job.rank": int64(2), "gpu.job.world_size": int64(4),
		"host.name": "n0",
	}, resource)
	ss := td.ResourceSpans().At(0).ScopeSpans().At(0)
	assert.Equal(t, semconv.SchemaURL, ss.SchemaUrl())
	assert.Equal(t, "scope", ss.Scope().Name())

	assert.Equal(t, "straggler backward/layer.1/attention/gemm", s.Name())
	assert.Equal(t, ptrace.SpanKindInternal, s.Kind())
	assert.Equal(t, pcommon.TraceID{3, 7}, s.TraceID())
	assert.Equal(t, pcommon.SpanID{1}, s.ParentSpanID())
	assert.NotEqual(t, pcommon.SpanID{1}, s.SpanID())
	assert.Equal(t, "ot=th:8", s.TraceState().AsRaw())
	assert.EqualValues(t, 1, s.Flags())
	// The section's own interval: in this nest, a section at depth d starts 10(d+1) µs after the
	// step and ends 10(d+1) µs before it.
	assert.EqualValues(t, 40, µs(s.StartTimestamp()))
	assert.EqualValues(t, 200_000-40, µs(s.EndTimestamp()))
	// The leaves of a rank add up to 59 ms, on the late rank 79.
	got := s.Attributes().AsRaw()
	for key, want := range map[string]float64{
		"gpu.straggler.score": 79. / 59, "gpu.straggler.delay": 0.020,
		"gpu.straggler.median": 0.059,
		"gpu.finding.gain":     0.020, "gpu.finding.share": 0.020 / 0.200, "gpu.finding.threshold": 0.01,
	} {
		assert.InEpsilon(t, want, got[key], 1e-9, key)
		delete(got, key)
	}
	kind, _ := semconv.LookupFindingKind(semconv.GPUFindingKindLateRank)
	assert.Equal(t, kind.Remedy, got["gpu.finding.remedy"])
	delete(got, "gpu.finding.remedy")
	assert.Equal(t, map[string]any{
		"gpu.finding.kind": "late_rank", "gpu.finding.certainty": "medium",
		"gpu.finding.evidence":  "rank 2 of 4 is late by 20ms, 20ms of it in backward/layer.1/attention/gemm",
		"gpu.straggler.section": "backward/layer.1/attention/gemm", "gpu.straggler.phase": "backward",
		"gpu.straggler.rank.count": int64(4),
		"gpu.step.index":           int64(7), "gpu.operation.name": "train",
	}, got)
	require.Equal(t, 1, s.Links().Len())
	assert.Equal(t, pcommon.TraceID{1, 7}, s.Links().At(0).TraceID(), "the first rank at the median")
	assert.Equal(t, pcommon.SpanID{1}, s.Links().At(0).SpanID())
	assert.Equal(t, map[string]any{"gpu.job.rank": int64(0)}, s.Links().At(0).Attributes().AsRaw())
}

func TestARepeatedFindingHasTheSameSpanID(t *testing.T) {
	ids := map[pcommon.SpanID]int{}
	for range 2 {
		a := newFinder(t, nil)
		for index := range 5 {
			for rank := range 4 {
				send(t, a, rank, nest(t, rank, index+1, "data/load", float64(rank/3*20)))
			}
		}
		td := said(t, a, clock)
		require.Equal(t, 1, td.ResourceSpans().Len(), "the spans of a rank are together")
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			ids[s.SpanID()]++
		}
	}
	assert.Len(t, ids, 5)
	for id, n := range ids {
		assert.False(t, id.IsEmpty())
		assert.Equal(t, 2, n)
	}
}

func TestASectionThatRanOftenIsFromItsFirstToItsLastRun(t *testing.T) {
	a := newFinder(t, nil)
	for rank := range 3 {
		ms := uint64(10 + rank/2*10)
		op := attrs{"gpu.operation.type": "section"}
		td := batch(t, rankOf(rank, 3),
			span{"gemm", 50_000, 50_000 + ms*1000, op, 3, 1, ""}, span{"gemm", 10_000, 10_000 + ms*1000, op, 2, 1, ""},
			span{"mlp", 30_000, 35_000, op, 4, 1, ""},
			span{"step", 0, 100_000, attrs{
				"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 1,
				"gpu.step.duration": 0.05 + float64(rank/2)*0.02,
			}, 1, 0, ""})
		for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
			s.SetTraceID([16]byte{byte(rank + 1)})
		}
		a.take(td, clock)
	}
	_, s := only(t, said(t, a, clock))
	assert.Equal(t, "straggler gemm", s.Name())
	assert.EqualValues(t, 10_000, µs(s.StartTimestamp()))
	assert.EqualValues(t, 70_000, µs(s.EndTimestamp()))
	_, phase := s.Attributes().Get("gpu.straggler.phase")
	assert.False(t, phase, "it is in no phase")
	delay, _ := s.Attributes().Get("gpu.straggler.delay")
	assert.InEpsilon(t, 0.02, delay.Double(), 1e-9)
}

// The position of a phase that is only an attribute of the step is unknown, as is the position of
// time outside all phases.
func TestALossOfUnknownPositionHasTheStepsInterval(t *testing.T) {
	for _, tt := range []struct {
		attribute, name string
		phase           any
	}{
		{"gpu.step.phase.duration.backward", "straggler backward", "backward"},
		{"gpu.step.other.duration", "straggler other", nil},
	} {
		a := newFinder(t, nil)
		for rank := range 4 {
			td := trainStep(t, rank, 4, 1, 40)
			step := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
			for key, more := range map[string]float64{tt.attribute: 0.02, "gpu.step.phase.duration.comm": -0.02} {
				v, _ := step.Attributes().Get(key)
				v.SetDouble(v.Double() + more*float64(rank/3))
			}
			a.take(td, clock)
		}
		_, s := only(t, said(t, a, clock))
		assert.Equal(t, tt.name, s.Name())
		assert.EqualValues(t, 0, µs(s.StartTimestamp()))
		assert.EqualValues(t, 100_000, µs(s.EndTimestamp()))
		assert.Equal(t, tt.phase, s.Attributes().AsRaw()["gpu.straggler.phase"])
	}
}

// bare returns a step that has only a duration.
func bare(t *testing.T, rank, world, index int, ms uint64) ptrace.Traces {
	td := batch(t, rankOf(rank, world), span{"step", 0, ms * 1000, attrs{
		"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": index,
	}, 1, 0, ""})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID([16]byte{byte(rank + 1), byte(index)})
	return td
}

func TestALossOfUnknownSectionIsTheSteps(t *testing.T) {
	a := newFinder(t, nil)
	for rank, ms := range []uint64{100, 100, 98, 150} {
		a.take(bare(t, rank, 4, 1, ms), clock)
	}
	md := output(t, a, clock)
	assert.InEpsilon(t, 0.05, values(t, md)["gpu.straggler.delay[gpu.job.id:j1 gpu.job.rank:3 gpu.operation.name:train]"],
		1e-9)
	td := findingSpans(a.findings(), noScope)
	require.NoError(t, conformance.Traces(td))
	_, s := only(t, td)
	assert.Equal(t, "straggler", s.Name())
	assert.EqualValues(t, 150_000, µs(s.EndTimestamp()))
	got := s.Attributes().AsRaw()
	assert.InEpsilon(t, 0.05, got["gpu.straggler.delay"], 1e-9)
	assert.InEpsilon(t, 0.1, got["gpu.straggler.median"], 1e-9)
	assert.NotContains(t, got, "gpu.straggler.section")
	assert.Equal(t, pcommon.TraceID{1, 1}, s.Links().At(0).TraceID(),
		"two are at the median: the first one is chosen")
}

// There is a span for exactly each rank that a metric names.
func TestSpansAndMetricsNameTheSameRanks(t *testing.T) {
	a := newFinder(t, nil)
	for index, slow := range [][]float64{
		{0, 0, 0, 0, 0, 0},
		{0, 0.1, 0.2, 0.1, 0, 0.3},
		{0, 30, 0, 0, 25, 0},
		{0, 0, 0, 0, 0, 12},
	} {
		for rank, more := range slow {
			a.take(trainStep(t, rank, 6, index+1, 40+more), clock)
		}
	}
	_, delays := scores(t, a, clock)
	named := map[string]bool{}
	for _, f := range a.findings() {
		named[fmt.Sprint(f.step.Span[0]-1, " ", f.Section)] = true
	}
	assert.Equal(t, map[string]bool{"1 backward": true, "4 backward": true, "5 backward": true}, named)
	assert.Len(t, delays, 3)
	for key := range delays {
		assert.True(t, named[key], key)
	}
}

func TestMissingRanksAreNotCompared(t *testing.T) {
	a := newFinder(t, nil)
	for rank := range 7 {
		a.take(trainStep(t, rank, 8, 1, 40+float64(rank/6*20)), clock)
	}
	assert.Zero(t, said(t, a, clock+int64(29*time.Second)).SpanCount())
	_, s := only(t, said(t, a, clock+int64(30*time.Second)))
	n, _ := s.Attributes().Get("gpu.straggler.rank.count")
	assert.EqualValues(t, 7, n.Int())
}

func TestNoFindingsWithoutAConsumer(t *testing.T) {
	a := newTest(t, nil)
	for rank := range 4 {
		a.take(trainStep(t, rank, 4, 1, 40+float64(rank/3*20)), clock)
	}
	a.jobs.jobs.Due(clock, 0, true, func(c straggler.Compared[rankStep]) {
		for _, s := range c.Steps {
			assert.Equal(t, pcommon.Map{}, s.resource)
		}
		a.score(&c, clock)
	})
	_, delays := scores(t, a, clock)
	assert.Len(t, delays, 1)
	assert.Empty(t, a.findings())
}

func TestNoFindingForAStepWithoutIDs(t *testing.T) {
	for _, without := range []int{0, 3} { // the median's, the slow one's
		a := newFinder(t, nil)
		for rank := range 4 {
			td := trainStep(t, rank, 4, 1, 40+float64(rank/3*20))
			if rank == without {
				td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetTraceID(pcommon.TraceID{})
			}
			a.take(td, clock)
		}
		td := said(t, a, clock)
		if without == 3 {
			assert.Zero(t, td.ResourceSpans().Len())
			continue
		}
		_, s := only(t, td)
		assert.Zero(t, s.Links().Len())
	}
}

// The span has the whole resource of its rank, including attributes that the metrics omit.
func TestRanksWhoseSeriesAreSharedKeepTheirResources(t *testing.T) {
	a := newFinder(t, func(c *Config) { c.ResourceAttributes = []string{"service.name"} })
	for rank := range 4 {
		a.take(trainStep(t, rank, 4, 1, 40+float64(rank/3*20)), clock)
	}
	a.take(batch(t, attrs{"service.name": "trainer"}, span{
		"step", 0, 1000,
		attrs{"gpu.operation.type": "step", "gpu.step.index": 1},
		9, 0, "",
	}), clock)
	md := output(t, a, clock)
	td := findingSpans(a.findings(), noScope)
	resource, _ := only(t, td)
	assert.Equal(t, map[string]any{
		"service.name": "trainer", "gpu.job.id": "j1", "gpu.job.rank": int64(3), "gpu.job.world_size": int64(4),
		"host.name": "n0",
	}, resource)
	// Their steps are not mixed, either.
	got := values(t, md)
	for _, rank := range []string{"0", "1", "2", "3"} {
		assert.Equal(t, "1 in 0.1", got["gpu.step.duration[gpu.job.rank:"+rank+" gpu.operation.name:train]"])
	}
	assert.Equal(t, "1 in 0.001", got["gpu.step.duration[gpu.operation.name:step]"], "no job, no rank")
}

// Tests both sides of the threshold of each finding of the connector: steps whose late rank takes a
// share of the step, and operations that take longer than before.
func TestEveryFindingOfTheConnectorHasItsThreshold(t *testing.T) {
	cases := map[string]func(of float64) []*reported{
		semconv.GPUFindingKindLateRank: func(of float64) []*reported {
			const step = 1.0
			ranks := make([]straggler.Rank, 4)
			for i := range ranks {
				ranks[i] = straggler.Rank{Rank: int64(i), Own: 0.5, Step: step}
			}
			ranks[2].Own += of * semconv.FindingLateRankLiveThreshold * step
			var h straggler.History
			var found []*reported
			for range 200 { // what late ranks cost is smoothed
				found = nil
				for _, r := range h.Compare([][]straggler.Rank{ranks}, false)[0].Results {
					if r.Slow {
						found = append(found, &reported{Finding: lateRank(&r, len(ranks), step, false)})
					}
				}
			}
			return found
		},
	}
	for _, kind := range semconv.FindingKinds() {
		if !slices.Contains(kind.ReportedBy, "gpu_metrics") {
			continue
		}
		with := cases[kind.Kind]
		require.NotNil(t, with, "add a row for %s", kind.Kind)
		require.Empty(t, with(0.98), "%s below its threshold", kind.Kind)
		list := with(1.02)
		require.Len(t, list, 1, "%s above its threshold", kind.Kind)
		f := list[0].Finding
		require.Equal(t, kind.Kind, f.Kind)
		require.Equal(t, kind.Remedy, f.Remedy)
		require.InEpsilon(t, semconv.FindingLateRankLiveThreshold, f.Threshold, 1e-12)
		require.GreaterOrEqual(t, f.Share, f.Threshold)
	}
}
