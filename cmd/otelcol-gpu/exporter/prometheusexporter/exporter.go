// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package prometheusexporter is the prometheus exporter of opentelemetry-collector-contrib with
// protection against delta histograms. That exporter (0.159) adds them up. It panics if a point has
// other bucket counts than its predecessor with equal bounds, and allocates gigabytes if the
// buckets of two exponential histograms are far apart.
package prometheusexporter

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// NewFactory returns the factory of the exporter. Type, configuration and stability are contrib's.
func NewFactory() exporter.Factory { return guard(prometheusexporter.NewFactory()) }

func guard(of exporter.Factory) exporter.Factory {
	return exporter.NewFactory(of.Type(), of.CreateDefaultConfig, exporter.WithMetrics(
		func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
			e, err := of.CreateMetrics(ctx, set, cfg)
			if err != nil {
				return nil, err
			}
			return &guarded{e}, nil
		}, of.MetricsStability()))
}

type guarded struct{ exporter.Metrics }

// ConsumeMetrics exports each delta histogram alone, so that one which fails takes no other metric
// with it. The error is permanent and names the metric.
func (g *guarded) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
	if !hasDeltas(md) {
		return g.Metrics.ConsumeMetrics(ctx, md)
	}
	rest := pmetric.NewMetrics()
	md.CopyTo(rest)
	var errs []error
	for _, rm := range rest.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			sm.Metrics().RemoveIf(func(m pmetric.Metric) bool {
				if !isDelta(m) {
					return false
				}
				one := pmetric.NewMetrics()
				to := one.ResourceMetrics().AppendEmpty()
				rm.Resource().CopyTo(to.Resource())
				to.SetSchemaUrl(rm.SchemaUrl())
				scope := to.ScopeMetrics().AppendEmpty()
				sm.Scope().CopyTo(scope.Scope())
				scope.SetSchemaUrl(sm.SchemaUrl())
				m.MoveTo(scope.Metrics().AppendEmpty())
				errs = append(errs, g.export(ctx, one))
				return true
			})
		}
	}
	return errors.Join(append(errs, g.Metrics.ConsumeMetrics(ctx, rest))...)
}

// export exports one delta histogram.
func (g *guarded) export(ctx context.Context, one pmetric.Metrics) (err error) {
	m := one.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	name := m.Name()
	defer func() {
		if x := recover(); x != nil {
			err = errors.Join(err, consumererror.NewPermanent(fmt.Errorf(
				"metric %q: the exporter cannot add this delta histogram to the one before it: %v", name, x)))
		}
	}()
	if m.Type() == pmetric.MetricTypeExponentialHistogram {
		m.ExponentialHistogram().DataPoints().RemoveIf(func(p pmetric.ExponentialHistogramDataPoint) bool {
			if coarsen(p) {
				return false
			}
			err = consumererror.NewPermanent(fmt.Errorf(
				"metric %q: a delta histogram of scale %d has buckets that no number falls into", name, p.Scale()))
			return true
		})
	}
	return errors.Join(err, g.Metrics.ConsumeMetrics(ctx, one))
}

// Of two exponential histograms the exporter allocates all buckets from the lowest to the highest.
const (
	maxScale = 8       // the finest of a native histogram: the exporter reduces all to it when it is scraped
	maxIndex = 1 << 12 // at scale 8, values from 15 millionths to 65536
)

// coarsen reduces the scale of an exponential histogram until all buckets have small indexes. It
// returns false if buckets are outside the range of float64, or the scale is.
func coarsen(p pmetric.ExponentialHistogramDataPoint) bool {
	scale := int(p.Scale())
	if scale < -10 || scale > 20 {
		return false
	}
	low, high := int64(0), int64(0)
	for _, b := range []pmetric.ExponentialHistogramDataPointBuckets{p.Positive(), p.Negative()} {
		if n := int64(b.BucketCounts().Len()); n > 0 {
			low, high = min(low, int64(b.Offset())), max(high, int64(b.Offset())+n-1)
		}
	}
	// Bucket i ends at 2^((i+1) / 2^scale), and the exponents of float64 are -1074 to 1024.
	if math.Ldexp(float64(low+1), -scale) < -1074 || math.Ldexp(float64(high), -scale) >= 1024 {
		return false
	}
	shift := max(0, scale-maxScale)
	for low>>shift < -maxIndex || high>>shift > maxIndex {
		shift++
	}
	if shift > 0 {
		p.SetScale(int32(scale - shift))
		merge(p.Positive(), shift)
		merge(p.Negative(), shift)
	}
	return true
}

// merge merges each 2^shift buckets into one.
func merge(b pmetric.ExponentialHistogramDataPointBuckets, shift int) {
	if b.BucketCounts().Len() == 0 {
		return
	}
	first := int64(b.Offset())
	counts := make([]uint64, (first+int64(b.BucketCounts().Len())-1)>>shift-first>>shift+1)
	for i, n := range b.BucketCounts().All() {
		counts[(first+int64(i))>>shift-first>>shift] += n
	}
	b.SetOffset(int32(first >> shift))
	b.BucketCounts().FromRaw(counts)
}

func hasDeltas(md pmetric.Metrics) bool {
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if isDelta(m) {
					return true
				}
			}
		}
	}
	return false
}

func isDelta(m pmetric.Metric) bool {
	switch m.Type() {
	case pmetric.MetricTypeHistogram:
		return m.Histogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta
	}
	return false
}
