// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/instrument/instrumenttest"
	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// The clock of a source is offset. From the first span on, the true energy is inside the stated
// error for at least 95 % of the spans, or the energy is omitted, and the offset is reported.
func TestTheStatedErrorCoversAnOffsetOfTheClock(t *testing.T) {
	kinds := []string{"steady", "steps", "pulses", "5s"}
	for name, ahead := range map[string]func(s float64) float64{
		"right":       func(float64) float64 { return 0 },
		"read late":   func(float64) float64 { return 0 }, // histories every 2 s, 0.7 s before the checks
		"10 s behind": func(float64) float64 { return -10 },
		"5 s behind":  func(float64) float64 { return -5 },
		"2 s behind":  func(float64) float64 { return -2 },
		"1 s behind":  func(float64) float64 { return -1 },
		"corrected":   func(float64) float64 { return -1 }, // by shift
		"1 s ahead":   func(float64) float64 { return 1 },
		"2 s ahead":   func(float64) float64 { return 2 },
		"3 s ahead":   func(float64) float64 { return 3 },
		"drifting":    func(s float64) float64 { return -.02 * s },
		"stepping":    func(s float64) float64 { return -2 * math.Floor(s/60) },
	} {
		t.Run(name, func(t *testing.T) {
			j := judgement{reasons: map[string]int{}}
			if name == "corrected" {
				j.shift = -time.Second
			}
			for _, kind := range kinds {
				var w devicesamples.DeviceWriter
				var history []devicesamples.Sample
				j.judge(t, kind, 1, 110*time.Second, func(r *rig, at time.Time, now float64, truth *instrumenttest.Truth) {
					if w == nil {
						d := nominal
						d.Source = "dcgm"
						w = r.device(d)
					}
					s := devicesamples.Sample{Time: at.Add(sec(ahead(now))).UnixNano()}
					s.Set(devicesamples.Energy, truth.At(now))
					s.Set(devicesamples.Power, (truth.At(now)-truth.At(now-.1))/min(max(now, .001), .1))
					if history = append(history, s); name != "read late" || math.Round(now*10) == 20*math.Floor(now/2)+3 {
						w.Write(history)
						history = nil
					}
				})
			}
			t.Logf("%d of %d spans have energy, %d inside", j.known, j.all, j.inside)
			known, all, reported := j.known, j.all, j.reasons[plausibility.ClockOffset.String()]
			assert.GreaterOrEqual(t, float64(j.inside), .95*float64(known), "%d of %d spans have energy", known, all)
			if name != "10 s behind" { // when spans cannot wait for samples
				assert.Greater(t, known, all/3)
			}
			if name == "right" || name == "read late" || name == "corrected" {
				assert.Equal(t, all, known)
				assert.Zero(t, reported)
			} else {
				assert.Equal(t, len(kinds), reported, "devices")
			}
		})
	}
}
