// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/countertracker"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/semconv"
)

// outcome is the result of a data point.
type outcome uint8

const (
	written outcome = iota
	unknownMetric
	noDevice
	noValue
	refused
	outOfOrder
	outOfRange
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"written", "unknown_metric", "no_device", "no_value", "refused", "out_of_order",
	"out_of_range",
}

// writer turns data points into samples.
type writer struct {
	cfg       *Config
	id        component.ID
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder
	outcomes  [numOutcomes]metric.MeasurementOption

	mu      sync.Mutex
	out     gpusamplesextension.Writer
	devices map[string]*device // by ID
	loads   gpusamplesextension.LoadCounters
}

// device is the state of one device between two batches.
type device struct {
	desc    gpusamplesextension.Device
	w       gpusamplesextension.DeviceWriter // nil when refused
	retry   time.Time                        // if refused: not before
	last    time.Time
	best    [gpusamplesextension.NumFields]uint8 // lowest rank seen, plus 1
	sums    [gpusamplesextension.NumFields]countertracker.Sum
	xid     float64
	hasXID  bool
	pending map[int64]*gpusamplesextension.Sample // of the current batch, by time
	events  []gpusamplesextension.Event
}

const (
	// retryRefused is the time between two attempts to register a device that another component writes.
	retryRefused = time.Minute
	// forgetAfter is the time without points after which a device is evicted.
	forgetAfter = 10 * time.Minute
)

func newWriter(cfg *Config, set exporter.Settings) (*writer, error) {
	tb, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	x := &writer{cfg: cfg, id: set.ID, logger: set.Logger, telemetry: tb, devices: map[string]*device{}}
	for i := range x.outcomes {
		x.outcomes[i] = sharedcomponent.Label("outcome", outcomeNames[i])
	}
	return x, nil
}

func (x *writer) start(_ context.Context, host component.Host) error {
	out, err := gpusamplesextension.FindWriter(host, x.cfg.Samples)
	x.out = out
	return err
}

func (x *writer) shutdown(context.Context) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, d := range x.devices {
		d.close()
		delete(x.devices, id)
	}
	x.telemetry.Shutdown()
	return nil
}

func (d *device) close() {
	if d.w != nil {
		d.w.Close()
	}
}

// consume writes a batch. It never fails: unknown data is counted.
func (x *writer) consume(ctx context.Context, md pmetric.Metrics) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	var counts [numOutcomes]int64
	for _, rm := range md.ResourceMetrics().All() {
		resource := rm.Resource().Attributes()
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				x.metric(m, resource, now, &counts)
			}
		}
	}
	for id, d := range x.devices {
		d.flush()
		if now.Sub(d.last) > forgetAfter {
			d.close()
			delete(x.devices, id)
		}
	}
	for o, n := range counts {
		sharedcomponent.Count(ctx, x.telemetry.ExporterGpuSamplesPoints, n, x.outcomes[o])
	}
	return nil
}

func (x *writer) metric(m pmetric.Metric, resource pcommon.Map, now time.Time, counts *[numOutcomes]int64) {
	var (
		points pmetric.NumberDataPointSlice
		delta  bool
	)
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		points = m.Gauge().DataPoints()
	case pmetric.MetricTypeSum:
		points = m.Sum().DataPoints()
		delta = m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta
	default:
		counts[unknownMetric]++
		return
	}
	if form, ok := gpusamplesextension.LoadMetric(m.Name()); ok {
		for _, p := range points.All() {
			counts[x.load(p, form, resource)]++
		}
		return
	}
	rules, ok := rulesOf(m.Name())
	if !ok {
		counts[unknownMetric] += int64(points.Len())
		return
	}
	for _, p := range points.All() {
		counts[x.point(p, rules, delta, resource, now)]++
	}
}

// load writes how many requests a server runs.
func (x *writer) load(p pmetric.NumberDataPoint, form gpusamplesextension.LoadForm, resource pcommon.Map) outcome {
	v := p.DoubleValue()
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		v = float64(p.IntValue())
	}
	if p.Flags().NoRecordedValue() || !(v >= 0) || p.Timestamp() == 0 {
		return noValue
	}
	out, ok := x.out.(gpusamplesextension.LoadWriter)
	if !ok {
		return unknownMetric
	}
	text := func(m pcommon.Map, key string) string {
		if v, ok := m.Get(key); ok {
			return v.AsString()
		}
		return ""
	}
	s := gpusamplesextension.LoadSeries{Service: text(resource, string(semconv.ServiceNameKey))}
	labels := make([]string, 0, p.Attributes().Len()+1)
	for k, v := range p.Attributes().All() {
		labels = append(labels, k+"="+v.AsString())
	}
	slices.Sort(labels)
	s.Source = text(resource, "service.instance.id") + "{" + strings.Join(labels, ",")
	x.loads.Write(out, s, form, int64(p.Timestamp()), v)
	return written
}

// unknownValue is above what any device counts to. DCGM writes larger integers (DCGM_INT64_BLANK, 2^63 - 16) for
// unknown values; added to a sum, one of them would take up the precision of everything that follows.
const unknownValue = 1 << 62

func (x *writer) point(p pmetric.NumberDataPoint, rules []rule, delta bool, resource pcommon.Map,
	now time.Time,
) outcome {
	v := p.DoubleValue()
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		v = float64(p.IntValue())
	}
	if p.Flags().NoRecordedValue() || !(math.Abs(v) < unknownValue) || p.Timestamp() == 0 {
		return noValue
	}
	i := slices.IndexFunc(rules, func(r rule) bool { return r.matches(p.Attributes()) })
	if i < 0 {
		return unknownMetric
	}
	desc, ok := x.cfg.describe(p.Attributes(), resource, rules[i].label)
	if !ok {
		return noDevice
	}
	d := x.device(desc, now)
	if d.w == nil {
		return refused
	}
	return d.take(&rules[i], int64(p.StartTimestamp()), int64(p.Timestamp()), v, delta)
}

// device finds or registers a device.
func (x *writer) device(said gpusamplesextension.Device, now time.Time) *device {
	d := x.devices[said.ID]
	if d == nil {
		d = &device{
			desc:    gpusamplesextension.Device{ID: said.ID, Ordinal: -1},
			pending: map[int64]*gpusamplesextension.Sample{},
		}
		x.devices[said.ID] = d
	}
	d.last = now
	if learned := d.learn(&said); d.w != nil && !learned || d.w == nil && now.Before(d.retry) {
		return d
	}
	w, err := x.out.Register(x.id, d.desc)
	if err != nil {
		log := x.logger.Warn
		if !d.retry.IsZero() {
			log = x.logger.Debug // logged before
		}
		log("Device samples are not kept", zap.String("hw.id", said.ID), zap.Error(err))
		d.w, d.retry = nil, now.Add(retryRefused)
		return d
	}
	d.w, d.retry = w, time.Time{}
	return d
}

// learn takes over what a data point states about the device and reports whether it is new. Not every metric has all
// attributes: by the semantic conventions hw.energy has no model.
func (d *device) learn(said *gpusamplesextension.Device) (learned bool) {
	known := &d.desc
	for _, x := range [...]struct{ known, said *string }{
		{&known.Parent, &said.Parent},
		{&known.Name, &said.Name},
		{&known.Model, &said.Model},
		{&known.Vendor, &said.Vendor},
		{&known.DriverVersion, &said.DriverVersion},
		{&known.PCIBDF, &said.PCIBDF},
		{&known.HostName, &said.HostName},
		{&known.HostID, &said.HostID},
		{&known.Source, &said.Source},
		{&known.MIG.Profile, &said.MIG.Profile},
	} {
		if *x.said != "" && *x.said != *x.known {
			*x.known, learned = *x.said, true
		}
	}
	if said.Ordinal >= 0 && said.Ordinal != known.Ordinal {
		known.Ordinal, learned = said.Ordinal, true
	}
	return learned
}

// take converts one value to the sample of its time.
func (d *device) take(r *rule, start, t int64, v float64, delta bool) outcome {
	if r.xid {
		// The gauge keeps the last XID forever; the time of its first value is unknown.
		if d.hasXID && v != d.xid && v > 0 {
			d.events = append(d.events, gpusamplesextension.Event{
				Time: t, Kind: gpusamplesextension.EventXID, Code: int64(v),
				Count: 1,
			})
		}
		d.xid, d.hasXID = v, true
		return written
	}
	sum := &d.sums[r.field]
	summed := r.form == gpuquantity.Rate || r.form == gpuquantity.Totals || delta
	if summed && v < 0 {
		return noValue
	}
	if r.positive && v == 0 || r.label != "" && v == -1 {
		return noValue
	}
	if !r.field.Valid(v * r.scale) {
		return outOfRange
	}
	best := &d.best[r.field]
	if *best == 0 || r.rank+1 < *best {
		*best = r.rank + 1
	}
	if r.rank+1 > *best {
		return written
	}
	v *= r.scale
	switch {
	case r.field == gpusamplesextension.Throttle:
		v = float64(uint64(v) & uint64(gpusamplesextension.ThrottleReasons))
	case summed && !sum.Newer(t):
		return outOfOrder // it would get the sum of a later time
	case r.form == gpuquantity.Rate:
		v = sum.AddRate(t, v, 0)
	case delta:
		v = sum.AddDelta(t, v)
	case r.form == gpuquantity.Totals:
		v = sum.AddCounter(t, start, v)
	}
	s := d.pending[t]
	if s == nil {
		s = &gpusamplesextension.Sample{Time: t}
		d.pending[t] = s
	}
	if r.highest {
		v = max(v, s.Values[r.field])
	}
	s.Set(r.field, v)
	return written
}

// flush writes the points of the batch in order of time.
func (d *device) flush() {
	if d.w == nil || len(d.pending)+len(d.events) == 0 {
		return
	}
	samples := make([]gpusamplesextension.Sample, 0, len(d.pending))
	for _, t := range slices.Sorted(maps.Keys(d.pending)) {
		samples = append(samples, *d.pending[t])
	}
	d.w.Write(samples)
	d.w.WriteEvents(d.events)
	clear(d.pending)
	d.events = d.events[:0]
}
