// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package semconvtest

import (
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/semconv"
)

// CheckMetrics returns every deviation from the registry in resources, scopes, metrics and data points, joined; nil when
// there is none. A histogram may be explicit or exponential.
func CheckMetrics(md pmetric.Metrics) error {
	var errs []error
	for i, rm := range md.ResourceMetrics().All() {
		errs = append(errs, checkAttributes(rm.Resource().Attributes(), "resource", fmt.Sprintf("resource %d", i)))
		for _, sm := range rm.ScopeMetrics().All() {
			errs = append(errs, checkAttributes(sm.Scope().Attributes(), "scope", fmt.Sprintf("scope %q", sm.Scope().Name())))
			for _, m := range sm.Metrics().All() {
				if err := checkMetric(m); err != nil {
					errs = append(errs, err)
				}
			}
		}
	}
	return errors.Join(errs...)
}

func checkMetric(m pmetric.Metric) error {
	where := "metric " + m.Name()
	var errs []error
	allowed := []string(nil)
	if ours(m.Name()) {
		want, ok := semconv.LookupMetric(m.Name())
		if !ok {
			return fmt.Errorf("%s: not in the registry", where)
		}
		if m.Unit() != want.Unit {
			errs = append(errs, fmt.Errorf("%s: unit %q, want %q", where, m.Unit(), want.Unit))
		}
		if got := instrument(m); got != want.Instrument {
			errs = append(errs, fmt.Errorf("%s: %s, want %s", where, shape(m), want.Instrument))
		}
		if want.Group == "device" {
			allowed = want.Attributes
		}
	}
	for p := range points(m) {
		errs = append(errs, checkAttributes(p.Attributes, "metric", where))
		if !finite(p.Value) {
			errs = append(errs, fmt.Errorf("%s: value %v is not finite", where, p.Value))
		}
		for name := range p.Attributes.All() {
			if allowed != nil && ours(name) && !slices.Contains(allowed, name) {
				errs = append(errs, fmt.Errorf("%s: attribute %s is not one of the metric's", where, name))
			}
		}
	}
	return errors.Join(errs...)
}

func instrument(m pmetric.Metric) semconv.Instrument {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return semconv.InstrumentGauge
	case pmetric.MetricTypeSum:
		if m.Sum().IsMonotonic() {
			return semconv.InstrumentCounter
		}
		return semconv.InstrumentUpDownCounter
	case pmetric.MetricTypeHistogram, pmetric.MetricTypeExponentialHistogram:
		return semconv.InstrumentHistogram
	}
	return 0
}

// shape says what the metric is on the wire, for messages.
func shape(m pmetric.Metric) string {
	if i := instrument(m); i != 0 {
		return i.String()
	}
	return m.Type().String()
}

type point struct {
	Attributes pcommon.Map
	Value      float64 // the sum of a histogram
}

// points yields the points of a metric of any kind.
func points(m pmetric.Metric) func(func(point) bool) {
	return func(yield func(point) bool) {
		var numbers pmetric.NumberDataPointSlice
		switch m.Type() {
		case pmetric.MetricTypeGauge:
			numbers = m.Gauge().DataPoints()
		case pmetric.MetricTypeSum:
			numbers = m.Sum().DataPoints()
		case pmetric.MetricTypeHistogram:
			for _, p := range m.Histogram().DataPoints().All() {
				if !yield(point{p.Attributes(), p.Sum()}) {
					return
				}
			}
			return
		case pmetric.MetricTypeExponentialHistogram:
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				if !yield(point{p.Attributes(), p.Sum()}) {
					return
				}
			}
			return
		default:
			return
		}
		for _, p := range numbers.All() {
			v := p.DoubleValue()
			if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
				v = float64(p.IntValue())
			}
			if !yield(point{p.Attributes(), v}) {
				return
			}
		}
	}
}
