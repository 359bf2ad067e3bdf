// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

func TestTooManySeriesOverflow(t *testing.T) {
	a := newTest(t, func(c *Config) { c.CardinalityLimit = 10 })
	var spans []span
	for i := range 100 {
		spans = append(spans, span{
			fmt.Sprintf("kernel %d", i), 0, 10,
			attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"},
			1, 0, "",
		})
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
	assert.LessOrEqual(t, len(a.resources[""].operations.byDims), 40)

	a = newTest(t, func(c *Config) { c.CardinalityLimit = 10 })
	for i := range 100 {
		loop := attrs{"gpu.operation.type": "step", "gpu.operation.name": fmt.Sprintf("train %d", i), "gpu.energy": 4.0}
		a.take(batch(t, nil, span{"s", 0, 10, loop, 1, 0, ""}), clock)
	}
	assert.EqualValues(t, 91, a.stats.overflow, "a step counts once, though its energy is the operation's")
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
		total += final(rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()).IntValue()
	}
	assert.EqualValues(t, 10, total, "none is lost")
}

// Ranks of the shared resource are not compared, and none is mistaken for another.
func TestRanksOfTooManyResourcesAreNotCompared(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxResources = 3 })
	for rank := range 8 {
		a.take(trainStep(t, rank, 8, 1, 40+float64(10*rank)), clock)
	}
	assert.Equal(t, 3, a.jobs.jobs.Waiting())
	assert.Contains(t, values(t, output(t, a, clock)), "gpu.step.duration[gpu.operation.name:train]", "of no rank")
}

func TestAllSeriesTogetherAreBounded(t *testing.T) {
	a := newTest(t, func(c *Config) { c.MaxSeries = 50; c.Expiry = time.Minute })
	in := attrs{"gpu.operation.type": "section"}
	for i := range 1000 {
		a.take(batch(t, attrs{"n": i % 3}, span{fmt.Sprint("p", i), 0, 10, in, 1, 0, ""}), clock)
	}
	assert.LessOrEqual(t, a.Kept, 50+3*2, "and the overflow of each resource and metric")
	assert.LessOrEqual(t, a.operations, 50)
	var total int64
	for k, v := range values(t, onlyCounts(output(t, a, clock+1))) {
		assert.NotEmpty(t, k)
		total += v.(int64)
	}
	assert.EqualValues(t, 1000, total, "none is lost")

	// A minute later there is space for others.
	for i := range 10 {
		a.take(batch(t, attrs{"n": "later"}, span{fmt.Sprint("q", i), 0, 10, in, 1, 0, ""}), clock+int64(2*time.Minute))
	}
	assert.Equal(t, 20, a.Kept, "10 operations of two metrics")
	assert.GreaterOrEqual(t, a.stats.evicted, int64(50))
	assert.GreaterOrEqual(t, a.operations, 9)
}

// onlyCounts keeps only gpu.operation.count, with the resource as an attribute so that keys differ.
func onlyCounts(md pmetric.Metrics) pmetric.Metrics {
	for i, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "gpu.operation.count" })
		for _, p := range rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().All() {
			p.Attributes().PutInt("resource", int64(i))
		}
	}
	return md
}

// Inactive series are not removed: increase() over a burst after a pause would miss it.
func TestInactiveSeriesAreSentAgain(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Expiry = time.Minute })
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}), clock)
	output(t, a, clock)
	var last pcommon.Timestamp
	for minute := range 60 {
		now := clock + int64(minute+1)*int64(time.Minute)
		got := output(t, a, now)
		assert.Equal(t, int64(1), values(t,
			got)["gpu.operation.count[gpu.operation.category:prefill gpu.operation.name:p gpu.operation.type:section gpu.timing.status:ok]"])
		p := final(got.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints())
		assert.EqualValues(t, now, p.Timestamp())
		assert.EqualValues(t, epoch, p.StartTimestamp())
		assert.Greater(t, p.Timestamp(), last)
		last = p.Timestamp()
	}
	assert.Zero(t, a.stats.evicted)
}

// increase() includes a series' first spans only if the series was 0 before, in every form of
// histogram and temporality.
func TestCumulativeSeriesBeginWithAZero(t *testing.T) {
	for _, exponential := range []bool{false, true} {
		a := newTest(t, func(c *Config) {
			if exponential {
				c.Histogram.Exponential.GetOrInsertDefault()
			}
		})
		a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}), clock)
		forms := map[pmetric.MetricType]bool{}
		for _, m := range output(t, a, clock).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			forms[m.Type()] = true
			switch m.Type() {
			case pmetric.MetricTypeSum:
				ps := m.Sum().DataPoints()
				require.Equal(t, 2, ps.Len(), m.Name())
				assert.Zero(t, ps.At(0).DoubleValue()+float64(ps.At(0).IntValue()), m.Name())
				assert.Less(t, ps.At(0).Timestamp(), ps.At(1).Timestamp(), m.Name())
			case pmetric.MetricTypeHistogram:
				ps := m.Histogram().DataPoints()
				require.Equal(t, 2, ps.Len(), m.Name())
				assert.Zero(t, ps.At(0).Count(), m.Name())
				assert.EqualValues(t, 1, ps.At(1).Count(), m.Name())
			case pmetric.MetricTypeExponentialHistogram:
				ps := m.ExponentialHistogram().DataPoints()
				require.Equal(t, 2, ps.Len(), m.Name())
				assert.Zero(t, ps.At(0).Count(), m.Name())
				assert.EqualValues(t, 1, ps.At(1).Count(), m.Name())
			}
		}
		assert.Equal(t, exponential, forms[pmetric.MetricTypeExponentialHistogram])
		assert.Equal(t, !exponential, forms[pmetric.MetricTypeHistogram])
		assert.True(t, forms[pmetric.MetricTypeSum])
	}
}

// Points of a file keep the times of the file.
func TestPointsOfAFileStayAtItsTime(t *testing.T) {
	a := newTest(t, nil)
	later := clock + int64(24*time.Hour)
	a.take(batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""}), later)
	for i := range 3 {
		p := final(output(t, a, later+int64(i)*int64(time.Hour)).ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(
			0).Sum().DataPoints())
		assert.InDelta(t, 0, float64(uint64(p.Timestamp())-(epoch+2_000_000)), 2e6,
			"but for the milliseconds of a change and of a point of 0")
	}
}

// Series that were evicted for lack of space restart after their last points.
func TestEvictedSeriesBeginAgainAfterTheirLastPoint(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Expiry = time.Minute; c.MaxResources = 1 })
	p := batch(t, attrs{"service.instance.id": "p"}, span{"p", 0, 2000, prefill, 1, 0, ""})
	a.take(p, clock)
	output(t, a, clock)
	later := clock + int64(2*time.Minute)
	output(t, a, later)
	a.take(batch(t, attrs{"service.instance.id": "q"}, span{"q", 0, 2000, prefill, 1, 0, ""}), later)
	assert.Positive(t, a.stats.evicted)
	assert.Len(t, a.resources, 1)
	output(t, a, later)
	later += int64(5 * time.Minute)
	output(t, a, later)
	a.take(p, later) // with the earlier times
	got := output(t, a, later)
	require.Equal(t, 1, got.ResourceMetrics().Len())
	ps := got.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints()
	last := epoch + 2_000_000 + uint64(2*time.Minute)
	for _, x := range ps.All() {
		assert.Greater(t, uint64(x.Timestamp()), last)
		assert.GreaterOrEqual(t, uint64(x.StartTimestamp()), last)
	}
}

// Prometheus rejects a request, of all services, for one series with two values at one time. It
// distinguishes milliseconds.
func TestNoSeriesHasTwoValuesAtOneTime(t *testing.T) {
	type written struct {
		time  uint64
		value any
	}
	for name, spans := range map[string][]span{
		"a late span": {
			{"p", 0, 900_000, prefill, 1, 0, ""},
			{"p", 0, 2000, prefill, 2, 0, ""},
			{"p", 0, 3000, prefill, 3, 0, ""},
		},
		"less than a ms": {
			{"p", 0, 2000, prefill, 1, 0, ""},
			{"p", 0, 2100, prefill, 2, 0, ""},
			{"p", 0, 2200, prefill, 3, 0, ""},
		},
		"a clock that is ahead": {
			{"p", 0, 40_000_000, prefill, 1, 0, ""},
			{"p", 0, 1_000_000, prefill, 2, 0, ""},
			{"p", 0, 2_000_000, prefill, 3, 0, ""},
		},
		"no clock": {
			{"p", 0, 2000, prefill, 1, 0, ""},
			{"p", 0, 2000, prefill, 2, 0, ""},
			{"p", 0, 2000, prefill, 3, 0, ""},
		},
	} {
		a := newTest(t, nil)
		now := clock
		last := map[string]written{}
		check := func() {
			for _, rm := range output(t, a, now).ResourceMetrics().All() {
				for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
					each(m, func(attrs pcommon.Map, at pcommon.Timestamp, v any) {
						key := m.Name() + fmt.Sprint(attrs.AsRaw())
						ms := uint64(at) / 1e6
						before := last[key]
						require.GreaterOrEqual(t, ms, before.time, "%s: %s", name, key)
						if ms == before.time {
							require.Equal(t, before.value, v, "%s: %s at one time", name, key)
						}
						last[key] = written{ms, v}
					})
				}
			}
			now += int64(15 * time.Second)
		}
		for _, s := range spans {
			td := batch(t, nil, s)
			if name == "no clock" {
				td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).SetEndTimestamp(0)
			}
			a.take(td, now)
			check()
			check()
		}
	}
}

// Spans arrive late and with arbitrary times, and one or both of two stores reject points: each
// series in a store starts with a point of 0, never decreases, and never has two values at the same
// time.
func TestEveryStoreReceivesAZeroFirst(t *testing.T) {
	const stores = 2
	type point struct {
		ms    uint64
		value float64
	}
	seeds := uint64(200)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		cfg := testConfig()
		cfg.InstanceID = "me"
		c, err := newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
		require.NoError(t, err)
		has := [stores]map[string]point{{}, {}}
		refusing := true
		c.Metrics.Next, err = consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) (err error) {
			for i := range stores {
				if refusing && rng.IntN(2) == 0 {
					err = errors.New("not now")
					continue
				}
				for _, rm := range md.ResourceMetrics().All() {
					for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
						take := func(attrs pcommon.Map, at pcommon.Timestamp, v float64) {
							key := m.Name() + fmt.Sprint(rm.Resource().Attributes().AsRaw(), attrs.AsRaw())
							before, seen := has[i][key]
							now := point{uint64(at) / 1e6, v}
							require.True(t, seen || v == 0, "seed %d: store %d has %s from %v", seed, i, key, v)
							require.GreaterOrEqual(t, v, before.value, "seed %d: %s", seed, key)
							require.True(t, !seen || now.ms > before.ms || now == before, "seed %d: %s %v %v", seed, key, before, now)
							has[i][key] = now
						}
						switch m.Type() {
						case pmetric.MetricTypeSum:
							for _, p := range m.Sum().DataPoints().All() {
								take(p.Attributes(), p.Timestamp(), float64(p.IntValue())+p.DoubleValue())
							}
						case pmetric.MetricTypeHistogram:
							for _, p := range m.Histogram().DataPoints().All() {
								take(p.Attributes(), p.Timestamp(), float64(p.Count()))
							}
						}
					}
				}
			}
			return err
		})
		require.NoError(t, err)
		spans := 0
		for range 20 {
			if rng.IntN(3) > 0 {
				spans++
				start := rng.Uint64N(3_000_000)
				require.NoError(t, c.ConsumeTraces(t.Context(), batch(t, attrs{"service.name": fmt.Sprint(rng.IntN(2))},
					span{fmt.Sprint(rng.IntN(4)), start, start + 1000, prefill, byte(spans), 0, ""})))
			}
			c.flush(t.Context(), false)
		}
		refusing = false
		require.NoError(t, c.Shutdown(t.Context()))
		for i := range stores {
			count := 0.
			for key, p := range has[i] {
				if strings.HasPrefix(key, "gpu.operation.count") {
					count += p.value
				}
			}
			require.EqualValues(t, spans, count, "seed %d", seed)
		}
	}
}

// each calls point for each point of a metric with everything that Prometheus stores of it.
func each(m pmetric.Metric, point func(pcommon.Map, pcommon.Timestamp, any)) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			point(p.Attributes(), p.Timestamp(), p.DoubleValue())
		}
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			point(p.Attributes(), p.Timestamp(), [2]any{p.IntValue(), p.DoubleValue()})
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			point(p.Attributes(), p.Timestamp(), fmt.Sprint(p.Sum(), p.BucketCounts().AsRaw()))
		}
	}
}

// A sender with names of 100 kB must not make each series 100 kB large.
func TestNamesInMetricsAreBounded(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Dimensions = []string{"extra"} })
	long := func(s string) string { return strings.Repeat(s, 100_000) }
	x := with(prefill, attrs{
		"gpu.operation.category": long("c"), "gpu.operation.item.type": long("i"), "hw.id": long("h"),
		"gpu.flop.precision": long("f"), "gpu.timing.status": long("s"), "extra": long("e"),
	})
	a.take(batch(t, nil, span{long("n"), 0, 10, x, 1, 0, ""}), clock)
	md := a.output(clock, false)
	series := 0
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		if m.Type() != pmetric.MetricTypeSum {
			continue
		}
		for _, p := range m.Sum().DataPoints().All() {
			series++
			for k, v := range p.Attributes().All() {
				assert.LessOrEqual(t, len(v.AsString()), 256+len("…"), k)
			}
			name, _ := p.Attributes().Get("gpu.operation.name")
			assert.Equal(t, strings.Repeat("n", 256)+"…", name.Str())
		}
	}
	assert.Positive(t, series)
	for d := range a.resources[""].operations.byDims {
		assert.LessOrEqual(t, len(fmt.Sprint(d)), 9*260, "nor of memory")
	}
}
