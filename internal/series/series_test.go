// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// named returns the attributes of a series.
func named(name string) pcommon.Map {
	m := pcommon.NewMap()
	m.PutStr(string(semconv.GPUOperationNameKey), name)
	return m
}

// write writes a family and returns its metric.
func write(t *testing.T, st *Settings, f *Family, at uint64) pmetric.Metric {
	t.Helper()
	out := pmetric.NewMetricSlice()
	f.write(st, out, pointTime{at: at})
	require.Equal(t, 1, out.Len())
	return out.At(0)
}

const second = uint64(1e9)

func TestExpireKeepsUnwrittenSeries(t *testing.T) {
	st := &Settings{CardinalityLimit: 10}
	f := Family{Name: semconv.GPUOperationCountName, Form: Count}
	f.Get(st, named("a"), second).Add(1, 1)
	s := f.list[0]
	assert.Zero(t, f.Expire(st, 2))
	write(t, st, &f, 2*second)
	assert.Zero(t, f.Expire(st, 1))
	assert.False(t, s.GivenUp())
	assert.Equal(t, 1, f.Expire(st, 2))
	assert.True(t, s.GivenUp())
	assert.True(t, (*Series)(nil).GivenUp())
	assert.Zero(t, st.Kept)
}

// A gauge has no point of 0 at its start, and none without a value that is a number.
func TestGaugesAreQuotientsOfSumsSinceTheLastOutput(t *testing.T) {
	for _, exemplars := range []int{0, 4} {
		st := &Settings{CardinalityLimit: 10}
		f := Family{Name: semconv.GPUOperationItemEnergyName, Form: Gauge, Exemplars: exemplars}
		s := f.Get(st, named("a"), second)
		for i, x := range []struct {
			sums [][2]float64
			want []float64
		}{
			{[][2]float64{{6, 4}, {3, 2}}, []float64{1.5}},
			{[][2]float64{{0, 5}}, []float64{0}},
			{[][2]float64{{math.MaxFloat64, 1}}, []float64{math.MaxFloat64}},
			{[][2]float64{{1, 0}}, nil},
			{[][2]float64{{0, 0}}, nil},
			{[][2]float64{{-1, 1}}, nil},
			{nil, nil},
		} {
			for _, sum := range x.sums {
				s.Ratio(sum[0], sum[1], int64(i))
			}
			s.Example(7, spanfacts.Key{}, second)
			s.Example(8, spanfacts.Key{Trace: pcommon.TraceID{1}, Span: pcommon.SpanID{2}}, second)
			out := pmetric.NewMetricSlice()
			f.write(st, out, pointTime{at: uint64(i+2) * second})
			var got []float64
			for _, m := range out.All() {
				for _, p := range m.Gauge().DataPoints().All() {
					got = append(got, p.DoubleValue())
					assert.Zero(t, p.StartTimestamp())
					assert.Equal(t, min(1, exemplars), p.Exemplars().Len())
				}
			}
			assert.Equal(t, x.want, got, "%v", x.sums)
		}
	}
}

func TestNextIsTheNextMillisecond(t *testing.T) {
	assert.EqualValues(t, 1_000_000, Next(0))
	assert.EqualValues(t, 3_000_000, Next(2_000_000))
	assert.EqualValues(t, 3_000_000, Next(2_999_999))
}

func TestCountsWrapAtTheLargestNumber(t *testing.T) {
	for _, delta := range []bool{false, true} {
		st := &Settings{CardinalityLimit: 10, Delta: delta}
		f := Family{Name: semconv.GPUOperationIOName, Form: Count}
		s := f.Get(st, named("a"), second)
		var got []int64
		for i := range uint64(3) {
			s.Add(1<<62, int64(i))
			points := write(t, st, &f, (i+2)*second).Sum().DataPoints() // the first output starts with a 0
			got = append(got, points.At(points.Len()-1).IntValue())
		}
		if delta {
			assert.Equal(t, []int64{1 << 62, 1 << 62, 1 << 62}, got)
		} else {
			assert.Equal(t, []int64{1 << 62, 0, 1 << 62}, got)
		}
	}
}

func TestTheOverflowSeriesIsEvictedAndCreatedAgain(t *testing.T) {
	st := &Settings{CardinalityLimit: 2, Delta: true}
	f := Family{Name: semconv.GPUOperationCountName, Form: Count}
	for round := range int64(3) {
		for _, name := range []string{"a", "b", "c"} {
			s := f.Get(st, named(name), second)
			s.Add(1, round)
			assert.Equal(t, name != "a", f.Overflowed(s))
		}
		points := write(t, st, &f, uint64(round+2)*second).Sum().DataPoints()
		require.Equal(t, 2, points.Len())
		assert.EqualValues(t, 2, points.At(1).IntValue(), "of b and c")
		assert.Equal(t, 2, f.Expire(st, round+1))
	}
}

func TestDeltasHaveTheExemplarsOfTheirInterval(t *testing.T) {
	st := &Settings{CardinalityLimit: 10, Delta: true}
	f := Family{Name: semconv.GPUOperationDurationName, Form: Histogram, Bounds: []float64{1}, Exemplars: 8}
	for i, v := range []float64{1, 1000} {
		span := spanfacts.Key{Trace: pcommon.TraceID{1}, Span: pcommon.SpanID{byte(i + 1)}}
		f.Get(st, named("a"), second).Record(v, 1, span, second, 1)
		p := write(t, st, &f, uint64(i+2)*second).Histogram().DataPoints().At(0)
		require.Equal(t, 1, p.Exemplars().Len())
		assert.Equal(t, v, p.Exemplars().At(0).DoubleValue())
	}
}

func TestDeltasHaveTheBucketsOfTheirInterval(t *testing.T) {
	for _, exponential := range []int{0, 16} {
		st := &Settings{CardinalityLimit: 10, Delta: true, Exponential: exponential}
		f := Family{Name: semconv.GPUOperationDurationName, Form: Histogram, Bounds: []float64{1}}
		for i, values := range [][]float64{{0.5, 5, 5}, {5}} {
			for _, v := range values {
				f.Get(st, named("a"), second).Record(v, 1, spanfacts.Key{}, second, 1)
			}
			m := write(t, st, &f, uint64(i+2)*second)
			var count, inBuckets uint64
			if exponential > 0 {
				p := m.ExponentialHistogram().DataPoints().At(0)
				count, inBuckets = p.Count(), sum(p.Positive().BucketCounts().AsRaw())
			} else {
				p := m.Histogram().DataPoints().At(0)
				count, inBuckets = p.Count(), sum(p.BucketCounts().AsRaw())
			}
			assert.EqualValues(t, len(values), count)
			assert.EqualValues(t, len(values), inBuckets, "interval %d", i)
		}
	}
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
