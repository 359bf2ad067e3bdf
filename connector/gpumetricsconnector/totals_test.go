// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

// store simulates Prometheus without out-of-order ingestion: of a resource it keeps the service,
// namespace and instance, and it sums the increases of counters.
type store struct {
	last   map[string]stored
	totals map[string]float64 // by metric
	where  string
	delta  bool
}

type stored struct {
	ms    uint64
	value float64
}

func (s *store) take(t *testing.T, md pmetric.Metrics) {
	for _, rm := range md.ResourceMetrics().All() {
		target := ""
		for _, k := range []string{"service.namespace", "service.name", "service.instance.id"} {
			if v, ok := rm.Resource().Attributes().Get(k); ok {
				target += v.AsString()
			}
			target += "/"
		}
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			point := func(name string, attrs pcommon.Map, at pcommon.Timestamp, v float64) {
				key := target + name + fmt.Sprint(attrs.AsRaw())
				now := stored{uint64(at) / 1e6, v}
				before, known := s.last[key]
				require.True(t, known || v == 0 || s.delta, "%s: %s begins with %v", s.where, key, v)
				require.True(t, !known || now.ms > before.ms || now == before, "%s: %s: %v after %v", s.where, key, now, before)
				if s.last[key] = now; v < before.value || s.delta {
					before.value = 0
				}
				s.totals[name] += v - before.value
			}
			switch m.Type() {
			case pmetric.MetricTypeSum:
				for _, p := range m.Sum().DataPoints().All() {
					point(m.Name(), p.Attributes(), p.Timestamp(), p.DoubleValue()+float64(p.IntValue()))
				}
			case pmetric.MetricTypeHistogram:
				for _, p := range m.Histogram().DataPoints().All() {
					point(m.Name()+"_count", p.Attributes(), p.Timestamp(), float64(p.Count()))
					point(m.Name()+"_sum", p.Attributes(), p.Timestamp(), p.Sum())
				}
			case pmetric.MetricTypeExponentialHistogram:
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					point(m.Name()+"_count", p.Attributes(), p.Timestamp(), float64(p.Count()))
					point(m.Name()+"_sum", p.Attributes(), p.Timestamp(), p.Sum())
				}
			}
		}
	}
}

// With resources that Prometheus hardly distinguishes, restarts, pauses, too little space for all
// series, and a store that is temporarily unavailable or whose response is lost, the increases of
// counters in the store equal the sums over the spans, in every form.
func TestIncreasesInAStoreEqualTheSpans(t *testing.T) {
	resources := []attrs{
		{},
		{"service.version": "1"},
		{"service.name": "a"},
		{"service.name": "a", "service.version": "1"},
		{"service.name": "a", "service.version": "2"},
		{"service.name": "a", "service.instance.id": "1", "container.id": "x"},
		{"service.name": "a", "service.instance.id": "1", "container.id": "y"},
		{"service.name": "a", "service.namespace": "n", "service.instance.id": "1"},
		{"service.name": "b", "process.pid": 1},
		{"service.name": "b", "process.pid": 2},
	}
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 5))
		has, want := store{map[string]stored{}, map[string]float64{}, fmt.Sprint("seed ", seed), false}, map[string]float64{}
		now, refusing := time.Unix(1_700_000_001, 0), false
		next, err := consumer.NewMetrics(func(_ context.Context, md pmetric.Metrics) error {
			refuses := refusing && rng.IntN(2) == 0
			if !refuses {
				has.take(t, md)
			}
			if refuses || refusing && rng.IntN(2) == 0 {
				return errors.New("not now")
			}
			return nil
		})
		require.NoError(t, err)
		cfg := testConfig()
		cfg.InstanceID, cfg.Expiry = "me", time.Duration(15+rng.IntN(60))*time.Second
		switch rng.IntN(4) {
		case 0:
			cfg.CardinalityLimit = 2 + rng.IntN(3)
		case 1:
			cfg.MaxSeries = 5 + rng.IntN(30)
		case 2:
			cfg.MaxResources = 1 + rng.IntN(5)
		}
		switch seed % 5 {
		case 3:
			cfg.Histogram.Exponential.GetOrInsertDefault()
		case 4:
			cfg.Temporality, has.delta = TemporalityDelta, true
		}
		var c *gpuMetrics
		start := func() {
			c, err = newConnector(cfg, connectortest.NewNopSettings(metadata.Type))
			require.NoError(t, err)
			c.Metrics.Next, c.clock = next, func() time.Time { return now }
			c.aggregator.since = uint64(now.UnixNano())
		}
		start()
		for range 50 {
			switch rng.IntN(10) {
			case 0:
				refusing = false
				require.NoError(t, c.Shutdown(t.Context()))
				now = now.Add(time.Duration(rng.Int64N(int64(20 * time.Second))))
				start()
			case 1:
				refusing = !refusing && !has.delta // whose rejected points are lost
			case 2:
				now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Minute))))
			}
			for range rng.IntN(6) {
				now = now.Add(time.Duration(rng.Int64N(int64(3 * time.Second))))
				end := uint64(now.UnixNano())/1000 - epoch/1000 + 60_000_000 - rng.Uint64N(120_000_000) // from one minute late to one minute ahead
				end = max(end, 1_000_000)
				a := attrs{"gpu.operation.type": "section", "gpu.duration": 0.5}
				want["gpu.operation.count"]++
				want["gpu.operation.duration_count"]++
				want["gpu.operation.duration_sum"] += 0.5
				if rng.IntN(2) == 0 {
					a["gpu.energy"] = 4.0
					want["gpu.operation.energy"] += 4
				}
				if rng.IntN(2) == 0 {
					a["gpu.operation.items"] = 3
					want["gpu.operation.items"] += 3
				}
				require.NoError(t, c.ConsumeTraces(t.Context(), batch(t, resources[rng.IntN(len(resources))],
					span{fmt.Sprint("op", rng.IntN(3)), end - 500_000, end, a, 1, 0, ""})))
			}
			now = now.Add(15 * time.Second)
			c.flush(t.Context(), false)
		}
		refusing = false
		require.NoError(t, c.Shutdown(t.Context()))
		for name, v := range want {
			require.Equal(t, v, has.totals[name], "seed %d: %s", seed, name)
		}
	}
}
