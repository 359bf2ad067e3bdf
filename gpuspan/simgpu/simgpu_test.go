// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package simgpu_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

var origin = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func still() *simgpu.ManualClock {
	c := simgpu.NewManualClock(origin)
	c.SetStep(0)
	return c
}

func exact(c simgpu.Clock, specs ...simgpu.Spec) *simgpu.GPU {
	return simgpu.New(c, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0),
		simgpu.WithDevices(specs...))
}

// plain returns a specification with round numbers, so that the expected values are easy to
// compute.
func plain() simgpu.Spec {
	return simgpu.Spec{
		Model: "Simulated GPU", MemoryTotal: 1 << 30, MemoryBandwidth: 1e12, PCIeBandwidth: 1e10,
		FLOPRate:  map[gpuspan.Precision]float64{gpuspan.FP32: 1e13, gpuspan.BF16: 1e14},
		IdlePower: 100, PowerLimit: 500, ClockSM: 1e9, ClockMemory: 2e9, Ambient: 30, ThermalRise: 0.1,
	}
}

func events(t *testing.T, g *simgpu.GPU, n int) []backend.Event {
	t.Helper()
	out := make([]backend.Event, n)
	require.Equal(t, backend.StatusOK, g.NewEvents(0, out))
	return out
}

func record(t *testing.T, g *simgpu.GPU, e backend.Event, s backend.StreamHandle) {
	t.Helper()
	require.Equal(t, backend.StatusOK, g.Record(&backend.Call{Args: [2]uintptr{uintptr(e), s}}))
}

func TestKernelRunsForTheLongerOfMemoryAndArithmetic(t *testing.T) {
	for _, c := range []struct {
		name   string
		kernel simgpu.Kernel
		want   time.Duration
	}{
		{
			"memory: 1 GB at 1 TB/s",
			simgpu.Kernel{Bytes: 1e9, FLOPs: 1e9, Precision: gpuspan.FP32, Efficiency: 1},
			time.Millisecond,
		},
		{"memory at half the peak", simgpu.Kernel{Bytes: 1e9, Efficiency: 0.5}, 2 * time.Millisecond},
		{
			"arithmetic: 10 GFLOP at half of 10 TFLOP/s",
			simgpu.Kernel{FLOPs: 1e10, Precision: gpuspan.FP32, Efficiency: 0.5},
			2 * time.Millisecond,
		},
		{"stated", simgpu.Kernel{Duration: 7 * time.Microsecond}, 7 * time.Microsecond},
		{"shortest", simgpu.Kernel{Bytes: 1}, 2 * time.Microsecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := still()
			g := exact(clock, plain())
			s := g.Stream(0)
			e := events(t, g, 2)
			// Work before the first event hides the latency of the launch.
			g.Launch(s, simgpu.Kernel{Duration: time.Millisecond})
			record(t, g, e[0], s)
			g.Launch(s, c.kernel)
			record(t, g, e[1], s)
			require.Equal(t, backend.StatusNotReady, g.Query(e[1]))
			_, st := g.Elapsed(e[0], e[1])
			require.Equal(t, backend.StatusNotReady, st)
			g.Wait(s)
			require.Equal(t, backend.StatusOK, g.Query(e[1]))
			got, st := g.Elapsed(e[0], e[1])
			require.Equal(t, backend.StatusOK, st)
			require.InDelta(t, float64(c.want+600), got, 1, "kernel and the record behind it")
		})
	}
}

func TestWorkBeyondThePowerLimitRunsAtALowerClock(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	s := g.Stream(0)
	// Dynamic power 400 W × (0.20 + 0.95) = 460 W exceeds the 400 W above idle: c =
	// (400/460)^(1/3).
	g.Launch(s, simgpu.Kernel{FLOPs: 1e11, Precision: gpuspan.BF16, Efficiency: 1})
	clock.Advance(500 * time.Microsecond)
	tel, ok := g.Telemetry(0)
	require.True(t, ok)
	c := math.Cbrt(400.0 / 460)
	require.InDelta(t, 1e9*c, tel.ClockSM, 1)
	g.Wait(s)
	clock.Advance(time.Millisecond)
	tel, _ = g.Telemetry(0)
	require.InDelta(t, 1e-3/c, tel.ThrottlePower, 1e-8)
	require.InDelta(t, 1e-3/c, tel.BusySeconds, 1e-8)
	require.Equal(t, 1e9, tel.ClockSM)
}

func TestMetersIntegrateTheWork(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	s := g.Stream(0)
	g.Copy(s, simgpu.Copy{Bytes: 87e6, Direction: gpuspan.HostToDevice}) // 10 ms at 8.7 GB/s, and 6 µs
	g.Launch(s, simgpu.Kernel{Bytes: 4e9, Efficiency: 1, Occupancy: 0.25})
	g.Copy(s, simgpu.Copy{Bytes: 8.7e6, Direction: gpuspan.DeviceToHost})
	g.Wait(s)
	clock.Advance(time.Second)
	tel, _ := g.Telemetry(0)
	require.InDelta(t, 87e6, tel.PCIeReceived, 1)
	require.InDelta(t, 8.7e6, tel.PCIeSent, 1)
	require.InDelta(t, 0.004, tel.KernelSeconds, 1e-9)
	require.InDelta(t, 0.004*0.25, tel.OccSeconds, 1e-9)
	require.InDelta(t, 0.010006+0.004+0.001006, tel.BusySeconds, 1e-8)
	wall := clock.Now().Sub(origin).Seconds()
	// Idle power throughout, 400 W × 0.65 for the memory-bound kernel, 4 % of 400 W for copies.
	want := 100*wall + 0.004*260 + 0.011012*16
	require.InDelta(t, want, tel.Energy, 1e-5)
	require.Greater(t, tel.Temperature, 30.0)
}

func TestReadingTwiceAddsNothing(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	g.Launch(g.Stream(0), simgpu.Kernel{Duration: time.Second})
	clock.Advance(300 * time.Millisecond)
	a, _ := g.Telemetry(0)
	b, _ := g.Telemetry(0)
	require.Equal(t, a, b)
}

func TestRunTimesFollowTheSeed(t *testing.T) {
	sums := func(seed uint64) (sum, squares float64) {
		c := still()
		g := simgpu.New(c, simgpu.WithSeed(seed), simgpu.WithJitter(0.1), simgpu.WithTick(0), simgpu.WithClockError(0, 0),
			simgpu.WithDevices(plain()))
		s := g.Stream(0)
		e := events(t, g, 2)
		for range 1000 {
			record(t, g, e[0], s)
			require.Equal(t, backend.StatusOK, g.Launch(s, simgpu.Kernel{Duration: time.Millisecond}))
			record(t, g, e[1], s)
			c.Advance(10 * time.Millisecond)
			ns, st := g.Elapsed(e[0], e[1])
			require.Equal(t, backend.StatusOK, st)
			sum += ns / 1e6
			squares += (ns/1e6 - 1) * (ns/1e6 - 1)
		}
		return sum, squares
	}
	sum, squares := sums(1)
	require.InDelta(t, 1000, sum, 6*0.1*math.Sqrt(1000), "six standard deviations of the mean")
	require.InDelta(t, 0.1, math.Sqrt(squares/1000), 0.02)
	again, _ := sums(1)
	require.Equal(t, sum, again)
	other, _ := sums(2)
	require.NotEqual(t, sum, other)
}

func TestKernelsOfTwoStreamsShareOneEngine(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	a, b := g.Stream(0), g.Stream(0)
	g.Launch(a, simgpu.Kernel{Duration: 5 * time.Millisecond})
	g.Launch(b, simgpu.Kernel{Duration: 5 * time.Millisecond})
	g.Wait(b)
	require.Equal(t, 10*time.Millisecond+4*time.Microsecond, clock.Now().Sub(origin))
}

func TestKernelsOfTwoStreamsTakeTurns(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	long, short := g.Stream(0), g.Stream(0)
	for range 100 {
		g.Launch(long, simgpu.Kernel{Duration: time.Millisecond})
	}
	clock.Advance(10 * time.Millisecond)
	g.Launch(short, simgpu.Kernel{Duration: time.Millisecond})
	g.Wait(short)
	// It waits for the running kernel (until 10.004 ms) and runs next, before the ninety that were
	// launched earlier.
	require.Equal(t, 11*time.Millisecond+4*time.Microsecond, clock.Now().Sub(origin).Round(10*time.Nanosecond))
	g.Wait(long)
	require.Equal(t, 101*time.Millisecond+4*time.Microsecond, clock.Now().Sub(origin))
}

func TestEventTimesAreTheDevicesOwn(t *testing.T) {
	clock := still()
	g := simgpu.New(clock, simgpu.WithClockError(100, time.Hour), simgpu.WithTick(32*time.Nanosecond),
		simgpu.WithJitter(0))
	s := g.Stream(0)
	e := events(t, g, 2)
	record(t, g, e[0], s)
	clock.Advance(time.Second)
	record(t, g, e[1], s)
	clock.Advance(time.Millisecond)
	ns, st := g.Elapsed(e[0], e[1])
	require.Equal(t, backend.StatusOK, st)
	require.InDelta(t, 1e9*(1+100e-6), ns, 62+64, "float32 milliseconds step 61 ns at 1 s, and two ticks")
	truth, ok := g.TrueTime(e[1])
	require.True(t, ok)
	require.Equal(t, origin.Add(time.Second+600), truth)
	back, _ := g.Elapsed(e[1], e[0])
	require.Equal(t, -ns, back)
}

func TestACapturedStreamGivesNoTimes(t *testing.T) {
	clock := still()
	g := exact(clock, plain())
	s := g.Stream(0)
	e := events(t, g, 1)
	require.Equal(t, backend.StatusOK, g.BeginCapture(s))
	capturing, _ := g.Capturing(s)
	require.True(t, capturing)
	record(t, g, e[0], s)
	require.Equal(t, backend.StatusCapturedEvent, g.Query(e[0]))
	g.Launch(s, simgpu.Kernel{Duration: time.Millisecond})
	g.Launch(s, simgpu.Kernel{Duration: time.Millisecond})
	graph, st := g.EndCapture(s)
	require.Equal(t, backend.StatusOK, st)
	g.Wait(s)
	require.Equal(t, origin, clock.Now(), "captured work does not run")
	g.LaunchGraph(s, graph)
	g.LaunchGraph(s, graph)
	g.Wait(s)
	require.Equal(t, 4*time.Millisecond+4*time.Microsecond, clock.Now().Sub(origin))
}

func TestWrongHandlesAreRefused(t *testing.T) {
	g := exact(still(), plain(), plain())
	require.Equal(t, backend.StatusInvalidHandle, g.Launch(99, simgpu.Kernel{}))
	require.Equal(t, backend.StreamHandle(0), g.Stream(7))
	other := g.Stream(1)
	e := events(t, g, 1)
	require.Equal(t, backend.StatusInvalidHandle, g.Record(&backend.Call{Args: [2]uintptr{uintptr(e[0]), other}}),
		"event and stream of two devices")
	_, err := g.StreamInfo(42, 0)
	require.ErrorContains(t, err, "unknown stream")
	_, ok := g.Telemetry(2)
	require.False(t, ok)
	g.FreeStream(1, other)
	require.Equal(t, backend.StatusInvalidHandle, g.Wait(other))
}

func TestMemoryIsBounded(t *testing.T) {
	g := exact(still(), plain())
	require.True(t, g.Allocate(0, 1<<30))
	require.False(t, g.Allocate(0, 1))
	require.True(t, g.Allocate(0, -(1<<30)))
	require.False(t, g.Allocate(0, -1))
	used, st := g.MemoryUsage(0)
	require.Equal(t, backend.StatusOK, st)
	require.Zero(t, used)
}

func TestManyGoroutinesOnTheRealClock(t *testing.T) {
	g := simgpu.New(nil)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s := g.Stream(0)
			for range 50 {
				g.Launch(s, simgpu.Kernel{Duration: 10 * time.Microsecond})
				g.Telemetry(0)
			}
			g.Wait(s)
		})
	}
	wg.Wait()
	tel, _ := g.Telemetry(0)
	require.InDelta(t, 400*10e-6, tel.KernelSeconds, 0.1*400*10e-6,
		"one engine: the sum of all kernels, within their spread")
}

// As in CUDA, what was enqueued before a stream was freed still runs, and its events complete.
func TestFreedStreamFinishesItsWork(t *testing.T) {
	clock := simgpu.NewManualClock(time.Unix(1, 0))
	g := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithDevices(plain()))
	s := g.Stream(0)
	e := events(t, g, 1)[0]
	require.Equal(t, backend.StatusOK, g.Launch(s, simgpu.Kernel{Duration: time.Millisecond}))
	require.Equal(t, backend.StatusOK, g.Record(&backend.Call{Args: [2]uintptr{uintptr(e), s}}))
	g.FreeStream(0, s)
	require.Equal(t, backend.StatusInvalidHandle, g.Launch(s, simgpu.Kernel{Duration: time.Millisecond}))
	require.Equal(t, backend.StatusNotReady, g.Query(e))
	require.Equal(t, backend.StatusOK, g.Synchronize(e))
	require.Equal(t, backend.StatusOK, g.Query(e))
}
