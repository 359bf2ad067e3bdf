// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestSpanGetsTheSamplesOfItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(settleIn6s)
		defer r.close()
		w := r.device(devicesamples.Device{ID: gpu0, Interval: 100 * time.Millisecond, Source: "simulated"})
		r.run(w, func(now time.Time, s *devicesamples.Sample) {
			at := now.Sub(zero).Seconds()
			s.Set(devicesamples.Energy, 300*at)
			s.Set(devicesamples.Power, 100+10*at) // 100 W rising by 10 W each second
			s.Set(devicesamples.ClockSM, 1.5e9)
			s.Set(devicesamples.Temperature, 40+at)
			util := 0.25
			if at > 3 {
				util = 0.75
			}
			s.Set(devicesamples.Utilization, util)
			throttle := 0.
			if at > 3 && at < 3.25 {
				throttle = float64(devicesamples.ThrottleSWPowerCap)
			}
			s.Set(devicesamples.Throttle, throttle)
		})
		time.Sleep(5 * time.Second)
		w.WriteEvents([]devicesamples.Event{
			{Time: zero.Add(2500 * time.Millisecond).UnixNano(), Kind: devicesamples.EventXID, Code: 79},
			{Time: zero.Add(2600 * time.Millisecond).UnixNano(), Kind: devicesamples.EventECCCorrected, Count: 3},
			{Time: zero.Add(4500 * time.Millisecond).UnixNano(), Kind: devicesamples.EventXID, Code: 13},
		})
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(2*time.Second), zero.Add(4*time.Second))
		r.consume(td.Traces)

		time.Sleep(4900 * time.Millisecond)
		assert.Empty(t, r.spans(), "waits until settle after its end")
		time.Sleep(200 * time.Millisecond)
		s := r.spans()[1]
		require.NotEmpty(t, r.spans())
		require.NoError(t, conformance.Traces(r.sink.AllTraces()[0]))
		got := s.Attributes().AsRaw()
		for k, want := range map[string]float64{
			"gpu.energy":             600,
			"gpu.power":              130,
			"gpu.clock.sm.frequency": 1.5e9,
			"gpu.temperature.max":    44,
			"gpu.utilization":        0.5,
			"gpu.throttle.time":      0.2, // the samples of 3.1 and 3.2 apply to the 100 ms before them
			"gpu.join.coverage":      1,
		} {
			assert.InDelta(t, want, got[k], 1e-6*want, k)
		}
		assert.Equal(t, []any{"sw_power_cap"}, got["gpu.throttle.reasons"])
		assert.Equal(t, []any{int64(79)}, got["gpu.xid"])
		assert.Equal(t, int64(3), got["gpu.ecc.errors"])
		assert.Equal(t, int64(21), got["gpu.join.samples"])
		assert.Equal(t, "interval", got["gpu.join.method"])
		assert.Equal(t, "simulated", got["gpu.measurement.source"])
		assert.NotContains(t, got, "gpu.sm.utilization", "unknown is absent")
		assert.NotContains(t, got, "gpu.join.late.duration")
		_, err := r.tel.GetMetric("otelcol_processor_gpu_join_late_spans")
		assert.Error(t, err, "no span was late")
		assert.NotContains(t, got, "gpu.memory.usage")
	})
}

// A schedule records some steps, and the device throttles during each: a recorded step gets the
// throttling inside the step, to the resolution of samples, and none that ends at its start.
func TestThrottleAtTheBoundariesOfARecording(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		w := r.device(devicesamples.Device{ID: gpu0, Interval: 100 * time.Millisecond, Source: "simulated"})
		r.run(w, func(now time.Time, s *devicesamples.Sample) {
			throttle := 0.
			if at := now.Sub(zero); at > 3*time.Second && at <= 5*time.Second { // a sample applies to the 100 ms before it
				throttle = float64(devicesamples.ThrottleSWPowerCap)
			}
			s.Set(devicesamples.Throttle, throttle)
		})
		settle()
		td := newTraces("a")
		steps := []struct{ from, to, want float64 }{
			{2, 3, 0}, {2.5, 3.5, 0.5}, {3.5, 4.5, 1}, {4.5, 5.5, 0.5}, {5, 6, 0}, {2, 6, 2},
		}
		for i, s := range steps {
			td.gpu(uint64(i+1), 0, zero.Add(sec(s.from)), zero.Add(sec(s.to)))
		}
		r.consume(td.Traces)
		settle()
		for i, s := range steps {
			got := r.spans()[uint64(i+1)].Attributes().AsRaw()
			assert.InDelta(t, s.want, got["gpu.throttle.time"], 1e-6, "%v", s)
			if s.want > 0 {
				assert.Equal(t, []any{"sw_power_cap"}, got["gpu.throttle.reasons"], "%v", s)
			} else {
				assert.NotContains(t, got, "gpu.throttle.reasons", "%v", s)
			}
		}
	})
}
