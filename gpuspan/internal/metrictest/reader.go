// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrictest is a MeterProvider that tests read. It stands for the SDK of metrics, which would be in the module
// graph of each program that requires this module; the library meets the SDK in tests of the repository's root module.
package metrictest

import (
	"context"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/embedded"
	"go.opentelemetry.io/otel/trace"
)

// Reader is a MeterProvider with the instruments that the library uses: observable ones with callbacks of their meter,
// and histograms. Any other instrument panics.
type Reader struct {
	embedded.MeterProvider
	mu          sync.Mutex
	instruments map[metric.Observable]*Metric
	histograms  []*histogram
	callbacks   []*callback
}

// Metric is what an instrument has recorded.
type Metric struct {
	Name, Unit string
	Points     []Point
}

// Point is the value of an attribute set.
type Point struct {
	Attributes attribute.Set
	Value      float64 // of a counter or gauge; the sum of a histogram
	Count      int64   // of a histogram
	Exemplar   trace.SpanContext
}

// New makes a Reader.
func New() *Reader { return &Reader{instruments: map[metric.Observable]*Metric{}} }

// Meter implements MeterProvider.
func (r *Reader) Meter(string, ...metric.MeterOption) metric.Meter { return meter{r: r} }

// Collect runs the callbacks and returns the metrics that have points, by name.
func (r *Reader) Collect() map[string]Metric {
	r.mu.Lock()
	for _, m := range r.instruments {
		m.Points = nil
	}
	callbacks := slices.Clone(r.callbacks)
	r.mu.Unlock()
	for _, c := range callbacks {
		_ = c.call(context.Background(), observer{r: r})
	}
	out := map[string]Metric{}
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(m *Metric) {
		if len(m.Points) > 0 {
			out[m.Name] = Metric{m.Name, m.Unit, slices.Clone(m.Points)}
		}
	}
	for _, m := range r.instruments {
		add(m)
	}
	for _, h := range r.histograms {
		add(&h.m)
	}
	return out
}

// observe sets the value of an attribute set, as an observation of the SDK does.
func (r *Reader) observe(o metric.Observable, v float64, set attribute.Set) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.instruments[o].point(set).Value = v
}

func (m *Metric) point(set attribute.Set) *Point {
	i := slices.IndexFunc(m.Points, func(p Point) bool { return p.Attributes.Equals(&set) })
	if i < 0 {
		i = len(m.Points)
		m.Points = append(m.Points, Point{Attributes: set})
	}
	return &m.Points[i]
}

type meter struct {
	metric.Meter // nil: what is not below is not used
	r            *Reader
}

func (m meter) add(o metric.Observable, name, unit string) {
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.instruments[o] = &Metric{Name: name, Unit: unit}
}

func (m meter) Int64ObservableCounter(name string, opts ...metric.Int64ObservableCounterOption) (
	metric.Int64ObservableCounter, error,
) {
	o := &struct{ metric.Int64ObservableCounter }{}
	m.add(o, name, metric.NewInt64ObservableCounterConfig(opts...).Unit())
	return o, nil
}

func (m meter) Float64ObservableCounter(name string, opts ...metric.Float64ObservableCounterOption) (
	metric.Float64ObservableCounter, error,
) {
	o := &struct {
		metric.Float64ObservableCounter
	}{}
	m.add(o, name, metric.NewFloat64ObservableCounterConfig(opts...).Unit())
	return o, nil
}

func (m meter) Int64ObservableUpDownCounter(name string, opts ...metric.Int64ObservableUpDownCounterOption) (
	metric.Int64ObservableUpDownCounter, error,
) {
	o := &struct {
		metric.Int64ObservableUpDownCounter
	}{}
	m.add(o, name, metric.NewInt64ObservableUpDownCounterConfig(opts...).Unit())
	return o, nil
}

func (m meter) Float64ObservableGauge(name string, opts ...metric.Float64ObservableGaugeOption) (
	metric.Float64ObservableGauge, error,
) {
	o := &struct{ metric.Float64ObservableGauge }{}
	m.add(o, name, metric.NewFloat64ObservableGaugeConfig(opts...).Unit())
	return o, nil
}

func (m meter) Float64Histogram(name string, opts ...metric.Float64HistogramOption) (metric.Float64Histogram, error) {
	h := &histogram{r: m.r, m: Metric{Name: name, Unit: metric.NewFloat64HistogramConfig(opts...).Unit()}}
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.histograms = append(m.r.histograms, h)
	return h, nil
}

func (m meter) RegisterCallback(call metric.Callback, _ ...metric.Observable) (metric.Registration, error) {
	c := &callback{r: m.r, call: call}
	m.r.mu.Lock()
	defer m.r.mu.Unlock()
	m.r.callbacks = append(m.r.callbacks, c)
	return c, nil
}

type callback struct {
	embedded.Registration
	r    *Reader
	call metric.Callback
}

func (c *callback) Unregister() error {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	c.r.callbacks = slices.DeleteFunc(c.r.callbacks, func(x *callback) bool { return x == c })
	return nil
}

type observer struct {
	embedded.Observer
	r *Reader
}

func (o observer) ObserveInt64(i metric.Int64Observable, v int64, opts ...metric.ObserveOption) {
	o.r.observe(i, float64(v), metric.NewObserveConfig(opts).Attributes())
}

func (o observer) ObserveFloat64(i metric.Float64Observable, v float64, opts ...metric.ObserveOption) {
	o.r.observe(i, v, metric.NewObserveConfig(opts).Attributes())
}

type histogram struct {
	embedded.Float64Histogram
	r *Reader
	m Metric
}

func (*histogram) Enabled(context.Context) bool { return true }

func (h *histogram) Record(ctx context.Context, v float64, opts ...metric.RecordOption) {
	h.r.mu.Lock()
	defer h.r.mu.Unlock()
	p := h.m.point(metric.NewRecordConfig(opts).Attributes())
	p.Value += v
	p.Count++
	if sc := trace.SpanContextFromContext(ctx); sc.IsSampled() {
		p.Exemplar = sc
	}
}
