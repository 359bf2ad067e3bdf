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
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/instrument"
	"github.com/otelgpu/otelgpu/internal/servermetrics"
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
	otherType
	unknownUnit
	partWritten
	duplicate
	numOutcomes
)

var outcomeNames = [numOutcomes]string{
	"written", "unknown_metric", "no_device", "no_value", "refused", "out_of_order",
	"out_of_range", "other_hardware", "unknown_unit", "part", "copy",
}

// writer turns data points into samples.
type writer struct {
	cfg       *Config
	id        component.ID
	logger    *zap.Logger
	telemetry *metadata.TelemetryBuilder
	outcomes  [numOutcomes]metric.MeasurementOption

	mu      sync.Mutex
	out     devicesamples.Writer
	devices map[string]*device // by ID
	loads   servermetrics.Counts
	servers map[devicesamples.LoadSeries]*servermetrics.Meter
	uses    map[machine]*hostUses
	unknown map[string]struct{} // of the present batch: names of device metrics without a rule
	warned  bool                // of unknown
}

const (
	// retryRefused is the time between two attempts to register a device that another component
	// writes.
	retryRefused = time.Minute
	// forgetAfter is the time without points after which a device is evicted.
	forgetAfter = 10 * time.Minute
)

func newWriter(cfg *Config, set exporter.Settings) (*writer, error) {
	tb, err := metadata.NewTelemetryBuilder(set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	x := &writer{
		cfg: cfg, id: set.ID, logger: set.Logger, telemetry: tb, devices: map[string]*device{},
		uses: map[machine]*hostUses{}, unknown: map[string]struct{}{},
		servers: map[devicesamples.LoadSeries]*servermetrics.Meter{},
	}
	for i := range x.outcomes {
		x.outcomes[i] = sharedcomponent.Label("outcome", outcomeNames[i])
	}
	return x, nil
}

func (x *writer) start(_ context.Context, host component.Host) error {
	out, err := devicesamples.FindWriter(host, x.cfg.Samples)
	x.out = out
	if all, ok := out.(devicesamples.DivisionStore); ok {
		all.SetDivisions(x.id, x.divisions)
	}
	return err
}

// divisions returns how the energy of all devices was divided so far. Devices whose processes
// another Collector measures are excluded.
func (x *writer) divisions() (all []devicesamples.Division) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(x.devices)) {
		d := x.devices[id]
		if one, ok := d.shares.division(&d.desc); ok && d.desc.Parent == "" && d.w != nil && len(d.remote.users) == 0 {
			all = append(all, one)
		}
	}
	return all
}

func (x *writer) shutdown(context.Context) error {
	if all, ok := x.out.(devicesamples.DivisionStore); ok {
		all.SetDivisions(x.id, nil)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for id, d := range x.devices {
		d.close()
		delete(x.devices, id)
	}
	x.forgetUses()
	x.telemetry.Shutdown()
	return nil
}

// consume writes a batch. It never fails: unknown data is counted.
func (x *writer) consume(ctx context.Context, md pmetric.Metrics) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := time.Now()
	var counts [numOutcomes]int64
	for _, rm := range md.ResourceMetrics().All() {
		from := origin{resource: rm.Resource().Attributes(), now: now}
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				from.newUnits = from.newUnits || newUnits(m.Name())
			}
		}
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				x.metric(m, &from, &counts)
			}
		}
		x.writeServer(from.server, from.resource)
	}
	for _, d := range x.devices {
		d.settle(&counts)
	}
	x.writeUses() // before the samples: see gpu_join's devicesOf
	for id, d := range x.devices {
		d.flush()
		if out, ok := x.out.(devicesamples.ShareWriter); ok && d.w != nil {
			d.remote.write(id, out)
		}
		if now.Sub(d.last) > forgetAfter {
			d.close()
			delete(x.devices, id)
		}
	}
	x.warnUnknown()
	for o, n := range counts {
		sharedcomponent.Count(ctx, x.telemetry.ExporterGpuSamplesPoints, n, x.outcomes[o])
	}
	return nil
}

// origin is what the points of one resource have in common.
type origin struct {
	resource pcommon.Map
	now      time.Time
	server   pages
	newUnits bool // it has names that exist since DCGM 4.7 only
}

func (x *writer) metric(m pmetric.Metric, from *origin, counts *[numOutcomes]int64) {
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
	case pmetric.MetricTypeHistogram:
		known := false
		for _, p := range m.Histogram().DataPoints().All() {
			for suffix, v := range map[string]float64{"_sum": p.Sum(), "_count": float64(p.Count())} {
				if name := m.Name() + suffix; servermetrics.Known(name) {
					known = true
					counts[from.server.put(name, p.Attributes(), p.Timestamp(), v)]++
				}
			}
		}
		if !known {
			counts[unknownMetric]++
		}
		return
	default:
		counts[unknownMetric]++
		return
	}
	if servermetrics.Known(m.Name()) {
		from.server.add(m, points, counts)
		return
	}
	if remoteMetric(m.Name()) {
		for _, p := range points.All() {
			counts[x.remote(m.Name(), p, delta, from)]++
		}
		return
	}
	rules, ok := rulesOf(m.Name())
	if !ok {
		counts[unknownMetric] += int64(points.Len())
		if deviceMetric(m.Name()) && len(x.unknown) < maxUnknown {
			x.unknown[m.Name()] = struct{}{}
		}
		return
	}
	for _, p := range points.All() {
		if o := x.point(p, rules, delta, from); o != waiting {
			counts[o]++
		}
	}
}

const maxUnknown = 8

// deviceMetric reports whether a name looks like a device metric of some exporter.
func deviceMetric(name string) bool {
	name = strings.ToLower(name)
	return strings.HasPrefix(name, "dcgm") || strings.HasPrefix(name, "hw.") || strings.Contains(name, "gpu")
}

// warnUnknown logs once that device metrics arrive under names that no rule has, if no other ones
// do.
func (x *writer) warnUnknown() {
	if !x.warned && len(x.unknown) > 0 && len(x.devices) == 0 {
		x.warned = true
		x.logger.Warn("Device metrics with unknown names are not read (use the names of dcgm-exporter 2 to 4, of AMD's "+
			"exporters or of the semantic conventions, in their spelling)",
			zap.Strings("names", slices.Sorted(maps.Keys(x.unknown))))
	}
	clear(x.unknown)
}

// pages are the metrics of one server, by the time of their points: the metrics of one scrape are a
// page.
type pages map[pcommon.Timestamp]*servermetrics.Page

// add adds the points of a metric of a server.
func (ps *pages) add(m pmetric.Metric, points pmetric.NumberDataPointSlice, counts *[numOutcomes]int64) {
	for _, p := range points.All() {
		v := p.DoubleValue()
		if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
			v = float64(p.IntValue())
		}
		if p.Flags().NoRecordedValue() || !(v >= 0) {
			counts[noValue]++
			continue
		}
		counts[ps.put(m.Name(), p.Attributes(), p.Timestamp(), v)]++
	}
}

func (ps *pages) put(name string, attrs pcommon.Map, t pcommon.Timestamp, v float64) outcome {
	if t == 0 {
		return noValue
	}
	if *ps == nil {
		*ps = pages{}
	}
	page := (*ps)[t]
	if page == nil {
		page = &servermetrics.Page{}
		(*ps)[t] = page
	}
	labels := make(map[string]string, attrs.Len())
	for k, v := range attrs.All() {
		labels[k] = v.AsString()
	}
	page.Add(name, labels, v)
	return written
}

// maxServers bounds the servers that are metered.
const maxServers = 1 << 10

// writeServer writes how many requests a server runs, and meters its tokens and energy.
func (x *writer) writeServer(ps pages, resource pcommon.Map) {
	out, ok := x.out.(devicesamples.LoadWriter)
	if !ok || len(ps) == 0 {
		return
	}
	text := func(key string) string {
		if v, ok := resource.Get(key); ok {
			return v.AsString()
		}
		return ""
	}
	s := devicesamples.LoadSeries{Service: text(string(semconv.ServiceNameKey)), Source: text("service.instance.id")}
	meter := x.servers[s]
	if meter == nil && len(x.servers) >= maxServers {
		maps.DeleteFunc(x.servers, func(_ devicesamples.LoadSeries, m *servermetrics.Meter) bool { return m.Ended() })
	}
	metered, ok := x.out.(interface{ Meters() *servermetrics.Meters })
	if ok && meter == nil && len(x.servers) < maxServers {
		id := servermetrics.Identity{
			Address: s.Source, Namespace: text(string(semconv.K8sNamespaceNameKey)), Pod: text(string(semconv.K8sPodNameKey)),
		}
		id.Workload = devicesamples.Workload{
			Namespace: id.Namespace, Pod: id.Pod, PodUID: text("k8s.pod.uid"), HostName: text("host.name"),
			HostID:      text("host.id"),
			ContainerID: text("container.id"),
		}
		if hw := text(string(semconv.HWIDKey)); hw != "" {
			id.Devices = strings.Split(hw, ",")
		}
		meter = metered.Meters().New(id)
		x.servers[s] = meter
	}
	for _, t := range slices.Sorted(maps.Keys(ps)) {
		x.loads.Write(out, s, ps[t], int64(t))
		if meter != nil {
			meter.Add(ps[t], int64(t))
		}
	}
}

// unknownValue is above what any device counts to. DCGM writes larger integers (DCGM_INT64_BLANK,
// 2^63 - 16) for unknown values; added to a sum, one of them would take up the precision of
// everything that follows.
const unknownValue = 1 << 62

func (x *writer) point(p pmetric.NumberDataPoint, rules []rule, delta bool, from *origin) outcome {
	v, known := number(p, rules[0].field)
	if p.Flags().NoRecordedValue() || !known || p.Timestamp() == 0 {
		return noValue
	}
	i := slices.IndexFunc(rules, func(r rule) bool { return r.matches(p.Attributes()) })
	if i < 0 {
		return unknownMetric
	}
	r := &rules[i]
	if otherHardware(p.Attributes(), from.resource) {
		return otherType
	}
	desc, ok := x.cfg.describe(p.Attributes(), from.resource, r.label)
	if !ok {
		return noDevice
	}
	copied := desc.Parent != "" && !r.own && !r.xid
	if copied {
		// The parent's own description, if its points come too, is better.
		desc = boardOf(&desc)
	}
	if r.instant && v > 0 {
		desc.PowerWindow = instrument.InstantWindow
	}
	d := x.device(desc, from.now)
	if d.w == nil {
		return refused
	}
	value := reading{
		start: int64(p.StartTimestamp()), t: int64(p.Timestamp()), v: v, delta: delta, newUnits: from.newUnits,
	}
	if r.xid {
		return d.take(r, &value)
	}
	d.add(r, &value, p.Attributes(), from.resource, copied)
	return waiting
}

// number returns the value of a point; false if it is not one.
func number(p pmetric.NumberDataPoint, f gpuquantity.Quantity) (float64, bool) {
	v := p.DoubleValue()
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		v = float64(p.IntValue())
	}
	if f != gpuquantity.Throttle || !(v >= -1<<63 && v < 1<<63) {
		return v, math.Abs(v) < unknownValue
	}
	// A mask of 64 bits: DCGM reports it as a signed integer. Unknown values round to 1<<63.
	if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
		return devicesamples.ThrottleMask(uint64(p.IntValue())), true
	}
	return devicesamples.ThrottleMask(uint64(int64(v))), true
}

// device finds or registers a device.
func (x *writer) device(said devicesamples.Device, now time.Time) *device {
	d := x.devices[said.ID]
	if d == nil {
		d = &device{
			// An exporter collects at its own pace, and NVML's usual power is a mean of a second.
			desc: devicesamples.Device{
				ID: said.ID, Ordinal: -1, Refresh: time.Hour, PowerWindow: instrument.MeanWindow,
			},
			out:     x.out,
			groups:  map[groupKey]*group{},
			pending: map[int64]*devicesamples.Sample{},
			shares:  &podShares{},
		}
		if board := x.devices[said.Parent]; board != nil {
			d.shares = board.shares
		}
		for _, o := range x.devices {
			if o.desc.Parent == said.ID {
				o.shares = d.shares
			}
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
