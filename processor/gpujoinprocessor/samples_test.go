// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestSamplesThatStopReleaseAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		base := steady(zero, 300)
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			if d := now.Sub(zero); d <= sec(2) || d > sec(20) { // silent in (2, 20]
				base(now, s)
			}
		})
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(5 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(1.9)) // covered
		td.gpu(2, 0, at(1), at(4))   // covered until 2
		td.gpu(3, 0, at(3), at(4))   // not covered
		r.consume(td.Traces)
		time.Sleep(sec(8.9))
		assert.Empty(t, r.spans())
		time.Sleep(sec(0.2))
		s := r.spans()
		require.Len(t, s, 3)
		// 300 J in [1, 2]: 1 and 2 share [1, 1.9], 2 has the rest.
		assert.InDelta(t, 135, energy(t, s[1]), 1e-6)
		assert.InDelta(t, 165, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 1., attr(t, s[1], "gpu.join.coverage"), 1e-9)
		assert.InDelta(t, 1./3, attr(t, s[2], "gpu.join.coverage"), 1e-9)
		assert.InDelta(t, 0., attr(t, s[3], "gpu.join.coverage"), 1e-9)
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.energy")
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.utilization")
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.join.method")
		assert.EqualValues(t, 1, r.count("uncovered_spans", "no_samples"))

		time.Sleep(sec(15)) // 29 s: the source has recovered
		td = newTraces("a")
		td.gpu(4, 0, at(27), at(28))
		r.consume(td.Traces)
		settle()
		assert.InDelta(t, 300, energy(t, r.spans()[4]), 1e-6)
		// The counter continued across the gap: 18 s of 300 W that cannot be attributed.
		assert.InDelta(t, 300*18, r.energy("uncovered"), 35)
		assert.InDelta(t, 600, r.energy("attributed"), 1e-6)
	})
}

// A gap that is short relative to the run is reported like any other.
func TestASmallPartOfTheEnergyThatNoSampleCoversIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		base := steady(zero, 300)
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			if d := now.Sub(zero); d <= sec(4000) || d > sec(4018) {
				base(now, s)
			}
		})
		time.Sleep(sec(3999))
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(3997)), zero.Add(sec(3998)))
		r.consume(td.Traces)
		time.Sleep(sec(41))
		td = newTraces("a")
		td.gpu(2, 0, zero.Add(sec(4030)), zero.Add(sec(4031)))
		r.consume(td.Traces)
		time.Sleep(sec(7))
		require.Len(t, r.spans(), 2)
		assert.InDelta(t, 300*18, r.energy("uncovered"), 35, "0.45 % of 1.2 MJ")
	})
}

// A sample that arrives after its time was settled still adds utilization, but its energy was not
// attributed, and a batch that is resent must not claim it.
func TestSamplesAfterTheirTimeWasSettledBringNoEnergy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = time.Second, 2*time.Second })
		defer r.close()
		w := r.device(devicesamples.Device{ID: gpu0, Interval: 2 * time.Second})
		w.Write(one(at(0), zero))
		time.Sleep(sec(2))
		w.Write(one(at(2), zero))
		time.Sleep(sec(2.5))
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(4))
		td.gpu(2, 0, at(3), at(4))
		again := ptrace.NewTraces()
		td.CopyTo(again)
		r.consume(td.Traces)
		time.Sleep(sec(2))
		require.Len(t, r.spans(), 2)
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		w.Write(one(at(6), zero))
		time.Sleep(sec(0.5))
		synctest.Wait() // join has one caller, which is the queue until here
		p := r.proc.(*joinProcessor)
		p.stats.held.Add(2)
		require.NoError(t, p.join(t.Context(), again)) // as from storage
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[1]), 1e-6)
		assert.InDelta(t, 1./3, attr(t, s[1], "gpu.join.coverage"), 1e-9, "the energy's")
		assert.NotContains(t, s[2].Attributes().AsRaw(), "gpu.energy")
		assert.InDelta(t, 0.75, attr(t, s[2], "gpu.utilization"), 1e-9)
		assert.InDelta(t, 1., attr(t, s[2], "gpu.join.coverage"), 1e-9)
	})
}

func TestCounterResetLosesOnlyTheGapAcrossIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			at := now.Sub(zero).Seconds()
			if at >= 2 { // the driver was reloaded
				at -= 2
			}
			s.Set(devicesamples.Energy, 300*at)
		})
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(3)))
		r.consume(td.Traces)
		settle()
		s := r.spans()[1]
		assert.InDelta(t, 570, energy(t, s), 1e-6)
		assert.InDelta(t, 0.95, attr(t, s, "gpu.join.coverage"), 1e-6)
	})
}

func TestShiftMovesTheSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(func(c *Config) { c.Shift = 500 * time.Millisecond })
		defer r.close()
		// The device works in [2, 3]; its meter lags by half a second.
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			at := now.Sub(zero).Seconds()
			s.Set(devicesamples.Energy, 100*at+300*min(max(at-2.5, 0), 1))
		})
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(2)), zero.Add(sec(3)))
		r.consume(td.Traces)
		settle()
		assert.InDelta(t, 400, energy(t, r.spans()[1]), 1e-6)
	})
}

func TestShiftMakesUpForTheClockOfTheServices(t *testing.T) {
	for _, skew := range []time.Duration{30 * time.Second, -30 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, _ time.Time) {
				time.Sleep(40 * time.Second)
				end := time.Now().Add(skew) // on the clock of the services
				td := newTraces("a")
				td.gpu(1, 0, end.Add(-time.Second), end)
				r.consume(td.Traces)
				time.Sleep(3 * time.Second)
				td = newTraces("b")
				td.gpu(2, 0, end.Add(-time.Second), end)
				r.consume(td.Traces)
				time.Sleep(2900 * time.Millisecond)
				assert.Empty(t, r.spans(), "settle is the same")
				time.Sleep(200 * time.Millisecond)
				s := r.spans()
				require.Len(t, s, 2)
				for id := range s {
					assert.InDelta(t, 150, energy(t, s[id]), 1e-6)
					assert.NotContains(t, s[id].Attributes().AsRaw(), "gpu.join.late.duration")
				}
			}, settleIn6s, func(c *Config) { c.Shift = -skew })
		})
	}
}

func TestShortSpansAreCells(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1.01)), zero.Add(sec(1.05)))
		r.consume(td.Traces)
		settle()
		s := r.spans()[1]
		assert.Equal(t, semconv.GPUJoinMethodCell, attr(t, s, "gpu.join.method"))
		assert.InDelta(t, 12, energy(t, s), 1e-6)
		assert.InDelta(t, 0.75, attr(t, s, "gpu.utilization"), 1e-9)
		assert.EqualValues(t, 0, attr(t, s, "gpu.join.samples"))
	})
}

func TestPowerIsIntegratedWhereThereIsNoEnergyCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			s.Set(devicesamples.Power, 200)
		})
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		r.consume(td.Traces)
		settle()
		assert.InDelta(t, 200, energy(t, r.spans()[1]), 1e-6)
	})
}

// A broken exporter sends absurd values for some time. Spans of that time lack them, and later
// spans are unaffected.
func TestAbsurdSamplesSpoilNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			if x := now.Sub(zero).Seconds(); x < 0.95 || x > 1.55 {
				steady(zero, 300)(now, s)
				return
			}
			for f := range devicesamples.NumFields {
				s.Set(devicesamples.Field(f), 1.7e308)
			}
		})
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(0.9)), zero.Add(sec(1.7)))
		td.gpu(2, 0, zero.Add(sec(2)), zero.Add(sec(3)))
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		for k, v := range s[1].Attributes().All() {
			if v.Type() == pcommon.ValueTypeDouble {
				assert.True(t, v.Double() >= 0 && v.Double() <= 1e4, "%s is %g", k, v.Double())
			}
		}
		assert.InDelta(t, 300, energy(t, s[2]), 1e-9)
		assert.InDelta(t, 300, attr(t, s[2], "gpu.power"), 1e-9)
	})
}
