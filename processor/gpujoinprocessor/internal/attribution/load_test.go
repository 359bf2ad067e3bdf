// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// loaded is a meter of one unit for each cell whose processes state how many requests they run at
// the middle of each cell.
type loaded struct {
	attribution.Meter
	running map[uint64]func(cell int64) float64
}

func (l loaded) Levels(process uint64, from, to int64, dst []attribution.Level) []attribution.Level {
	f := l.running[process]
	if f == nil {
		return dst
	}
	for c := max(0, from/cellNS-1); c*cellNS <= to+cellNS; c++ {
		dst = append(dst, attribution.Level{Time: c*cellNS + cellNS/2, Running: f(c)})
	}
	return dst
}

func TestSpansThatNeverArriveKeepTheirParts(t *testing.T) {
	until80 := func(n float64) func(int64) float64 {
		return func(c int64) float64 {
			if c < 80 {
				return n
			}
			return 0
		}
	}
	eight := until80(8)
	for name, tt := range map[string]struct {
		running map[uint64]func(int64) float64
		spans   []attribution.Span
		settles []int
		want    map[int]float64
		unseen  float64
	}{
		"seven of eight never arrive": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []attribution.Span{request(1, 0, 1, 0, 80)},
			want:    map[int]float64{1: 10}, unseen: 70,
		},
		"all of eight arrive": {
			running: map[uint64]func(int64) float64{1: eight},
			spans: []attribution.Span{
				request(1, 0, 1, 0, 80), request(2, 0, 1, 0, 80), request(3, 0, 1, 0, 80), request(4, 0, 1, 0, 80),
				request(5, 0, 1, 0, 80), request(6, 0, 1, 0, 80), request(7, 0, 1, 0, 80), request(8, 0, 1, 0, 80),
			},
			want: map[int]float64{1: 10, 8: 10},
		},
		"more arrive than the process counts": {
			running: map[uint64]func(int64) float64{1: until80(1)},
			spans:   []attribution.Span{request(1, 0, 1, 0, 80), request(2, 0, 1, 0, 80)},
			want:    map[int]float64{1: 40, 2: 40},
		},
		"the count changes within a span": {
			running: map[uint64]func(int64) float64{1: func(c int64) float64 {
				if c < 40 {
					return 4
				}
				return until80(1)(c)
			}},
			spans: []attribution.Span{request(1, 0, 1, 0, 80)},
			want:  map[int]float64{1: 50}, unseen: 30,
		},
		"another process keeps its half": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []attribution.Span{request(1, 0, 1, 0, 80), request(2, 0, 2, 0, 80)},
			want:    map[int]float64{1: 5, 2: 40}, unseen: 35,
		},
		"a sampler that keeps one in eight": {
			spans: []attribution.Span{weighted(span(1, 0, 1, 0, 80), 8)},
			want:  map[int]float64{1: 10}, unseen: 70,
		},
		"the larger of weights and the count": {
			running: map[uint64]func(int64) float64{1: until80(10)},
			spans:   []attribution.Span{weighted(span(1, 0, 1, 0, 80), 8), weighted(span(2, 0, 1, 40, 80), 8)},
			want:    map[int]float64{1: 4 + 2.5, 2: 2.5}, unseen: 80 - 9,
		},
		"settled often": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []attribution.Span{request(1, 0, 1, 0, 80)},
			settles: []int{1, 7, 8, 33, 79},
			want:    map[int]float64{1: 10}, unseen: 70,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, g := newDevice(), loaded{flat(), tt.running}
			for _, s := range tt.spans {
				take(d, s, g)
			}
			for _, to := range append(tt.settles, 80) {
				d.Settle(int64(to)*cellNS, g)
			}
			for id, want := range tt.want {
				got, ok := share(d, id)
				assert.True(t, ok)
				assert.InDelta(t, want, got.Value, 1e-9, "span %d", id)
			}
			total := d.Totals()
			assert.InDelta(t, tt.unseen, total.Unseen, 1e-9)
			assert.InDelta(t, 80, total.Attributed+total.Unattributed+total.Unseen, 1e-9)
		})
	}
}

func TestLateSpanTakesItsPartOfFreeTimeOnly(t *testing.T) {
	g := loaded{flat(), map[uint64]func(int64) float64{1: func(c int64) float64 {
		if c < 60 {
			return 4
		}
		return 3
	}}}
	d := newDevice()
	take(d, span(9, 0, 2, 0, 1), g)
	d.Settle(100*cellNS, g)
	take(d, request(1, 0, 1, 20, 60), g)
	got, _ := share(d, 1)
	assert.InDelta(t, 10, got.Value, 1e-9)
	assert.InDelta(t, 10, d.Totals().Late, 1e-9)
}

func TestPartsAndUnseenSumToTheCounter(t *testing.T) {
	for seed := range uint64(50) {
		rng := rand.New(rand.NewPCG(seed, 1))
		levels := make([]float64, 200)
		for i := range levels {
			levels[i] = float64(rng.IntN(20)) // 0: not known
		}
		g := loaded{flat(), map[uint64]func(int64) float64{
			1: func(c int64) float64 { return levels[min(c, 199)] },
			2: func(c int64) float64 { return levels[199-min(c, 199)] },
		}}
		d := newDevice()
		take(d, span(1, 0, 3, 0, 1), g) // settled time starts here
		n, at := 1, 0
		for at < 190 {
			for range rng.IntN(5) {
				n++
				from := at + rng.IntN(10)
				take(d, weighted(span(n, 0, 1+rng.IntN(3), from, from+1+rng.IntN(40)), float64(rng.IntN(6))), g)
			}
			at += rng.IntN(8)
			d.Settle(int64(at)*cellNS, g)
		}
		d.Settle(400*cellNS, g)
		var have float64
		for id := 1; id <= n; id++ {
			got, ok := share(d, id)
			assert.True(t, ok)
			have += got.Own
		}
		total := d.Totals()
		assert.InDelta(t, have, total.Attributed+total.Late, 1e-9, "seed %d", seed)
		assert.InDelta(t, 400, total.Attributed+total.Unattributed+total.Unseen, 1e-9, "seed %d", seed)
	}
}

func weighted(s attribution.Span, w float64) attribution.Span {
	s.Weight, s.Yields, s.Request = w, true, true
	return s
}

func request(id, parent, process, start, end int) attribution.Span {
	return weighted(span(id, parent, process, start, end), 0)
}

// A batch on the device is the server's whole work, regardless of which requests have spans.
func TestWorkOnTheDeviceIsNotDividedByTheNumberOfRequests(t *testing.T) {
	g := loaded{flat(), map[uint64]func(int64) float64{1: func(int64) float64 { return 8 }}}
	d := newDevice()
	take(d, request(1, 0, 1, 0, 80), g)
	take(d, span(2, 0, 1, 10, 60), g)
	d.Settle(80*cellNS, g)
	got, _ := share(d, 2)
	assert.InDelta(t, 50, got.Value, 1e-9)
}

// A request inside another one of its process, such as of an engine below a frontend, is one
// request.
func TestRequestInsideAnotherIsCountedOnce(t *testing.T) {
	g := loaded{flat(), map[uint64]func(int64) float64{1: func(c int64) float64 {
		if c < 80 {
			return 2
		}
		return 0
	}}}
	d := newDevice()
	take(d, request(1, 0, 1, 0, 80), g)
	take(d, request(2, 1, 1, 0, 80), g)
	d.Settle(80*cellNS, g)
	outer, _ := share(d, 1)
	inner, _ := share(d, 2)
	assert.InDelta(t, 40, outer.Value, 1e-9, "the other half is of a request without a span")
	assert.InDelta(t, 40, inner.Value, 1e-9)
	assert.Zero(t, outer.Own)
}

// Requests start and end at random, and the number of running ones is read once in ten cells. The
// expected result divides each cell equally among all requests that run in it, with or without a
// span.
func TestSharesOfAFluctuatingLoad(t *testing.T) {
	const cells, period = 20_000, 10 // ten readings during a request of mean length
	for name, tt := range map[string]struct {
		seen float64 // probability of a span
		rate float64 // requests that start in a cell
		// Bounds of the error of the sum over requests and of the mean error of one.
		sum, mean float64
	}{
		"all seen":           {seen: 1, rate: 0.08, sum: 1e-9, mean: 1e-9},
		"nine of ten seen":   {seen: 0.9, rate: 0.08, sum: 0.002, mean: 0.02},
		"half seen":          {seen: 0.5, rate: 0.08, sum: 0.002, mean: 0.02},
		"one of ten seen":    {seen: 0.1, rate: 0.08, sum: 0.002, mean: 0.02},
		"half of a few seen": {seen: 0.5, rate: 0.01, sum: 0.01, mean: 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			running := make([]float64, cells+period+1)
			type one struct{ from, to int }
			var seen []one
			for c := range cells - 400 {
				for rng.Float64() < tt.rate/(1+tt.rate) {
					r := one{c, c + 50 + rng.IntN(100)}
					all := rng.Float64() < tt.seen
					for k := r.from; k < r.to; k++ {
						running[k]++
					}
					if all {
						seen = append(seen, r)
					}
				}
			}
			m := sparse{loaded{rate{1. / cellNS}, map[uint64]func(int64) float64{1: func(c int64) float64 { return running[c] }}}, period}
			d, next := newDevice(), 0
			for at := 200; at <= cells; at += 7 { // spans arrive at their ends, and time older than 200 is settled
				for ; next < len(seen) && seen[next].from < at; next++ {
					take(d, request(1+next, 0, 1, seen[next].from, seen[next].to), m)
				}
				d.Settle(int64(at-200)*cellNS, m)
			}
			d.Settle(cells*cellNS, m)
			var have, truth, off float64
			for i, r := range seen {
				got, ok := share(d, 1+i)
				assert.True(t, ok)
				fair := 0.
				for c := r.from; c < r.to; c++ {
					fair += 1 / running[c]
				}
				have, truth = have+got.Value, truth+fair
				off += math.Abs(got.Value/fair - 1)
			}
			n := float64(len(seen))
			t.Logf("%d requests: sum %+.2f %%, mean error %.2f %%", len(seen), 100*(have/truth-1), 100*off/n)
			assert.InDelta(t, 1, have/truth, tt.sum)
			assert.LessOrEqual(t, off/n, tt.mean)
		})
	}
}

// Of a burst of eight requests one has a span. The readings before and after it say nothing of when
// it began and ended; the span does.
func TestABurstLastsAsLongAsTheSpanInIt(t *testing.T) {
	const from, to = 103, 167
	running := func(c int64) float64 {
		if c >= from && c < to {
			return 8
		}
		return 0
	}
	m := sparse{loaded{rate{1. / cellNS}, map[uint64]func(int64) float64{1: running}}, 10}
	for _, step := range []int{1, 3, 7, 25, 250} {
		d := newDevice()
		d.Settle(90*cellNS, m)
		take(d, request(1, 0, 1, from, to), m)
		for at := 90 + step; at <= 340; at += step {
			d.Settle(int64(at)*cellNS, m)
		}
		got, ok := share(d, 1)
		assert.True(t, ok)
		assert.InDelta(t, (to-from)/8., got.Value, 1e-9, "settled each %d", step)
	}
}

// sparse reads once in several cells only.
type sparse struct {
	loaded
	period int64
}

func (s sparse) Levels(process uint64, from, to int64, dst []attribution.Level) []attribution.Level {
	step := s.period * cellNS
	for at := from / step * step; at <= to+step; at += step {
		dst = append(dst, attribution.Level{Time: at, Running: s.running[process](min(at/cellNS, 20_000))})
	}
	return dst
}
