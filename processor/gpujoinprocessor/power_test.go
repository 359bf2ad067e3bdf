// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// On a device without an energy counter, gpu.energy is gpu.power times the span's duration, also
// for spans inside one sampling cell, whenever the cell is settled. Power is 400 W up to an edge
// and 600 W after the next sample, so it is 400 + 2000 t in the cell between.
func TestEnergyOfPowerSamplesIsPowerTimesTime(t *testing.T) {
	const edge, cell = 1000 * time.Millisecond, 100 * time.Millisecond
	for _, settled := range []time.Duration{7 * time.Millisecond, 35 * time.Millisecond, 62 * time.Millisecond, cell} {
		t.Run(fmt.Sprint("settled ", settled, " into the cell"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				zero := time.Now()
				r.run(r.device(nominal), func(at time.Time, s *devicesamples.Sample) {
					s.Set(devicesamples.Power, 400)
					if at.Sub(zero) > edge {
						s.Set(devicesamples.Power, 600)
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
					assert.InDelta(t, 400+2000*middle, watts, 1e-6)
					if middle > settled.Seconds()+0.005 { // alone on the device
						assert.InDelta(t, watts*0.01, energy(t, got[uint64(10+i)]), 1e-9, "span %d", i)
					}
				}
				assert.InDelta(t, 400*0.1+(400+600)/2*0.1, sum, 1e-9, "nothing is lost or counted twice")
			})
		})
	}
}

// The device draws low watts until the middle of a cell, then 700 W. Samples show both sides of the
// cell and perhaps its energy, but not when the power rose.
func TestEnergyErrorIsStatedWhereSamplesDoNotShowAChange(t *testing.T) {
	const cell = 100 * time.Millisecond
	for name, tt := range map[string]struct {
		low, edge  float64 // W before; s after the sample at which the device rises
		counter    bool
		from, to   time.Duration // of the span, relative to that sample
		wantEnergy float64
		stated     bool
	}{
		"a rise inside a cell": {
			low: 400, edge: 0.05, counter: true, from: cell / 2, to: cell, wantEnergy: 27.5, stated: true,
		},
		"a quarter of the cell": {
			low: 400, edge: 0.05, counter: true, from: 3 * cell / 4, to: cell, wantEnergy: 13.75, stated: true,
		},
		"both ends inside one cell": {
			low: 400, edge: 0.05, counter: true, from: cell / 4, to: 3 * cell / 4, wantEnergy: 27.5, stated: true,
		},
		"a longer span": {
			low: 400, edge: 0.05, counter: true, from: cell / 2, to: 2 * cell, wantEnergy: 97.5, stated: true,
		},
		"an error below 5 %": {low: 400, edge: 0.05, counter: true, from: cell / 2, to: 6 * cell, wantEnergy: 377.5},
		"whole cells":        {low: 400, edge: 0.05, counter: true, from: 0, to: cell, wantEnergy: 55},
		"constant power":     {low: 700, edge: 0.05, counter: true, from: cell / 2, to: cell, wantEnergy: 35},
		"no counter":         {low: 400, edge: 0.05, from: cell / 2, to: cell, wantEnergy: 31.25, stated: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				zero := time.Now()
				const before = time.Second
				joules := func(after float64) float64 { return tt.low*after + max(0, after-tt.edge)*(700-tt.low) }
				r.run(r.device(nominal), func(at time.Time, s *devicesamples.Sample) {
					after := at.Sub(zero.Add(before)).Seconds() // the start of the cell
					s.Set(devicesamples.Power, tt.low)
					if after > tt.edge {
						s.Set(devicesamples.Power, 700)
					}
					if tt.counter {
						s.Set(devicesamples.Energy, 5000+joules(after))
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
				has := energy(t, got)
				assert.InDelta(t, tt.wantEnergy, has, 1e-9)
				stated, ok := got.Attributes().AsRaw()["gpu.energy_error"].(float64)
				assert.Equal(t, tt.stated, ok)
				real := math.Abs(joules(tt.to.Seconds()) - joules(tt.from.Seconds()) - has)
				assert.LessOrEqual(t, real, 2*max(stated, 0.05*has), "of one case; most are inside")
				assert.LessOrEqual(t, stated, has)
			})
		})
	}
}

// The energy of a pulse between two samples is known from the counter, but not when the pulse was.
func TestEnergyErrorIsStatedForAPulseBetweenTwoSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		zero := time.Now()
		r.run(r.device(nominal), func(at time.Time, s *devicesamples.Sample) {
			after := at.Sub(zero.Add(time.Second)).Seconds()
			s.Set(devicesamples.Power, 300)
			s.Set(devicesamples.Energy, 5000+300*after+400*min(max(0, after-0.05), 0.05))
		})
		r.join()
		defer r.close()
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(1050*time.Millisecond), zero.Add(1100*time.Millisecond))
		r.consume(td.Traces)
		time.Sleep(10 * time.Second)
		got := r.spans()[1]
		assert.InDelta(t, 25, energy(t, got), 1e-9)
		assert.GreaterOrEqual(t, attr(t, got, "gpu.energy_error"), 5.0, "35 J were used")
	})
}

func TestTheErrorIsStatedFromAShareOfTheEnergyOn(t *testing.T) {
	for bound, values := range map[float64]int{4.99: 1, 5: 2} {
		var to results
		new(attributes).energy(&gpuSpan{}, &target{}, &to, 100, 100, bound)
		assert.Len(t, to.values, values, "100 J ± %v J", bound)
	}
}

func TestASpanThatIsAlmostAloneHasTheErrorOfTheDevice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), time.Now())
		r.consume(td.Traces)
		time.Sleep(sec(0.3))
		join := r.proc.(*joinProcessor).engine
		join.mu.Lock()
		defer join.mu.Unlock()
		require.Len(t, join.boards, 1)
		for _, board := range join.boards {
			start, end := zero.Add(sec(1)).UnixNano(), zero.Add(sec(1.505)).UnixNano()
			e := board.meter.energy
			whole := e.Energy(start, end)
			bound := e.Bound(start, end, whole)
			require.Positive(t, e.Inside(start, end))
			assert.InDelta(t, bound, board.boundOf(start, end, 0.9701*whole), 1e-12)
			assert.InDelta(t, 0.9699*math.Hypot(bound, 0.5*math.Sqrt(1-0.9699)*e.Inside(start, end)),
				board.boundOf(start, end, 0.9699*whole), 1e-9)
		}
	})
}
