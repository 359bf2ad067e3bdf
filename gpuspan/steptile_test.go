// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// The host is slow between steps (each clock read takes 300 µs, as on a busy machine), the device's
// clock drifts, and the device lags or waits. Consecutive steps still tile the stream and the
// host's time exactly.
func TestStepsTileTheDeviceAndTheHost(t *testing.T) {
	clock := simgpu.NewManualClock(epoch)
	clock.SetStep(20 * time.Nanosecond)
	gpu := simgpu.New(clock, simgpu.WithClockError(40, time.Hour))
	spans := tracetest.NewSpanRecorder()
	p, err := gpuspan.New(gpu, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	h := gpu.Stream(0)
	s := p.Stream(h, "train")
	rng := rand.New(rand.NewPCG(1, 2))
	const steps = 200
	n, began := 0, clock.Now()
	for _, step := range train.NewLoop(p, "train", s, train.TotalSteps(steps)).Steps(context.Background()) {
		clock.SetStep(20 * time.Nanosecond)
		gpu.Launch(h, simgpu.Kernel{Duration: time.Duration(rng.IntN(9)) * time.Millisecond})
		clock.Advance(time.Duration(rng.IntN(9)) * time.Millisecond)
		if step.Index()%10 == 0 {
			clock.Advance(time.Second)
			flush(t, p)
		}
		if n++; n < steps {
			clock.SetStep(300 * time.Microsecond)
		}
	}
	wall := clock.Now().Sub(began)
	clock.Advance(time.Second)
	require.NoError(t, p.Shutdown(context.Background()))

	ns := func(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }
	var device, host, total int64 // end of the previous step
	n = 0
	for _, span := range spans.Ended() {
		a := attrs(span)
		start := span.StartTime().UnixNano()
		from := start + ns(a["gpu.start.delay"].AsFloat64())
		length := ns(a["gpu.step.duration"].AsFloat64())
		if n++; n > 1 {
			require.Equal(t, device, from, "step %d begins on the device where the one before it ended", n)
			require.Equal(t, host, start, "and on the host")
		}
		device, host = from+length, start+ns(a["gpu.step.host.duration"].AsFloat64())
		total += length
	}
	require.Equal(t, steps, n)
	require.InDelta(t, wall.Seconds(), float64(total)/1e9, 2e-3)
}

// Tiling keeps times accurate: over minutes and at any drift, both ends of each step are within its
// stated error, and durations are differences of device timestamps.
func TestStepTimesAreWithinTheirError(t *testing.T) {
	for _, drift := range []float64{-100, 25} {
		const tick = 500 * time.Nanosecond
		w, clock, spans, p, s := newWitness(t, drift, tick)
		rng := rand.New(rand.NewPCG(5, 6))
		const steps = 1500
		for range train.NewLoop(p, "train", s, train.TotalSteps(steps)).Steps(context.Background()) {
			w.Launch(w.stream, simgpu.Kernel{Duration: time.Duration(rng.ExpFloat64() * float64(100*time.Millisecond))})
			clock.Advance(time.Duration(rng.ExpFloat64() * float64(200*time.Millisecond)))
			if rng.IntN(3) > 0 { // else the host runs ahead
				w.Wait(w.stream)
				flush(t, p)
			}
			w.look()
		}
		clock.Advance(10 * time.Second)
		flush(t, p)
		w.look()
		require.NoError(t, p.Shutdown(context.Background()))
		ended := spans.Ended()
		require.Len(t, ended, steps)
		require.Len(t, w.truth, steps+1, "one record for each boundary")
		moved := 0
		for i, span := range ended {
			a := attrs(span)
			bound := a["gpu.timing.error"].AsFloat64() + tick.Seconds() + 2e-9
			from := span.StartTime().Add(time.Duration(math.Round(1e9 * a["gpu.start.delay"].AsFloat64())))
			length := a["gpu.step.duration"].AsFloat64()
			to := from.Add(time.Duration(math.Round(1e9 * length)))
			require.LessOrEqual(t, math.Abs(from.Sub(w.truth[i]).Seconds()), bound, "start of step %d at %v ppm", i, drift)
			require.LessOrEqual(t, math.Abs(to.Sub(w.truth[i+1]).Seconds()), bound, "end of step %d at %v ppm", i, drift)
			d := w.truth[i+1].Sub(w.truth[i]).Seconds()
			if math.Abs(length-d) > tick.Seconds()+d*1e-6+100e-9 {
				moved++
			}
		}
		require.Less(t, moved, steps/20, "ends that had to be moved")
		t.Logf("%v ppm: %d of %d ends moved", drift, moved, steps)
	}
}
