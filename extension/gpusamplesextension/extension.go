// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/jobspans"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// samples is the extension: a Store whose counters are observed.
type samples struct {
	*devicesamples.Store
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
	meters    servermetrics.Meters
	jobs      jobspans.Newest
	servers   []ServerConfig
	client    http.Client
	cancel    context.CancelFunc
	scrapers  sync.WaitGroup
}

func newSamples(cfg Config, set component.TelemetrySettings) (*samples, error) {
	tb, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	store := devicesamples.NewStore(cfg.bounds(), nil)
	x := &samples{Store: store, telemetry: tb, logger: set.Logger, servers: cfg.Servers}
	x.SetLogger(set.Logger)
	x.meters.Logger = set.Logger
	return x, x.observe()
}

// Start implements component.Component. Rings are ready from the beginning; the servers are read
// from now on.
func (x *samples) Start(context.Context, component.Host) error {
	if len(x.servers) == 0 {
		return nil
	}
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(context.Background())
	x.client.Transport = &http.Transport{MaxIdleConnsPerHost: 1}
	for _, s := range x.servers {
		s.Interval = cmp.Or(s.Interval, time.Second)
		one := &scraper{
			cfg: s, client: &x.client, out: x.Store, logger: x.logger, meter: x.meters.New(identityOf(&s)),
			waiting: startingReadings,
		}
		x.scrapers.Go(func() { one.run(ctx) })
	}
	return nil
}

// Meters returns the meters of servers, for other readers of their metrics.
func (x *samples) Meters() *servermetrics.Meters { return &x.meters }

// JobSpans implements jobspans.Source.
func (x *samples) JobSpans() *jobspans.Newest { return &x.jobs }

// ServerMetrics implements servermetrics.Source.
func (x *samples) ServerMetrics(dst pmetric.MetricSlice, now int64) {
	view := x.Acquire()
	x.meters.Measure(view, x.Store)
	view.Release()
	x.meters.Append(dst, now)
}

// Ready implements extensioncapabilities.PipelineWatcher: it is called when all pipelines run. The
// Collector silently ignores components that are in no pipeline, so this is where a forgotten `gpu`
// receiver is noticed.
func (x *samples) Ready() error {
	if !x.Requested() {
		x.logger.Warn(
			"Nothing writes device samples, so no span will be joined (list a `gpu` receiver, or the `gpu_samples` " +
				"exporter, in a pipeline, and name this extension in its `samples`)")
	}
	return nil
}

func (*samples) NotReady() error { return nil }

func (x *samples) Shutdown(ctx context.Context) error {
	if x.cancel != nil {
		x.cancel()
		if err := sharedcomponent.Wait(ctx, &x.scrapers); err != nil {
			return fmt.Errorf("gpu_samples extension: %w", err)
		}
		x.client.CloseIdleConnections()
	}
	x.telemetry.Shutdown()
	return nil
}

// observe binds the store's counters to the extension's own metrics, so that the write path only
// adds.
func (x *samples) observe() error {
	tel := x.telemetry
	counts := func(of map[string]func() int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			for reason, n := range of {
				o.Observe(n(), sharedcomponent.Label("reason", reason))
			}
			return nil
		}
	}
	value := func(of func() int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			o.Observe(of())
			return nil
		}
	}
	s := &x.Stats
	return errors.Join(
		tel.RegisterExtensionGpuSamplesWrittenCallback(value(s.Written.Load)),
		tel.RegisterExtensionGpuSamplesDroppedCallback(counts(map[string]func() int64{
			"duplicate":      s.Duplicate.Load,
			"out_of_order":   s.OutOfOrder.Load,
			"future":         s.Future.Load,
			"not_registered": s.NotRegistered.Load,
			"load":           s.LoadDropped.Load,
		})),
		tel.RegisterExtensionGpuSamplesEvictedCallback(counts(map[string]func() int64{
			"age":   s.EvictedAge.Load,
			"bytes": s.EvictedBytes.Load,
		})),
		tel.RegisterExtensionGpuSamplesMissesCallback(counts(map[string]func() int64{
			"unknown_device": s.MissUnknown.Load,
			"too_old":        s.MissOld.Load,
			"too_new":        s.MissNew.Load,
		})),
		tel.RegisterExtensionGpuSamplesContradictionsCallback(func(_ context.Context, o metric.Int64Observer) error {
			for _, e := range x.ContradictionEntries() {
				o.Observe(e.Count, metric.WithAttributes(
					attribute.String("source", e.Source), attribute.String("reason", e.Reason)))
			}
			return nil
		}),
		tel.RegisterExtensionGpuSamplesUsesDroppedCallback(value(s.UsesDropped.Load)),
		tel.RegisterExtensionGpuSamplesMemoryCallback(value(x.Bytes)),
		tel.RegisterExtensionGpuSamplesDevicesCallback(value(x.Devices)),
	)
}
