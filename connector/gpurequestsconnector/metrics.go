// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"math"
	"strconv"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/series"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/semconv"
)

// meters holds the metrics of all resources. Points carry the time of the output: requests are
// counted when their usage records are closed.
type meters struct {
	series.Settings
	cfg   *Config
	log   *zap.Logger
	of    map[string]*meter // by the resource of metrics
	lost  int               // series removed before they were written, since the last count
	spans bool              // usage records have a consumer for spans
}

// meter is the metrics of one resource.
type meter struct {
	source   *source // with their attributes
	families [metrics]series.Family
	seen     int64
	written  uint64 // time of the last points, unix ns
}

const (
	metricDuration = iota
	metricEnergy
	metricItems
	metricItemEnergy
	metricQueue
	metricFirstItem
	metricPrefill
	metricDecode
	metrics
)

// bounds returns 1, 2 and 5 of each decade from one power of ten to another.
func bounds(first, last int) (out []float64) {
	for e := first; e < last; e++ {
		for _, digit := range []string{"1e", "2e", "5e"} {
			x, _ := strconv.ParseFloat(digit+strconv.Itoa(e), 64) // a product would differ from the decimal in the last digit
			out = append(out, x)
		}
	}
	return append(out, math.Pow10(last))
}

var (
	secondBounds = bounds(-4, 2)
	jouleBounds  = bounds(-3, 5)
	itemBounds   = bounds(0, 6)

	definitions = [metrics]struct {
		name   string
		bounds []float64
	}{
		metricDuration:   {semconv.GPURequestDurationName, secondBounds},
		metricEnergy:     {semconv.GPURequestEnergyName, jouleBounds},
		metricItems:      {semconv.GPURequestItemsName, itemBounds},
		metricItemEnergy: {semconv.GPURequestItemEnergyName, jouleBounds},
		metricQueue:      {semconv.GPURequestQueueDurationName, secondBounds},
		metricFirstItem:  {semconv.GPURequestTimeToFirstItemName, secondBounds},
		metricPrefill:    {semconv.GPURequestPrefillDurationName, secondBounds},
		metricDecode:     {semconv.GPURequestDecodeDurationName, secondBounds},
	}
)

// maxExemplars of a point; there are about as many buckets.
const maxExemplars = 20

func newMeters(cfg *Config, instance string, log *zap.Logger) *meters {
	m := &meters{cfg: cfg, log: log, of: make(map[string]*meter), Settings: series.Settings{
		Scope: metadata.ScopeName, Instance: instance, Interval: cfg.FlushInterval,
		Delta: cfg.Temporality == TemporalityDelta, CardinalityLimit: cfg.CardinalityLimit,
	}}
	if e := cfg.Histogram.Exponential.Get(); e != nil {
		m.Exponential = e.MaxSize
	}
	return m
}

// get returns the meter of a source.
func (m *meters) get(s *source, now int64) *meter {
	if x := m.of[s.target]; x != nil {
		x.seen = now
		return x
	}
	if len(m.of) >= 2*m.cfg.MaxResources {
		m.lost += m.giveWay()
	}
	x := &meter{source: s, seen: now}
	for i, d := range definitions {
		x.families[i] = series.Family{Name: d.name, Form: series.Histogram, Bounds: d.bounds, Exemplars: maxExemplars}
	}
	m.of[s.target] = x
	return x
}

// giveWay evicts the resource without data for longest and returns the number of its series.
func (m *meters) giveWay() (had int) {
	var oldest string
	at := int64(math.MaxInt64)
	for id, x := range m.of {
		if x.seen < at {
			oldest, at = id, x.seen
		}
	}
	for i := range m.of[oldest].families {
		had += m.of[oldest].families[i].Len()
	}
	m.Kept -= had
	delete(m.of, oldest)
	return had
}

// record counts closed requests. now is unix ns.
func (m *meters) record(closed []*request, now int64) {
	for _, r := range closed {
		for i := range r.accounts {
			a := &r.accounts[i]
			put := m.recorder(r, a, a.op, now)
			put.known(metricDuration, a.time, a.time > 0)
			put.known(metricItems, a.items, a.items > 0)
			put.known(metricEnergy, a.energy, a.measured)
			if a.measured && a.items > 0 {
				// By item, so that its sum and its count are joules and items of the same requests.
				put(metricItemEnergy, a.energy/a.items, a.items)
			}
		}
		if first := r.first(); first != nil && !r.late {
			put := m.recorder(r, first, nil, now)
			queued, item := r.queued(first), r.toFirstItem()
			put.known(metricQueue, queued, queued > 0)
			put.known(metricFirstItem, item.after, item.after > 0)
			put.known(metricPrefill, r.prefill, r.prefill > 0)
			put.known(metricDecode, r.decode, r.decode > 0)
		}
	}
}

// recorder adds the known values of a usage record to the series of an operation (nil: the request
// as a whole). Their exemplar is the usage record's span, otherwise the request's; there is none if
// the trace does not exist.
func (m *meters) recorder(r *request, a *account, op *operation, now int64) recorder {
	x, attrs, span := m.get(a.source, now), attributes(op, r.modelOf(a)), r.key
	for i, v := range r.dimensions {
		sharedcomponent.PutText(attrs, m.cfg.Dimensions[i], v)
	}
	switch {
	case r.unsampled:
		span = key{}
	case a.linked && m.spans:
		span.Span = a.id(r)
	}
	return func(metric int, v, weight float64) {
		x.families[metric].Get(&m.Settings, attrs, uint64(now)).Record(v, weight, span, uint64(now), now)
	}
}

// recorder adds a value to a metric, which counts weight times.
type recorder func(metric int, v, weight float64)

func (put recorder) known(metric int, v float64, known bool) {
	if known {
		put(metric, v, 1)
	}
}

func attributes(op *operation, model string) pcommon.Map {
	m := pcommon.NewMap()
	m.EnsureCapacity(5)
	if op != nil {
		sharedcomponent.PutText(m, semconv.GPUOperationNameKey, op.name)
		sharedcomponent.PutText(m, semconv.GPUOperationCategoryKey, op.category)
		sharedcomponent.PutText(m, semconv.GPUOperationItemTypeKey, op.itemType)
	}
	sharedcomponent.PutText(m, semconv.GenAIRequestModelKey, model)
	return m
}

// output returns the points of all resources.
func (m *meters) output() pmetric.Metrics {
	series.LogBare(m.log, m.Output(func(yield func([]series.Family) bool) {
		for _, x := range m.of {
			if !yield(x.families[:]) {
				return
			}
		}
	}))
	out := pmetric.NewMetrics()
	for _, x := range m.of {
		at := max(uint64(time.Now().UnixNano()), series.Next(x.written))
		if at, wrote := m.Write(out, x.source.attrs, x.source.instance, x.families[:], at, x.written); wrote {
			x.written = at
		}
	}
	return out
}

// trim removes the resources beyond the limit after an accepted output: until then there is room
// for as many again.
func (m *meters) trim() {
	for len(m.of) > m.cfg.MaxResources {
		m.giveWay()
	}
}
