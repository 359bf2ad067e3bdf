// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// A device draws 300 W, and its counter shows something else. The energy of a span is computed from
// power, and the contradiction is counted.
func TestAContradictedCounterIsReplacedByPower(t *testing.T) {
	for reason, counter := range map[string]func(s float64) float64{
		"counter_frozen": func(s float64) float64 { return 300 * min(s, 2) },
		"counter_factor": func(s float64) float64 { return 3000 * s },
	} {
		t.Run(reason, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).join()
				defer r.close()
				zero := time.Now()
				d := nominal
				d.Source = "dcgm"
				r.run(r.device(d), func(at time.Time, s *devicesamples.Sample) {
					s.Set(devicesamples.Energy, 7+counter(at.Sub(zero).Seconds()))
					s.Set(devicesamples.Power, 300)
				})
				time.Sleep(9 * time.Second)
				td := newTraces("a")
				td.gpu(1, 0, zero.Add(sec(5)), zero.Add(sec(9)))
				r.consume(td.Traces)
				time.Sleep(12 * time.Second)
				assert.InEpsilon(t, 1200, energy(t, r.spans()[1]), 0.05)
				entries := r.store.ContradictionEntries()
				require.Len(t, entries, 1)
				assert.Equal(t, reason, entries[0].Reason)
				assert.Equal(t, "dcgm", entries[0].Source)
			})
		})
	}
}

// A device that reports no utilization while spans run for most of a minute contradicts them.
func TestAnIdleDeviceContradictsSpans(t *testing.T) {
	for name, tt := range map[string]struct {
		used float64
		ran  time.Duration // of each second
		want int
	}{
		"idle, spans for 51 %":       {0, 510 * time.Millisecond, 1},
		"idle, spans for 49 %":       {0, 490 * time.Millisecond, 0},
		"used for 0.09 %, busy":      {0.0009, 900 * time.Millisecond, 1},
		"used for 0.11 %, busy":      {0.0011, 900 * time.Millisecond, 0},
		"used, spans for a part":     {0.2, 300 * time.Millisecond, 0},
		"idle, no spans at any time": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t).join()
				defer r.close()
				power := steady(time.Now(), 100)
				r.run(r.device(nominal), func(at time.Time, s *devicesamples.Sample) {
					power(at, s)
					s.Set(devicesamples.Utilization, tt.used)
				})
				for i := range uint64(135) { // the first minute is partly before the first sample
					time.Sleep(time.Second)
					if tt.ran > 0 {
						td := newTraces("a")
						td.gpu(i+1, 0, time.Now().Add(-tt.ran), time.Now())
						r.consume(td.Traces)
					}
				}
				entries := r.store.ContradictionEntries()
				require.Len(t, entries, tt.want)
				for _, e := range entries {
					assert.Equal(t, plausibility.DeviceIdle.String(), e.Reason)
				}
			})
		})
	}
}

// An outer span has the energy of what is below a span on another device, whichever arrives first.
func TestAnOuterSpanHasTheEnergyBelowSpansOnOtherDevices(t *testing.T) {
	for name, order := range map[string][3]uint64{"children first": {3, 2, 1}, "parents first": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				r.run(r.device(secondDevice()), steady(zero, 100))
				time.Sleep(4 * time.Second)
				for _, id := range order {
					td := newTraces("a")
					s := td.gpu(id, id-1, zero.Add(sec(1)), zero.Add(sec(3)))
					if id == 3 {
						s.Attributes().PutStr("hw.id", gpu1)
					}
					r.consume(td.Traces)
				}
				time.Sleep(8 * time.Second)
				s := r.spans()
				assert.InDelta(t, 200, energy(t, s[3]), 1e-6)
				assert.InDelta(t, 800, energy(t, s[2]), 1e-6)
				assert.InDelta(t, 800, energy(t, s[1]), 1e-6)
			})
		})
	}
}

// BenchmarkChecks measures the checks of eight physical GPUs, which run once a second, as a part of
// what the join of 50,000 spans a second costs.
func BenchmarkChecks(b *testing.B) {
	x := newBench(b)
	const requests = 50_000 / perRequest // in a second
	var joined, checked time.Duration
	j := x.newJoins()
	for b.Loop() {
		for range requests {
			joined += j.join(b, j.next())
		}
		at := cputime.Used()
		for range requests { // so that the time is measurable
			for _, board := range x.p.engine.boards {
				board.check(6*time.Second, func(plausibility.Contradiction) {})
			}
		}
		checked += (cputime.Used() - at) / requests
	}
	b.ReportMetric(100*checked.Seconds()/joined.Seconds(), "%-of-join")
}
