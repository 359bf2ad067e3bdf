// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"context"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// gpuProfiles is the connector: spans in, and profiles out when their window has settled.
type gpuProfiles struct {
	sharedcomponent.Connector
	cfg     *Config
	tel     *metadata.TelemetryBuilder
	version string
	clock   func() time.Time

	mu      sync.Mutex
	builder *stackprofile.Builder

	queue resend.Queue[pprofile.Profiles]
}

func newConnector(cfg *Config, set connector.Settings, next xconsumer.Profiles) (*gpuProfiles, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuProfiles{
		cfg: cfg, tel: tel, version: set.BuildInfo.Version, clock: time.Now,
		builder: stackprofile.New(cfg.options()),
	}
	c.queue = resend.Queue[pprofile.Profiles]{
		Rejections: resend.Rejections{What: "samples of profiles", Log: set.Logger}, Empty: pprofile.NewProfiles,
		Send: next.ConsumeProfiles, Count: pprofile.Profiles.SampleCount, Drop: c.drop, Max: maxWaiting,
	}
	observe := func(f func(*stackprofile.Builder) int) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			c.mu.Lock()
			defer c.mu.Unlock()
			o.Observe(int64(f(c.builder)))
			return nil
		}
	}
	if err := tel.RegisterConnectorGpuProfilesPendingCallback(observe((*stackprofile.Builder).Pending)); err != nil {
		return nil, err
	}
	return c, tel.RegisterConnectorGpuProfilesStacksCallback(observe((*stackprofile.Builder).Stacks))
}

// Start begins the output.
func (c *gpuProfiles) Start(context.Context, component.Host) error {
	c.Begin(func() {}, func(ctx context.Context) {
		tick := time.NewTicker(max(time.Second, min(c.cfg.Settle, c.cfg.Window)))
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

// Shutdown sends what is left, for up to resend.DrainTimeout or until ctx ends.
func (c *gpuProfiles) Shutdown(ctx context.Context) error {
	return c.End(ctx, func() {
		c.flush(ctx, true)
		c.tel.Shutdown()
	})
}

// ConsumeTraces adds spans. It never fails and never waits for the next component.
func (c *gpuProfiles) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	c.mu.Lock()
	c.builder.Add(td, c.clock().UnixNano())
	stats := c.builder.Stats()
	c.mu.Unlock()
	c.count(ctx, &stats)
	return nil
}

// flush sends the windows that have settled: spans may wait max_wait for their parents, and later
// ones are in a further profile of the same window.
func (c *gpuProfiles) flush(ctx context.Context, final bool) {
	now := c.clock()
	before := now.Add(-2 * c.cfg.Settle).UnixNano()
	if final {
		before = math.MaxInt64
	}
	c.mu.Lock()
	c.builder.Resolve(now.UnixNano(), final)
	list := c.builder.Take(before)
	stats := c.builder.Stats()
	c.mu.Unlock()
	c.count(ctx, &stats)
	out := stackprofile.Profiles(list, func(s pcommon.InstrumentationScope) {
		s.SetName(metadata.ScopeName)
		s.SetVersion(c.version)
	})
	if out.SampleCount() > 0 {
		c.queue.Add(out)
	}
	if final {
		c.queue.Drain(ctx)
		return
	}
	_ = c.queue.Flush(ctx) // what is rejected is sent again
}

// maxWaiting is how many rejected profiles wait; then the oldest are dropped. Stores reject
// profiles that are older than an hour.
const maxWaiting = 60

func (c *gpuProfiles) drop(ctx context.Context, samples int) {
	c.tel.ConnectorGpuProfilesDropped.Add(ctx, int64(samples), sharedcomponent.Label("reason", "profiles"))
}

var (
	missing   = sharedcomponent.Label("reason", "missing")
	late      = sharedcomponent.Label("reason", "late")
	idleLate  = sharedcomponent.Label("reason", "idle_late")
	forgotten = sharedcomponent.Label("reason", "forgotten")
	times     = sharedcomponent.Label("reason", "times")
)

func (c *gpuProfiles) count(ctx context.Context, s *stackprofile.Stats) {
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesSpans, s.Spans, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesRepeated, s.Repeated, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesOverflow, s.Overflow, nil)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesIncomplete, s.Incomplete, missing)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesIncomplete, s.Late, late)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesIncomplete, s.Forgotten, forgotten)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesDropped, s.IdleLate, idleLate)
	sharedcomponent.Count(ctx, c.tel.ConnectorGpuProfilesDropped, s.Invalid, times)
}
