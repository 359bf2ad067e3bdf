// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"sort"

	"github.com/lightstep/go-expohisto/structure"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// histogram is a distribution of values ≥ 0.
type histogram interface {
	// record adds a value that counts n times.
	record(value float64, n uint64)
	// write adds a point to a metric of the right form, without the fields that the forms share.
	write(pmetric.Metric) histogramPoint
	// reset starts over after a delta point.
	reset()
}

// histogramPoint is what both forms of points share.
type histogramPoint interface {
	pointBase
	SetCount(uint64)
	SetSum(float64)
	SetMin(float64)
	SetMax(float64)
	Exemplars() pmetric.ExemplarSlice
}

// distribution is a histogram of weighted values: a sampled span represents a number of spans that
// need not be whole. The remainder of rounding is carried to the next value, so that counts add up
// over all buckets and all deltas.
type distribution struct {
	histogram
	count         uint64
	carry         float64
	sum, min, max float64
}

func newDistribution(h histogram) distribution {
	return distribution{histogram: h, min: math.Inf(1), max: math.Inf(-1)}
}

func (d *distribution) record(value, weight float64) {
	d.carry += weight
	if n := math.Round(d.carry); n >= 1 {
		d.carry -= n
		d.count += uint64(n)
		d.histogram.record(value, uint64(n))
	}
	if sum := d.sum + value*weight; sum <= math.MaxFloat64 { // as for the sums of series: infinite sums are omitted
		d.sum = sum
	}
	d.min, d.max = min(d.min, value), max(d.max, value)
}

func (d *distribution) write(m pmetric.Metric) histogramPoint {
	p := d.histogram.write(m)
	p.SetCount(d.count)
	p.SetSum(d.sum)
	if d.min <= d.max {
		p.SetMin(d.min)
		p.SetMax(d.max)
	}
	return p
}

func (d *distribution) reset() {
	carry := d.carry
	d.histogram.reset()
	*d = newDistribution(d.histogram)
	d.carry = carry
}

// explicitHistogram has configured upper bounds, inclusive; the last bucket has none.
type explicitHistogram struct {
	bounds []float64 // shared
	counts []uint64
}

func (h *explicitHistogram) record(value float64, n uint64) {
	h.counts[sort.SearchFloat64s(h.bounds, value)] += n
}

func (h *explicitHistogram) write(m pmetric.Metric) histogramPoint {
	p := m.Histogram().DataPoints().AppendEmpty()
	p.ExplicitBounds().FromRaw(h.bounds)
	p.BucketCounts().FromRaw(h.counts)
	return p
}

func (h *explicitHistogram) reset() { clear(h.counts) }

// exponentialHistogram has buckets (base^i, base^(i+1)] with base = 2^(2^-scale) (OpenTelemetry
// metrics data model, exponential histograms), of which it halves the resolution whenever a value
// does not fit in.
type exponentialHistogram struct{ structure.Histogram[float64] }

func (h *exponentialHistogram) record(value float64, n uint64) { h.UpdateByIncr(value, n) }

func (h *exponentialHistogram) write(m pmetric.Metric) histogramPoint {
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetScale(h.Scale())
	p.SetZeroCount(h.ZeroCount())
	from, to := h.Positive(), p.Positive()
	to.SetOffset(from.Offset())
	to.BucketCounts().EnsureCapacity(int(from.Len()))
	for i := range from.Len() {
		to.BucketCounts().Append(from.At(i))
	}
	return p
}

func (h *exponentialHistogram) reset() { h.Clear() }
