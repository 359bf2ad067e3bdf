// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// faces are the two outputs of a connector as the Collector creates them: with one configuration,
// started and stopped separately, and each receiving every batch.
type faces struct {
	all     []connector.Traces
	dropped func(reason string) int64
}

func newFaces(t *testing.T, cfg *Config, metrics consumer.Metrics, traces consumer.Traces) *faces {
	t.Helper()
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := connectortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	x := &faces{dropped: func(reason string) int64 {
		m, err := tel.GetMetric("otelcol_connector_gpu_metrics_dropped")
		if err != nil {
			return 0
		}
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			if v, _ := p.Attributes.Value("reason"); v.AsString() == reason {
				return p.Value
			}
		}
		return 0
	}}
	f := NewFactory()
	if traces != nil {
		c, err := f.CreateTracesToTraces(t.Context(), set, cfg, traces)
		require.NoError(t, err)
		x.all = append(x.all, c)
	}
	if metrics != nil {
		c, err := f.CreateTracesToMetrics(t.Context(), set, cfg, metrics)
		require.NoError(t, err)
		x.all = append(x.all, c)
	}
	for _, c := range x.all {
		require.NoError(t, c.Start(t.Context(), componenttest.NewNopHost()))
	}
	return x
}

func (x *faces) send(t *testing.T, td ptrace.Traces) {
	td.MarkReadOnly()
	for _, c := range x.all {
		require.NoError(t, c.ConsumeTraces(t.Context(), td))
	}
}

// job sends steps of four ranks, of which the last is slow.
func (x *faces) job(t *testing.T, steps int) {
	for index := range steps {
		for rank := range 4 {
			x.send(t, trainStep(t, rank, 4, index+1, 40+float64(rank/3*20)))
		}
	}
}

func (x *faces) shutdown(ctx context.Context, t *testing.T) {
	for _, c := range x.all {
		require.NoError(t, c.Shutdown(ctx))
	}
}

func quick() *Config {
	cfg := testConfig()
	cfg.FlushInterval, cfg.InstanceID = 5*time.Millisecond, "me"
	return cfg
}

func atTheEnd() *Config {
	cfg := quick()
	cfg.FlushInterval = time.Hour
	return cfg
}

func names(sink *consumertest.MetricsSink) map[string]bool {
	out := map[string]bool{}
	for _, md := range sink.AllMetrics() {
		for _, rm := range md.ResourceMetrics().All() {
			for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
				out[m.Name()] = true
			}
		}
	}
	return out
}

func TestBothOutputsShareOneConnector(t *testing.T) {
	metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
	x := newFaces(t, atTheEnd(), metrics, traces)
	for rank := range 3 { // an incomplete step is compared at shutdown
		x.send(t, trainStep(t, rank, 4, 1, 40+float64(rank/2*20)))
	}
	require.NoError(t, x.all[0].Shutdown(t.Context()))
	require.Len(t, metrics.AllMetrics(), 2, "with the first face both outputs end: points of 0, and all others")
	require.Equal(t, 1, traces.SpanCount())
	require.NoError(t, x.all[1].Shutdown(t.Context()))
	require.Len(t, metrics.AllMetrics(), 2)
	require.Equal(t, 1, traces.SpanCount())

	counted := 0
	for k, v := range values(t, metrics.AllMetrics()[1]) {
		if strings.HasPrefix(k, "gpu.step.duration[") {
			counted++
			assert.Equal(t, "1 in 0.1", v, "both faces are given the batch, and it is counted once")
		}
	}
	assert.Equal(t, 3, counted)
	td := traces.AllTraces()[0]
	assert.Equal(t, metadata.ScopeName, td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Name())
	_, s := only(t, td)
	assert.Equal(t, "straggler backward", s.Name())
}

func TestSpansAreWrittenAtIntervals(t *testing.T) {
	metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
	x := newFaces(t, quick(), metrics, traces)
	x.job(t, 3)
	require.Eventually(t, func() bool { return traces.SpanCount() == 3 }, time.Minute, time.Millisecond)
	x.shutdown(t.Context(), t)
	assert.Equal(t, 3, traces.SpanCount())
}

func TestEachOutputCanBeAlone(t *testing.T) {
	t.Run("spans", func(t *testing.T) {
		traces := new(consumertest.TracesSink)
		x := newFaces(t, atTheEnd(), nil, traces)
		x.job(t, 2)
		c := x.all[0].(sharedcomponent.TracesOutput).Traces.(*gpuMetrics)
		assert.Zero(t, c.aggregator.Kept, "metrics have no consumer, so none are made")
		x.shutdown(t.Context(), t)
		assert.Equal(t, 2, traces.SpanCount())
	})
	t.Run("metrics", func(t *testing.T) {
		metrics := new(consumertest.MetricsSink)
		x := newFaces(t, atTheEnd(), metrics, nil)
		x.job(t, 2)
		x.shutdown(t.Context(), t)
		assert.Subset(t, names(metrics), map[string]bool{"gpu.step.duration": true, "gpu.straggler.delay": true})
		assert.Empty(t, x.all[0].(*gpuMetrics).aggregator.findings())
	})
	t.Run("stragglers are off", func(t *testing.T) {
		cfg := atTheEnd()
		cfg.Stragglers = configoptional.None[StragglerConfig]()
		metrics, traces := new(consumertest.MetricsSink), new(consumertest.TracesSink)
		x := newFaces(t, cfg, metrics, traces)
		x.job(t, 2)
		x.shutdown(t.Context(), t)
		assert.Zero(t, traces.SpanCount())
		assert.True(t, names(metrics)["gpu.step.duration"])
	})
}

func TestOneConfigurationHasOneConnectorAtATime(t *testing.T) {
	f, cfg := NewFactory(), quick()
	set := connectortest.NewNopSettings(metadata.Type)
	metrics := func() *gpuMetrics {
		c, err := f.CreateTracesToMetrics(t.Context(), set, cfg, consumertest.NewNop())
		require.NoError(t, err)
		return c.(*gpuMetrics)
	}
	traces := func() *gpuMetrics {
		c, err := f.CreateTracesToTraces(t.Context(), set, cfg, consumertest.NewNop())
		require.NoError(t, err)
		return c.(sharedcomponent.TracesOutput).Traces.(*gpuMetrics)
	}
	first := metrics()
	assert.Same(t, first, traces())
	second := traces()
	assert.NotSame(t, first, second, "a face that is taken is not taken away")
	require.NoError(t, first.Shutdown(t.Context()))
	assert.Same(t, second, metrics())
	require.NoError(t, second.Shutdown(t.Context()))
	third := metrics()
	assert.NotSame(t, second, third, "after its end")
	require.NoError(t, third.Shutdown(t.Context()))
}

func TestRefusedSpansAreCountedAndMetricsContinue(t *testing.T) {
	metrics := new(consumertest.MetricsSink)
	x := newFaces(t, atTheEnd(), metrics, consumertest.NewErr(errors.New("no")))
	x.job(t, 4)
	c := x.all[1].(*gpuMetrics)
	c.flush(t.Context(), false)
	assert.True(t, names(metrics)["gpu.straggler.delay"])
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	x.shutdown(ended, t)
	assert.EqualValues(t, 4, x.dropped("spans"))
}

func TestASlowConsumerOfSpansDoesNotDelayMetrics(t *testing.T) {
	entered := make(chan struct{}, 1)
	stuck, err := consumer.NewTraces(func(ctx context.Context, _ ptrace.Traces) error {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	})
	require.NoError(t, err)
	metrics := new(consumertest.MetricsSink)
	x := newFaces(t, quick(), metrics, stuck)
	x.job(t, 1)
	<-entered
	had := len(metrics.AllMetrics())
	x.send(t, trainStep(t, 0, 4, 2, 40))
	require.Eventually(t, func() bool { return len(metrics.AllMetrics()) > had }, time.Minute, time.Millisecond)

	// The queue is limited, and Shutdown drops it when its context ends.
	c := x.all[1].(*gpuMetrics)
	f := &reported{step: stepSpan{Key: spanfacts.Key{Trace: [16]byte{1}, Span: [8]byte{1}}}}
	f.step.resource = batch(t, nil).ResourceSpans().At(0).Resource().Attributes()
	many := make([]*reported, maxFindings+3)
	for i := range many {
		many[i] = f
	}
	assert.EqualValues(t, 3, c.spans.put(many))
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	x.shutdown(ctx, t)
}

func TestManySpansAreSentInRequestsOfLimitedSize(t *testing.T) {
	traces := new(consumertest.TracesSink)
	x := newFaces(t, atTheEnd(), nil, traces)
	x.job(t, 2*maxBatch+1)
	x.shutdown(t.Context(), t)
	assert.Equal(t, 2*maxBatch+1, traces.SpanCount())
	assert.GreaterOrEqual(t, len(traces.AllTraces()), 3)
	for _, td := range traces.AllTraces() {
		assert.LessOrEqual(t, td.SpanCount(), maxBatch)
		b, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		require.NoError(t, err)
		assert.Less(t, len(b), 4<<20)
	}
}
