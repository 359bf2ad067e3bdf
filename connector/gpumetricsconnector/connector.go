// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"crypto/rand"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// gpuMetrics is the connector: spans in, and metrics out at intervals.
type gpuMetrics struct {
	cfg     *Config
	log     *zap.Logger
	next    consumer.Metrics
	tel     *metadata.TelemetryBuilder
	version string

	mu         sync.Mutex
	aggregator *aggregator

	stop func()
	done sync.WaitGroup
}

func newConnector(cfg *Config, set connector.Settings, next consumer.Metrics) (*gpuMetrics, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	instance := cfg.InstanceID
	if instance == "" {
		// The Collector's own identity, so that points can be traced to its own telemetry.
		if v, ok := set.Resource.Attributes().Get(string(semconv.ServiceInstanceIDKey)); ok {
			instance = v.Str()
		} else {
			instance = rand.Text()
		}
		if name := set.ID.Name(); name != "" {
			instance += "/" + name
		}
	}
	c := &gpuMetrics{
		cfg: cfg, log: set.Logger, next: next, tel: tel, version: set.BuildInfo.Version,
		aggregator: newAggregator(cfg, instance), stop: func() {},
	}
	return c, tel.RegisterConnectorGpuMetricsSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Observe(int64(c.aggregator.series))
		return nil
	})
}

func (c *gpuMetrics) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Start begins the output at intervals.
func (c *gpuMetrics) Start(context.Context, component.Host) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() {
		tick := time.NewTicker(c.cfg.FlushInterval)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				c.flush(ctx, false)
			}
		}
	})
	return nil
}

// Shutdown writes what was not written yet.
func (c *gpuMetrics) Shutdown(ctx context.Context) error {
	c.stop()
	c.done.Wait()
	c.flush(ctx, true)
	c.tel.Shutdown()
	return nil
}

// ConsumeTraces counts the GPU spans of a batch. It never fails and never waits for the next component.
func (c *gpuMetrics) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	c.aggregator.take(td, time.Now().UnixNano())
	stats := c.aggregator.stats
	c.aggregator.stats = counts{}
	c.mu.Unlock()
	c.count(ctx, &stats)
	return nil
}

func (c *gpuMetrics) flush(ctx context.Context, final bool) {
	c.mu.Lock()
	out := c.aggregator.output(c.scope, time.Now().UnixNano(), final)
	c.mu.Unlock()
	n := out.DataPointCount()
	if n == 0 {
		return
	}
	if err := c.next.ConsumeMetrics(ctx, out); err != nil {
		// Cumulative points come again with the next output; delta points are lost, and counted.
		c.tel.ConnectorGpuMetricsDropped.Add(ctx, int64(n), dropped("metrics"))
		c.log.Warn("the metrics of this interval were refused", zap.Int("points", n), zap.Error(err))
	}
}

func (c *gpuMetrics) scope(s pcommon.InstrumentationScope) {
	s.SetName(metadata.ScopeName)
	s.SetVersion(c.version)
}

func dropped(reason string) metric.AddOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", reason)))
}

var (
	droppedActivityLate  = dropped("activity_late")
	droppedActivityLimit = dropped("activity_limit")
	droppedActivityTime  = dropped("activity_time")
	droppedStepLate      = dropped("step_late")
	droppedStepLimit     = dropped("step_limit")
)

func (c *gpuMetrics) count(ctx context.Context, s *counts) {
	add := func(counter metric.Int64Counter, n int64, options ...metric.AddOption) {
		if n > 0 {
			counter.Add(ctx, n, options...)
		}
	}
	add(c.tel.ConnectorGpuMetricsSpans, s.spans)
	add(c.tel.ConnectorGpuMetricsOverflow, s.overflow)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityLate, droppedActivityLate)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityLimit, droppedActivityLimit)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityTime, droppedActivityTime)
	add(c.tel.ConnectorGpuMetricsDropped, s.stepLate, droppedStepLate)
	add(c.tel.ConnectorGpuMetricsDropped, s.stepLimit, droppedStepLimit)
}
