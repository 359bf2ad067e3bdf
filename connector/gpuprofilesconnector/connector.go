// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/consumer/xconsumer"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/stackprofile"
)

// gpuProfiles is the connector: spans in, and profiles out when their window has settled.
type gpuProfiles struct {
	cfg     *Config
	next    xconsumer.Profiles
	log     *zap.Logger
	tel     *metadata.TelemetryBuilder
	version string
	clock   func() time.Time

	mu      sync.Mutex
	builder *stackprofile.Builder

	waiting []pprofile.Profiles // rejected by the next component, the oldest first; of run
	refused bool
	stop    context.CancelFunc
	done    sync.WaitGroup
}

func newConnector(cfg *Config, set connector.Settings, next xconsumer.Profiles) (*gpuProfiles, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	c := &gpuProfiles{
		cfg: cfg, next: next, log: set.Logger, tel: tel, version: set.BuildInfo.Version, clock: time.Now,
		builder: stackprofile.New(cfg.options()),
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

// Capabilities implements consumer.Traces.
func (*gpuProfiles) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Start begins the output.
func (c *gpuProfiles) Start(context.Context, component.Host) error {
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	c.done.Go(func() {
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

// Shutdown writes the remaining windows.
func (c *gpuProfiles) Shutdown(ctx context.Context) error {
	if c.stop == nil {
		c.tel.Shutdown()
		return nil
	}
	c.stop()
	c.stop = nil
	err := sharedcomponent.Wait(ctx, &c.done)
	if err == nil {
		c.done.Go(func() {
			c.flush(ctx, true)
			c.tel.Shutdown()
		})
		err = sharedcomponent.Wait(ctx, &c.done)
	}
	if err != nil {
		return fmt.Errorf("gpu_profiles connector: %w", err)
	}
	return nil
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
		c.waiting = append(c.waiting, out)
	}
	if !final {
		_ = c.send(ctx) // what is rejected is sent again
		return
	}
	ctx, cancel := context.WithTimeout(ctx, resend.DrainTimeout)
	defer cancel()
	_ = resend.Until(ctx, c.send)
	for _, lost := range c.waiting {
		c.drop(ctx, lost.SampleCount())
	}
}

// maxWaiting is how many rejected profiles wait; then the oldest are dropped. Stores reject
// profiles that are older than an hour.
const maxWaiting = 60

// send passes on what is pending. Rejected data is sent again next time, unless the error is
// permanent.
func (c *gpuProfiles) send(ctx context.Context) error {
	for len(c.waiting) > 0 {
		try := pprofile.NewProfiles() // the next component may change it
		c.waiting[0].CopyTo(try)
		err := c.next.ConsumeProfiles(ctx, try)
		if err != nil && !c.refused {
			c.log.Warn("profiles are rejected; further rejections are not logged",
				zap.Int("samples", c.waiting[0].SampleCount()), zap.Error(err))
		} else if err == nil && c.refused {
			c.log.Info("profiles are accepted again")
		}
		c.refused = err != nil
		switch {
		case err == nil:
		case resend.Permanent(err):
			c.drop(ctx, c.waiting[0].SampleCount())
		default:
			for ; len(c.waiting) > maxWaiting; c.waiting = c.waiting[1:] {
				c.drop(ctx, c.waiting[0].SampleCount())
			}
			return err
		}
		c.waiting = c.waiting[1:]
	}
	c.waiting = nil
	return nil
}

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
