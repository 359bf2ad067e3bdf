// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/receiver"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/jobspans"
	"github.com/otelgpu/otelgpu/internal/ncclinspector"
	"github.com/otelgpu/otelgpu/internal/regularfile"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// collectives is the receiver. Its state belongs to one goroutine.
type collectives struct {
	cfg     *Config
	log     *zap.Logger
	tel     *metadata.TelemetryBuilder
	metrics *metrics
	logs    logs
	files   *tails
	dumps   *dumps
	spans   *jobspans.Newest // nil: none

	counted struct{ records, overflow, bad, refused int64 }
	failing map[string]bool // what was logged and has not ended
	start   sync.Once
	stop    sync.Once
	cancel  context.CancelFunc
	running sync.WaitGroup
	forget  func()
}

func newReceiver(set receiver.Settings, cfg *Config, forget func()) (*collectives, error) {
	tel, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	instance := sharedcomponent.InstanceID("", connector.Settings{ID: set.ID, TelemetrySettings: set.TelemetrySettings})
	c := &collectives{
		cfg: cfg, log: set.Logger, tel: tel, metrics: newMetrics(cfg, instance), failing: map[string]bool{}, forget: forget,
		logs: logs{version: set.BuildInfo.Version},
	}
	if i := cfg.Inspector.Get(); i != nil {
		c.files = &tails{include: i.Include, max: i.MaxFiles, job: ncclinspector.NewJob(false)}
	}
	if f := cfg.FlightRecorder.Get(); f != nil {
		c.dumps = &dumps{cfg: f}
	}
	return c, nil
}

// Start begins to follow files.
func (c *collectives) Start(_ context.Context, host component.Host) (err error) {
	c.start.Do(func() {
		if c.cfg.Samples != nil {
			var reader devicesamples.Reader
			if reader, err = devicesamples.FindReader(host, *c.cfg.Samples); err != nil {
				return
			}
			if s, ok := reader.(jobspans.Source); ok {
				c.spans = s.JobSpans()
			}
		}
		ctx, cancel := context.WithCancel(context.Background())
		c.cancel = cancel
		c.running.Go(func() { c.run(ctx) })
	})
	return err
}

// Shutdown reads what was written until now, and stops.
func (c *collectives) Shutdown(ctx context.Context) error {
	var err error
	c.stop.Do(func() {
		if c.cancel != nil {
			c.cancel()
			err = sharedcomponent.Wait(ctx, &c.running)
		}
		if err == nil {
			if c.cancel != nil {
				err = sharedcomponent.Within(ctx, func() error {
					c.poll(context.WithoutCancel(ctx), time.Now(), true)
					return nil
				})
			}
			if c.files != nil && err == nil {
				c.files.close()
			}
		}
		c.tel.Shutdown()
		c.forget()
	})
	return err
}

func (c *collectives) run(ctx context.Context) {
	if i := c.cfg.Inspector.Get(); i != nil {
		c.files.read(i.StartAt == StartAtEnd)
	}
	c.poll(ctx, time.Now(), false)
	tick := time.NewTicker(c.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			c.poll(ctx, now, false)
		}
	}
}

// poll reads what is new, and sends it.
func (c *collectives) poll(ctx context.Context, now time.Time, final bool) {
	at := c.metrics.clock.At(now)
	if c.files != nil {
		c.inspect(ctx, now, at)
	}
	if c.dumps != nil {
		c.compare(ctx, now, at)
	}
	lost, err := c.metrics.send(ctx, now, final)
	c.drop(ctx, "metrics", int64(lost), err)
	dropped, err := c.logs.send(ctx, final)
	c.drop(ctx, "logs", dropped, err)
}

func (c *collectives) inspect(ctx context.Context, now time.Time, at int64) {
	c.files.read(false)
	job := c.files.job
	r := job.Report(now, c.devices())
	c.metrics.take(&r, at)
	for i := range r.Findings {
		f := &r.Findings[i]
		rec, dropped := c.logs.add(&f.Finding, plog.SeverityNumberWarn, now, now)
		sharedcomponent.PutText(rec.Attributes(), semconv.GPUCollectiveGroupNameKey, f.Group)
		if f.JobRank >= 0 {
			rec.Attributes().PutInt(string(semconv.GPUJobRankKey), f.JobRank)
		}
		c.log.Warn(rec.Body().Str(), zap.String("kind", f.Kind), zap.String("certainty", string(f.Certainty)))
		c.drop(ctx, "logs", dropped, nil)
	}
	last := c.counted
	c.counted.records, c.counted.overflow = job.Records, job.Overflow
	c.counted.bad, c.counted.refused = c.files.bad, c.files.refused
	c.tel.ReceiverCollectivesOperations.Add(ctx, job.Records-last.records)
	c.drop(ctx, "unreadable", c.files.bad-last.bad, c.files.firstBad)
	c.drop(ctx, "max_communicators", job.Overflow-last.overflow, nil)
	c.drop(ctx, "max_files", max(0, c.files.refused-last.refused), nil)
}

// maxRAS is the size in bytes from which on the file of `ras` is ignored.
const maxRAS = 64 << 20

// devices returns the devices of ranks, nil if they are unknown.
func (c *collectives) devices() ncclinspector.Devices {
	path := c.cfg.Inspector.Get().RAS
	if path == "" {
		return nil
	}
	file, err := regularfile.Open(path)
	if err == nil {
		defer file.Close()
		var text []byte
		var d ncclinspector.Devices
		if text, err = io.ReadAll(io.LimitReader(file, maxRAS)); err == nil {
			if d, err = ncclinspector.ReadRAS(text); err == nil {
				return d
			}
		}
	}
	c.warn("ras", fmt.Errorf("cannot read the devices of ranks: %w", err))
	return nil
}

func (c *collectives) compare(ctx context.Context, now time.Time, at int64) {
	for _, r := range c.dumps.lookup(now) {
		c.tel.ReceiverCollectivesDumps.Add(ctx, int64(r.dumps))
		for _, err := range r.errs {
			c.drop(ctx, "dump", 1, err)
		}
		if r.note != "" {
			c.log.Warn("the dumps do not show which rank hangs", zap.String("folder", r.path), zap.Int("dumps", r.dumps),
				zap.String("reason", r.note))
		}
		for i := range r.hangs {
			h := &r.hangs[i]
			c.metrics.hang(h, at)
			rec, dropped := c.logs.hang(h, now)
			if c.spans != nil {
				if s, ok := c.spans.Find(r.path, int64(r.world), slices.Concat(h.Ranks, h.Waiting), rec.Timestamp().AsTime()); ok {
					rec.SetTraceID(s.Trace)
					rec.SetSpanID(s.ID)
				}
			}
			c.log.Warn("a job hangs: "+rec.Body().Str(), zap.String("folder", r.path), zap.String("cause", string(h.Cause)),
				zap.Stringer("trace_id", rec.TraceID()))
			c.drop(ctx, "logs", dropped, nil)
		}
	}
}

// drop counts a loss, and logs its first error.
func (c *collectives) drop(ctx context.Context, reason string, n int64, err error) {
	sharedcomponent.Count(ctx, c.tel.ReceiverCollectivesDropped, n, sharedcomponent.Label("reason", reason))
	c.warn(reason, err)
}

// warn logs an error once until it has ended.
func (c *collectives) warn(what string, err error) {
	if err != nil && !c.failing[what] {
		c.log.Warn("collectives are lost; further losses are counted, not logged", zap.String("reason", what), zap.Error(err))
	}
	c.failing[what] = err != nil
}
