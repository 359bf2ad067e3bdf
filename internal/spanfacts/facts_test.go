// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

const now = 1_764_000_000_000_000_000

func span(t testing.TB, attrs map[string]any) ptrace.Span {
	s := ptrace.NewSpan()
	s.SetName("gemm")
	s.SetTraceID([16]byte{1})
	s.SetSpanID([8]byte{2})
	s.SetParentSpanID([8]byte{3})
	s.SetStartTimestamp(now)
	s.SetEndTimestamp(now + 2_000_000)
	require.NoError(t, s.Attributes().FromRaw(attrs))
	return s
}

func load(t testing.TB, attrs map[string]any) *Facts {
	var f Facts
	f.Load(span(t, attrs), nil)
	return &f
}

func TestLoadRejectsSpansWithoutType(t *testing.T) {
	var f Facts
	require.False(t, f.Load(span(t, map[string]any{"gpu.duration": 1.0, "gpu.operation.type": ""}), nil))
	require.Equal(t, Key{[16]byte{1}, [8]byte{2}}, f.Key)
	require.Equal(t, pcommon.SpanID{3}, f.Parent)
}

// Every operation type of the registry has a kind, and only kinds that use a device are work.
func TestEveryTypeOfTheRegistryHasAKind(t *testing.T) {
	a, ok := semconv.LookupAttribute("gpu.operation.type")
	require.True(t, ok)
	seen := map[Kind]string{}
	for _, m := range a.Members {
		k := KindOf(m)
		assert.NotContains(t, []Kind{None, Other}, k, m)
		assert.Empty(t, seen[k], m)
		seen[k] = m
		assert.Equal(t, m != "share" && m != "request" && m != "host", k.Work(), m)
	}
	assert.Equal(t, Other, KindOf("gemm"))
	assert.True(t, Other.Work())
	assert.False(t, None.Work())
}

func TestOnlyGPUWorkHasDeviceTime(t *testing.T) {
	for kind, want := range map[string]float64{
		"section": .25, "kernel": .25, "gemm": .25, "step": 0, "share": 0,
		"request": 0, "host": 0,
	} {
		assert.Equal(t, want, load(t, map[string]any{"gpu.operation.type": kind, "gpu.duration": .25}).Time, kind)
	}
}

func TestDeviceTime(t *testing.T) {
	for name, tt := range map[string]struct {
		status, source    string
		duration, elapsed float64
		want              float64
	}{
		"stated":                       {"ok", "cuda_event", 2, 3, 2},
		"not stated: the span's own":   {"", "cupti", 0, 3, 3},
		"of an unknown producer":       {"", "", 0, 3, 3},
		"of the host":                  {"", "host", 0, 3, 0},
		"of the host, but stated":      {"", "host", 2, 3, 2},
		"not read":                     {"timeout", "cuda_event", 2, 3, 0},
		"dropped, and only host times": {"dropped", "host", 0, 3, 0},
	} {
		assert.Equal(t, tt.want, deviceTime(tt.status, tt.source, tt.duration, tt.elapsed), name)
	}
}

func TestElapsed(t *testing.T) {
	for name, tt := range map[string]struct {
		start, end uint64
		want       float64
	}{
		"in order":              {now, now + 2_000_000, 0.002},
		"without length":        {now, now, 0},
		"the wrong way round":   {now + 1, now, 0},
		"the start not set":     {0, now, 0},
		"of a clock since boot": {5, 2_000_005, 0.002},
	} {
		assert.Equal(t, tt.want, Elapsed(tt.start, tt.end), name)
	}
}

// A span's device overrides its scope's, and a scope's its resource's; nothing is inherited from
// another device.
func TestTheDeviceIsFoundOnSpanScopeAndResource(t *testing.T) {
	attrs := func(m map[string]any) pcommon.Map {
		out := pcommon.NewMap()
		require.NoError(t, out.FromRaw(m))
		return out
	}
	var r Resource
	r.Load(attrs(map[string]any{
		"hw.id": "GPU-aa", "hw.model": "H100", "gpu.pci.bdf": "0000:01:00.0", "host.name": "n1",
		"gpu.job.rank": 3, "gpu.job.world_size": "8", // a text in OTEL_RESOURCE_ATTRIBUTES
	}))
	require.Equal(t, Resource{
		Device:   Identity{ID: "GPU-aa", Model: "H100", BDF: "0000:01:00.0", Ordinal: -1},
		HostName: "n1", Rank: 3, WorldSize: 8,
	}, r)
	for name, tt := range map[string]struct {
		scope, span map[string]any
		want        Identity
	}{
		"resource only": {nil, nil, r.Device},
		"scope": {
			map[string]any{"hw.id": "GPU-bb", "hw.model": "B200", "gpu.device.ordinal": 1},
			nil,
			Identity{ID: "GPU-bb", Model: "B200", Ordinal: 1},
		},
		"span repeats the scope": {
			map[string]any{"hw.id": "GPU-bb", "hw.model": "B200", "hw.name": "gpu1"},
			map[string]any{"hw.id": "BB"},
			Identity{ID: "BB", Name: "gpu1", Model: "B200", Ordinal: -1},
		},
		"span is of another device": {
			map[string]any{"hw.id": "GPU-bb", "hw.model": "B200"},
			map[string]any{"hw.id": "GPU-cc"},
			Identity{ID: "GPU-cc", Ordinal: -1},
		},
		"another address": {
			nil,
			map[string]any{"gpu.pci.bdf": "0000:02:00.0"},
			Identity{BDF: "0000:02:00.0", Ordinal: -1},
		},
		"MIG instance": {
			map[string]any{"hw.id": "MIG-dd", "hw.parent": "GPU-aa"},
			nil,
			Identity{ID: "MIG-dd", Parent: "GPU-aa", Ordinal: -1},
		},
	} {
		var sc Scope
		sc.Load(&r, attrs(tt.scope))
		s := span(t, tt.span)
		s.Attributes().PutStr("gpu.operation.type", "section")
		var f Facts
		require.True(t, f.Load(s, &sc))
		assert.Equal(t, tt.want, f.Device, name)
	}
}

func TestSpansInheritFromTheirScope(t *testing.T) {
	m := pcommon.NewMap()
	require.NoError(t, m.FromRaw(map[string]any{
		"gpu.timing.source": "cupti", "gpu.floor.duration": 2e-6, "gpu.timing.error": 4e-6,
		"gpu.metrics.emitted": true, "gpu.measurement.source": "dcgm", "gpu.stream.id": 3,
	}))
	var sc Scope
	sc.Load(nil, m)
	require.True(t, sc.MetricsEmitted)
	var f Facts
	f.Load(span(t, map[string]any{"gpu.operation.type": "kernel"}), &sc)
	assert.True(t, f.Recorded())
	assert.True(t, f.Joined)
	assert.Equal(t, 2e-6, f.Floor)
	assert.Equal(t, 4e-6, f.TimingError)
	assert.EqualValues(t, 3, f.Stream)
	f.Load(span(t, map[string]any{
		"gpu.operation.type": "section", "gpu.timing.source": "host",
		"gpu.floor.duration": 0.0, "gpu.timing.error": 7e-6,
	}), &sc)
	assert.Equal(t, 7e-6, f.TimingError)
	assert.True(t, f.HostTimed())
	assert.True(t, f.HasFloor)
	assert.Zero(t, f.Floor)
	assert.Zero(t, f.Time)
}

// A scope's stream, ordinal, floor and names apply to its device: a span on another device does not
// inherit them.
func TestSpansOfAnotherDeviceDoNotInheritFromTheScope(t *testing.T) {
	m := pcommon.NewMap()
	require.NoError(t, m.FromRaw(map[string]any{
		"hw.id": "GPU-aa", "hw.parent": "GPU-pp", "hw.name": "gpu0", "hw.model": "H100", "gpu.pci.bdf": "0000:01:00.0",
		"gpu.device.ordinal": 0, "gpu.stream.id": 3, "gpu.floor.duration": 2e-6, "gpu.timing.source": "cupti",
		"gpu.measurement.source": "dcgm", "gpu.timing.error": 4e-6,
	}))
	var sc Scope
	sc.Load(nil, m)
	for name, tt := range map[string]struct {
		span map[string]any
		want Identity
	}{
		"by hw.id":   {map[string]any{"hw.id": "GPU-bb"}, Identity{ID: "GPU-bb", Ordinal: -1}},
		"by a list":  {map[string]any{"hw.id": "GPU-aa,GPU-bb"}, Identity{ID: "GPU-aa,GPU-bb", Ordinal: -1}},
		"by address": {map[string]any{"gpu.pci.bdf": "0000:02:00.0"}, Identity{BDF: "0000:02:00.0", Ordinal: -1}},
		"by ordinal": {map[string]any{"gpu.device.ordinal": 1}, Identity{Ordinal: 1}},
	} {
		tt.span["gpu.operation.type"] = "section"
		var f Facts
		require.True(t, f.Load(span(t, tt.span), &sc), name)
		assert.Equal(t, tt.want, f.Device, name)
		assert.EqualValues(t, -1, f.Stream, name)
		assert.False(t, f.HasFloor, name)
		assert.Zero(t, f.Floor, name)
		assert.Zero(t, f.TimingError, name)
		assert.Equal(t, "cupti", f.Source, "%s: the source is the producer's, not the device's", name)
		assert.True(t, f.Joined, name)
		tt.span["gpu.stream.id"], tt.span["gpu.floor.duration"] = 5, 1e-6
		f.Load(span(t, tt.span), &sc)
		assert.EqualValues(t, 5, f.Stream, name)
		assert.Equal(t, 1e-6, f.Floor, name)
	}
	var f Facts
	f.Load(span(t, map[string]any{"gpu.operation.type": "section", "hw.id": "AA", "gpu.pci.bdf": "00000000:01:00.0"}), &sc)
	assert.EqualValues(t, 3, f.Stream, "equal UUIDs are one device, however the address is written")
	assert.Equal(t, "H100", f.Device.Model)
}

func TestDevicesAreComparedWithoutPrefixAndCase(t *testing.T) {
	for pair, want := range map[[2]string]bool{
		{"GPU-ab-1", "ab-1"}: true, {"GPU-AB-1", "gpu-ab-1"}: true, {"MIG-ab", "ab"}: true,
		{"GPU-ab-1", "GPU-ab-2"}: false, {"", ""}: true, {"", "GPU-a"}: false, {"GPU-", ""}: false,
	} {
		assert.Equal(t, want, SameDevice(pair[0], pair[1]), pair)
		assert.Equal(t, want, SameDevice(pair[1], pair[0]), pair)
	}
}

// NaN, infinite and wrongly typed values count as absent.
func TestInvalidNumbersCountAsAbsent(t *testing.T) {
	for _, bad := range []any{math.NaN(), math.Inf(1), "3", true, -1.0} {
		f := load(t, map[string]any{
			"gpu.operation.type": "section", "gpu.duration": bad, "gpu.io.size": bad, "gpu.flop.count": bad, "gpu.energy": bad,
			"gpu.floor.duration": bad, "gpu.cache.l2.hit_ratio": bad, "gpu.stream.id": bad, "gpu.device.ordinal": bad,
			"gpu.step.phase.duration.forward": bad,
		})
		assert.Equal(t, []any{0.0, 0.0, 0.0, 0.0, 0.0, false, int64(-1), int64(-1), 0},
			[]any{f.Duration, f.Size, f.FLOPs, f.Energy, f.L2Hit, f.HasFloor, f.Stream, f.Device.Ordinal, len(f.Phases())}, bad)
	}
	f := load(t, map[string]any{
		"gpu.operation.type": "section", "gpu.end.delay": -2e-6, "gpu.start.delay": math.NaN(),
		"gpu.cache.l2.hit_ratio": 1.5,
	})
	assert.True(t, f.HasEndDelay)
	assert.Equal(t, -2e-6, f.EndDelay)
	assert.False(t, f.HasStartDelay)
	assert.Zero(t, f.L2Hit)
}

func TestLoadReadsAStep(t *testing.T) {
	f := load(t, map[string]any{
		"gpu.operation.type": "step", "gpu.step.index": 7, "gpu.step.items": 32, "gpu.step.item.type": "image",
		"gpu.step.phase.duration.forward": 0.5, "gpu.step.phase.duration.comm": 0, "gpu.step.other.duration": .1,
	})
	assert.Equal(t, "gemm", f.Name)
	assert.Equal(t, 0.002, f.StepTime())
	assert.Equal(t, int64(7), f.StepIndex)
	assert.ElementsMatch(t, []Phase{{"forward", .5}, {"comm", 0}}, f.Phases())
	assert.True(t, f.HasPhases)
	assert.Equal(t, 3.0, load(t, map[string]any{"gpu.operation.type": "step", "gpu.step.duration": 3}).StepTime())
	many := map[string]any{"gpu.operation.type": "step"}
	for i := range 40 {
		many["gpu.step.phase.duration.p"+string(rune('a'+i%26))+string(rune('a'+i/26))] = 1.0
	}
	assert.Len(t, load(t, many).Phases(), maxPhases)
}

func TestSharesDividesABatchAmongItsLinks(t *testing.T) {
	for name, tt := range map[string]struct {
		links []map[string]any
		size  int
		want  []float64
	}{
		"by items": {
			[]map[string]any{{"gpu.operation.items": 30}, {"gpu.operation.items": 10}},
			0,
			[]float64{.75, .25},
		},
		"nothing stated":         {[]map[string]any{{}, {}, {}, {}}, 0, []float64{.25, .25, .25, .25}},
		"requests without links": {[]map[string]any{{}, {}}, 8, []float64{.125, .125}},
		"shares stated": {[]map[string]any{
			{"gpu.batch.share": .5, "gpu.operation.items": 1},
			{"gpu.operation.items": 1},
		}, 0, []float64{.5, 0}},
		"some state items": {[]map[string]any{{"gpu.operation.items": 4}, {}}, 0, []float64{1, 0}},
		"shares that can't be one": {
			[]map[string]any{{"gpu.batch.share": 7.0}, {"gpu.batch.share": -1.0}},
			0,
			[]float64{.5, .5},
		},
		"no links": {nil, 4, nil},
		"more than the batch": {
			[]map[string]any{{"gpu.batch.share": 1.0}, {"gpu.batch.share": 1.0}},
			0,
			[]float64{.5, .5},
		},
	} {
		s := span(t, map[string]any{"gpu.operation.type": "section"})
		if tt.size > 0 {
			s.Attributes().PutInt("gpu.batch.size", int64(tt.size))
		}
		for i, m := range tt.links {
			l := s.Links().AppendEmpty()
			l.SetSpanID([8]byte{byte(i + 1)})
			require.NoError(t, l.Attributes().FromRaw(m))
		}
		var got []float64
		for i, x := range Shares(s, nil) {
			assert.Equal(t, byte(i+1), x.Key.Span[0])
			got = append(got, x.Share)
		}
		assert.Equal(t, tt.want, got, name)
	}
}

func TestDroppedLinksKeepTheirShare(t *testing.T) {
	for name, links := range map[string][]map[string]any{
		"equal":    {{}, {}, {}},
		"by items": {{"gpu.operation.items": 2}, {"gpu.operation.items": 2}, {"gpu.operation.items": 2}},
	} {
		s := span(t, map[string]any{"gpu.operation.type": "section"})
		s.SetDroppedLinksCount(3)
		for _, m := range links {
			require.NoError(t, s.Links().AppendEmpty().Attributes().FromRaw(m))
		}
		for _, x := range Shares(s, nil) {
			assert.InDelta(t, 1./6, x.Share, 1e-15, name)
		}
	}
}

func TestOtherLinksHaveNoShare(t *testing.T) {
	s := span(t, map[string]any{"gpu.operation.type": "kernel"})
	link := s.Links().AppendEmpty()
	link.Attributes().PutStr("gpu.link.type", "range")
	assert.False(t, Batch(s))
	var f Facts
	f.Load(s, nil)
	assert.False(t, f.InWindow)
	link.Attributes().PutStr("gpu.link.type", "window")
	f.Load(s, nil)
	assert.True(t, f.InWindow)
	s.Links().AppendEmpty()
	assert.True(t, Batch(s))
	assert.Equal(t, []LinkShare{{Share: 1}}, Shares(s, nil))
}

func TestSharesDividesTheItemsOfABatchWithoutItemsOnLinks(t *testing.T) {
	s := span(t, map[string]any{"gpu.operation.type": "section", "gpu.operation.items": 12})
	for _, share := range []float64{.75, .25} {
		l := s.Links().AppendEmpty()
		l.SetFlags(0x101)
		l.TraceState().FromRaw("ot=th:8")
		l.Attributes().PutDouble("gpu.batch.share", share)
	}
	assert.Equal(t, []LinkShare{
		{Items: 9, Share: .75, Flags: 0x101, State: "ot=th:8"},
		{Items: 3, Share: .25, Flags: 0x101, State: "ot=th:8"},
	}, Shares(s, nil))
}

func lean(t testing.TB) ptrace.Span {
	return span(t, map[string]any{
		"gpu.operation.type": "section", "gpu.operation.name": "attention", "gpu.operation.category": "attention",
		"hw.id":        "GPU-1f",
		"gpu.duration": 2e-3, "gpu.stream.id": 1, "gpu.io.size": 1 << 20, "gpu.flop.count": 1e9, "gpu.flop.precision": "bf16",
		"gpu.operation.items": 128, "gpu.operation.item.type": "token", "gpu.start.delay": 1e-5, "gpu.end.delay": 1e-3,
		"gpu.energy": 1.5, "gpu.power": 700.0, "gpu.sm.utilization": .9, "gpu.tensor.utilization": .5,
		"gpu.dram.utilization": .4,
		"gpu.io.rate":          5e8, "gpu.flop.rate": 5e11, "gpu.roofline.bound": "compute", "gpu.roofline.utilization": .5,
	})
}

func TestLoadDoesNotAllocate(t *testing.T) {
	s := lean(t)
	var f Facts
	var sc Scope
	require.Zero(t, testing.AllocsPerRun(100, func() { f.Load(s, &sc) }))
}

func BenchmarkLoad(b *testing.B) {
	s := lean(b)
	var f Facts
	var sc Scope
	b.ReportAllocs()
	for b.Loop() {
		f.Load(s, &sc)
	}
}
