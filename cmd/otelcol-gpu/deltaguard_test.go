// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
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
	f := guardDeltas(of)
	assert.Equal(t, of.Type(), f.Type())
	assert.Equal(t, of.CreateDefaultConfig(), f.CreateDefaultConfig())
	guarded := &deltaGuard{seen}
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
	return c.Metrics.ConsumeMetrics(ctx, md)
}
