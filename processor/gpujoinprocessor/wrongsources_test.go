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
	"github.com/otelgpu/otelgpu/semconv"
)

// judgement is how the spans of a simulated device compare with the truth.
type judgement struct {
	known, inside, all, none int // spans with energy, inside the stated error, of all, with less than a tenth
	reasons                  map[string]int
	shift                    time.Duration // of the processor
}

// judge runs consecutive spans of 0.2, 1 and 3 s for length on a device of known power, whose
// samples write makes from the truth.
func (j *judgement) judge(t *testing.T, kind string, seed uint64, length time.Duration,
	write func(r *rig, at time.Time, now float64, truth *instrumenttest.Truth),
) {
	synctest.Test(t, func(t *testing.T) {
		truth := instrumenttest.NewTruth(kind, length+time.Minute, rand.New(rand.NewPCG(seed, 2)))
		r := newRig(t).join(func(c *Config) { c.EnergyOnMIG, c.Shift = true, j.shift })
		zero := time.Now()
		r.wg.Go(func() {
			for at := zero; ; at = at.Add(100 * time.Millisecond) {
				time.Sleep(time.Until(at))
				select {
				case <-r.stop:
					return
				default:
					write(r, at, at.Sub(zero).Seconds(), truth)
				}
			}
		})
		ends := map[uint64][2]float64{}
		for id := uint64(1); time.Since(zero) < length; id++ {
			from, took := time.Since(zero).Seconds(), []float64{.2, 1, 3}[id%3]
			time.Sleep(sec(took))
			ends[id] = [2]float64{from, from + took}
			td := newTraces("a")
			td.gpu(id, 0, zero.Add(sec(from)), zero.Add(sec(from+took)))
			r.consume(td.Traces)
		}
		time.Sleep(30 * time.Second)
		for id, s := range r.spans() {
			j.all++
			energy, ok := s.Attributes().Get(string(semconv.GPUEnergyKey))
			if c, _ := s.Attributes().Get(string(semconv.GPUJoinCoverageKey)); !ok || c.Double() < .99 {
				continue
			}
			j.known++
			stated := .05 * energy.Double()
			if e, ok := s.Attributes().Get(string(semconv.GPUEnergyErrorKey)); ok {
				stated = e.Double()
			}
			right := truth.At(ends[id][1]) - truth.At(ends[id][0])
			if math.Abs(energy.Double()-right) <= stated {
				j.inside++
			}
			if energy.Double() < right/10 {
				j.none++
			}
		}
		for _, e := range r.store.ContradictionEntries() {
			j.reasons[e.Reason]++
		}
		r.close()
	})
}

// Counters freeze, are reset, change their unit, or count something else, power is lost, and boards
// are divided, at random times. The true energy is inside the stated error of at least 95 % of the
// spans of each fault, or the energy is omitted; no span that ran has none; and the fault is
// reported.
func TestRandomFaultsOfASourceStayInsideTheStatedError(t *testing.T) {
	const length = 3 * time.Minute
	type state struct {
		rng     *rand.Rand
		w       []devicesamples.DeviceWriter
		at, end float64 // of the fault
		factor  float64
		frozen  float64
	}
	late := func(x *state, now float64) bool { return now >= x.at }
	inside, known := 0, 0
	for name, f := range map[string]struct {
		counter func(x *state, now, joules float64) (float64, bool) // what the counter shows
		watts   func(x *state, now, watts float64) (float64, bool)  // what the sensor shows
		reason  string                                              // reported on every device
		mig     bool
	}{
		"none":              {},
		"frozen from start": {counter: func(x *state, _, _ float64) (float64, bool) { return x.frozen, true }, reason: "counter_frozen"},
		"frozen at 0":       {counter: func(*state, float64, float64) (float64, bool) { return 0, true }, reason: "counter_frozen"},
		"frozen later": {reason: "counter_frozen", counter: func(x *state, now, joules float64) (float64, bool) {
			if !late(x, now) {
				x.frozen = joules
			}
			return x.frozen, true
		}},
		"frozen for a while": {reason: "counter_frozen", counter: func(x *state, now, joules float64) (float64, bool) {
			if !late(x, now) || now > x.end {
				x.frozen = joules
			}
			return x.frozen, true
		}},
		"counter lost": {counter: func(x *state, now, joules float64) (float64, bool) { return joules, !late(x, now) }},
		"reset": {counter: func(x *state, now, joules float64) (float64, bool) {
			if late(x, now) && x.frozen == 0 {
				x.frozen = joules
			}
			return joules - x.frozen, true
		}},
		"reset after a gap": {counter: func(x *state, now, joules float64) (float64, bool) {
			if late(x, now) && now < x.end {
				x.frozen = joules
				return 0, false
			}
			return joules - x.frozen, true
		}},
		"resets often": {counter: func(x *state, now, joules float64) (float64, bool) {
			if now > x.end {
				x.frozen, x.end = joules, now+5+10*x.rng.Float64()
			}
			return joules - x.frozen, true
		}},
		"other unit": {reason: "counter_factor", counter: func(x *state, now, joules float64) (float64, bool) {
			if late(x, now) {
				return x.frozen + (joules-x.frozen)*x.factor, true
			}
			x.frozen = joules
			return joules, true
		}},
		"other unit at once": {reason: "counter_factor", counter: func(x *state, now, joules float64) (float64, bool) {
			if late(x, now) {
				joules *= x.factor
			}
			return joules, true
		}},
		"other unit from start": {reason: "counter_factor", counter: func(x *state, _, joules float64) (float64, bool) {
			return joules * x.factor, true
		}},
		"power in other unit": {watts: func(x *state, now, watts float64) (float64, bool) {
			if late(x, now) {
				watts *= x.factor
			}
			return watts, true
		}},
		"power lost":   {watts: func(x *state, now, watts float64) (float64, bool) { return watts, !late(x, now) }},
		"board of MIG": {mig: true},
		"MIG, frozen later": {mig: true, reason: "counter_frozen", counter: func(x *state, now, joules float64) (float64, bool) {
			if !late(x, now) {
				x.frozen = joules
			}
			return x.frozen, true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			j := judgement{reasons: map[string]int{}}
			for i, kind := range instrumenttest.Kinds {
				rng := rand.New(rand.NewPCG(uint64(i), 77))
				x := &state{rng: rng, at: 20 + 60*rng.Float64(), factor: []float64{1e-3, .1, .5, 2, 10, 1e3}[rng.IntN(6)], frozen: 0}
				x.end = x.at + 5 + 30*rng.Float64()
				if name == "frozen from start" {
					x.frozen = 1e6 * rng.Float64()
				}
				j.judge(t, kind, uint64(i), length, func(r *rig, at time.Time, now float64, truth *instrumenttest.Truth) {
					if x.w == nil {
						d := nominal
						d.Source = "dcgm"
						if f.mig {
							d.ID = "GPU-00000000-0000-0000-0000-000000000001"
							x.w = append(x.w, r.device(d))
							d.ID, d.Parent = gpu0, d.ID
						}
						x.w = append(x.w, r.device(d))
					}
					s := devicesamples.Sample{Time: at.UnixNano()}
					joules, watts, known := truth.At(now), (truth.At(now)-truth.At(now-.1))/min(max(now, .001), .1), true
					if f.counter != nil {
						joules, known = f.counter(x, now, joules)
					}
					if known {
						s.Set(devicesamples.Energy, joules)
					}
					known = true
					if f.watts != nil {
						watts, known = f.watts(x, now, watts)
					}
					if known {
						s.Set(devicesamples.Power, watts)
					}
					if f.mig { // the instance measures its share of the work only
						i := devicesamples.Sample{Time: s.Time}
						i.Set(devicesamples.SMUtilization, .5)
						x.w[1].Write([]devicesamples.Sample{i})
					}
					x.w[0].Write([]devicesamples.Sample{s})
				})
			}
			t.Logf("%d of %d spans have energy, %d inside, %d below a tenth, %v", j.known, j.all, j.inside, j.none, j.reasons)
			inside, known = inside+j.inside, known+j.known
			assert.GreaterOrEqual(t, float64(j.inside), .94*float64(j.known), "so few spans vary by a percent")
			assert.Zero(t, j.none)
			if f.reason != "" {
				assert.Equal(t, len(instrumenttest.Kinds), j.reasons[f.reason])
			}
		})
	}
	assert.GreaterOrEqual(t, float64(inside), .95*float64(known))
}
