// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/semconv"
)

// pointBase is what all kinds of points share.
type pointBase interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
}

// form of a metric.
type form uint8

const (
	formCount     form = iota // monotonic sum of whole numbers
	formSum                   // monotonic sum of doubles
	formHistogram             // distribution
	formGauge                 // quotient of sums since the last output; written only when there were any
)

// metricID indexes families and definitions.
type metricID uint8

const (
	metricCount metricID = iota
	metricDuration
	metricIO
	metricFLOPs
	metricItems
	metricEnergy
	metricItemEnergy
	metricStepDuration
	metricPhaseDuration
	metricStepItems
	metricStepItemRate
	metricStragglerScore
	metricStragglerDelay
	metricActivityTime
	metrics
)

var definitions = [metrics]struct {
	name, unit, description string
	form                    form
}{
	metricCount:          {semconv.GPUOperationCountName, semconv.GPUOperationCountUnit, semconv.GPUOperationCountDescription, formCount},
	metricDuration:       {semconv.GPUOperationDurationName, semconv.GPUOperationDurationUnit, semconv.GPUOperationDurationDescription, formHistogram},
	metricIO:             {semconv.GPUOperationIOName, semconv.GPUOperationIOUnit, semconv.GPUOperationIODescription, formCount},
	metricFLOPs:          {semconv.GPUOperationFLOPSName, semconv.GPUOperationFLOPSUnit, semconv.GPUOperationFLOPSDescription, formSum},
	metricItems:          {semconv.GPUOperationItemsName, semconv.GPUOperationItemsUnit, semconv.GPUOperationItemsDescription, formCount},
	metricEnergy:         {semconv.GPUOperationEnergyName, semconv.GPUOperationEnergyUnit, semconv.GPUOperationEnergyDescription, formSum},
	metricItemEnergy:     {semconv.GPUOperationItemEnergyName, semconv.GPUOperationItemEnergyUnit, semconv.GPUOperationItemEnergyDescription, formGauge},
	metricStepDuration:   {semconv.GPUStepDurationName, semconv.GPUStepDurationUnit, semconv.GPUStepDurationDescription, formHistogram},
	metricPhaseDuration:  {semconv.GPUStepPhaseDurationName, semconv.GPUStepPhaseDurationUnit, semconv.GPUStepPhaseDurationDescription, formHistogram},
	metricStepItems:      {semconv.GPUStepItemsName, semconv.GPUStepItemsUnit, semconv.GPUStepItemsDescription, formCount},
	metricStepItemRate:   {semconv.GPUStepItemRateName, semconv.GPUStepItemRateUnit, semconv.GPUStepItemRateDescription, formGauge},
	metricStragglerScore: {semconv.GPUStragglerScoreName, semconv.GPUStragglerScoreUnit, semconv.GPUStragglerScoreDescription, formGauge},
	metricStragglerDelay: {semconv.GPUStragglerDelayName, semconv.GPUStragglerDelayUnit, semconv.GPUStragglerDelayDescription, formGauge},
	metricActivityTime:   {semconv.GPUActivityTimeName, semconv.GPUActivityTimeUnit, semconv.GPUActivityTimeDescription, formSum},
}

// stream is one series: its attributes and its state.
type stream struct {
	attrs   pcommon.Map
	start   uint64 // unix ns
	seen    int64  // wall clock of the last change, unix ns
	changed bool   // since the last output

	total   float64 // of a sum: all; of a gauge, which is a quotient of sums since the last output: the numerator
	divisor float64 // of a gauge
	written float64 // of a delta sum: what was written of total

	histogram histogram
	exemplars []exemplar // slot = bucket modulo their number, so that they spread over the buckets
}

type exemplar struct {
	value float64
	time  uint64
	trace pcommon.TraceID
	span  pcommon.SpanID
}

func (s *stream) touch(now int64) {
	s.seen, s.changed = now, true
}

// add adds to a sum.
func (s *stream) add(v float64, now int64) {
	if x := s.total + v; x <= math.MaxFloat64 {
		s.total = x
	}
	s.touch(now)
}

// ratio adds to a gauge that is a quotient.
func (s *stream) ratio(numerator, divisor float64, now int64) {
	if !s.changed {
		s.total, s.divisor = 0, 0
	}
	s.total += numerator
	s.divisor += divisor
	s.touch(now)
}

// example makes a span the gauge's exemplar.
func (s *stream) example(v float64, span spanKey, end uint64) {
	if cap(s.exemplars) > 0 && !span.trace.IsEmpty() {
		s.exemplars = append(s.exemplars[:0], exemplar{v, end, span.trace, span.span})
	}
}

// record adds to a distribution.
func (s *stream) record(v, weight float64, f *facts, now int64) {
	bucket := s.histogram.record(v, weight)
	if n := cap(s.exemplars); n > 0 && !f.traceID.IsEmpty() {
		s.exemplars = s.exemplars[:n]
		s.exemplars[bucket%n] = exemplar{v, f.end, f.traceID, f.spanID}
	}
	s.touch(now)
}

// value of a gauge; false when it is not a number.
func (s *stream) value() (float64, bool) {
	v := s.total / s.divisor
	return v, v >= 0 && v <= math.MaxFloat64
}

// write adds the stream's point to a metric of its form, if there is one to write; ts is its time.
func (s *stream) write(m pmetric.Metric, f form, delta bool, ts uint64) {
	if !s.changed && (delta || f == formGauge) {
		return
	}
	switch f {
	case formGauge:
		if v, ok := s.value(); ok {
			p := m.Gauge().DataPoints().AppendEmpty()
			p.SetDoubleValue(v)
			s.dress(p, 0, ts)
			s.writeExemplars(p.Exemplars())
		}
	case formHistogram:
		p := s.histogram.write(m)
		s.dress(p, s.start, ts)
		s.writeExemplars(p.Exemplars())
		if delta {
			s.histogram.reset()
		}
	default:
		s.writeSum(m.Sum().DataPoints().AppendEmpty(), f, delta, ts)
	}
	s.changed = false
	if delta {
		s.start = ts
	}
}

func (s *stream) writeSum(p pmetric.NumberDataPoint, f form, delta bool, ts uint64) {
	v := s.total
	if f == formCount {
		v = math.Round(v)
	}
	out := v
	if delta {
		out = v - s.written
		s.written = v
	}
	if f == formCount {
		p.SetIntValue(toInt(out))
	} else {
		p.SetDoubleValue(out)
	}
	s.dress(p, s.start, ts)
}

func (s *stream) dress(p pointBase, start, ts uint64) {
	if start > 0 {
		p.SetStartTimestamp(pcommon.Timestamp(min(start, ts)))
	}
	p.SetTimestamp(pcommon.Timestamp(ts))
	s.attrs.CopyTo(p.Attributes())
}

func (s *stream) writeExemplars(out pmetric.ExemplarSlice) {
	for i := range s.exemplars {
		x := &s.exemplars[i]
		if x.trace.IsEmpty() {
			continue
		}
		e := out.AppendEmpty()
		e.SetDoubleValue(x.value)
		e.SetTimestamp(pcommon.Timestamp(x.time))
		e.SetTraceID(x.trace)
		e.SetSpanID(x.span)
		*x = exemplar{}
	}
	s.exemplars = s.exemplars[:0]
}

// toInt is a whole number as int64, at most the largest.
func toInt(v float64) int64 {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(v)
}
