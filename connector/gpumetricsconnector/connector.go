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
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/shared"
	"github.com/otelgpu/otelgpu/internal/zerofirst"
)

// gpuMetrics is the connector: spans in, and at intervals metrics out, and spans of ranks that stood out.
type gpuMetrics struct {
	cfg     *Config
	log     *zap.Logger
	tel     *metadata.TelemetryBuilder
	version string
	clock   func() time.Time

	// The outputs; none where no pipeline has the connector as its receiver.
	metrics zerofirst.Output // of flush
	spans   *findingQueue

	mu         sync.Mutex
	aggregator *aggregator
	passed     series.Clock

	refusal refusal // of metrics; of flush

	started, ended sync.Once // by whichever of its components comes first
	stop           func()
	done           sync.WaitGroup
	forget         func()
}

func newConnector(cfg *Config, set connector.Settings) (*gpuMetrics, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuMetrics{
		cfg: cfg, log: set.Logger, tel: tel, version: set.BuildInfo.Version, clock: time.Now,
		aggregator: newAggregator(cfg, shared.InstanceID(cfg.InstanceID, set)), refusal: refusal{what: "metrics"},
		stop:   func() {},
		forget: func() {},
	}
	return c, tel.RegisterConnectorGpuMetricsSeriesCallback(func(_ context.Context, o metric.Int64Observer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Observe(int64(c.aggregator.Kept))
		return nil
	})
}

func (c *gpuMetrics) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// giveSpans adds the output of spans.
func (c *gpuMetrics) giveSpans(next consumer.Traces) {
	refusal := refusal{what: "spans of stragglers"}
	c.spans = newFindingQueue(func(ctx context.Context, found []*finding) {
		td := findingSpans(found, c.scope)
		if td.SpanCount() == 0 {
			return
		}
		n := td.SpanCount() // the next component may take them out
		err := next.ConsumeTraces(ctx, td)
		if err != nil {
			c.tel.ConnectorGpuMetricsDropped.Add(ctx, int64(n), droppedSpans)
		}
		refusal.note(c.log, n, err)
	})
	if c.aggregator.jobs == nil {
		c.log.Warn("no spans will come out, for `stragglers` are off")
		return
	}
	c.aggregator.jobs.spans = true
}

// Start begins the output at intervals. Until both components have started there is no input, and so nothing to write.
func (c *gpuMetrics) Start(context.Context, component.Host) error {
	c.started.Do(func() {
		ctx, cancel := context.WithCancel(context.Background())
		c.stop = cancel
		if c.metrics.Next == nil {
			c.aggregator.onlyStragglers()
		}
		if c.spans != nil {
			c.spans.start()
		}
		c.done.Go(func() { c.run(ctx) })
	})
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

// Shutdown writes what was not written yet. The Collector stops all that sends to a connector before its components,
// and each of those before what it sends to: when the first is shut down, nothing comes any more, and both outputs
// are still open.
func (c *gpuMetrics) Shutdown(ctx context.Context) error {
	c.ended.Do(func() {
		c.stop()
		c.done.Wait()
		c.flush(ctx, true)
		if c.spans != nil {
			c.spans.close(ctx)
		}
		c.tel.Shutdown()
		c.forget()
	})
	return nil
}

// ConsumeTraces counts the GPU spans of a batch. It never fails and never waits for the next component.
func (c *gpuMetrics) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	c.aggregator.take(td, c.now())
	stats := c.aggregator.stats
	c.aggregator.stats = counts{}
	c.mu.Unlock()
	c.count(ctx, &stats)
	return nil
}

// now is the aggregator's time; mu is held.
func (c *gpuMetrics) now() int64 {
	t := c.clock()
	now := c.passed.At(t)
	c.aggregator.ahead = t.UnixNano() - now
	return now
}

func (c *gpuMetrics) flush(ctx context.Context, final bool) {
	c.mu.Lock()
	out := c.aggregator.output(nameScope, c.now(), final)
	found := c.aggregator.findings()
	begins := len(c.aggregator.Begun) > 0
	c.mu.Unlock()
	if len(found) > 0 {
		if left := c.spans.put(found); left > 0 {
			c.tel.ConnectorGpuMetricsDropped.Add(ctx, left, droppedSpansLimit)
		}
	}
	n := out.DataPointCount()
	if n == 0 || c.metrics.Next == nil {
		return
	}
	began, err := c.metrics.Send(ctx, out, begins)
	if !began {
		c.mu.Lock()
		c.aggregator.Refused()
		c.mu.Unlock()
	}
	if err != nil {
		// Cumulative points come again with the next output; delta points are lost, and counted.
		c.tel.ConnectorGpuMetricsDropped.Add(ctx, int64(n), dropped("metrics"))
	}
	c.refusal.note(c.log, n, err)
}

// scope is that of spans.
func (c *gpuMetrics) scope(s pcommon.InstrumentationScope) {
	nameScope(s)
	s.SetVersion(c.version)
}

// nameScope is the scope of metrics: without a version, which is a label of each series in Prometheus, so that a
// release would rename all.
func nameScope(s pcommon.InstrumentationScope) { s.SetName(metadata.ScopeName) }

func dropped(reason string) metric.AddOption {
	return metric.WithAttributeSet(attribute.NewSet(attribute.String("reason", reason)))
}

var (
	droppedActivityLate  = dropped("activity_late")
	droppedActivityLimit = dropped("activity_limit")
	droppedActivityTime  = dropped("activity_time")
	droppedSpans         = dropped("spans")
	droppedSpansLimit    = dropped("spans_limit")
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
	add(c.tel.ConnectorGpuMetricsRepeated, s.repeated)
	add(c.tel.ConnectorGpuMetricsOverflow, s.overflow)
	add(c.tel.ConnectorGpuMetricsEvicted, s.evicted)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityLate, droppedActivityLate)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityLimit, droppedActivityLimit)
	add(c.tel.ConnectorGpuMetricsDropped, s.activityTime, droppedActivityTime)
	add(c.tel.ConnectorGpuMetricsDropped, s.stepLate, droppedStepLate)
	add(c.tel.ConnectorGpuMetricsDropped, s.stepLimit, droppedStepLimit)
}

// refusal logs that the next component refuses what it is given, and that it takes it again, but not each time. Of
// one goroutine.
type refusal struct {
	what  string // in the plural
	lasts bool
}

// note takes what became of n things.
func (r *refusal) note(log *zap.Logger, n int, err error) {
	switch {
	case err != nil && !r.lasts:
		log.Warn(r.what+" are refused; further refusals are counted, not logged", zap.Int("count", n), zap.Error(err))
	case err == nil && r.lasts:
		log.Info(r.what + " are taken again")
	}
	r.lasts = err != nil
}
