// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

// observe returns the callback of all observable instruments. It runs on the metric reader's
// goroutine and does not call the driver, so it works even while the polling thread hangs in it.
func (m *Metrics) observe(_ context.Context, o metric.Observer) error {
	m.observeOperations(o)
	if !m.p.Stopped() {
		m.observeStreams(o)
		m.observeDevices(o)
	}
	for _, d := range m.p.TimedDevices() {
		_, _, n := d.ClockState()
		o.ObserveInt64(m.anomalies, n, metric.WithAttributes(d.Attrs...))
	}
	if cpu := m.p.CPU(); cpu > 0 {
		o.ObserveFloat64(m.overhead, spanattr.Seconds(cpu))
	}
	count := func(i metric.Int64Observable, n int64, of ...attribute.KeyValue) {
		if n > 0 {
			o.ObserveInt64(i, n, metric.WithAttributes(of...))
		}
	}
	for status, n := range m.p.Statuses() {
		count(m.sections, n, semconv.GPUTimingStatusKey.String(status))
	}
	for kind, n := range m.p.Misuse() {
		count(m.misuses, n, semconv.GpuspanMisuseKindKey.String(kind))
	}
	count(m.lostLinks, m.p.LostLinks())
	for reason, n := range m.p.Drops() {
		count(m.dropped, n, semconv.GpuspanDropReasonKey.String(reason))
	}
	return nil
}

// observeOperations reports counts and declared work of all sections, timed or not.
func (m *Metrics) observeOperations(o metric.Observer) {
	if m.count == nil {
		return
	}
	for _, st := range m.p.Operations() {
		a := m.attributesOf(st)
		sum := st.UntimedWork()
		sum.Add(st.Timed.Load())
		o.ObserveInt64(m.count, sum.Count, a.count...)
		if sum.Items != 0 {
			o.ObserveInt64(m.items, wrapped(sum.Items), a.items...)
		}
		sum.Copied[work.DirectionUnset] += sum.Read + sum.Written
		for d, n := range sum.Copied {
			if n != 0 {
				o.ObserveInt64(m.io, wrapped(n), a.io[d]...)
			}
		}
		for f, v := range sum.FLOPs {
			if v != 0 {
				o.ObserveFloat64(m.flops, v, a.flops[f]...)
			}
		}
	}
}

// wrapped restarts a sum that has reached 2^63, as bytes do within weeks, at 0, which rates handle
// like any restart.
func wrapped(sum int64) int64 { return sum & math.MaxInt64 }

func (m *Metrics) observeStreams(o metric.Observer) {
	now := m.p.Clock.Now()
	for _, s := range m.p.Streams() {
		all, used, _ := s.Filled()
		id := semconv.GPUStreamIDKey.Int(s.ID)
		with := metric.WithAttributes(id)
		o.ObserveInt64(m.limit, int64(all), with)
		o.ObserveInt64(m.usage, int64(used), with)
		name, age, _, ok := s.Oldest(now)
		if !ok {
			o.ObserveFloat64(m.age, 0, with)
			continue
		}
		o.ObserveFloat64(m.age, age.Seconds(), metric.WithAttributes(id, semconv.GPUOperationNameKey.String(name)))
	}
}

func (m *Metrics) observeDevices(o metric.Observer) {
	for _, d := range m.p.TimedDevices() {
		with := metric.WithAttributes(d.Attrs...)
		if f := d.Floor(); f > 0 {
			o.ObserveFloat64(m.floor, spanattr.Seconds(f), with)
		}
		if h, ppm, _ := d.ClockState(); h > 0 {
			o.ObserveFloat64(m.errorBound, spanattr.Seconds(h), with)
			o.ObserveFloat64(m.drift, ppm*1e-6, with)
		}
	}
}
