// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/configtest"
)

func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	return configtest.Load[Config](t, component.MustNewIDWithName(metadata.Type.String(), name).String(),
		createDefaultConfig)
}

func TestConfigUnmarshalsEveryKey(t *testing.T) {
	cfg, err := load(t, "full")
	require.NoError(t, err)
	assert.Equal(t, 5*time.Second, cfg.FlushInterval)
	assert.Equal(t, TemporalityDelta, cfg.Temporality)
	assert.Equal(t, 80, cfg.Histogram.Exponential.Get().MaxSize)
	assert.Equal(t, []any{3, []string{"gpu.job.id"}, []string{"service.name"}, 100, 1000, 10, 10_000, time.Hour, "node"}, []any{
		cfg.MaxExemplars, cfg.Dimensions, cfg.ResourceAttributes, cfg.CardinalityLimit, cfg.MaxSeries, cfg.MaxResources,
		cfg.MaxSpans, cfg.Expiry, cfg.InstanceID,
	})
	assert.True(t, cfg.Operations.HasValue())
	assert.False(t, cfg.Steps.HasValue())
	assert.Equal(t, ActivityConfig{Settle: 3 * time.Second, MaxGap: 2 * time.Second, MaxActivities: 5000}, *cfg.Activity.Get())
	assert.Equal(t, StragglerConfig{MaxWait: time.Minute, MinRanks: 4, MaxWaiting: 700}, *cfg.Stragglers.Get())
	cfg, err = load(t, "bounds")
	require.NoError(t, err)
	assert.Equal(t, []time.Duration{time.Millisecond, 2 * time.Millisecond}, cfg.Histogram.Explicit)
	assert.False(t, cfg.Stragglers.HasValue())
}

func TestValidateReportsEveryProblem(t *testing.T) {
	_, err := load(t, "broken")
	for _, want := range []string{
		"`flush_interval` must be positive, found 0s",
		"`temporality` must be cumulative or delta, found \"both\"",
		"`histogram::explicit::1` must be above 0 and above the bound before it, found 1ms",
		"`max_exemplars` must not be negative, found -1",
		"`dimensions::1` must be unique, found \"a\"",
		"`cardinality_limit` must be positive, found 0",
		"`max_resources` must be positive, found 0",
		"`expiry` must not be negative, found -1s",
		"`activity::settle` must be positive, found 0s",
		"`stragglers::min_ranks` must be at least 2, found 1",
		"`stragglers::max_waiting` must be positive, found 0",
	} {
		assert.ErrorContains(t, err, want)
	}
}

func TestPointsAreWrittenAtIntervalsAndAtShutdown(t *testing.T) {
	cfg := testConfig()
	cfg.FlushInterval = 10 * time.Millisecond
	cfg.InstanceID = "me"
	sink := new(consumertest.MetricsSink)
	set := connectortest.NewNopSettings(metadata.Type)
	set.BuildInfo.Version = "9.9"
	c, err := NewFactory().CreateTracesToMetrics(context.Background(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, c.Start(context.Background(), componenttest.NewNopHost()))
	require.NoError(t, c.ConsumeTraces(context.Background(), batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""})))
	require.Eventually(t, func() bool { return len(sink.AllMetrics()) > 1 }, time.Minute, time.Millisecond)
	require.NoError(t, c.ConsumeTraces(context.Background(), batch(t, nil, span{"p", 3000, 5000, prefill, 2, 0, ""})))
	require.NoError(t, c.Shutdown(context.Background()))
	all := sink.AllMetrics()
	scope := all[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Scope()
	assert.Empty(t, scope.Version(), "a release does not rename the series")
	got := values(t, all[len(all)-1])
	for k, v := range prefillPoints {
		if k[:25] != "gpu.operation.item.energy" {
			assert.Equal(t, v, got[k], k)
		}
	}
	require.NoError(t, c.Shutdown(context.Background()), "a second Shutdown has no effect")
}

func TestARefusalIsCountedAndNothingIsLostWhenCumulative(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := connectortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	core, logs := observer.New(zap.InfoLevel)
	set.Logger = zap.New(core)
	cfg := testConfig()
	c, err := newConnector(cfg, set)
	require.NoError(t, err)
	c.Metrics.Next = consumertest.NewErr(errors.New("no"))
	require.NoError(t, c.ConsumeTraces(context.Background(), batch(t, nil, span{"p", 0, 2000, prefill, 1, 0, ""})))
	c.flush(context.Background(), false)
	m, err := tel.GetMetric("otelcol_connector_gpu_metrics_dropped")
	require.NoError(t, err)
	assert.EqualValues(t, 13, m.Data.(metricdata.Sum[int64]).DataPoints[0].Value, "six begin with a point of 0")
	m, err = tel.GetMetric("otelcol_connector_gpu_metrics_series")
	require.NoError(t, err)
	assert.EqualValues(t, 7, m.Data.(metricdata.Gauge[int64]).DataPoints[0].Value)
	c.flush(context.Background(), false)
	assert.Len(t, logs.TakeAll(), 1, "of the two")
	sink := new(consumertest.MetricsSink)
	c.Metrics.Next = sink
	c.flush(context.Background(), false)
	require.Len(t, sink.AllMetrics(), 2, "first the points of 0")
	assert.Equal(t, 6, sink.AllMetrics()[0].DataPointCount())
	assert.Equal(t, 12, sink.DataPointCount(), "all but the gauge")
	c.flush(context.Background(), false)
	assert.Equal(t, 12+6, sink.DataPointCount())
	assert.Equal(t, 1, logs.FilterMessage("metrics are accepted again").Len())
	require.NoError(t, c.Shutdown(context.Background()))
}
