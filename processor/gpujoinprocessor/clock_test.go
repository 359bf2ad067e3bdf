// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
	"github.com/otelgpu/otelgpu/internal/plausibility"
	"github.com/otelgpu/otelgpu/semconv"
)

// The clock of a source is offset. From the first span on, the true energy is inside the stated
// error for at least 95 % of the spans, or the energy is omitted, and the offset is reported.
func TestTheStatedErrorCoversAnOffsetOfTheClock(t *testing.T) {
	kinds := []string{"steady", "steps", "pulses", "5s"}
	for name, ahead := range map[string]func(s float64) float64{
		"right":       func(float64) float64 { return 0 },
		"10 s behind": func(float64) float64 { return -10 },
		"5 s behind":  func(float64) float64 { return -5 },
		"2 s behind":  func(float64) float64 { return -2 },
		"1 s behind":  func(float64) float64 { return -1 },
		"1 s ahead":   func(float64) float64 { return 1 },
		"2 s ahead":   func(float64) float64 { return 2 },
		"3 s ahead":   func(float64) float64 { return 3 },
		"drifting":    func(s float64) float64 { return -.02 * s },
		"stepping":    func(s float64) float64 { return -2 * math.Floor(s/60) },
	} {
		t.Run(name, func(t *testing.T) {
			known, inside, all := 0, 0, 0
			reported := 0
			for _, kind := range kinds {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(1, 2))
					truth := instrumenttest.NewTruth(kind, 3*time.Minute, rng)
					r := newRig(t).join()
					zero := time.Now()
					d := nominal
					d.Source = "dcgm"
					w := r.device(d)
					r.wg.Go(func() {
						for at := zero; ; at = at.Add(100 * time.Millisecond) {
							time.Sleep(time.Until(at))
							select {
							case <-r.stop:
								return
							default:
							}
							now := at.Sub(zero).Seconds()
							s := devicesamples.Sample{Time: at.Add(sec(ahead(now))).UnixNano()}
							s.Set(devicesamples.Energy, truth.At(now))
							s.Set(devicesamples.Power, (truth.At(now)-truth.At(now-.1))/min(max(now, .001), .1))
							w.Write([]devicesamples.Sample{s})
						}
					})
					ends := map[uint64][2]float64{}
					for id := uint64(1); ; id++ {
						length := []float64{.2, 1, 3}[id%3]
						from := time.Since(zero).Seconds()
						if from > 110 {
							break
						}
						time.Sleep(sec(length))
						ends[id] = [2]float64{from, from + length}
						td := newTraces("a")
						td.gpu(id, 0, zero.Add(sec(from)), zero.Add(sec(from+length)))
						r.consume(td.Traces)
					}
					time.Sleep(30 * time.Second)
					for id, s := range r.spans() {
						all++
						energy, ok := s.Attributes().Get(string(semconv.GPUEnergyKey))
						if c, _ := s.Attributes().Get(string(semconv.GPUJoinCoverageKey)); !ok || c.Double() < .99 {
							continue
						}
						known++
						stated := .05 * energy.Double()
						if e, ok := s.Attributes().Get(string(semconv.GPUEnergyErrorKey)); ok {
							stated = e.Double()
						}
						if wrong := math.Abs(energy.Double() - (truth.At(ends[id][1]) - truth.At(ends[id][0]))); wrong <= stated {
							inside++
						}
					}
					for _, e := range r.store.ContradictionEntries() {
						if e.Reason == plausibility.ClockOffset.String() {
							reported++
						}
					}
					r.close()
				})
			}
			assert.GreaterOrEqual(t, float64(inside), .95*float64(known), "%d of %d spans have energy", known, all)
			if name != "10 s behind" { // when spans cannot wait for samples
				assert.Greater(t, known, all/3)
			}
			if name == "right" {
				assert.Equal(t, all, known)
				assert.Zero(t, reported)
			} else {
				assert.Equal(t, len(kinds), reported, "devices")
			}
		})
	}
}
