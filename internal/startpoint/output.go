// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package startpoint sends metrics so that a store has a point of 0 of each cumulative series before any other. Who
// looks at increases sees the first one only after it.
package startpoint

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// Patience is how long all waits for points of 0 that are refused. Then the rest is sent without: one of several stores
// may be gone for long.
const Patience = time.Minute

// Before is how long before its first point a series is 0, at most: a second, and a third of the time between two
// outputs. Prometheus keeps one series target_info for all points of a service and takes it only in order, so a point
// of 0 must not be older than what another connector wrote half an interval ago.
func Before(interval time.Duration) time.Duration { return min(time.Second, interval/3) }

// Output sends to a consumer. It is for one goroutine. The zero value with Next set is ready.
type Output struct {
	Next consumer.Metrics

	refused time.Time // first refusal of points of 0 since they were taken; zero: none
}

// Send hands metrics on, of which begins says that they have first points. These go alone and first. When they are
// refused nothing else is sent and began is false: the series must begin again with the next output. To send them
// again together with what follows them would not do: of several stores one may have taken both, and would see a series
// that fell to 0.
func (o *Output) Send(ctx context.Context, md pmetric.Metrics, begins bool) (began bool, err error) {
	if !begins {
		return true, o.Next.ConsumeMetrics(ctx, md)
	}
	zeros := pmetric.NewMetrics()
	md.CopyTo(zeros)
	keep(zeros, true)
	keep(md, false)
	if zeros.DataPointCount() > 0 {
		err = o.Next.ConsumeMetrics(ctx, zeros)
	}
	switch {
	case err == nil:
		o.refused = time.Time{}
	case o.refused.IsZero():
		o.refused = time.Now()
		return false, err
	case time.Since(o.refused) < Patience:
		return false, err
	}
	if md.DataPointCount() == 0 {
		return true, err
	}
	return true, o.Next.ConsumeMetrics(ctx, md)
}

// keep leaves the points of cumulative series that are 0, or all others.
func keep(md pmetric.Metrics, zeros bool) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool {
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool { return keepOf(m, zeros) == 0 })
			return sm.Metrics().Len() == 0
		})
		return rm.ScopeMetrics().Len() == 0
	})
}

// keepOf is keep of one metric; it returns how many points are left.
func keepOf(m pmetric.Metric, zeros bool) int {
	const cumulative = pmetric.AggregationTemporalityCumulative
	switch m.Type() {
	case pmetric.MetricTypeSum:
		of := m.Sum().AggregationTemporality() == cumulative
		m.Sum().DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool {
			return (of && p.IntValue() == 0 && p.DoubleValue() == 0) != zeros
		})
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		of := m.Histogram().AggregationTemporality() == cumulative
		m.Histogram().DataPoints().RemoveIf(func(p pmetric.HistogramDataPoint) bool {
			return (of && p.Count() == 0) != zeros
		})
		return m.Histogram().DataPoints().Len()
	case pmetric.MetricTypeExponentialHistogram:
		of := m.ExponentialHistogram().AggregationTemporality() == cumulative
		m.ExponentialHistogram().DataPoints().RemoveIf(func(p pmetric.ExponentialHistogramDataPoint) bool {
			return (of && p.Count() == 0) != zeros
		})
		return m.ExponentialHistogram().DataPoints().Len()
	}
	if !zeros && m.Type() == pmetric.MetricTypeGauge {
		return m.Gauge().DataPoints().Len()
	}
	return 0
}
