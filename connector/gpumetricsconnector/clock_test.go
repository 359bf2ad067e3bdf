// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/startpoint"
)

// The clock of the host, and so the times of the spans, is set back and forward while a service
// works: its series continue in time order, count each increase once, and do not restart; device
// activity is reported again immediately.
func TestSeriesContinueWhenTheClockIsSet(t *testing.T) {
	for _, by := range []time.Duration{-time.Hour, -2 * time.Minute, 2 * time.Minute, time.Hour, 24 * 365 * time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			cfg := testConfig()
			c, err := newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
			require.NoError(t, err)
			sink := new(consumertest.MetricsSink)
			c.Metrics = startpoint.Output{Next: sink}
			now := time.Unix(1_700_000_000, 0)
			c.clock = func() time.Time { return now }
			work := func(seconds int) { // half of each second
				for i := range seconds {
					now = now.Add(time.Second)
					td := batch(t, attrs{"service.name": "llm"}, span{name: "p", a: with(prefill, attrs{"gpu.duration": 0.5})})
					s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
					s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
					s.SetEndTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second / 2)))
					require.NoError(t, c.ConsumeTraces(t.Context(), td))
					if i%15 == 14 {
						c.flush(t.Context(), false)
					}
				}
			}
			work(60)
			now = now.Add(by)
			work(60)
			c.flush(t.Context(), true)
			last := pointsInOrder(t, sink.AllMetrics())
			require.InDelta(t, 120, last["gpu.operation.count"], 0)
			require.InDelta(t, 60, last["gpu.operation.energy"], 1e-9)
			require.InDelta(t, 60, last["gpu.section.time covered"], 1, "pending time may be lost when the clock is set")
			require.InDelta(t, 59, last["gpu.section.time gap"]+0.5, 2)
			require.Zero(t, c.aggregator.stats.evicted)
		})
	}
}

// pointsInOrder returns the last values of sums. It requires of each series that times grow, values
// do not decrease, and the start stays.
func pointsInOrder(t *testing.T, all []pmetric.Metrics) map[string]float64 {
	values, times, starts := map[string]float64{}, map[string]pcommon.Timestamp{}, map[string]pcommon.Timestamp{}
	for _, md := range all {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				if m.Type() != pmetric.MetricTypeSum {
					continue
				}
				for _, p := range m.Sum().DataPoints().All() {
					key := m.Name()
					if state, ok := p.Attributes().Get("gpu.section.state"); ok {
						key += " " + state.Str()
					}
					v := p.DoubleValue()
					if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
						v = float64(p.IntValue())
					}
					require.GreaterOrEqual(t, v, values[key], key)
					require.False(t, v > values[key] && p.Timestamp() <= times[key], fmt.Sprint(key, " has two values at one time"))
					require.GreaterOrEqual(t, p.Timestamp(), times[key], key)
					if starts[key] != 0 && v > 0 && values[key] > 0 {
						require.Equal(t, starts[key], p.StartTimestamp(), "%s begins again", key)
					}
					values[key], times[key], starts[key] = v, p.Timestamp(), p.StartTimestamp()
				}
			}
		}
	}
	return values
}

// A clock that is set back does not delay pending data: the last activity of a device, steps with
// missing ranks, and the eviction of series.
func TestPendingDataIsWrittenWhenTheClockIsSetBack(t *testing.T) {
	cfg := testConfig()
	cfg.MaxSeries = 1
	c, err := newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	sink := new(consumertest.MetricsSink)
	c.Metrics = startpoint.Output{Next: sink}
	now := time.Unix(0, clock)
	c.clock = func() time.Time { return now }
	rank := func(i int, state string) {
		resource := attrs{
			"service.name": "train", "gpu.job.id": "j", "gpu.job.rank": i, "gpu.job.world_size": 4, "service.instance.id": state,
		}
		require.NoError(t, c.ConsumeTraces(t.Context(), batch(t, resource, span{
			name: "train", end: 1000 * uint64(1+i), id: byte(i + 1),
			a: attrs{"gpu.operation.type": "step", "gpu.step.index": 1, "gpu.step.duration": 0.001 * float64(1+i)},
		})))
	}
	for i := range 3 { // of four
		rank(i, "before")
	}
	require.Equal(t, 3, c.aggregator.jobs.jobs.Waiting())
	now = now.Add(-time.Hour)
	c.flush(t.Context(), false)
	now = now.Add(cfg.Stragglers.Get().MaxWait + time.Second)
	c.flush(t.Context(), false)
	require.Zero(t, c.aggregator.jobs.jobs.Waiting())
	before := c.aggregator.swept
	now = now.Add(cfg.Expiry + time.Second)
	rank(0, "after")
	require.Greater(t, c.aggregator.swept, before)
	require.NotEmpty(t, c.aggregator.gone, "inactive resources were evicted")
}
