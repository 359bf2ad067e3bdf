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
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// samples is the extension: a Store whose counters are observed.
type samples struct {
	*Store
	telemetry *metadata.TelemetryBuilder
	logger    *zap.Logger
	servers   []ServerConfig
	client    http.Client
	cancel    context.CancelFunc
	scrapers  sync.WaitGroup
}

var (
	_ Writer     = (*samples)(nil)
	_ Reader     = (*samples)(nil)
	_ UseReader  = (*samples)(nil)
	_ LoadWriter = (*samples)(nil)
	_ LoadReader = (*samples)(nil)
)

func newSamples(cfg Config, set component.TelemetrySettings) (*samples, error) {
	tb, err := metadata.NewTelemetryBuilder(set)
	if err != nil {
		return nil, err
	}
	x := &samples{Store: NewStore(cfg, nil), telemetry: tb, logger: set.Logger, servers: cfg.Servers}
	x.ledger.Logger = set.Logger
	return x, x.observe()
}

// Start implements component.Component. Rings are ready from the beginning; the servers are read from now on.
func (x *samples) Start(context.Context, component.Host) error {
	if len(x.servers) == 0 {
		return nil
	}
	var ctx context.Context
	ctx, x.cancel = context.WithCancel(context.Background())
	x.client.Transport = &http.Transport{MaxIdleConnsPerHost: 1}
	for _, s := range x.servers {
		s.Interval = cmp.Or(s.Interval, time.Second)
		one := &scraper{cfg: s, client: &x.client, out: x.Store, logger: x.logger}
		x.scrapers.Go(func() { one.run(ctx) })
	}
	return nil
}

// Ready implements extensioncapabilities.PipelineWatcher: it is called when all pipelines run. The Collector silently
// ignores components that are in no pipeline, so this is where a forgotten `gpu` receiver is noticed.
func (x *samples) Ready() error {
	if !x.written.Load() {
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

// observe binds the store's counters to the extension's own metrics, so that the write path only adds.
func (x *samples) observe() error {
	st, tel := &x.stats, x.telemetry
	counts := func(of map[string]*atomic.Int64) metric.Int64Callback {
		return func(_ context.Context, o metric.Int64Observer) error {
			for reason, n := range of {
				o.Observe(n.Load(), sharedcomponent.Label("reason", reason))
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
	locked := func(of func() int64) metric.Int64Callback {
		return value(func() int64 {
			x.mu.RLock()
			defer x.mu.RUnlock()
			return of()
		})
	}
	return errors.Join(
		tel.RegisterExtensionGpuSamplesWrittenCallback(value(st.written.Load)),
		tel.RegisterExtensionGpuSamplesDroppedCallback(counts(map[string]*atomic.Int64{
			"duplicate": &st.duplicate, "out_of_order": &st.outOfOrder, "future": &st.future, "not_registered": &st.closed,
			"load": &x.loads.dropped,
		})),
		tel.RegisterExtensionGpuSamplesEvictedCallback(counts(map[string]*atomic.Int64{
			"age": &st.evictedAge, "bytes": &st.evictedBytes,
		})),
		tel.RegisterExtensionGpuSamplesMissesCallback(counts(map[string]*atomic.Int64{
			"unknown_device": &st.missUnknown, "too_old": &st.missOld, "too_new": &st.missNew,
		})),
		tel.RegisterExtensionGpuSamplesContradictionsCallback(func(_ context.Context, o metric.Int64Observer) error {
			for _, e := range x.ledger.Entries() {
				o.Observe(e.Count, metric.WithAttributes(
					attribute.String("source", e.Source), attribute.String("reason", e.Reason)))
			}
			return nil
		}),
		tel.RegisterExtensionGpuSamplesUsesDroppedCallback(value(x.uses.dropped.Load)),
		tel.RegisterExtensionGpuSamplesMemoryCallback(locked(func() int64 { return x.bytes })),
		tel.RegisterExtensionGpuSamplesDevicesCallback(locked(func() int64 { return int64(len(x.devices)) })),
	)
}

// Writer is the interface of the extension for components that produce samples.
type Writer interface {
	// Register announces a device and returns a writer for its samples. If the same owner registers a device again, its
	// series continue with the new description, and the earlier DeviceWriter stops working. It returns an error for an
	// empty ID, for a device that another owner writes, and for a device over `max_devices`, together with a
	// DeviceWriter that drops and counts everything (`not_registered`).
	Register(owner component.ID, d Device) (DeviceWriter, error)
	UseWriter
	Contradictions
}

// Contradictions is the interface of the extension for components that compare device values with others. What they
// report is counted in one metric, logged once, and listed on the page.
type Contradictions interface {
	// Contradict reports one contradiction.
	Contradict(c plausibility.Contradiction)
	// ContradictionEntries returns the contradictions so far, one entry for each source and reason.
	ContradictionEntries() []plausibility.Entry
}

// DeviceWriter writes the samples of one device. Its methods can be called from several goroutines.
type DeviceWriter interface {
	// Write appends samples, oldest first. A field whose newest point is not older than the sample is dropped and counted
	// (`duplicate` or `out_of_order`), so overlapping reads do no harm.
	Write(samples []Sample)
	// WriteEvents appends events in any order.
	WriteEvents(events []Event)
	// Close releases the device. Its samples stay until they are too old. Later writes do nothing.
	Close()
}

// Reader is the interface of the extension for gpu_join.
type Reader interface {
	// Lease makes the caller the only join on these samples until release is called, because two joins would attribute
	// the same energy twice. It returns an error that names the current owner if there is one.
	Lease(owner component.ID) (release func(), err error)
	// Acquire takes the read lock for a batch of lookups. The View is valid until its Release, which the caller must
	// call.
	Acquire() View
	// Subscribe returns a channel that receives after samples were written; notifications are merged, never queued.
	Subscribe() (wake <-chan struct{}, cancel func())
}

// FindWriter returns the extension id as a Writer. It returns an error if the host has no such extension or if it is
// of another type.
func FindWriter(host component.Host, id component.ID) (Writer, error) {
	w, err := find[Writer](host, id)
	if x, ok := w.(*samples); ok {
		x.written.Store(true)
	}
	return w, err
}

// FindReader returns the extension id as a Reader, with the errors of [FindWriter].
func FindReader(host component.Host, id component.ID) (Reader, error) { return find[Reader](host, id) }

func find[T any](host component.Host, id component.ID) (T, error) {
	var none T
	ext, ok := host.GetExtensions()[id]
	if !ok {
		return none,
			fmt.Errorf("cannot find extension %q (define it under `extensions` and list it under `service::extensions`)", id)
	}
	t, ok := ext.(T)
	if !ok {
		return none, fmt.Errorf("extension %q has no device samples (use an extension of type gpu_samples)", id)
	}
	return t, nil
}
