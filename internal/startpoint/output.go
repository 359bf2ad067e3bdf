// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package startpoint sends metrics so that a store has a point of 0 of each cumulative series
// before any other point. Without it, queries for increases miss the first one.
package startpoint

import (
	"context"
	"time"

	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/resend"
)

// Patience is the time for which refused points of 0 delay all metrics. After it the rest is sent
// without them: one of several stores may be unavailable for long.
const Patience = time.Minute

// Before returns how long before its first point a series is 0, at most: a second, and a third of
// the time between two outputs. Prometheus keeps one series target_info for all points of a service
// and accepts it only in order, so a point of 0 must not be older than what another connector wrote
// half an interval ago.
func Before(interval time.Duration) time.Duration { return min(time.Second, interval/3) }

// Output sends to a consumer. It is not safe for concurrent use. The zero value with Next set is
// ready.
type Output struct {
	Next consumer.Metrics

	refused time.Time // first refusal of points of 0 since they were accepted; zero: none
}

// Send sends metrics; begins reports whether some are first points. It sends these first and
// separately. If they are refused, it sends nothing else and began is false: the series must begin
// again with the next output. Sending them again together with the points that follow would be
// wrong: one of several stores may have accepted both, and would see a series that fell to 0.
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

// Flush sends metrics as Send does. If repeat is set, as for cumulative points before a shutdown, it
// sends them again, with the same times, until they are accepted, for up to resend.DrainTimeout.
// Deltas are sent once: one of several stores may have added them.
func (o *Output) Flush(ctx context.Context, md pmetric.Metrics, begins, repeat bool) (began bool, err error) {
	if !repeat {
		return o.Send(ctx, md, begins)
	}
	ctx, cancel := context.WithTimeout(ctx, resend.DrainTimeout)
	defer cancel()
	err = resend.Until(ctx, func(ctx context.Context) (err error) {
		try := pmetric.NewMetrics()
		md.CopyTo(try)
		began, err = o.Send(ctx, try, begins)
		return err
	})
	return began, err
}

// keep removes all points except zeros of cumulative series, or only these.
func keep(md pmetric.Metrics, zeros bool) {
	md.ResourceMetrics().RemoveIf(func(rm pmetric.ResourceMetrics) bool {
		rm.ScopeMetrics().RemoveIf(func(sm pmetric.ScopeMetrics) bool {
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool { return keepOf(m, zeros) == 0 })
			return sm.Metrics().Len() == 0
		})
		return rm.ScopeMetrics().Len() == 0
	})
}

// keepOf does what keep does for one metric and returns how many points are left.
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
