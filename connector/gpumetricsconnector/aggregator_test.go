// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestAnOperationFeedsItsMetrics(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, attrs{"service.name": "s"}, span{"p", 0, 2000, prefill, 1, 0, ""},
		span{"p", 3000, 5000, prefill, 2, 0, ""},
		span{"GET /", 0, 9000, attrs{"http.request.method": "GET"}, 3, 0, ""}), clock)
	md := output(t, a, clock)
	assert.Equal(t, prefillPoints, values(t, md))
	service, _ := md.ResourceMetrics().At(0).Resource().Attributes().Get("service.name")
	assert.Equal(t, "s", service.Str())
	assert.Equal(t, semconv.SchemaURL, md.ResourceMetrics().At(0).SchemaUrl())
	sm := md.ResourceMetrics().At(0).ScopeMetrics().At(0)
	assert.Empty(t, sm.Scope().Version()+sm.SchemaUrl(), "a release does not rename the series")

	// Points have the time of the output, and start with the first span.
	ps := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
	assert.EqualValues(t, epoch, ps.At(1).StartTimestamp())
	assert.EqualValues(t, clock, ps.At(1).Timestamp())
	assert.EqualValues(t, epoch, ps.At(0).StartTimestamp(), "the series begins at 0")
	assert.EqualValues(t, epoch, ps.At(0).Timestamp())
	assert.Zero(t, ps.At(0).IntValue())
}

// Points of spans from a file have times from the file.
func TestPointsOfOldSpansAreAtTheEndOfTheNewest(t *testing.T) {
	for lag, want := range map[time.Duration]int64{
		maxLag: int64(epoch) + 5_000_000 + int64(maxLag), maxLag + 1: int64(epoch) + 5_000_000,
	} {
		a := newTest(t, nil)
		now := int64(epoch) + 5_000_000 + int64(lag)
		a.take(batch(t, nil, span{"p", 3000, 5000, prefill, 2, 0, ""}, span{"p", 0, 2000, prefill, 1, 0, ""}), now)
		p := final(output(t, a, now).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints())
		assert.EqualValues(t, want, p.Timestamp())
	}
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
			a.take(batch(t, rankOf(rank, 3), span{"k", 0, 10, kernel, 2, 0, ""}, span{"step", 0, 100_000, step, 1, 0, ""}),
				clock)
		}
		groups := map[string]bool{}
		for _, rm := range a.output(clock, true).ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				for p := range off {
					groups[p] = groups[p] || strings.HasPrefix(m.Name(), p)
				}
			}
		}
		for p, present := range groups {
			// Steps have their own energy per item.
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

func TestSampledSpansCountByTheirWeight(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, "vendor=x,ot=th:c;rv:ffffffffffffff"}), clock) // one in four
	got := values(t, output(t, a, clock))
	assert.Equal(t, "4 in 0.008",
		got["gpu.operation.duration[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok hw.id:GPU-a]"])
	assert.Equal(t, int64(4000),
		got["gpu.operation.io[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section]"])
	// Energy is divided among the spans that arrive, so unsampled spans have none.
	assert.Equal(t, 0.5,
		got["gpu.operation.energy[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section hw.id:GPU-a]"])
	assert.Equal(t, 0.5/128/4,
		got["gpu.operation.item.energy[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]"])
}

// One of four runs is sampled; its span has all 400 J of the device.
func TestEnergyOfSampledSpansEqualsTheDevices(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil, span{"p", 0, 2000, with(prefill, attrs{"gpu.energy": 400.0}), 1, 0, "ot=th:c"},
		span{
			"step", 0, 2000,
			attrs{"gpu.operation.type": "step", "gpu.energy": 100.0, "gpu.step.items": 10},
			2, 0,
			"ot=th:c",
		}), clock)
	var joules float64
	got := values(t, output(t, a, clock))
	for k, v := range got {
		if strings.HasPrefix(k, "gpu.operation.energy") {
			joules += v.(float64)
		}
	}
	assert.Equal(t, 500.0, joules)
	assert.Equal(t, int64(40), got["gpu.step.items[gpu.operation.name:step]"], "of four steps")
	assert.Equal(t, 2.5, got["gpu.operation.item.energy[gpu.operation.name:step gpu.operation.type:step]"])
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

// The nest: a step of 12 J, an operation of 10 J in it, two of 3 J and 4 J in that, one of 1 J in
// the first of them.
func TestEnergyOfOperationsSumsToTheOutermostSpanInAnyBatching(t *testing.T) {
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
	// part[i] is the batch of span i: tries every partition of five spans into batches.
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
			assert.Equal(t, j, got["gpu.operation.energy[gpu.operation.name:"+name+" gpu.operation.type:"+kind+"]"],
				"%s, batches %v", name, part)
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
	assert.Equal(t, int64(8),
		got["gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]"])
	assert.Equal(t, attrs(got), with(values(t, output(t, cumulative, clock)), attrs{
		"gpu.operation.item.energy[gpu.operation.category:prefill gpu.operation.item.type:token gpu.operation.name:p gpu.operation.type:section]": 0.5 / (128 * 1.5),
	}), "cumulative points are repeated, gauges are not")
}

func TestResourcesAreIdentifiedByKeptAttributesInAnyOrder(t *testing.T) {
	a := newTest(t, func(c *Config) { c.ResourceAttributes = []string{"service.name", "host.name"} })
	for _, r := range []attrs{
		{"service.name": "s", "host.name": "h", "process.pid": 1},
		{"host.name": "h", "process.pid": 2, "service.name": "s"},
	} {
		a.take(batch(t, r, span{"p", 0, 10, prefill, 1, 0, ""}), clock)
	}
	md := output(t, a, clock)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	assert.Equal(t, map[string]any{
		"service.name": "s", "host.name": "h", "service.instance.id": md.ResourceMetrics().At(
			0).Resource().Attributes().AsRaw()["service.instance.id"],
	}, md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
}

// Prometheus turns only service.name and service.instance.id into labels.
func TestResourcesWithoutAnInstanceHaveOneMadeOfTheirAttributes(t *testing.T) {
	a := newTest(t, nil)
	for _, r := range []attrs{
		{"service.name": "s", "process.pid": 1},
		{"service.name": "s", "process.pid": 2},
		{"service.name": "s"},
		{"service.name": "s", "process.pid": 1, "service.instance.id": "mine"},
	} {
		a.take(batch(t, r, span{"p", 0, 10, prefill, 1, 0, ""}), clock)
	}
	ids := map[any]bool{}
	for _, rm := range output(t, a, clock).ResourceMetrics().All() {
		id := rm.Resource().Attributes().AsRaw()["service.instance.id"]
		ids[id] = true
		if again, ok := id.(string); ok && again != "mine" {
			assert.Len(t, again, 36)
		}
	}
	assert.Len(t, ids, 4)
	assert.True(t, ids["mine"] && ids[nil])
}

// Two resources of one instance would be one series in Prometheus, with two values at the same
// time.
func TestSeriesOfARestartedInstanceContinue(t *testing.T) {
	a := newTest(t, nil)
	for _, container := range []string{"first", "second"} {
		resource := attrs{"service.name": "s", "service.instance.id": "pod-0", "container.id": container}
		a.take(batch(t, resource, span{"p", 0, 2000, prefill, 1, 0, ""}), clock)
	}
	md := output(t, a, clock)
	require.Equal(t, 1, md.ResourceMetrics().Len())
	for k, v := range prefillPoints {
		assert.Equal(t, v, values(t, md)[k], k)
	}
}

// A previous Collector wrote the same series until it was stopped.
func TestSeriesBeginNoSoonerThanTheCollector(t *testing.T) {
	c, err := newConnector(testConfig(), connectortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	sink := new(consumertest.MetricsSink)
	c.Metrics.Next = sink
	began := uint64(time.Now().UnixNano())
	td := batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""},
		span{"k", 0, 2000, attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"}, 2, 0, ""})
	for _, s := range td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().All() {
		s.SetStartTimestamp(pcommon.Timestamp(began - uint64(time.Minute)))
		s.SetEndTimestamp(pcommon.Timestamp(began))
	}
	c.aggregator.since = began - uint64(time.Second)
	require.NoError(t, c.ConsumeTraces(t.Context(), td))
	require.NoError(t, c.Shutdown(t.Context()))
	points := 0
	for _, md := range sink.AllMetrics() {
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			if m.Type() == pmetric.MetricTypeSum {
				for _, p := range m.Sum().DataPoints().All() {
					assert.GreaterOrEqual(t, uint64(p.StartTimestamp()), c.aggregator.since, m.Name())
					assert.GreaterOrEqual(t, p.Timestamp(), p.StartTimestamp(), m.Name())
					points++
				}
			}
		}
	}
	assert.Positive(t, points)
}

// A changed start time would mean that the series was reset.
func TestASeriesOfASpanAheadOfTheClockHasOneStart(t *testing.T) {
	for _, temporality := range []string{TemporalityCumulative, TemporalityDelta} {
		a := newTest(t, func(c *Config) { c.Temporality = temporality })
		for i := range int64(3) {
			now := clock + i*int64(15*time.Second)
			a.take(batch(t, nil, span{"p", 40_000_000, 41_000_000, prefill, 1, 0, ""}), now)
			for _, p := range output(t, a, now).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().All() {
				if start := uint64(p.StartTimestamp()); temporality == TemporalityCumulative {
					assert.EqualValues(t, clock-1e6, start, "the point of 0")
				} else {
					assert.EqualValues(t, now-min(i, 1)*int64(15*time.Second), start)
				}
			}
		}
	}
}

func TestDimensionsAreReadFromSpanThenResource(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Dimensions = []string{"model", "tenant"} })
	in := attrs{"gpu.operation.type": "section"}
	a.take(batch(t, attrs{"tenant": "t1", "model": "m0"}, span{"p", 0, 10, with(in, attrs{"model": "m1"}), 1, 0, ""},
		span{"p", 0, 10, in, 2, 0, ""}), clock)
	got := values(t, output(t, a, clock))
	assert.Equal(t, int64(1),
		got["gpu.operation.count[gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok model:m1 tenant:t1]"])
	assert.Equal(t, int64(1),
		got["gpu.operation.count[gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok model:m0 tenant:t1]"])
}

func TestSpansFromTheFutureDoNotMoveTheClock(t *testing.T) {
	a := newTest(t, nil)
	now := clock + int64(2*maxLag)
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}, span{"p", 0, 1e16, prefill, 1, 0, ""}), now)
	p := final(output(t, a, now).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints())
	assert.EqualValues(t, epoch+2_000_000, p.Timestamp())
	assert.EqualValues(t, 2, p.IntValue())
}

var step = attrs{
	"gpu.operation.type": "step", "gpu.operation.name": "train", "gpu.step.index": 7, "gpu.step.duration": 0.1,
	"gpu.step.items": 64, "gpu.step.item.type": "image",
	"gpu.step.phase.duration.forward": 0.04, "gpu.step.phase.duration.backward": 0.05, "gpu.energy": 32.0,
}

func TestStepMetrics(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, attrs{"gpu.job.rank": 3}, span{"step 7", 0, 100_000, step, 1, 0, ""},
		span{"step 8", 100_000, 400_000, with(step, attrs{"gpu.step.duration": 0.3}), 2, 0, ""}), clock)
	assert.Equal(t, map[string]any{
		"gpu.step.duration[gpu.job.rank:3 gpu.operation.name:train]":                                                               "2 in 0.4",
		"gpu.step.phase.duration[gpu.job.rank:3 gpu.operation.name:train gpu.step.phase.name:backward]":                            "2 in 0.1",
		"gpu.step.phase.duration[gpu.job.rank:3 gpu.operation.name:train gpu.step.phase.name:forward]":                             "2 in 0.08",
		"gpu.step.items[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]":                                         int64(128),
		"gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]":                                     320.0,
		"gpu.operation.item.energy[gpu.job.rank:3 gpu.operation.item.type:image gpu.operation.name:train gpu.operation.type:step]": 0.5,
		"gpu.operation.energy[gpu.operation.name:train gpu.operation.type:step]":                                                   64.0,
	}, values(t, output(t, a, clock)))

	// The rate is of the steps since the last output.
	a.take(batch(t, attrs{"gpu.job.rank": 3}, span{"step 9", 400_000, 500_000, step, 1, 0, ""}), clock)
	got := values(t, output(t, a, clock))
	assert.Equal(t, 640.0, got["gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]"])
	_, stale := values(t, output(t, a,
		clock))["gpu.step.item.rate[gpu.job.rank:3 gpu.operation.name:train gpu.step.item.type:image]"]
	assert.False(t, stale)
}

// The scope of a span names its device. Metrics of operations include only GPU work, plus the
// energy of requests.
func TestTheScopeNamesTheDeviceAndOnlyGPUWorkCounts(t *testing.T) {
	a := newTest(t, nil)
	td := batch(t, attrs{}, span{"attention", 0, 1000, without(prefill, "hw.id", "gpu.timing.status"), 1, 0, ""},
		span{"answer", 0, 5000, attrs{"gpu.operation.type": "request", "gpu.energy": 3.0}, 2, 0, ""},
		span{"part", 0, 5000, attrs{"gpu.operation.type": "share", "gpu.energy": 9.0}, 3, 0, ""},
		span{"compile", 0, 5000, attrs{"gpu.operation.type": "host"}, 4, 0, ""})
	td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("hw.id", "GPU-9")
	a.take(td, clock)
	const section = "gpu.operation.category:prefill gpu.operation.name:attention gpu.operation.type:section"
	got := values(t, output(t, a, clock))
	for k := range got {
		if strings.HasPrefix(k, "gpu.operation.count[") || strings.HasPrefix(k, "gpu.operation.duration[") {
			assert.Contains(t, k, section+" gpu.timing.status:ok")
		}
	}
	assert.Equal(t, 0.5, got["gpu.operation.energy["+section+" hw.id:GPU-9]"])
	assert.Equal(t, 3.0, got["gpu.operation.energy[gpu.operation.name:answer gpu.operation.type:request hw.id:GPU-9]"])
	assert.NotContains(t, got, "gpu.operation.energy[gpu.operation.name:part gpu.operation.type:share hw.id:GPU-9]")
}
