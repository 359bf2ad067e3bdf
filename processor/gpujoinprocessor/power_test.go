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

// On a device without an energy counter gpu.energy is gpu.power times the span's time, also of spans inside one
// sampling cell, whenever the cell was settled. Power is 100 W up to an edge and 400 W after the next sample, so it is
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
				td.gpu(9, 0, begin.Add(-cell), begin.Add(settled)) // its release settles the device inside the cell
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
