// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// guardDeltas returns the factory of an exporter of metrics whose exporters do not end the Collector when they cannot
// add a delta histogram to the one before it. The prometheus exporter (0.159) panics if a point has other bucket counts
// than its predecessor with equal bounds, and on some scales of exponential histograms.
func guardDeltas(of exporter.Factory) exporter.Factory {
	return exporter.NewFactory(of.Type(), of.CreateDefaultConfig, exporter.WithMetrics(
		func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
			e, err := of.CreateMetrics(ctx, set, cfg)
			if err != nil {
				return nil, err
			}
			return &deltaGuard{e}, nil
		}, of.MetricsStability()))
}

type deltaGuard struct{ exporter.Metrics }

// ConsumeMetrics exports each delta histogram alone, so that one which fails takes no other metric with it. The error
// is permanent and names the metric.
func (g *deltaGuard) ConsumeMetrics(ctx context.Context, md pmetric.Metrics) error {
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
				m.CopyTo(scope.Metrics().AppendEmpty())
				errs = append(errs, g.export(ctx, one, m.Name()))
				return true
			})
		}
	}
	return errors.Join(append(errs, g.Metrics.ConsumeMetrics(ctx, rest))...)
}

func (g *deltaGuard) export(ctx context.Context, one pmetric.Metrics, name string) (err error) {
	defer func() {
		if x := recover(); x != nil {
			err = consumererror.NewPermanent(fmt.Errorf(
				"metric %q: the exporter cannot add this delta histogram to the one before it: %v", name, x))
		}
	}()
	return g.Metrics.ConsumeMetrics(ctx, one)
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
