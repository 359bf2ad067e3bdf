// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package fairshare_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
)

// loaded is a meter of one unit for each cell whose processes state how many spans they run in each cell.
type loaded struct {
	*grid
	running map[uint64]func(cell int64) float64
}

func (l loaded) Levels(process uint64, from, to int64, dst []fairshare.Level) []fairshare.Level {
	f := l.running[process]
	if f == nil {
		return dst
	}
	dst = append(dst, fairshare.Level{Time: from, Running: f(from / cellNS)})
	for c := from/cellNS + 1; c*cellNS < to; c++ {
		dst = append(dst, fairshare.Level{Time: c * cellNS, Running: f(c)})
	}
	return dst
}

func TestSpansThatNeverArriveKeepTheirParts(t *testing.T) {
	eight := func(int64) float64 { return 8 }
	for name, tt := range map[string]struct {
		running map[uint64]func(int64) float64
		spans   []fairshare.Span
		settles []int
		want    map[int]float64
		unseen  float64
	}{
		"seven of eight never arrive": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []fairshare.Span{span(1, 0, 1, 0, 80)},
			want:    map[int]float64{1: 10}, unseen: 70,
		},
		"all of eight arrive": {
			running: map[uint64]func(int64) float64{1: eight},
			spans: []fairshare.Span{
				span(1, 0, 1, 0, 80), span(2, 0, 1, 0, 80), span(3, 0, 1, 0, 80), span(4, 0, 1, 0, 80),
				span(5, 0, 1, 0, 80), span(6, 0, 1, 0, 80), span(7, 0, 1, 0, 80), span(8, 0, 1, 0, 80),
			},
			want: map[int]float64{1: 10, 8: 10},
		},
		"more arrive than the process counts": {
			running: map[uint64]func(int64) float64{1: func(int64) float64 { return 1 }},
			spans:   []fairshare.Span{span(1, 0, 1, 0, 80), span(2, 0, 1, 0, 80)},
			want:    map[int]float64{1: 40, 2: 40},
		},
		"the count changes within a span": {
			running: map[uint64]func(int64) float64{1: func(c int64) float64 {
				if c < 40 {
					return 4
				}
				return 1
			}},
			spans: []fairshare.Span{span(1, 0, 1, 0, 80)},
			want:  map[int]float64{1: 50}, unseen: 30,
		},
		"another process keeps its half": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []fairshare.Span{span(1, 0, 1, 0, 80), span(2, 0, 2, 0, 80)},
			want:    map[int]float64{1: 5, 2: 40}, unseen: 35,
		},
		"a sampler that keeps one in eight": {
			spans: []fairshare.Span{weighted(span(1, 0, 1, 0, 80), 8)},
			want:  map[int]float64{1: 10}, unseen: 70,
		},
		"the larger of weights and the count": {
			running: map[uint64]func(int64) float64{1: func(int64) float64 { return 10 }},
			spans:   []fairshare.Span{weighted(span(1, 0, 1, 0, 80), 8), weighted(span(2, 0, 1, 40, 80), 8)},
			want:    map[int]float64{1: 4 + 2.5, 2: 2.5}, unseen: 80 - 9,
		},
		"settled often": {
			running: map[uint64]func(int64) float64{1: eight},
			spans:   []fairshare.Span{span(1, 0, 1, 0, 80)},
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
	g := loaded{flat(), map[uint64]func(int64) float64{1: func(int64) float64 { return 4 }}}
	d := newDevice()
	take(d, span(9, 0, 2, 0, 1), g)
	d.Settle(100*cellNS, g)
	take(d, span(1, 0, 1, 20, 60), g)
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
		take(d, span(1, 0, 3, 0, 1), g) // the settled time begins here
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

func weighted(s fairshare.Span, w float64) fairshare.Span {
	s.Weight = w
	return s
}
