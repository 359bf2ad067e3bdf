// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"context"
	"errors"
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/internal/zerofirst"
	"github.com/otelgpu/otelgpu/semconv"
)

// meters hold the metrics, by the OpenTelemetry SDK, one provider for each resource. The points carry the time of the
// output: requests are counted when their accounts are closed.
type meters struct {
	cfg      *Config
	instance attribute.KeyValue
	of       map[attribute.Distinct]*meter
	written  time.Time // the last output
	begun    []begun   // by the last output: with a point of 0
}

// begun is a series of a meter.
type begun struct {
	of *meter
	series
}

// meter is the metrics of one resource.
type meter struct {
	attrs  pcommon.Map
	reader *sdk.ManualReader
	seen   int64
	begun  map[series]bool // a point of it was written

	duration, energy, items, itemEnergy, queue, firstItem metric.Float64Histogram
}

// bounds are 1, 2 and 5 of each decade from one power of ten to another.
func bounds(first, last int) (out []float64) {
	for e := first; e < last; e++ {
		for _, digit := range []string{"1e", "2e", "5e"} {
			x, _ := strconv.ParseFloat(digit+strconv.Itoa(e), 64) // a product would be a neighbour of the decimal
			out = append(out, x)
		}
	}
	return append(out, math.Pow10(last))
}

var (
	secondBounds = bounds(-4, 2)
	jouleBounds  = bounds(-3, 5)
	itemBounds   = bounds(0, 6)
)

func newMeters(cfg *Config, instance string) *meters {
	return &meters{
		cfg: cfg, instance: semconv.CollectorInstanceIDKey.String(instance), of: make(map[attribute.Distinct]*meter),
	}
}

// get is the meter of a source.
func (m *meters) get(s *source, now int64) (*meter, error) {
	if x := m.of[s.id]; x != nil {
		x.seen = now
		return x, nil
	}
	if len(m.of) >= m.cfg.MaxResources {
		var oldest attribute.Distinct
		at := int64(math.MaxInt64)
		for id, x := range m.of {
			if x.seen < at {
				oldest, at = id, x.seen
			}
		}
		delete(m.of, oldest)
	}
	temporality := sdk.DefaultTemporalitySelector
	if m.cfg.Temporality == TemporalityDelta {
		temporality = sdk.DeltaTemporalitySelector
	}
	x := &meter{
		attrs: s.attrs, seen: now, begun: make(map[series]bool),
		reader: sdk.NewManualReader(sdk.WithTemporalitySelector(temporality)),
	}
	opts := []sdk.Option{sdk.WithReader(x.reader), sdk.WithCardinalityLimit(m.cfg.CardinalityLimit)}
	if e := m.cfg.Exponential.Get(); e != nil {
		opts = append(opts, sdk.WithView(sdk.NewView(sdk.Instrument{Kind: sdk.InstrumentKindHistogram},
			sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: int32(e.MaxSize), MaxScale: 20}})))
	}
	mt := sdk.NewMeterProvider(opts...).Meter("")
	var errs []error
	histogram := func(name string, b []float64) metric.Float64Histogram {
		def, _ := semconv.LookupMetric(name)
		h, err := mt.Float64Histogram(name, metric.WithUnit(def.Unit), metric.WithDescription(def.Description()),
			metric.WithExplicitBucketBoundaries(b...))
		errs = append(errs, err)
		return h
	}
	x.duration = histogram(semconv.GPURequestDurationName, secondBounds)
	x.energy = histogram(semconv.GPURequestEnergyName, jouleBounds)
	x.items = histogram(semconv.GPURequestItemsName, itemBounds)
	x.itemEnergy = histogram(semconv.GPURequestItemEnergyName, jouleBounds)
	x.queue = histogram(semconv.GPURequestQueueDurationName, secondBounds)
	x.firstItem = histogram(semconv.GPURequestTimeToFirstItemName, secondBounds)
	m.of[s.id] = x
	return x, errors.Join(errs...)
}

// record counts closed requests.
func (m *meters) record(closed []*request, now int64) error {
	for _, r := range closed {
		for i := range r.accounts {
			a := &r.accounts[i]
			x, err := m.get(a.source, now)
			if err != nil {
				return err
			}
			set := metric.WithAttributeSet(m.attributes(a.op, r.modelOf(a)))
			ctx := r.exemplar(a)
			if a.time > 0 {
				x.duration.Record(ctx, a.time, set)
			}
			if a.items > 0 {
				x.items.Record(ctx, a.items, set)
			}
			if a.measured {
				x.energy.Record(ctx, a.energy, set)
				if a.items > 0 {
					x.itemEnergy.Record(ctx, a.energy/a.items, set)
				}
			}
		}
		first := r.first()
		if first == nil || r.late {
			continue
		}
		x, err := m.get(first.source, now)
		if err != nil {
			return err
		}
		set := metric.WithAttributeSet(m.attributes(nil, r.modelOf(first)))
		if q := r.queued(first); q > 0 {
			x.queue.Record(r.exemplar(first), q, set)
		}
		if item := r.toFirstItem(); item.after > 0 {
			x.firstItem.Record(r.exemplar(first), item.after, set)
		}
	}
	return nil
}

func (m *meters) attributes(op *operation, model string) attribute.Set {
	kv := append(make([]attribute.KeyValue, 0, 5), m.instance)
	put := func(k attribute.Key, v string) {
		if v != "" {
			kv = append(kv, k.String(v))
		}
	}
	if op != nil {
		put(semconv.GPUOperationNameKey, op.name)
		put(semconv.GPUOperationCategoryKey, op.category)
		put(semconv.GPUOperationItemTypeKey, op.itemType)
	}
	put(semconv.GenAIRequestModelKey, model)
	return attribute.NewSet(kv...)
}

// exemplar is a context that makes the account's span the exemplar of what is recorded; of a request whose trace does
// not exist there is none.
func (r *request) exemplar(a *account) context.Context {
	ctx := context.Background()
	if r.unsampled {
		return ctx
	}
	span := r.Span
	if a.linked {
		span = a.id(r)
	}
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(r.Trace), SpanID: trace.SpanID(span), TraceFlags: trace.FlagsSampled,
	}))
}

// output makes the points of all resources.
func (m *meters) output(ctx context.Context, scope func(pcommon.InstrumentationScope)) (pmetric.Metrics, error) {
	out := pmetric.NewMetrics()
	// Prometheus tells times apart by milliseconds, and refuses all of what has two values of a series at one: there is
	// one for a point of 0 and one for the next.
	if wait := 2*time.Millisecond - time.Since(m.written); wait > 0 {
		time.Sleep(wait)
	}
	clear(m.begun)
	m.begun = m.begun[:0]
	var errs []error
	var rm metricdata.ResourceMetrics
	for _, x := range m.of {
		if err := x.reader.Collect(ctx, &rm); err != nil {
			errs = append(errs, err)
			continue
		}
		if len(rm.ScopeMetrics) == 0 {
			continue
		}
		to := out.ResourceMetrics().AppendEmpty()
		x.attrs.CopyTo(to.Resource().Attributes())
		sm := to.ScopeMetrics().AppendEmpty()
		scope(sm.Scope())
		sm.SetSchemaUrl(semconv.SchemaURL)
		for i := range rm.ScopeMetrics {
			for j := range rm.ScopeMetrics[i].Metrics {
				m.convert(x, &rm.ScopeMetrics[i].Metrics[j], sm.Metrics().AppendEmpty())
			}
		}
	}
	m.written = time.Now()
	return out, errors.Join(errs...)
}

// refused makes the series that began with the last output begin again with the next one.
func (m *meters) refused() {
	for _, s := range m.begun {
		delete(s.of.begun, s.series)
	}
}

// series is one of a meter.
type series struct {
	metric string
	attrs  attribute.Distinct
}

// convert copies a metric of the SDK. A cumulative series begins with a point of 0, without which nobody sees its
// first increase: at its start, but at most zerofirst.Before its first point, and after the output before.
func (m *meters) convert(x *meter, from *metricdata.Metrics, to pmetric.Metric) {
	to.SetName(from.Name)
	to.SetUnit(from.Unit)
	to.SetDescription(from.Description)
	zero := func(t metricdata.Temporality, attrs attribute.Set, start, first time.Time) (at time.Time, begins bool) {
		key := series{from.Name, attrs.Equivalent()}
		if t == metricdata.DeltaTemporality || x.begun[key] {
			return at, false
		}
		x.begun[key] = true
		m.begun = append(m.begun, begun{x, key})
		at = first.Add(-zerofirst.Before(m.cfg.FlushInterval))
		for _, earliest := range [...]time.Time{start, m.written.Add(time.Millisecond)} {
			if at.Before(earliest) {
				at = earliest
			}
		}
		if latest := first.Add(-time.Millisecond); at.After(latest) {
			at = latest
		}
		return at, true
	}
	switch data := from.Data.(type) {
	case metricdata.Histogram[float64]:
		h := to.SetEmptyHistogram()
		h.SetAggregationTemporality(temporalityOf(data.Temporality))
		for i := range data.DataPoints {
			d := &data.DataPoints[i]
			if at, ok := zero(data.Temporality, d.Attributes, d.StartTime, d.Time); ok {
				p := h.DataPoints().AppendEmpty()
				p.ExplicitBounds().FromRaw(d.Bounds)
				p.BucketCounts().FromRaw(make([]uint64, len(d.BucketCounts)))
				dress(p, d.Attributes, d.StartTime, at)
			}
			p := h.DataPoints().AppendEmpty()
			p.ExplicitBounds().FromRaw(d.Bounds)
			p.BucketCounts().FromRaw(d.BucketCounts)
			dress(p, d.Attributes, d.StartTime, d.Time)
			fill(p, d.Count, d.Sum, d.Min, d.Max, d.Exemplars)
		}
	case metricdata.ExponentialHistogram[float64]:
		h := to.SetEmptyExponentialHistogram()
		h.SetAggregationTemporality(temporalityOf(data.Temporality))
		for i := range data.DataPoints {
			d := &data.DataPoints[i]
			if at, ok := zero(data.Temporality, d.Attributes, d.StartTime, d.Time); ok {
				p := h.DataPoints().AppendEmpty()
				p.SetScale(d.Scale)
				dress(p, d.Attributes, d.StartTime, at)
			}
			p := h.DataPoints().AppendEmpty()
			p.SetScale(d.Scale)
			p.SetZeroCount(d.ZeroCount)
			p.Positive().SetOffset(d.PositiveBucket.Offset)
			p.Positive().BucketCounts().FromRaw(d.PositiveBucket.Counts)
			dress(p, d.Attributes, d.StartTime, d.Time)
			fill(p, d.Count, d.Sum, d.Min, d.Max, d.Exemplars)
		}
	}
}

// point is what points of both forms share.
type point interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	SetCount(uint64)
	SetSum(float64)
	SetMin(float64)
	SetMax(float64)
	Attributes() pcommon.Map
	Exemplars() pmetric.ExemplarSlice
}

func dress(p point, attrs attribute.Set, start, at time.Time) {
	if start.After(at) {
		start = at
	}
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	p.SetSum(0)
	attributes(attrs, p.Attributes())
}

func fill(
	p point, count uint64, sum float64, least, most metricdata.Extrema[float64], from []metricdata.Exemplar[float64],
) {
	p.SetCount(count)
	p.SetSum(sum)
	if v, ok := least.Value(); ok {
		p.SetMin(v)
	}
	if v, ok := most.Value(); ok {
		p.SetMax(v)
	}
	exemplars(from, p.Exemplars())
}

func temporalityOf(t metricdata.Temporality) pmetric.AggregationTemporality {
	if t == metricdata.DeltaTemporality {
		return pmetric.AggregationTemporalityDelta
	}
	return pmetric.AggregationTemporalityCumulative
}

func attributes(from attribute.Set, to pcommon.Map) {
	to.EnsureCapacity(from.Len())
	for _, kv := range from.ToSlice() {
		if kv.Value.Type() == attribute.BOOL { // otel.metric.overflow
			to.PutBool(string(kv.Key), kv.Value.AsBool())
			continue
		}
		to.PutStr(string(kv.Key), kv.Value.AsString())
	}
}

func exemplars(from []metricdata.Exemplar[float64], to pmetric.ExemplarSlice) {
	for i := range from {
		e := &from[i]
		if len(e.TraceID) != 16 || len(e.SpanID) != 8 {
			continue // says nothing of whose value it is
		}
		x := to.AppendEmpty()
		x.SetDoubleValue(e.Value)
		x.SetTimestamp(pcommon.NewTimestampFromTime(e.Time))
		x.SetTraceID(pcommon.TraceID(e.TraceID))
		x.SetSpanID(pcommon.SpanID(e.SpanID))
	}
}
