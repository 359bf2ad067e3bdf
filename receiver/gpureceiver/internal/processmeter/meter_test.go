// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processmeter

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	second = int64(1e9)
	start  = 1_790_003_000 * second
)

// divided is a GPU with an instance of half of it and one of a quarter.
var divided = []devicesamples.Device{
	{ID: "GPU-1", Limits: devicesamples.Limits{Power: 700, Memory: 80 << 30}},
	{ID: "MIG-1", Parent: "GPU-1", MIG: devicesamples.MIG{SMs: 66, BoardSMs: 132}},
	{ID: "MIG-2", Parent: "GPU-1", Limits: devicesamples.Limits{Memory: 20 << 30}},
}

// joules returns the energy of each process of the first device.
func joules(r []Reading) map[int64]float64 {
	of := map[int64]float64{}
	for _, p := range r[0].Processes {
		of[p.Key.PID] += p.Joules
	}
	return of
}

func TestInstancesAreDividedByTheirUtilizationAndSize(t *testing.T) {
	m := New(nil, 10, nil)
	m.Adopt(divided)
	list := []gpudata.ProcessMemory{
		{Device: "GPU-1", PID: 1}, // the physical GPU lists them, too
		{Device: "MIG-1", PID: 1, Bytes: 5}, {Device: "MIG-2", PID: 2}, {Device: "MIG-2", PID: 3},
	}
	energy := 0.0
	for i := range 21 {
		now := start + int64(i)*second
		busy := 0.0
		if energy += 100; i > 10 {
			energy, busy = energy+500, 0.8
		}
		m.Value("GPU-1", gpuquantity.Energy, now, energy)
		m.Value("MIG-1", gpuquantity.Utilization, now, busy)
		m.Value("MIG-2", gpuquantity.Utilization, now, busy/2)
		m.Running(now, list, "GPU-1")
		m.Use(&gpudata.ProcessUse{Device: "GPU-1", Time: now})
		m.Divide(now)
	}
	r := m.Read(start + 21*second)
	require.Len(t, r, 1)
	of := joules(r)
	// 0.8 of a half against 0.4 of a quarter.
	assert.InEpsilon(t, 4*(of[2]+of[3]), of[1], 1e-6)
	assert.InEpsilon(t, of[2], of[3], 1e-9)
	assert.InDelta(t, 5000, of[1]+of[2]+of[3], 550)
	assert.InDelta(t, energy-100, of[1]+of[2]+of[3]+r[0].Unattributed+r[0].Idle[0]+r[0].Idle[1], 1e-6)
	assert.Equal(t, "MIG-1", r[0].Processes[0].Device.ID)
	assert.Equal(t, int64(5), r[0].Processes[0].Bytes)
	assert.Greater(t, r[0].Processes[1].Error, 0.9*of[2], "how the two share the instance is unknown")
}

func TestAnInstanceThatIsRemovedLeavesTheEnergyOfItsProcesses(t *testing.T) {
	m := New(nil, 10, nil)
	m.Adopt(divided)
	for i := range 10 {
		now := start + int64(i)*second
		m.Value("GPU-1", gpuquantity.Power, now, 300)
		m.Value("MIG-1", gpuquantity.Utilization, now, 1)
		m.Running(now, []gpudata.ProcessMemory{{Device: "MIG-1", PID: 1}}, "GPU-1")
		m.Divide(now)
	}
	before := joules(m.Read(start + 10*second))
	m.Adopt(divided[:1])
	after := m.Read(start + 11*second)
	assert.Equal(t, before, joules(after))
	assert.Positive(t, before[1], "of a device without a counter")
	assert.Equal(t, "GPU-1", after[0].Processes[0].Device.ID)
	m.Adopt(nil)
	assert.Empty(t, m.Read(start+12*second))
	m.Value("GPU-1", gpuquantity.Energy, start, 1) // of a device that is gone
}

// A GPU is reset between two readings, and its counter with it.
func TestEnergyContinuesOnAGPUThatReturns(t *testing.T) {
	m := New(nil, 10, nil)
	now := start
	run := func(seconds int) map[int64]float64 {
		m.Adopt(divided[:1])
		for i := range seconds {
			now += second
			m.Value("GPU-1", gpuquantity.Energy, now, 300*float64(i+1))
			m.Value("GPU-1", gpuquantity.Utilization, now, 1)
			m.Running(now, []gpudata.ProcessMemory{{Device: "GPU-1", PID: 1}}, "GPU-1")
			m.Divide(now)
		}
		return joules(m.Read(now))
	}
	before := run(20)
	require.Positive(t, before[1])
	m.Adopt(nil)
	now += 20 * second
	assert.Greater(t, run(5)[1], before[1])
}

func TestProcessesOverTheLimitAreUnattributed(t *testing.T) {
	m := New(nil, 2, nil)
	m.Adopt(divided[:1])
	for i := range 10 {
		now := start + int64(i)*second
		m.Value("GPU-1", gpuquantity.Energy, now, 300*float64(i))
		m.Running(now, nil, "GPU-1")
		u := gpudata.ProcessUse{Device: "GPU-1", Time: now, Reported: true}
		for pid := range int64(4) {
			u.Percent = append(u.Percent, gpudata.ProcessPercent{PID: pid + 1, Time: now, Percent: 25})
		}
		m.Use(&u)
	}
	r := m.Read(start + 10*second)
	assert.Len(t, r[0].Processes, 2)
	of := joules(r)
	assert.InEpsilon(t, of[1]+of[2], r[0].Unattributed, 1e-6)
}
