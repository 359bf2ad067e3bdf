// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simsource

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// bench is a device with a constant 250 W whose SMs are active 40 % of the time.
type bench struct{ now time.Time }

var start = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

func (*bench) Describe() devicesamples.Device { return devicesamples.Device{ID: "GPU-b"} }
func (b *bench) Read() simgpu.Telemetry {
	s := b.now.Sub(start).Seconds()
	return simgpu.Telemetry{
		Time: b.now, Energy: 1e6 + 250*s, BusySeconds: s, SMSeconds: 0.4 * s, Temperature: 51.4,
		ClockSM: 1.777e9, MemoryUsed: 5<<20 + 1,
	}
}

func sampled(t *testing.T, seed uint64, n int, step time.Duration) map[gpuquantity.Quantity][]gpudata.Value {
	d := &bench{now: start}
	s := New([]Device{d}, step, seed)
	require.NoError(t, s.Open())
	out := map[gpuquantity.Quantity][]gpudata.Value{}
	for range n {
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		for _, v := range b.Values {
			out[v.Quantity] = append(out[v.Quantity], v)
		}
		d.now = d.now.Add(step)
	}
	return out
}

func TestTheDriverQuantizesAndAveragesWithoutBias(t *testing.T) {
	v := sampled(t, 1, 5000, 7*time.Millisecond)
	mean := func(q gpuquantity.Quantity) (m float64) {
		for _, x := range v[q] {
			m += x.V / float64(len(v[q]))
		}
		return m
	}
	assert.InDelta(t, 250, mean(gpuquantity.Power), 0.1)
	assert.InDelta(t, 0.4, mean(gpuquantity.SMUtilization), 0.001)
	assert.InDelta(t, 1, mean(gpuquantity.Utilization), 1e-9)
	assert.NotEqual(t, v[gpuquantity.Power][0].V, v[gpuquantity.Power][1].V, "a meter has noise")
	assert.Equal(t, 51.0, v[gpuquantity.Temperature][0].V)
	assert.Equal(t, 1.77e9, v[gpuquantity.ClockSM][0].V, "clocks come in steps of 15 MHz")
	assert.Equal(t, 5.0*(1<<20), v[gpuquantity.MemoryUsed][0].V)
	for _, p := range v[gpuquantity.Power] {
		require.InDelta(t, 0, math.Remainder(p.V, powerStep), 1e-9)
	}
}

func TestTheEnergyCounterLagsInSteps(t *testing.T) {
	v := sampled(t, 1, 5000, 7*time.Millisecond)[gpuquantity.Energy]
	changes := 0
	for i, x := range v {
		truth := 1e6 + 250*time.Unix(0, x.Time).Sub(start).Seconds()
		require.LessOrEqual(t, x.V, truth+energyStep, "never ahead")
		require.GreaterOrEqual(t, x.V, truth-250*energyPeriod.Seconds()-energyStep, "one refresh behind at most")
		if i > 0 {
			require.GreaterOrEqual(t, x.V, v[i-1].V)
			if x.V > v[i-1].V {
				changes++
			}
		}
	}
	assert.InDelta(t, 5000*7/20, changes, 10, "refreshed every 20 ms, not at every sample")
}

func TestTheSameSeedGivesTheSameNoise(t *testing.T) {
	assert.Equal(t, sampled(t, 3, 50, time.Millisecond), sampled(t, 3, 50, time.Millisecond))
	assert.NotEqual(t, sampled(t, 3, 50, time.Millisecond), sampled(t, 4, 50, time.Millisecond))
}

// TestTheBuiltInLoadIntegratesItsPhases differentiates the closed forms numerically.
func TestTheBuiltInLoadIntegratesItsPhases(t *testing.T) {
	now := start
	d := Loads(2, 1, func() time.Time { return now })[1]
	seen := map[float64]bool{}
	before := d.Read()
	const step = 10 * time.Millisecond
	for range 3000 {
		now = now.Add(step)
		r := d.Read()
		watts := (r.Energy - before.Energy) / step.Seconds()
		require.GreaterOrEqual(t, watts, cycle[0].watts-0.1)
		require.LessOrEqual(t, watts, 690.1)
		require.LessOrEqual(t, r.SMSeconds-before.SMSeconds, step.Seconds()*0.931)
		seen[math.Round(watts)] = true
		before = r
	}
	for _, p := range cycle {
		assert.True(t, seen[p.watts], "%v W", p.watts)
	}
}
