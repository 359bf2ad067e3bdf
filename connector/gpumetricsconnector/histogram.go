// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"
	"sort"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// histogram is a weighted distribution of values ≥ 0.
type histogram interface {
	// record adds a value with a weight ≥ 1 and returns the number of its bucket.
	record(value, weight float64) int
	// write adds a point to a metric of the right form; it returns what to set times, attributes and exemplars on.
	write(pmetric.Metric) histogramPoint
	// reset starts over after a delta point.
	reset()
}

// histogramPoint is what both forms of points share.
type histogramPoint interface {
	pointBase
	Exemplars() pmetric.ExemplarSlice
}

// moments are kept by both forms.
type moments struct{ sum, min, max float64 }

var noMoments = moments{min: math.Inf(1), max: math.Inf(-1)}

func (m *moments) record(value, weight float64) {
	if sum := m.sum + value*weight; sum <= math.MaxFloat64 { // as the sums of streams: what is beyond is left out
		m.sum = sum
	}
	m.min, m.max = min(m.min, value), max(m.max, value)
}

// explicitHistogram has given upper bounds, inclusive; the last bucket has none.
type explicitHistogram struct {
	moments
	bounds  []float64 // shared
	weights []float64
}

func newExplicitHistogram(bounds []float64) *explicitHistogram {
	return &explicitHistogram{moments: noMoments, bounds: bounds, weights: make([]float64, len(bounds)+1)}
}

func (h *explicitHistogram) record(value, weight float64) int {
	h.moments.record(value, weight)
	i := sort.SearchFloat64s(h.bounds, value)
	h.weights[i] += weight
	return i
}

// write rounds each bucket; the count is the sum of the rounded ones, as the data model wants.
func (h *explicitHistogram) write(m pmetric.Metric) histogramPoint {
	p := m.Histogram().DataPoints().AppendEmpty()
	p.ExplicitBounds().FromRaw(h.bounds)
	p.BucketCounts().EnsureCapacity(len(h.weights))
	var count uint64
	for _, w := range h.weights {
		n := whole(w)
		count += n
		p.BucketCounts().Append(n)
	}
	p.SetCount(count)
	p.SetSum(h.sum)
	if h.min <= h.max {
		p.SetMin(h.min)
		p.SetMax(h.max)
	}
	return p
}

// reset keeps what rounding left over, so that deltas add up.
func (h *explicitHistogram) reset() {
	h.moments = noMoments
	for i, w := range h.weights {
		h.weights[i] = w - float64(whole(w))
	}
}

// whole rounds a weight to the nearest count.
func whole(w float64) uint64 {
	if w <= 0 {
		return 0
	}
	return uint64(math.Round(w))
}
