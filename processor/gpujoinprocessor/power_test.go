// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
)

// On a device without an energy counter, gpu.energy is gpu.power times the span's duration, also for spans inside one
// sampling cell, whenever the cell is settled. Power is 100 W up to an edge and 400 W after the next sample, so it is
// 100 + 3000 t in the cell between.
func TestEnergyOfPowerSamplesIsPowerTimesTime(t *testing.T) {
	const edge, cell = 1000 * time.Millisecond, 100 * time.Millisecond
	for _, settled := range []time.Duration{7 * time.Millisecond, 35 * time.Millisecond, 62 * time.Millisecond, cell} {
		t.Run(fmt.Sprint("settled ", settled, " into the cell"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				zero := time.Now()
				r.run(r.device(nominal), func(at time.Time, s *gpusamplesextension.Sample) {
					s.Set(gpusamplesextension.Power, 100)
					if at.Sub(zero) > edge {
						s.Set(gpusamplesextension.Power, 400)
					}
				})
				r.join()
				defer r.close()
				time.Sleep(edge + 3*cell)
				begin := zero.Add(edge)
				td := newTraces("a")
				td.gpu(9, 0, begin.Add(-cell), begin.Add(settled)) // releasing it settles the device inside the cell
				r.consume(td.Traces)
				td = newTraces("a")
				for i := range 10 {
					from := begin.Add(time.Duration(i) * cell / 10)
					td.gpu(uint64(10+i), 0, from, from.Add(cell/10))
				}
				r.consume(td.Traces)
				time.Sleep(10 * time.Second)
				got := r.spans()
				require.Len(t, got, 11)
				sum := energy(t, got[9])
				for i := range 10 {
					sum += energy(t, got[uint64(10+i)])
					middle := (float64(i) + 0.5) / 100
					watts := attr(t, got[uint64(10+i)], "gpu.power").(float64)
					assert.InDelta(t, 100+3000*middle, watts, 1e-6)
					if middle > settled.Seconds()+0.005 { // alone on the device
						assert.InDelta(t, watts*0.01, energy(t, got[uint64(10+i)]), 1e-9, "span %d", i)
					}
				}
				assert.InDelta(t, 100*0.1+(100+400)/2*0.1, sum, 1e-9, "nothing is lost or counted twice")
			})
		})
	}
}

// The device draws low watts until the middle of a cell, then 700 W. Samples show both sides of the cell and its
// energy, so half of a cell can have up to half of the difference more or less than the mean.
func TestEnergyErrorIsBoundedByTheCellsAtTheEnds(t *testing.T) {
	const cell = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		low, edge  float64 // W before; s after the sample at which the device rises
		counter    bool
		from, to   time.Duration // of the span, relative to that sample
		wantEnergy float64
		wantError  any // nil: no attribute
	}{
		// The cell has 5 + 35 J, of which the span gets half, but it used 35.
		"a rise inside a cell": {
			low: 100, edge: 0.05, counter: true, from: cell / 2, to: cell, wantEnergy: 20, wantError: 15.0,
		},
		// 10 J of 40 J; between 100 and 700 W for 25 ms.
		"a quarter of the cell": {
			low: 100, edge: 0.05, counter: true, from: 3 * cell / 4, to: cell, wantEnergy: 10, wantError: 7.5,
		},
		"both ends inside one cell": {
			low: 100, edge: 0.05, counter: true, from: cell / 4, to: 3 * cell / 4, wantEnergy: 20, wantError: 15.0,
		},
		// 20 J of the first cell, 70 J of the next.
		"a longer span": {
			low: 100, edge: 0.05, counter: true, from: cell / 2, to: 2 * cell, wantEnergy: 90, wantError: 15.0,
		},
		"an error below 5 %": {low: 100, edge: 0.05, counter: true, from: cell / 2, to: 6 * cell, wantEnergy: 370},
		"whole cells":        {low: 100, edge: 0.05, counter: true, from: 0, to: cell, wantEnergy: 40},
		"constant power":     {low: 700, edge: 0.05, counter: true, from: cell / 2, to: cell, wantEnergy: 35},
		// Without a counter, the energy of the cell is unknown, too: 100 + 600 t/cell, between 100 and 700 W.
		"no counter": {low: 100, edge: 0.05, from: cell / 2, to: cell, wantEnergy: 27.5, wantError: 22.5},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				zero := time.Now()
				const before = time.Second
				r.run(r.device(nominal), func(at time.Time, s *gpusamplesextension.Sample) {
					after := at.Sub(zero.Add(before)).Seconds() // the start of the cell
					s.Set(gpusamplesextension.Power, tt.low)
					if after > tt.edge {
						s.Set(gpusamplesextension.Power, 700)
					}
					if tt.counter {
						s.Set(gpusamplesextension.Energy, 5000+tt.low*after+max(0, after-tt.edge)*(700-tt.low))
					}
				})
				r.join()
				defer r.close()
				time.Sleep(before + 10*cell)
				td := newTraces("a")
				td.gpu(1, 0, zero.Add(before+tt.from), zero.Add(before+tt.to))
				r.consume(td.Traces)
				time.Sleep(10 * time.Second)
				got := r.spans()[1]
				assert.InDelta(t, tt.wantEnergy, energy(t, got), 1e-9)
				if tt.wantError == nil {
					assert.NotContains(t, got.Attributes().AsRaw(), "gpu.energy_error")
				} else {
					assert.InDelta(t, tt.wantError, attr(t, got, "gpu.energy_error"), 1e-9)
				}
			})
		})
	}
}

// Only the energy of a pulse between two samples is known: the device's power limit bounds its height.
func TestEnergyErrorOfAPulseBetweenTwoSamples(t *testing.T) {
	for _, tt := range []struct{ limit, want float64 }{
		{limit: 700, want: 15}, // 20 J of 40 J, at most 700 W × 50 ms
		{limit: 500, want: 5},
		{limit: 0, want: 15}, // all above 100 W: 40 J - 5 J
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			zero := time.Now()
			d := nominal
			d.Limits.Power = tt.limit
			r.run(r.device(d), func(at time.Time, s *gpusamplesextension.Sample) {
				after := at.Sub(zero.Add(time.Second)).Seconds()
				s.Set(gpusamplesextension.Power, 100)
				s.Set(gpusamplesextension.Energy, 5000+100*after+600*min(max(0, after-0.05), 0.05))
			})
			r.join()
			defer r.close()
			time.Sleep(2 * time.Second)
			td := newTraces("a")
			td.gpu(1, 0, zero.Add(1050*time.Millisecond), zero.Add(1100*time.Millisecond))
			r.consume(td.Traces)
			time.Sleep(10 * time.Second)
			assert.InDelta(t, tt.want, attr(t, r.spans()[1], "gpu.energy_error"), 1e-9, "limit %g W", tt.limit)
		})
	}
}
