// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// durationBuckets are the default boundaries of gpu.operation.duration in seconds, equal to the
// Collector's gpu_metrics: 1 and 3 of each decade from 1 µs to 30 s. Each is a series for each
// operation and device in Prometheus.
var durationBuckets = []float64{
	1e-6, 3e-6, 1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1, 3, 10, 30,
}

// Metrics holds the instruments of a profiler. Counts are reported by callbacks over the tallies,
// so that counting a section costs no instrument; only durations are recorded one by one.
type Metrics struct {
	p         *section.Core
	recorded  map[durationKey]*[]metric.RecordOption // goroutine of the exporter
	sets      sync.Map                               // *opState to *metricAttrs
	Callback  *Farewell
	durations metric.Float64Histogram

	count, items, io, sections, dropped metric.Int64ObservableCounter
	misuses, anomalies, lostLinks       metric.Int64ObservableCounter
	flops                               metric.Float64ObservableCounter
	usage, limit                        metric.Int64ObservableUpDownCounter
	age, errorBound, drift, floor       metric.Float64ObservableGauge
	overhead                            metric.Float64ObservableCounter
}

// NewMetrics creates the instruments. Errors are passed to the error handler: a profiler works
// without metrics.
func NewMetrics(p *section.Core) (m *Metrics) {
	m = &Metrics{p: p, Callback: &Farewell{}, recorded: map[durationKey]*[]metric.RecordOption{}}
	p.MetricsEmitted = m.emitted
	defer p.Guard("instruments were made")
	meter := p.Cfg.Meters.Meter(section.ScopeName, metric.WithInstrumentationVersion(section.Version),
		metric.WithSchemaURL(semconv.SchemaURL))
	k := kit{list: make([]metric.Observable, 0, 15)}
	counter, floatCounter := observables(&k, meter.Int64ObservableCounter), observables(&k, meter.Float64ObservableCounter)
	upDown, gauge := observables(&k, meter.Int64ObservableUpDownCounter), observables(&k, meter.Float64ObservableGauge)
	if p.Cfg.Metrics != settings.MetricsOff {
		h, err := meter.Float64Histogram(semconv.GPUOperationDurationName, metric.WithUnit(semconv.GPUOperationDurationUnit),
			metric.WithDescription(semconv.GPUOperationDurationDescription),
			metric.WithExplicitBucketBoundaries(durationBuckets...))
		k.check(err)
		m.durations = h
		m.count = counter(semconv.GPUOperationCountName, semconv.GPUOperationCountUnit, semconv.GPUOperationCountDescription)
		m.items = counter(semconv.GPUOperationItemsName, semconv.GPUOperationItemsUnit, semconv.GPUOperationItemsDescription)
		m.io = counter(semconv.GPUOperationIOName, semconv.GPUOperationIOUnit, semconv.GPUOperationIODescription)
		m.flops = floatCounter(semconv.GPUOperationFLOPSName, semconv.GPUOperationFLOPSUnit,
			semconv.GPUOperationFLOPSDescription)
	}
	m.sections = counter(semconv.GpuspanSectionsName, semconv.GpuspanSectionsUnit, semconv.GpuspanSectionsDescription)
	m.dropped = counter(semconv.GpuspanDroppedName, semconv.GpuspanDroppedUnit, semconv.GpuspanDroppedDescription)
	m.lostLinks = counter(semconv.GpuspanLinksDroppedName, semconv.GpuspanLinksDroppedUnit,
		semconv.GpuspanLinksDroppedDescription)
	m.misuses = counter(semconv.GpuspanMisusesName, semconv.GpuspanMisusesUnit, semconv.GpuspanMisusesDescription)
	m.anomalies = counter(semconv.GpuspanClockAnomaliesName, semconv.GpuspanClockAnomaliesUnit,
		semconv.GpuspanClockAnomaliesDescription)
	m.usage = upDown(semconv.GpuspanPoolUsageName, semconv.GpuspanPoolUsageUnit, semconv.GpuspanPoolUsageDescription)
	m.limit = upDown(semconv.GpuspanPoolLimitName, semconv.GpuspanPoolLimitUnit, semconv.GpuspanPoolLimitDescription)
	m.age = gauge(semconv.GpuspanPendingAgeName, semconv.GpuspanPendingAgeUnit, semconv.GpuspanPendingAgeDescription)
	m.errorBound = gauge(semconv.GpuspanTimingErrorName, semconv.GpuspanTimingErrorUnit,
		semconv.GpuspanTimingErrorDescription)
	m.drift = gauge(semconv.GpuspanClockDriftName, semconv.GpuspanClockDriftUnit, semconv.GpuspanClockDriftDescription)
	m.floor = gauge(semconv.GpuspanFloorDurationName, semconv.GpuspanFloorDurationUnit,
		semconv.GpuspanFloorDurationDescription)
	m.overhead = floatCounter(semconv.GpuspanOverheadDurationName, semconv.GpuspanOverheadDurationUnit,
		semconv.GpuspanOverheadDurationDescription)
	if k.failed == nil {
		m.Callback.live.Store(m)
		var entry metric.Registration
		if entry, k.failed = meter.RegisterCallback(m.Callback.observe, k.list...); entry != nil {
			m.Callback.entry.Store(&entry)
		}
	}
	if k.failed != nil {
		p.Errors.Report("metrics", fmt.Errorf("cannot create an instrument: %w", k.failed))
	}
	return m
}

// kit holds the created instruments, and the first error.
type kit struct {
	list   []metric.Observable
	failed error
}

func (k *kit) check(err error) {
	k.failed = cmp.Or(k.failed, err)
}

// observables creates instruments of a kind. What metric.WithUnit returns is an option of each.
func observables[I metric.Observable, O any](k *kit, create func(string, ...O) (I, error)) func(n, u, text string) I {
	return func(name, unit, text string) I {
		i, err := create(name, any(metric.WithUnit(unit)).(O), any(metric.WithDescription(text)).(O))
		k.check(err)
		k.list = append(k.list, i)
		return i
	}
}

// emitted reports whether a MeterProvider receives the durations at present. Without one no metrics
// leave the process, so the consumer of the spans must compute them.
func (m *Metrics) emitted() bool {
	return m.durations != nil && m.durations.Enabled(context.Background())
}

// attributesOf makes the attribute sets of an operation, once.
func (m *Metrics) attributesOf(st *section.OpState) *metricAttrs {
	if a, ok := m.sets.Load(st); ok {
		return a.(*metricAttrs)
	}
	i := &st.Cfg.Info
	kv := []attribute.KeyValue{semconv.GPUOperationNameKey.String(i.Name), semconv.GPUOperationTypeKey.String(i.Type)}
	kv = spanattr.AppendStated(kv, semconv.GPUOperationCategoryKey, i.Category)
	with := func(k attribute.Key, v string) []metric.ObserveOption {
		return []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(
			spanattr.AppendStated(slices.Clone(kv), k, v)...))}
	}
	a := &metricAttrs{base: kv, count: with("", ""), items: with(semconv.GPUOperationItemTypeKey, i.ItemType)}
	for d := range a.io {
		a.io[d] = with(semconv.GPUCopyDirectionKey, work.Direction(d).String())
	}
	for f := range a.flops {
		a.flops[f] = with(semconv.GPUFLOPPrecisionKey, work.Precision(f).String())
	}
	first, _ := m.sets.LoadOrStore(st, a)
	return first.(*metricAttrs)
}

// duration records a resolved section. ctx carries its span, so that a sampled one becomes an
// exemplar.
func (m *Metrics) duration(ctx context.Context, r *section.Record, s *section.Stream) {
	if m.durations == nil || !r.Timed || !m.durations.Enabled(ctx) {
		return // host times are not GPU durations: the work that a section launched may not even have started at its End
	}
	key := durationKey{op: r.Op, device: s.Device, status: r.Status}
	opt := m.recorded[key]
	if opt == nil {
		kv := append([]attribute.KeyValue(nil), m.attributesOf(r.Op).base...)
		if s.Device != nil {
			kv = append(kv, s.Device.Attrs...)
		}
		kv = append(kv, semconv.GPUTimingStatusKey.String(r.Status.String()))
		opt = &[]metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(kv...))}
		m.recorded[key] = opt
	}
	m.durations.Record(ctx, r.GPU/1e9, *opt...)
}

type durationKey struct {
	op     *section.OpState
	device *section.Device
	status section.TimingStatus
}

// Farewell is the callback of a profiler's instruments, which its MeterProvider keeps. The provider
// collects once more when it shuts down, after the profiler does, and counters must not fall: so
// after Shutdown the callback continues to report the last values, without keeping the profiler
// alive, and unregisters itself after a few collections.
type Farewell struct {
	live  atomic.Pointer[Metrics]
	last  atomic.Pointer[[]func(metric.Observer)]
	told  atomic.Int32
	entry atomic.Pointer[metric.Registration]
}

// LastCollections is the number of collections, by any reader, that report the values of a profiler
// after its shutdown.
const LastCollections = 4

func (f *Farewell) observe(ctx context.Context, o metric.Observer) error {
	if m := f.live.Load(); m != nil {
		return m.observe(ctx, o)
	}
	if last := f.last.Load(); last != nil {
		for _, tell := range *last {
			tell(o)
		}
	}
	if entry := f.entry.Load(); entry != nil && f.told.Add(1) == LastCollections {
		go func() { _ = (*entry).Unregister() }() // not from within: the provider holds its lock
	}
	return nil
}

// Freeze keeps the values and releases the profiler.
func (f *Farewell) Freeze(ctx context.Context) {
	m := f.live.Load()
	if m == nil {
		return
	}
	defer m.p.Guard("the last figures were taken")
	var n notes
	_ = m.observe(ctx, &n)
	f.last.Store(&n.list)
	f.live.Store(nil)
}

// notes are observations to report later.
type notes struct {
	embedded.Observer
	list []func(metric.Observer)
}

func (n *notes) ObserveFloat64(i metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	n.list = append(n.list, func(o metric.Observer) { o.ObserveFloat64(i, v, opts...) })
}

func (n *notes) ObserveInt64(i metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	n.list = append(n.list, func(o metric.Observer) { o.ObserveInt64(i, v, opts...) })
}

// metricAttrs are the attribute sets of an operation's data points, made once.
type metricAttrs struct {
	base  []attribute.KeyValue
	count []metric.ObserveOption
	items []metric.ObserveOption
	io    [work.Directions][]metric.ObserveOption
	flops [work.Precisions][]metric.ObserveOption
}
