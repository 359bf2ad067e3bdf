// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math"

	"go.opentelemetry.io/collector/pdata/pmetric"
)

// maxScale is the finest resolution; 2^(2^-20) is a step of less than a millionth.
const maxScale = 20

// exponentialHistogram has buckets (base^i, base^(i+1)] with base = 2^(2^-scale) (OpenTelemetry metrics data model,
// exponential histograms). It halves its resolution whenever a value does not fit in maxSize buckets.
type exponentialHistogram struct {
	moments
	maxSize int
	scale   int
	offset  int // bucket number of weights[0]
	weights []float64
	zero    float64
}

func newExponentialHistogram(maxSize int) *exponentialHistogram {
	return &exponentialHistogram{moments: noMoments, maxSize: maxSize, scale: maxScale}
}

func (h *exponentialHistogram) record(value, weight float64) int {
	h.moments.record(value, weight)
	if !(value > 0) {
		h.zero += weight
		return 0
	}
	i := bucketOf(value, h.scale)
	if len(h.weights) == 0 {
		h.offset = i
		h.weights = append(h.weights, weight)
		return 0
	}
	low, high := min(i, h.offset), max(i, h.offset+len(h.weights)-1)
	by := 0
	for ; high-low >= h.maxSize; by++ {
		low, high = low>>1, high>>1
	}
	h.coarsen(by)
	i >>= by
	h.cover(i)
	h.weights[i-h.offset] += weight
	return i - h.offset
}

// bucketOf is ⌈log2(value)·2^scale⌉ − 1, exact at powers of two.
func bucketOf(value float64, scale int) int {
	fraction, exponent := math.Frexp(value) // value = fraction·2^exponent, fraction in [0.5, 1)
	if fraction == 0.5 {
		return shift(exponent-1, scale) - 1
	}
	if scale <= 0 {
		return (exponent - 1) >> -scale
	}
	// fraction·2 is in (1, 2): its logarithm is strictly between 0 and 1.
	inside := int(math.Ceil(math.Log2(fraction*2)*math.Ldexp(1, scale))) - 1
	return (exponent-1)<<scale + min(max(inside, 0), 1<<scale-1)
}

// shift is the number of buckets below 2^exponent; for scale < 0 rounded up, since 2^exponent is the upper end of one.
func shift(exponent, scale int) int {
	if scale >= 0 {
		return exponent << scale
	}
	return -(-exponent >> -scale)
}

// coarsen halves the resolution by times; buckets 2i and 2i+1 become i.
func (h *exponentialHistogram) coarsen(by int) {
	if by == 0 {
		return
	}
	first := h.offset >> by
	for j, w := range h.weights {
		i := (h.offset+j)>>by - first
		if i != j {
			h.weights[j] = 0
			h.weights[i] += w
		}
	}
	h.weights = h.weights[:(h.offset+len(h.weights)-1)>>by-first+1]
	h.offset, h.scale = first, h.scale-by
}

// cover extends the buckets to i.
func (h *exponentialHistogram) cover(i int) {
	if below := h.offset - i; below > 0 {
		h.weights = append(make([]float64, below, below+len(h.weights)), h.weights...)
		h.offset = i
	}
	for i-h.offset >= len(h.weights) {
		h.weights = append(h.weights, 0)
	}
}

func (h *exponentialHistogram) write(m pmetric.Metric) histogramPoint {
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetScale(int32(h.scale))
	p.SetZeroCount(whole(h.zero))
	p.Positive().SetOffset(int32(h.offset))
	count := p.ZeroCount()
	p.Positive().BucketCounts().EnsureCapacity(len(h.weights))
	for _, w := range h.weights {
		n := whole(w)
		count += n
		p.Positive().BucketCounts().Append(n)
	}
	p.SetCount(count)
	p.SetSum(h.sum)
	if h.min <= h.max {
		p.SetMin(h.min)
		p.SetMax(h.max)
	}
	return p
}

func (h *exponentialHistogram) reset() {
	*h = exponentialHistogram{moments: noMoments, maxSize: h.maxSize, scale: maxScale, weights: h.weights[:0]}
}
