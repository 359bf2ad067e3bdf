// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/semconvtest"
	"github.com/otelgpu/otelgpu/semconv"
)

type attrs map[string]any

// epoch is the start of the tests' spans; the clock of the tests is a second later.
const (
	epoch = uint64(1_700_000_000_000_000_000)
	clock = int64(epoch) + int64(time.Second)
)

// span is one span of a test: times in µs after epoch.
type span struct {
	name       string
	start, end uint64
	a          attrs
	id, parent byte
	state      string
}

func batch(t testing.TB, resource attrs, spans ...span) ptrace.Traces {
	t.Helper()
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	require.NoError(t, rs.Resource().Attributes().FromRaw(resource))
	ss := rs.ScopeSpans().AppendEmpty()
	for _, x := range spans {
		s := ss.Spans().AppendEmpty()
		s.SetName(x.name)
		s.SetTraceID(pcommon.TraceID{1})
		s.SetSpanID(pcommon.SpanID{x.id})
		if x.parent > 0 {
			s.SetParentSpanID(pcommon.SpanID{x.parent})
		}
		s.SetStartTimestamp(pcommon.Timestamp(epoch + x.start*1000))
		s.SetEndTimestamp(pcommon.Timestamp(epoch + x.end*1000))
		s.TraceState().FromRaw(x.state)
		require.NoError(t, s.Attributes().FromRaw(x.a))
	}
	return td
}

func newTest(t testing.TB, edit func(*Config)) *aggregator {
	t.Helper()
	cfg := newDefaultConfig().(*Config)
	if edit != nil {
		edit(cfg)
	}
	require.NoError(t, confmap.Validate(cfg))
	return newAggregator(cfg, "me")
}

func noScope(pcommon.InstrumentationScope) {}

func output(t testing.TB, a *aggregator, now int64) pmetric.Metrics {
	t.Helper()
	md := a.output(noScope, now, false)
	require.NoError(t, semconvtest.CheckMetrics(md))
	return md
}

// values are the points of all metrics as "name{attributes}" to value, a histogram's value being its count and sum. The instance's id
// is on every point, checked here and left out.
func values(t testing.TB, md pmetric.Metrics) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			put := func(attrs pcommon.Map, v any) {
				id, ok := attrs.Get("collector.instance.id")
				require.True(t, ok && id.Str() == "me")
				raw := attrs.AsRaw()
				delete(raw, "collector.instance.id")
				key := m.Name() + fmt.Sprint(raw)[3:]
				require.NotContains(t, out, key)
				out[key] = v
			}
			switch m.Type() {
			case pmetric.MetricTypeGauge:
				for _, p := range m.Gauge().DataPoints().All() {
					put(p.Attributes(), p.DoubleValue())
				}
			case pmetric.MetricTypeSum:
				for _, p := range m.Sum().DataPoints().All() {
					if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
						put(p.Attributes(), p.IntValue())
					} else {
						put(p.Attributes(), p.DoubleValue())
					}
				}
			case pmetric.MetricTypeHistogram:
				for _, p := range m.Histogram().DataPoints().All() {
					put(p.Attributes(), fmt.Sprintf("%d in %.9g", p.Count(), p.Sum()))
				}
			case pmetric.MetricTypeExponentialHistogram:
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					put(p.Attributes(), fmt.Sprintf("%d in %.9g", p.Count(), p.Sum()))
				}
			}
		}
	}
	return out
}

var prefill = attrs{
	"gpu.operation.type": "section", "gpu.operation.category": "prefill", "hw.id": "GPU-a", "gpu.timing.status": "ok", "gpu.duration": 0.002,
	"gpu.io.size": 1000, "gpu.flop.count": 5e9, "gpu.flop.precision": "bf16", "gpu.operation.items": 128, "gpu.operation.item.type": "token", "gpu.energy": 0.5,
}

func without(a attrs, keys ...string) attrs {
	out := maps.Clone(a)
	for _, k := range keys {
		delete(out, k)
	}
	return out
}

func with(a attrs, more attrs) attrs {
	out := maps.Clone(a)
	maps.Copy(out, more)
	return out
}

var prefillPoints = map[string]any{
	"gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]":                int64(2),
	"gpu.operation.duration[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok hw.id:GPU-a]": "2 in 0.004",
	"gpu.operation.io[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]":                                        int64(2000),
	"gpu.operation.flops[gpu.flop.precision:bf16 gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]":             1e10,
	"gpu.operation.items[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]":       int64(256),
	"gpu.operation.energy[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section hw.id:GPU-a]":                        1.0,
	"gpu.operation.item.energy[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]": 0.00390625,
}

func TestAnOperationFeedsItsMetrics(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, attrs{"service.name": "s"}, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 3000, 5000, prefill, 2, 0, ""},
		span{"GET /", 0, 9000, attrs{"http.request.method": "GET"}, 3, 0, ""}), clock)
	md := output(t, a, clock)
	assert.Equal(t, prefillPoints, values(t, md))
	service, _ := md.ResourceMetrics().At(0).Resource().Attributes().Get("service.name")
	assert.Equal(t, "s", service.Str())
	assert.Equal(t, semconv.SchemaURL, md.ResourceMetrics().At(0).ScopeMetrics().At(0).SchemaUrl())

	// Points are at the time of the spans: from the start of the first to the end of the last.
	p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
	assert.EqualValues(t, epoch, p.StartTimestamp())
	assert.EqualValues(t, epoch+5_000_000, p.Timestamp())
}

func TestEachGroupOfMetricsCanBeOff(t *testing.T) {
	off := map[string]func(*Config){
		"gpu.operation.": func(c *Config) { c.Operations = configoptional.None[OperationsConfig]() },
		"gpu.step.":      func(c *Config) { c.Steps = configoptional.None[StepsConfig]() },
		"gpu.activity.":  func(c *Config) { c.Activity = configoptional.None[ActivityConfig]() },
		"gpu.straggler.": func(c *Config) { c.Stragglers = configoptional.None[StragglerConfig]() },
	}
	kernel := attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"}
	for prefix, edit := range off {
		a := newTest(t, edit)
		for rank := range 3 {
			a.take(batch(t, rankOf(rank, 3), span{"k", 0, 10, kernel, 2, 0, ""}, span{"step", 0, 100_000, step, 1, 0, ""}), clock)
		}
		groups := map[string]bool{}
		for _, rm := range a.output(noScope, clock, true).ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				for p := range off {
					groups[p] = groups[p] || strings.HasPrefix(m.Name(), p)
				}
			}
		}
		for p, present := range groups {
			// Energy per item of steps is the steps' own.
			assert.Equal(t, p != prefix || p == "gpu.operation.", present, "%s with %s off", p, prefix)
		}
	}
}

func TestSeriesOfTheProducerAreNotRepeated(t *testing.T) {
	a := newTest(t, nil)
	td := batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 3000, 5000, prefill, 2, 0, ""})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutBool("gpu.metrics.emitted", true)
	a.take(td, clock)
	got := values(t, output(t, a, clock))
	assert.Len(t, got, 2)
	for k := range got {
		assert.Contains(t, k, "energy")
	}
}

func TestASampledSpanCountsForThoseThatWereNot(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, "vendor=x,ot=th:c;rv:ffffffffffffff"}), clock) // one in four
	got := values(t, output(t, a, clock))
	assert.Equal(t, "4 in 0.008", got["gpu.operation.duration[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok hw.id:GPU-a]"])
	assert.Equal(t, int64(4000), got["gpu.operation.io[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]"])
	assert.Equal(t, 2.0, got["gpu.operation.energy[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section hw.id:GPU-a]"])
}

func TestAdjustedCount(t *testing.T) {
	for state, want := range map[string]float64{
		"": 1, "x=y": 1, "ot=": 1, "ot=rv:1": 1, "ot=th:0": 1, "ot=th:8": 2, "ot=th:c": 4, "ot=rv:1;th:fd70a3d70a3d71": 100, "a=b, ot=th:8": 2,
		"ot=th:": 1, "ot=th:xyz": 1, "ot=th:111111111111111": 1, "ot=th:ffffffffffffff": 1 << 56, "ot=th:-1": 1, "ot=th:+1": 1,
	} {
		assert.InEpsilon(t, want, adjustedCount(state), 1e-12, state)
	}
}

func TestUntimedRunsAreCountedNotTimed(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil,
		span{"p", 0, 2000, with(without(prefill, "gpu.energy"), attrs{"gpu.timing.status": "dropped"}), 1, 0, ""},
		span{"h", 0, 2000, attrs{"gpu.operation.type": "section", "gpu.timing.source": "host"}, 2, 0, ""}), clock)
	for k := range values(t, output(t, a, clock)) {
		assert.NotContains(t, k, "duration")
	}
}

// The nest: a step of 12 J, an operation of 10 J in it, two of 3 J and 4 J in that, one of 1 J in the first of them.
func TestEnergyOfOperationsSumsToWhatTheOutermostSpanHasHoweverANestIsBatched(t *testing.T) {
	op := func(kind string, j, self float64) attrs {
		a := attrs{"gpu.operation.type": kind, "gpu.energy": j}
		if self < j {
			a["gpu.self_energy"] = self
		}
		return a
	}
	nest := []span{
		{"step", 0, 9000, op("step", 12, 2), 1, 0, ""},
		{"outer", 0, 5000, op("section", 10, 3), 2, 1, ""},
		{"inner", 0, 2000, op("section", 3, 2), 3, 2, ""},
		{"inner", 2000, 3000, op("section", 4, 4), 4, 2, ""},
		{"deep", 0, 1000, op("section", 1, 1), 5, 3, ""},
	}
	want := map[string]float64{"step": 2, "outer": 3, "inner": 6, "deep": 1}
	partitions := 0
	// part[i] is the batch of span i: every way to split five spans into batches.
	var split func(part []int, batches int)
	split = func(part []int, batches int) {
		if len(part) < len(nest) {
			for b := range batches + 1 {
				split(append(slices.Clip(part), b), max(batches, b+1))
			}
			return
		}
		partitions++
		a := newTest(t, nil)
		for b := range batches {
			var in []span
			for i, p := range part {
				if p == b {
					in = append(in, nest[i])
				}
			}
			a.take(batch(t, nil, in...), clock)
		}
		got, sum := values(t, output(t, a, clock)), 0.0
		for name, j := range want {
			kind := "section"
			if name == "step" {
				kind = name
			}
			assert.Equal(t, j, got["gpu.operation.energy[gpu.operation.name:"+name+" gpu.operation.type:"+kind+"]"], "%s, batches %v", name, part)
			sum += j
		}
		require.Equal(t, 12.0, sum)
	}
	split(nil, 0)
	assert.Equal(t, 52, partitions)
}

func TestAParentWhoseEnergyIsAllOfItsChildrenAddsNothing(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil,
		span{"p", 0, 2000, attrs{"gpu.operation.type": "section", "gpu.energy": 3.0, "gpu.self_energy": 0.0}, 1, 0, ""},
		span{"c", 0, 2000, attrs{"gpu.operation.type": "section", "gpu.energy": 3.0}, 2, 1, ""}), clock)
	got := values(t, output(t, a, clock))
	assert.Equal(t, 3.0, got["gpu.operation.energy[gpu.operation.name:c gpu.operation.type:section]"])
	assert.NotContains(t, got, "gpu.operation.energy[gpu.operation.name:p gpu.operation.type:section]")
}

func TestDeltasAddUpToTheCumulative(t *testing.T) {
	cumulative := newTest(t, nil)
	delta := newTest(t, func(c *Config) { c.Temporality = TemporalityDelta })
	var counts int64
	var lastEnd uint64
	for i := range uint64(5) {
		td := batch(t, nil, span{"p", i * 10_000, i*10_000 + 2000, prefill, 1, 0, "ot=th:55555555555555"}) // 1.5 each
		cumulative.take(td, clock)
		delta.take(td, clock)
		md := output(t, delta, clock)
		p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
		counts += p.IntValue()
		if lastEnd > 0 {
			assert.Equal(t, lastEnd, uint64(p.StartTimestamp()), "deltas touch")
		}
		lastEnd = uint64(p.Timestamp())
		assert.Zero(t, output(t, delta, clock).DataPointCount(), "nothing new, nothing written")
	}
	assert.EqualValues(t, 8, counts) // 5 × 1.5 = 7.5
	got := values(t, output(t, cumulative, clock))
	assert.Equal(t, int64(8), got["gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]"])
	assert.Equal(t, attrs(got), with(values(t, output(t, cumulative, clock)), attrs{
		"gpu.operation.item.energy[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]": 0.00390625,
	}), "cumulative points are repeated, gauges are not")
}

func TestTooManySeriesOverflow(t *testing.T) {
	a := newTest(t, func(c *Config) { c.CardinalityLimit = 10 })
	var spans []span
	for i := range 100 {
		spans = append(spans, span{fmt.Sprintf("kernel %d", i), 0, 10, attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"}, 1, 0, ""})
	}
	a.take(batch(t, nil, spans...), clock)
	a.take(batch(t, nil, spans...), clock)
	md := output(t, a, clock)
	got := values(t, md)
	counts, over := 0, int64(0)
	for k, v := range got {
		if len(k) > 19 && k[:19] == "gpu.operation.count" {
			counts++
			if k == "gpu.operation.count[otel.metric.overflow:true]" {
				over = v.(int64)
			}
		}
	}
	assert.Equal(t, 10, counts)
	assert.EqualValues(t, 2*91, over)
	assert.EqualValues(t, 2*91, a.stats.overflow)
	assert.LessOrEqual(t, a.resources[""].bundles.len(), 40)
}

func TestTooManyResourcesShareOne(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxResources = 3 })
	for i := range 10 {
		a.take(batch(t, attrs{"service.instance.id": fmt.Sprint(i)}, span{"p", 0, 10, prefill, 1, 0, ""}), clock)
	}
	md := output(t, a, clock)
	assert.Equal(t, 4, md.ResourceMetrics().Len())
	var total int64
	for _, rm := range md.ResourceMetrics().All() {
		total += rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0).IntValue()
	}
	assert.EqualValues(t, 10, total, "none is lost")
}

func TestAllSeriesTogetherAreBounded(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxSeries = 50; c.Expiry = time.Minute })
	in := attrs{"gpu.operation.type": "section"}
	for i := range 1000 {
		a.take(batch(t, attrs{"n": i % 3}, span{fmt.Sprint("p", i), 0, 10, in, 1, 0, ""}), clock)
	}
	assert.LessOrEqual(t, a.series, 50+3*2, "and the overflow of each resource and metric")
	assert.LessOrEqual(t, a.bundles, 50)
	var total int64
	for k, v := range values(t, onlyCounts(output(t, a, clock))) {
		assert.NotEmpty(t, k)
		total += v.(int64)
	}
	assert.EqualValues(t, 1000, total, "none is lost")
	output(t, a, clock+int64(2*time.Minute))
	assert.Zero(t, a.series)
	assert.Zero(t, a.bundles)
}

// onlyCounts leaves gpu.operation.count, the resource as an attribute so that keys differ.
func onlyCounts(md pmetric.Metrics) pmetric.Metrics {
	for i, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "gpu.operation.count" })
		for _, p := range rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().All() {
			p.Attributes().PutInt("resource", int64(i))
		}
	}
	return md
}

func TestResourcesAreKnownByKeptAttributesInAnyOrder(t *testing.T) {
	a := newTest(t, func(c *Config) { c.ResourceAttributes = []string{"service.name", "host.name"} })
	for _, r := range []attrs{{"service.name": "s", "host.name": "h", "process.pid": 1}, {"host.name": "h", "process.pid": 2, "service.name": "s"}} {
		a.take(batch(t, r, span{"p", 0, 10, prefill, 1, 0, ""}), clock)
	}
	md := output(t, a, clock)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	assert.Equal(t, map[string]any{"service.name": "s", "host.name": "h"}, md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
}

func TestSilentSeriesExpireAndBeginAnew(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Expiry = time.Minute })
	p := batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""})
	q := batch(t, nil, span{"q", 0, 2000, prefill, 1, 0, ""})
	a.take(p, clock)
	a.take(q, clock)
	output(t, a, clock)
	a.take(q, clock+int64(50*time.Second))
	output(t, a, clock+int64(61*time.Second)) // drops p after writing it a last time
	for k := range values(t, output(t, a, clock+int64(62*time.Second))) {
		assert.Contains(t, k, "name:q ")
	}
	a.take(p, clock+int64(63*time.Second))
	got := values(t, output(t, a, clock+int64(63*time.Second)))
	assert.Equal(t, int64(1), got["gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]"])
	output(t, a, clock+int64(10*time.Minute))
	assert.Empty(t, a.resources)
}

func TestFurtherDimensionsComeFromSpanElseResource(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Dimensions = []string{"model", "tenant"} })
	in := attrs{"gpu.operation.type": "section"}
	a.take(batch(t, attrs{"tenant": "t1", "model": "m0"}, span{"p", 0, 10, with(in, attrs{"model": "m1"}), 1, 0, ""}, span{"p", 0, 10, in, 2, 0, ""}), clock)
	got := values(t, output(t, a, clock))
	assert.Equal(t, int64(1), got["gpu.operation.count[gpu.operation.name:p gpu.operation.type:section model:m1 tenant:t1]"])
	assert.Equal(t, int64(1), got["gpu.operation.count[gpu.operation.name:p gpu.operation.type:section model:m0 tenant:t1]"])
}

func TestASpanOfTheFutureDoesNotMoveTheClock(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 0, 1e16, prefill, 1, 0, ""}), clock)
	p := output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
	assert.EqualValues(t, epoch+2_000_000, p.Timestamp())
	assert.EqualValues(t, 2, p.IntValue())
}

var step = attrs{
	"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 7, "gpu.step.duration": 0.1, "gpu.step.items": 64, "gpu.step.item.type": "image",
	"gpu.step.phase.forward.duration": 0.04, "gpu.step.phase.backward.duration": 0.05, "gpu.energy": 32.0,
}

func TestStepsFeedTheirMetrics(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, attrs{"gpu.job.rank": 3}, span{"step 7", 0, 100_000, step, 1, 0, ""},
		span{"step 8", 100_000, 400_000, with(step, attrs{"gpu.step.duration": 0.3}), 2, 0, ""}), clock)
	assert.Equal(t, map[string]any{
		"gpu.step.duration[gpu.job.rank:3 gpu.operation.name:train]":                                                               "2 in 0.4",
		"gpu.step.phase.duration[gpu.job.rank:3 gpu.operation.name:train gpu.step.phase:backward]":                                 "2 in 0.1",
		"gpu.step.phase.duration[gpu.job.rank:3 gpu.operation.name:train gpu.step.phase:forward]":                                  "2 in 0.08",
		"gpu.step.items[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]":                                         int64(128),
		"gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]":                                     320.0,
		"gpu.operation.item.energy[gpu.job.rank:3 gpu.operation.item.type:image gpu.operation.name:train gpu.operation.type:step]": 0.5,
		"gpu.operation.energy[gpu.operation.name:train gpu.operation.type:step]":                                                   64.0,
	}, values(t, output(t, a, clock)))

	// The rate is of the steps since the last output.
	a.take(batch(t, attrs{"gpu.job.rank": 3}, span{"step 9", 400_000, 500_000, step, 1, 0, ""}), clock)
	got := values(t, output(t, a, clock))
	assert.Equal(t, 640.0, got["gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]"])
	_, stale := values(t, output(t, a, clock))["gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]"]
	assert.False(t, stale)
}
