// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/otelgpu/otelgpu/semconv"
)

// observe is the callback of all observable instruments. It runs on the metric reader's goroutine and asks no driver,
// so it answers also while the polling thread hangs in one.
func (m *metrics) observe(_ context.Context, o metric.Observer) error {
	m.observeOperations(o)
	if !m.p.stopped.Load() {
		m.observeStreams(o)
		m.observeDevices(o)
	}
	for _, d := range m.p.devices.all() {
		o.ObserveInt64(m.anomalies, d.anomalies.Load(), metric.WithAttributes(d.attrs...))
	}
	if cpu := m.p.poller.cpuNs.Load(); cpu > 0 {
		o.ObserveFloat64(m.overhead, seconds(cpu))
	}
	count := func(i metric.Int64Observable, n int64, of ...attribute.KeyValue) {
		if n > 0 {
			o.ObserveInt64(i, n, metric.WithAttributes(of...))
		}
	}
	for i := range m.p.statuses {
		count(m.sections, m.p.statuses[i].Load(), semconv.GPUTimingStatusKey.String(statusNames[i]))
	}
	for kind, n := range m.p.Misuse() {
		count(m.misuses, n, semconv.GpuspanMisuseKindKey.String(kind))
	}
	count(m.lostLinks, m.p.lostLinks.Load())
	for i := range m.p.drops {
		count(m.dropped, m.p.drops[i].Load(), semconv.GpuspanDropReasonKey.String(dropNames[i]))
	}
	return nil
}

// observeOperations reports counts and declared work of all sections, timed or not.
func (m *metrics) observeOperations(o metric.Observer) {
	if m.count == nil {
		return
	}
	for _, st := range m.p.opList.all() {
		a := st.attributesOf()
		sum := st.untimedWork()
		sum.add(st.timed.load())
		o.ObserveInt64(m.count, sum.count, a.count...)
		if sum.items != 0 {
			o.ObserveInt64(m.items, wrapped(sum.items), a.items...)
		}
		sum.copied[DirectionUnset] += sum.read + sum.written
		for d, n := range sum.copied {
			if n != 0 {
				o.ObserveInt64(m.io, wrapped(n), a.io[d]...)
			}
		}
		for f, v := range sum.flops {
			if v != 0 {
				o.ObserveFloat64(m.flops, v, a.flops[f]...)
			}
		}
	}
}

// wrapped begins a sum that has reached 2^63, as bytes do within weeks, again at 0, which rates take as any restart.
func wrapped(sum int64) int64 { return sum & math.MaxInt64 }

func (m *metrics) observeStreams(o metric.Observer) {
	now := m.p.clock.now()
	for _, s := range m.p.streamList.all() {
		used, _ := s.filled()
		id := semconv.GPUStreamIDKey.Int(s.id)
		with := metric.WithAttributes(id)
		o.ObserveInt64(m.limit, int64(len(s.slots)), with)
		o.ObserveInt64(m.usage, int64(used), with)
		name, age, _, ok := s.oldest(now)
		if !ok {
			o.ObserveFloat64(m.age, 0, with)
			continue
		}
		o.ObserveFloat64(m.age, age.Seconds(), metric.WithAttributes(id, semconv.GPUOperationNameKey.String(name)))
	}
}

func (m *metrics) observeDevices(o metric.Observer) {
	for _, d := range m.p.devices.all() {
		with := metric.WithAttributes(d.attrs...)
		if f := d.floor.Load(); f > 0 {
			o.ObserveFloat64(m.floor, seconds(f), with)
		}
		if h := d.halfNs.Load(); h > 0 {
			o.ObserveFloat64(m.errorBound, seconds(h), with)
			o.ObserveFloat64(m.drift, d.drift.Load()*1e-6, with)
		}
	}
}
