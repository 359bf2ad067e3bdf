// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// shared is a device with 1 unit per cell whose energy is divided in known windows.
type shared struct {
	*grid
	windows []attribution.Window
}

func (s *shared) Windows(from, to int64, dst []attribution.Window) []attribution.Window {
	for _, w := range s.windows {
		if w.From < to && w.To > from {
			dst = append(dst, w)
		}
	}
	return dst
}

func (s *shared) window(from, to int, parts ...attribution.Part) {
	s.windows = append(s.windows, attribution.Window{From: int64(from) * cellNS, To: int64(to) * cellNS, Parts: parts})
}

// Ten cells of a device with 1 unit per cell.
func TestSpansHaveTheShareOfTheirProcess(t *testing.T) {
	half := []attribution.Part{{Process: 1, Share: 0.5, Resident: 0.5}}
	for name, c := range map[string]struct {
		spans        []attribution.Span
		parts        []attribution.Part
		want         []float64 // of the spans
		rest, others float64
	}{
		"a neighbor without spans":                    {[]attribution.Span{span(1, 0, 1, 0, 10)}, half, []float64{5}, 0, 5},
		"spans around all kernels":                    {[]attribution.Span{span(1, 0, 1, 0, 5)}, half, []float64{5}, 0, 5},
		"spans around half of the kernels":            {[]attribution.Span{span(1, 0, 1, 0, 2), span(2, 0, 1, 4, 5)}, half, []float64{2, 1}, 2, 5},
		"spans around a little":                       {[]attribution.Span{span(1, 0, 1, 2, 3)}, half, []float64{1}, 4, 5},
		"no spans now":                                {nil, half, nil, 5, 5},
		"a process that did nothing":                  {[]attribution.Span{span(1, 0, 1, 0, 10)}, []attribution.Part{{Process: 1}}, []float64{0}, 0, 10},
		"nobody else":                                 {[]attribution.Span{span(1, 0, 1, 2, 4)}, []attribution.Part{{Process: 1, Share: 1, Resident: 0.9}}, []float64{2}, 8, 0},
		"two processes with spans":                    {[]attribution.Span{span(1, 0, 1, 0, 10), span(2, 0, 2, 0, 10)}, append(half, attribution.Part{Process: 2, Share: 0.2, Resident: 0.2}), []float64{5, 2}, 0, 3},
		"a process that no user of the device is":     {[]attribution.Span{span(1, 0, 1, 0, 10), span(2, 0, 2, 0, 10)}, half, []float64{5, 5}, 0, 0},
		"only that one":                               {[]attribution.Span{span(1, 0, 2, 0, 10)}, half, []float64{5}, 5, 0},
		"nothing is known":                            {[]attribution.Span{span(1, 0, 1, 0, 10), span(2, 0, 2, 0, 10)}, nil, []float64{5, 5}, 0, 0},
		"an outer span of one with two inner streams": {[]attribution.Span{span(1, 0, 1, 0, 10), span(2, 1, 1, 0, 10), span(3, 1, 1, 0, 10)}, half, []float64{5, 2.5, 2.5}, 0, 5},
	} {
		t.Run(name, func(t *testing.T) {
			d, m := newDevice(), &shared{grid: flat()}
			if name != "nothing is known" {
				m.window(1, 11, c.parts...)
			}
			take(d, span(99, 0, 9, 0, 1), m) // the settled time starts at its start
			var ids []int
			for i, s := range c.spans {
				s.Start, s.End = s.Start+cellNS, s.End+cellNS
				require.Equal(t, attribution.Taken, take(d, s, m))
				ids = append(ids, i+1)
			}
			d.Settle(11*cellNS, m)
			for i, got := range shares(t, d, ids...) {
				assert.InDelta(t, c.want[i], got, 1e-9)
			}
			total := d.Totals()
			assert.InDelta(t, c.rest, total.Rest, 1e-9)
			assert.InDelta(t, c.others, total.Others, 1e-9)
		})
	}
}

// Process 1 is its spans and its rest, in whichever steps time is settled.
func TestSpansAndTheRestAreTheProcess(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		d, m := newDevice(), &shared{grid: flat()}
		for i := range m.flow {
			m.flow[i] = r.Float64()
		}
		take(d, span(9999, 0, 9, 0, 1), m)
		process := 0.
		for from := 1; from < 900; {
			to := from + 1 + r.IntN(20)
			if r.IntN(4) > 0 {
				share := r.Float64()
				m.window(from, to, attribution.Part{Process: 1, Share: share, Resident: r.Float64()})
				for i := from; i < min(to, 900); i++ {
					process += share * m.flow[i]
				}
			}
			from = to
		}
		// Its spans are inside of windows, since it has no energy outside of them.
		var ids []int
		for id, w := range m.windows {
			from, to := int(w.From/cellNS), int(w.To/cellNS)
			if start := from + r.IntN(to-from); to <= 900 && r.IntN(3) > 0 {
				s := span(id+1, 0, 1, start, start+1+r.IntN(to-start))
				require.Equal(t, attribution.Taken, take(d, s, m))
				ids = append(ids, id+1)
			}
		}
		for _, w := range m.windows { // settled at edges of windows
			if r.IntN(2) > 0 && w.To <= 900*cellNS {
				d.Settle(w.To, m)
			}
		}
		d.Settle(900*cellNS, m)
		spans := 0.
		for _, s := range shares(t, d, ids...) {
			spans += s
		}
		total := d.Totals()
		require.InDelta(t, process, spans+total.Rest, 1e-9*process, "seed %d", seed)
		whole := 0.
		for _, x := range m.flow[:900] {
			whole += x
		}
		sum := total.Attributed + total.Unattributed + total.Unseen + total.Rest + total.Others
		require.InDelta(t, whole, sum, 1e-9*whole, "seed %d", seed)
		require.GreaterOrEqual(t, total.Rest, -1e-9)
	}
}
