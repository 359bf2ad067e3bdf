// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/startpoint"
)

// pointBase has the methods that all kinds of points share.
type pointBase interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
}

// millisecond is the resolution of Prometheus. It rejects a whole request with two values of a
// series at one time.
const millisecond = uint64(time.Millisecond)

// Next returns the first time after t that Prometheus distinguishes from t, unix ns.
func Next(t uint64) uint64 { return (t/millisecond + 1) * millisecond }

// Series is one time series: its attributes and its state.
type Series struct {
	attrs   pcommon.Map
	start   uint64 // unix ns
	seen    int64  // time of the last change, by the caller's clock
	changed bool   // since the last output
	begun   bool   // a point was written
	gone    bool   // evicted

	total   float64 // of a sum: the total; of a gauge, which is a quotient of sums since the last output: the numerator
	divisor float64 // of a gauge
	written float64 // of a delta sum: the part of total that was written

	distribution distribution // of a histogram
	exemplars    []exemplar   // slot = binary exponent modulo their number, so that they spread over the buckets
}

type exemplar struct {
	value float64
	time  uint64
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// GivenUp reports whether the family has evicted the series, or s is nil. Nothing may be added
// then.
func (s *Series) GivenUp() bool { return s == nil || s.gone }

func (s *Series) touch(now int64) { s.seen, s.changed = now, true }

// Add adds to a sum. now is unix ns, here and below.
func (s *Series) Add(v float64, now int64) {
	if x := s.total + v; x <= math.MaxFloat64 {
		s.total = x
	}
	s.touch(now)
}

// Ratio adds to the numerator and divisor of a gauge.
func (s *Series) Ratio(numerator, divisor float64, now int64) {
	if !s.changed {
		s.total, s.divisor = 0, 0
	}
	s.total += numerator
	s.divisor += divisor
	s.touch(now)
}

// Example makes the span the gauge's exemplar, with the time end.
func (s *Series) Example(v float64, span spanfacts.Key, end uint64) {
	if cap(s.exemplars) > 0 && !span.Trace.IsEmpty() {
		s.exemplars = append(s.exemplars[:0], exemplar{v, end, span.Trace, span.Span})
	}
}

// Record adds a value, which counts weight times, to a distribution. The span becomes an exemplar
// with the time end, unless it has no trace ID.
func (s *Series) Record(v, weight float64, span spanfacts.Key, end uint64, now int64) {
	s.distribution.record(v, weight)
	if n := cap(s.exemplars); n > 0 && !span.Trace.IsEmpty() {
		s.exemplars = s.exemplars[:n]
		s.exemplars[magnitude(v)%n] = exemplar{v, end, span.Trace, span.Span}
	}
	s.touch(now)
}

// magnitude returns the binary exponent of a value, shifted so that it is never negative.
func magnitude(v float64) int {
	_, exponent := math.Frexp(v)
	return exponent + 1100 // of the smallest number it is -1073
}

// write adds the series' point to a metric of its form; it returns false if there is none to write.
// A cumulative series begins with a point of 0, without which its first increase is invisible, and
// is written even if nothing has changed.
func (s *Series) write(st *Settings, m pmetric.Metric, of *Family, ts pointTime) bool {
	delta, f := st.Delta, of.Form
	if !s.changed && (delta || f == Gauge) {
		return false
	}
	if st.begins(s, f) {
		s.writeZero(st, m, of, ts)
		st.begun = append(st.begun, s)
	}
	s.begun = true
	wrote := true
	switch f {
	case Gauge:
		v := s.total / s.divisor
		if wrote = v >= 0 && v <= math.MaxFloat64; wrote { // false for NaN
			p := m.Gauge().DataPoints().AppendEmpty()
			p.SetDoubleValue(v)
			s.dress(p, 0, ts.at)
			s.writeExemplars(p.Exemplars())
		}
	case Histogram:
		p := st.writeHistogram(m, &s.distribution)
		s.dress(p, s.start, ts.at)
		s.writeExemplars(p.Exemplars())
		if delta {
			s.distribution.reset()
		}
	default:
		s.writeSum(m.Sum().DataPoints().AppendEmpty(), f, delta, ts.at)
	}
	s.changed = false
	if delta {
		s.start = ts.at
	}
	if delta || f == Gauge {
		clear(s.exemplars)
		s.exemplars = s.exemplars[:0]
	}
	return wrote
}

// writeZero adds a point of 0 at the start of the series, at most startpoint.Before earlier than
// its first point.
func (s *Series) writeZero(st *Settings, m pmetric.Metric, of *Family, ts pointTime) {
	at := max(s.start, ts.at-min(ts.at, uint64(startpoint.Before(st.Interval))))
	if at/millisecond <= ts.before/millisecond {
		at = Next(ts.before)
	}
	if s.start == 0 || at/millisecond >= ts.at/millisecond {
		at = ts.at - min(ts.at, millisecond)
	}
	s.start = min(s.start, at) // of a span that is ahead of the clock; later points have the same start
	if at == 0 || at/millisecond <= ts.before/millisecond {
		return
	}
	switch of.Form {
	case Histogram:
		empty := newDistribution(st.newHistogram(of.Bounds))
		s.dress(st.writeHistogram(m, &empty), s.start, at)
	default:
		empty := Series{attrs: s.attrs, start: s.start}
		empty.writeSum(m.Sum().DataPoints().AppendEmpty(), of.Form, false, at)
	}
}

func (s *Series) writeSum(p pmetric.NumberDataPoint, f Form, delta bool, ts uint64) {
	v := s.total
	if f == Count {
		v = math.Round(v)
	}
	out := v
	if delta {
		out = v - s.written
		s.written = v
	}
	if f == Count {
		p.SetIntValue(toInt(out))
	} else {
		p.SetDoubleValue(out)
	}
	s.dress(p, s.start, ts)
}

func (s *Series) dress(p pointBase, start, ts uint64) {
	if start > 0 {
		p.SetStartTimestamp(pcommon.Timestamp(min(start, ts)))
	}
	p.SetTimestamp(pcommon.Timestamp(ts))
	s.attrs.CopyTo(p.Attributes())
}

// writeExemplars writes the exemplars. Exemplars of a cumulative series stay until others replace
// them, because scrapes are not synchronized with outputs.
func (s *Series) writeExemplars(out pmetric.ExemplarSlice) {
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
	}
}

// toInt converts a whole number to int64. A counter that reaches 2^63, as bytes do within weeks,
// restarts at 0, which rates handle as a restart; a counter that stayed at the largest number would
// show no more activity.
func toInt(v float64) int64 { return int64(math.Mod(v, 1<<63)) }
