// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// TestEnergyIsConserved sends random work of several processes, exported as SDKs do (every second,
// some late, parents after their children), and compares the sums with the device's own counter.
func TestEnergyIsConserved(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r0 := rand.New(rand.NewPCG(seed, 104729))
			zero := time.Now()
			r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = 2*time.Second, 4*time.Second })
			w := r.device(nominal)
			joules, at := 0., 0.
			r.run(w, func(now time.Time, s *devicesamples.Sample) {
				x := now.Sub(zero).Seconds()
				joules += (x - at) * (100 + 300*math.Abs(math.Sin(3*x))) // any curve
				at = x
				s.Set(devicesamples.Energy, joules)
			})
			time.Sleep(3100 * time.Millisecond)
			id := uint64(0)
			roots, children := map[uint64]bool{}, map[uint64][]uint64{}
			for range 20 {
				time.Sleep(time.Second)
				now := time.Now()
				for p := range 3 {
					parents, kids := newTraces(fmt.Sprint("p", p)), newTraces(fmt.Sprint("p", p))
					for range r0.IntN(4) {
						id++
						root := id
						roots[root] = true
						end := now.Add(-time.Duration(r0.IntN(1000)) * time.Millisecond)
						length := time.Duration(1+r0.IntN(1500)) * time.Millisecond
						for range r0.IntN(4) {
							id++
							children[root] = append(children[root], id)
							a := end.Add(-time.Duration(r0.Int64N(int64(length))))
							kids.gpu(id, root, a, a.Add(time.Duration(r0.Int64N(int64(end.Sub(a)))+1)))
						}
						parents.gpu(root, 0, end.Add(-length), end)
					}
					if r0.IntN(2) == 0 {
						r.consume(kids.Traces)
						r.consume(parents.Traces)
						continue
					}
					late := time.Duration(r0.IntN(3500)) * time.Millisecond
					r.consume(kids.Traces)
					r.wg.Go(func() {
						time.Sleep(late)
						assert.NoError(t, r.proc.ConsumeTraces(t.Context(), parents.Traces))
					})
				}
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			got := r.spans()
			require.Len(t, got, int(id))
			self := 0.
			for _, s := range got {
				if own, ok := s.Attributes().Get("gpu.self_energy"); ok {
					self += own.Double()
				} else if all, ok := s.Attributes().Get("gpu.energy"); ok {
					self += all.Double()
				}
			}
			for root := range roots {
				v, ok := got[root].Attributes().Get("gpu.energy")
				if !ok {
					continue // withheld
				}
				mine, below := v.Double(), 0.
				for _, c := range children[root] {
					if v, ok := got[c].Attributes().Get("gpu.energy"); ok {
						below += v.Double()
					}
				}
				// A child may be released before its parent arrives, but the parent's energy
				// includes it.
				assert.GreaterOrEqual(t, mine, below-1e-9*(1+below))
			}
			time.Sleep(10 * time.Millisecond) // past the reporting tick
			device := r.energy("attributed") + r.energy("unattributed")
			assert.Less(t, r.withheld(), .05*self, "of short spans that share the device")
			assert.InEpsilon(t, r.energy("attributed")+r.energy("late"), self+r.withheld(), 1e-9)
			assert.Zero(t, r.energy("uncovered"))
			settled, ok := r.proc.(*joinProcessor).engine.boards[devicesamples.NormalizeID(gpu0)].dev.Settled()
			require.True(t, ok)
			counted := 0.
			for x, last := 0., 0.; ; x += 0.1 { // integrates the curve sample by sample
				s := math.Round(x*10) / 10
				counted += (s - last) * (100 + 300*math.Abs(math.Sin(3*s)))
				last = s
				if s >= time.Unix(0, settled).Sub(zero).Seconds()-1e-9 {
					break
				}
			}
			assert.InEpsilon(t, counted, device, 1e-9)
			r.close()
		})
	}
}
