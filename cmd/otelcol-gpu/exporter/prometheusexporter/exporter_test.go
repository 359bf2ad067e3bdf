// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package prometheusexporter

import (
	"context"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/freeport"
)

// deltas are a gauge and a delta histogram without bounds, at the given second.
func deltas(second int, counts ...uint64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "other")
	list := rm.ScopeMetrics().AppendEmpty().Metrics()
	h := list.AppendEmpty()
	h.SetName("latency")
	h.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := h.Histogram().DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(second) * 1e9)
	p.SetTimestamp(pcommon.Timestamp(second+1) * 1e9)
	p.SetCount(1)
	p.BucketCounts().FromRaw(counts)
	g := list.AppendEmpty()
	g.SetName("temperature")
	g.SetEmptyGauge().DataPoints().AppendEmpty().SetIntValue(7)
	return md
}

func TestAHistogramThatCannotBeAddedUpLosesNothingElse(t *testing.T) {
	of := prometheusexporter.NewFactory()
	cfg := of.CreateDefaultConfig().(*prometheusexporter.Config)
	var err error
	cfg.ServerConfig.NetAddr.Endpoint, err = freeport.Address()
	require.NoError(t, err)
	plain, err := of.CreateMetrics(t.Context(), exportertest.NewNopSettings(of.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, plain.ConsumeMetrics(t.Context(), deltas(1)))
	require.Panics(t, func() { _ = plain.ConsumeMetrics(t.Context(), deltas(2, 1)) }, "the guard is needed")

	seen := &countingMetrics{Metrics: plain}
	f := NewFactory()
	assert.Equal(t, of.Type(), f.Type())
	assert.Equal(t, of.CreateDefaultConfig(), f.CreateDefaultConfig())
	guarded := &guarded{seen}
	err = guarded.ConsumeMetrics(t.Context(), deltas(2, 1))
	require.ErrorContains(t, err, `metric "latency": the exporter cannot add this delta histogram to the one before it`)
	assert.True(t, consumererror.IsPermanent(err))
	assert.Equal(t, []string{"latency", "temperature"}, seen.names)

	seen.names = nil
	md := deltas(4)
	md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool {
		return m.Name() == "latency"
	})
	require.NoError(t, guarded.ConsumeMetrics(t.Context(), md))
	assert.Equal(t, []string{"temperature"}, seen.names)
	made, err := f.CreateMetrics(t.Context(), exportertest.NewNopSettings(of.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, made.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, made.ConsumeMetrics(t.Context(), deltas(1)))
	require.Error(t, made.ConsumeMetrics(t.Context(), deltas(2, 1)))
	require.NoError(t, made.Shutdown(t.Context()))
}

// countingMetrics records the names of the metrics that an exporter gets.
type countingMetrics struct {
	exporter.Metrics
	names []string
}

func (c *countingMetrics) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				c.names = append(c.names, m.Name())
			}
		}
	}
	if c.Metrics == nil {
		return nil
	}
	return c.Metrics.ConsumeMetrics(ctx, md)
}

// exponential is a delta exponential histogram at the given second, with one positive value.
func exponential(second int, scale int32, value float64) pmetric.Metrics {
	md := pmetric.NewMetrics()
	m := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("latency")
	m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetStartTimestamp(pcommon.Timestamp(second) * 1e9)
	p.SetTimestamp(pcommon.Timestamp(second+1) * 1e9)
	p.SetScale(scale)
	p.SetCount(1)
	p.Positive().SetOffset(bucketOf(value, scale))
	p.Positive().BucketCounts().FromRaw([]uint64{1})
	return md
}

// bucketOf returns the index of the bucket of a value, by the definition.
func bucketOf(value float64, scale int32) int32 {
	return int32(math.Ceil(math.Ldexp(math.Log2(value), int(scale)))) - 1
}

func TestDistantValuesOfADeltaHistogramNeedLittleMemory(t *testing.T) {
	of := NewFactory()
	cfg := of.CreateDefaultConfig().(*prometheusexporter.Config)
	var err error
	cfg.ServerConfig.NetAddr.Endpoint, err = freeport.Address()
	require.NoError(t, err)
	e, err := of.CreateMetrics(t.Context(), exportertest.NewNopSettings(of.Type()), cfg)
	require.NoError(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, v := range []float64{1e-9, 1e9, 1, math.MaxFloat64, math.SmallestNonzeroFloat64} {
		require.NoError(t, e.ConsumeMetrics(t.Context(), exponential(i, 20, v)), v)
	}
	runtime.ReadMemStats(&after)
	assert.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(1)<<20)
}

func TestCoarserHistogramsHaveTheSameValues(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 22))
	for range 2000 {
		p := pmetric.NewExponentialHistogramDataPoint()
		p.SetScale(int32(rng.IntN(31) - 10))
		low, high := math.Inf(1), 0.0
		side := p.Positive()
		if rng.IntN(2) == 0 {
			side = p.Negative()
		}
		var values []float64
		around := math.Ldexp(1, rng.IntN(2000)-1000)
		for range 1 + rng.IntN(4) {
			v := around * (1 + rng.Float64()/1000)
			values = append(values, v)
			low, high = min(low, v), max(high, v)
		}
		side.SetOffset(bucketOf(low, p.Scale()))
		counts := make([]uint64, bucketOf(high, p.Scale())-side.Offset()+1)
		for _, v := range values {
			counts[bucketOf(v, p.Scale())-side.Offset()]++
		}
		side.BucketCounts().FromRaw(counts)
		fine := p.Scale()
		require.True(t, coarsen(p), "scale %d, %v", fine, values)
		require.LessOrEqual(t, p.Scale(), int32(8))
		last := int(side.Offset()) + side.BucketCounts().Len() - 1
		require.GreaterOrEqual(t, int(side.Offset()), -4096)
		require.LessOrEqual(t, last, 4096)
		if fine <= 8 && math.Abs(math.Log2(around)) < 15 {
			require.Equal(t, fine, p.Scale(), "no resolution is lost needlessly")
		}
		want := make([]uint64, side.BucketCounts().Len())
		for _, v := range values {
			want[bucketOf(v, p.Scale())-side.Offset()]++
		}
		require.Equal(t, want, side.BucketCounts().AsRaw())
	}
}

func TestBucketsWithoutNumbersAreRejected(t *testing.T) {
	for _, tt := range []struct {
		scale, offset int32
		buckets       int
		ok            bool
	}{
		{0, 1023, 1, true},
		{0, 1023, 2, false},
		{0, 1024, 1, false},
		{0, -1075, 1, true},
		{0, -1076, 1, false},
		{-10, 0, 1, true},
		{-10, 1, 1, false},
		{-11, 0, 1, false},
		{20, 1 << 30, 1, false},
		{20, 1<<30 - 1, 1, true},
		{20, math.MaxInt32, 2, false},
		{21, 0, 1, false},
		{math.MaxInt32, 0, 0, false},
		{math.MinInt32, 0, 0, false},
		{8, math.MinInt32, 0, true},
	} {
		p := pmetric.NewExponentialHistogramDataPoint()
		p.SetScale(tt.scale)
		p.Negative().SetOffset(tt.offset)
		p.Negative().BucketCounts().FromRaw(make([]uint64, tt.buckets))
		assert.Equal(t, tt.ok, coarsen(p), "%+v", tt)
	}
	seen := &countingMetrics{}
	err := (&guarded{seen}).ConsumeMetrics(t.Context(), exponential(1, 30, 1))
	require.EqualError(t, err, `Permanent error: metric "latency": a delta histogram of scale 30 has buckets that no number falls into`)
	assert.Equal(t, []string{"latency"}, seen.names)
}
