// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// gpuMetrics is the connector: it consumes spans and emits metrics at intervals, and spans of ranks
// that stood out.
type gpuMetrics struct {
	sharedcomponent.Connector
	cfg     *Config
	log     *zap.Logger
	tel     *metadata.TelemetryBuilder
	version string
	clock   func() time.Time

	spans *findingQueue // nil if no traces pipeline has the connector as its receiver

	mu         sync.Mutex
	aggregator *aggregator
	passed     series.Clock
	explained  [aloneReasons]bool // in the log

	refusal resend.Rejections // of metrics; of flush
}

func newConnector(cfg *Config, set connector.Settings) (*gpuMetrics, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuMetrics{
		cfg: cfg, log: set.Logger, tel: tel, version: set.BuildInfo.Version, clock: time.Now,
		aggregator: newAggregator(cfg, sharedcomponent.InstanceID(cfg.InstanceID, set)),
		refusal:    resend.Rejections{What: "metrics", Log: set.Logger},
	}
	c.aggregator.since = uint64(c.clock().UnixNano())
	return c, tel.RegisterConnectorGpuMetricsSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Observe(int64(c.aggregator.Kept))
		return nil
	})
}

// GiveTraces implements sharedcomponent.TwoOutputs.
func (c *gpuMetrics) GiveTraces(next consumer.Traces) bool {
	if c.spans != nil {
		return false
	}
	refusal := resend.Rejections{What: "spans of stragglers", Log: c.log}
	c.spans = newFindingQueue(func(ctx context.Context, found []*reported) {
		td := findingSpans(found, c.scope)
		if td.SpanCount() == 0 {
			return
		}
		n := td.SpanCount()
		err := resend.Copies(ctx, td, ptrace.NewTraces, func(ctx context.Context, try ptrace.Traces) error {
			err := next.ConsumeTraces(ctx, try)
			refusal.Note(n, err)
			return err
		})
		if err != nil {
			c.tel.ConnectorGpuMetricsDropped.Add(ctx, int64(n), dropped("spans"))
		}
	})
	if c.aggregator.jobs != nil {
		c.aggregator.jobs.spans = true
	} else {
		c.log.Warn("no spans will be emitted because `stragglers` is off")
	}
	return true
}

// Start begins the output at intervals.
func (c *gpuMetrics) Start(context.Context, component.Host) error {
	c.Begin(func() {
		if c.Metrics.Next == nil {
			c.aggregator.onlyStragglers()
		}
		if c.spans != nil {
			c.spans.start()
		}
	}, c.run)
	return nil
}

func (c *gpuMetrics) run(ctx context.Context) {
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
}

// Shutdown writes the remaining data.
func (c *gpuMetrics) Shutdown(ctx context.Context) error {
	return c.End(ctx, func() {
		c.flush(ctx, true)
		if c.spans != nil {
			c.spans.close(ctx)
		}
		c.tel.Shutdown()
	})
}

// ConsumeTraces counts the GPU spans of a batch. It never fails and never waits for the next
// component.
func (c *gpuMetrics) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	c.aggregator.take(td, c.now())
	stats := c.aggregator.stats
	c.aggregator.stats = counts{}
	c.explain(&stats)
	c.mu.Unlock()
	c.count(ctx, &stats)
	return nil
}

// now returns the aggregator's time; the caller must hold mu.
func (c *gpuMetrics) now() int64 {
	t := c.clock()
	now := c.passed.At(t)
	c.aggregator.ahead = t.UnixNano() - now
	return now
}

func (c *gpuMetrics) flush(ctx context.Context, final bool) {
	c.mu.Lock()
	now := c.now()
	out := c.aggregator.output(now, final)
	found := c.aggregator.findings()
	series.LogBare(c.log, c.aggregator.bare)
	c.aggregator.bare = nil
	stats := c.aggregator.stats
	c.aggregator.stats = counts{}
	if !final { // at shutdown some ranks of the last steps are usually missing
		c.explain(&stats)
	}
	c.mu.Unlock()
	c.count(ctx, &stats)
	if len(found) > 0 && c.spans != nil {
		sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, c.spans.put(found), dropped("spans_limit"))
	}
	if n := out.DataPointCount(); n > 0 && c.Metrics.Next != nil {
		err := c.aggregator.Send(ctx, &c.Metrics, out, final)
		c.refusal.Note(n, err)
		if err != nil {
			// Cumulative points are sent again with the next output; delta points are lost, and counted.
			c.tel.ConnectorGpuMetricsDropped.Add(ctx, int64(n), dropped("metrics"))
			return
		}
	}
	c.mu.Lock()
	c.aggregator.taken = now
	c.mu.Unlock()
}

// scope sets the name and version of the spans' scope.
func (c *gpuMetrics) scope(s pcommon.InstrumentationScope) {
	s.SetName(metadata.ScopeName)
	s.SetVersion(c.version)
}

func dropped(reason string) metric.AddOption { return sharedcomponent.Label("reason", reason) }

var (
	droppedActivityLate  = dropped("activity_late")
	droppedActivityLimit = dropped("activity_limit")
	droppedActivityTime  = dropped("activity_time")
	droppedStepLate      = dropped("step_late")
	droppedStepLimit     = dropped("step_limit")
)

func (c *gpuMetrics) count(ctx context.Context, s *counts) {
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsSpans, s.spans, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsRepeated, s.repeated, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsOverflow, s.overflow, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsEvicted, s.evicted, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, s.activityLate, droppedActivityLate)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, s.activityLimit, droppedActivityLimit)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, s.activityTime, droppedActivityTime)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, s.stepLate, droppedStepLate)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsDropped, s.stepLimit, droppedStepLimit)
	for why, n := range s.uncompared {
		sharedcomponent.Count(ctx, c.tel.ConnectorGpuMetricsUncompared, n, uncompared[why])
	}
}
