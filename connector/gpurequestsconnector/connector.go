// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

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

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// maxBatch is the number of requests whose spans are sent at once: about half a megabyte, well
// below the 4 MiB that OTLP receivers accept.
const maxBatch = 500

// gpuRequests is the connector. It consumes spans and produces a span for each closed usage record,
// and metrics at an interval.
type gpuRequests struct {
	sharedcomponent.Connector
	cfg     *Config
	log     *zap.Logger
	tel     *metadata.TelemetryBuilder
	version string
	clock   func() time.Time

	traces consumer.Traces // nil if no traces pipeline has the connector as its receiver

	mu     sync.Mutex // of the book, and its clock
	book   *book
	passed series.Clock
	meters *meters // of the goroutine that closes and writes

	queue resend.Queue[ptrace.Traces]
}

func newConnector(cfg *Config, set connector.Settings) (*gpuRequests, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuRequests{
		cfg: cfg, log: set.Logger, tel: tel, version: set.BuildInfo.Version, clock: time.Now,
		book: newBook(cfg), meters: newMeters(cfg, sharedcomponent.InstanceID(cfg.InstanceID, set), set.Logger),
	}
	c.queue = resend.Queue[ptrace.Traces]{
		Rejections: resend.Rejections{What: "spans of requests", Log: set.Logger}, Empty: ptrace.NewTraces,
		Send:  func(ctx context.Context, td ptrace.Traces) error { return c.traces.ConsumeTraces(ctx, td) },
		Count: ptrace.Traces.SpanCount, Max: max(1, cfg.MaxRequests/maxBatch),
		Drop: func(ctx context.Context, n int) { c.drop(ctx, "spans", n) },
	}
	return c, tel.RegisterConnectorGpuRequestsOpenCallback(func(_ context.Context, o metric.Int64Observer) error {
		c.mu.Lock()
		defer c.mu.Unlock()
		o.Observe(int64(len(c.book.requests)))
		return nil
	})
}

// GiveTraces implements sharedcomponent.TwoOutputs.
func (c *gpuRequests) GiveTraces(next consumer.Traces) bool {
	if c.traces != nil {
		return false
	}
	c.traces = next
	return true
}

// Start starts the timer that closes usage records.
func (c *gpuRequests) Start(context.Context, component.Host) error {
	c.Begin(func() { c.meters.spans = c.traces != nil }, c.run)
	return nil
}

// run closes due usage records each second, or four times within the shorter wait, and writes
// metrics at their interval. The first output is after half an interval: gpu_metrics, which starts
// at the same time, writes at the other halves, so that the outputs of both for one service are in
// order of time.
func (c *gpuRequests) run(ctx context.Context) {
	tick := time.NewTicker(max(time.Millisecond, min(time.Second, c.cfg.Settle/4, c.cfg.Idle/4)))
	defer tick.Stop()
	flush := time.NewTicker((c.cfg.FlushInterval + 1) / 2)
	defer flush.Stop()
	half := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			c.closeDue(ctx, false)
		case <-flush.C:
			if half = !half; half {
				c.flush(ctx, false)
			}
		}
	}
}

// Shutdown closes all usage records and writes them.
func (c *gpuRequests) Shutdown(ctx context.Context) error {
	return c.End(ctx, func() {
		c.closeDue(ctx, true)
		c.queue.Drain(ctx)
		c.flush(ctx, true)
		c.tel.Shutdown()
	})
}

// ConsumeTraces charges the GPU spans of a payload. It never fails and never waits for the next
// component.
func (c *gpuRequests) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	c.book.take(td, c.passed.At(c.clock()))
	stats := c.book.read()
	c.mu.Unlock()
	c.count(ctx, &stats)
	return nil
}

// closeDue closes usage records and sends them to the next component.
func (c *gpuRequests) closeDue(ctx context.Context, all bool) {
	c.mu.Lock()
	now := c.clock()
	closed := c.book.due(c.passed.At(now), all)
	stats := c.book.read()
	c.mu.Unlock()
	c.count(ctx, &stats)
	if c.Metrics.Next != nil {
		c.meters.record(closed, now.UnixNano())
	}
	if c.traces == nil {
		return
	}
	for first := 0; first < len(closed); first += maxBatch {
		td := spans(closed[first:min(first+maxBatch, len(closed))], c.cfg.QueueSpan, c.scope)
		if td.SpanCount() > 0 {
			c.queue.Add(td)
		}
	}
	// What is rejected is sent again; IDs are derived from the contents of a span, so that data
	// that arrived nevertheless is not duplicated.
	_ = c.queue.Flush(ctx)
}

func (c *gpuRequests) flush(ctx context.Context, final bool) {
	if c.Metrics.Next == nil {
		return
	}
	out := c.meters.output()
	c.drop(ctx, "metrics", c.meters.lost)
	c.meters.lost = 0
	n := out.DataPointCount()
	if n == 0 {
		return
	}
	if err := c.meters.Send(ctx, &c.Metrics, out, final); err != nil {
		c.drop(ctx, "metrics", n) // cumulative points are sent again with the next output
		c.log.Debug("metrics of requests are rejected", zap.Error(err))
		return
	}
	c.meters.trim()
}

// scope sets the instrumentation scope of spans.
func (c *gpuRequests) scope(s pcommon.InstrumentationScope) {
	s.SetName(metadata.ScopeName)
	s.SetVersion(c.version)
}

func (c *gpuRequests) drop(ctx context.Context, what string, n int) {
	if n > 0 {
		c.tel.ConnectorGpuRequestsDropped.Add(ctx, int64(n), sharedcomponent.Label("reason", what))
	}
}

var closedReasons = [reasons]metric.AddOption{
	settled: sharedcomponent.Label("reason", "settled"), idle: sharedcomponent.Label("reason", "idle"),
	evicted: sharedcomponent.Label("reason", "evicted"), shutdown: sharedcomponent.Label("reason", "shutdown"),
}

// count adds to the connector's own telemetry.
func (c *gpuRequests) count(ctx context.Context, s *counts) {
	for i, n := range s.closed {
		sharedcomponent.Count(ctx, c.tel.ConnectorGpuRequestsClosed, n, closedReasons[i])
	}
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuRequestsLate, s.late, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuRequestsRepeated, s.repeated, nil)
	c.drop(ctx, "children", int(s.lostChildren))
	c.drop(ctx, "requests", int(s.lostRequests))
	c.drop(ctx, "operations", int(s.lostOperations))
	if s.ended > 0 {
		c.tel.ConnectorGpuRequestsEnergy.Add(ctx, s.ended)
	}
	if s.unassigned > 0 {
		c.tel.ConnectorGpuRequestsUnassignedEnergy.Add(ctx, s.unassigned)
	}
}
