// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// witness is a simulated device that records the true times of the events of one stream, which no
// real device reports.
type witness struct {
	*simgpu.GPU
	stream backend.StreamHandle

	mu     sync.Mutex
	events []backend.Event // recorded since the last call of look
	truth  []time.Time
}

// newWitness returns a witness whose device clock drifts by drift ppm, with a profiler and a
// stream.
func newWitness(t *testing.T, drift float64, tick time.Duration) (*witness, *simgpu.ManualClock,
	*tracetest.SpanRecorder, *gpuspan.Profiler, *gpuspan.Stream,
) {
	t.Helper()
	clock, spans := simgpu.NewManualClock(epoch), tracetest.NewSpanRecorder()
	w := &witness{GPU: simgpu.New(clock, simgpu.WithClockError(drift, 42*time.Second), simgpu.WithTick(tick))}
	w.stream = w.Stream(0)
	p, err := gpuspan.New(w, gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	require.NoError(t, err)
	s := p.Stream(w.stream, "main")
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = nil // the self-test's record
	return w, clock, spans, p, s
}

// look reads the true times of completed events before the library reuses them.
func (w *witness) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, e := range w.events {
		at, ok := w.TrueTime(e)
		if !ok {
			break
		}
		w.truth = append(w.truth, at)
		n++
	}
	w.events = w.events[n:]
}

func (w *witness) Record(c *backend.Call) backend.Status {
	st := w.GPU.Record(c)
	if c.Args[1] == w.stream && st == backend.StatusOK {
		w.mu.Lock()
		w.events = append(w.events, backend.Event(c.Args[0]))
		w.mu.Unlock()
	}
	return st
}

// Compares the times of spans with the true times of their records: the reported error bounds every
// span, and durations are exact to the device's ticks.
func TestSpanTimesAreWithinTheirError(t *testing.T) {
	for _, drift := range []float64{-100, 0, 25} {
		const tick = 500 * time.Nanosecond
		w, clock, spans, p, s := newWitness(t, drift, tick)

		op := gpuspan.NewOperation("op")
		rng := rand.New(rand.NewPCG(3, 4))
		const sections = 1500
		for range sections { // about five minutes, with pauses of up to 25 s
			x := op.Start(context.Background(), s)
			w.Launch(w.stream, simgpu.Kernel{Duration: time.Duration(rng.ExpFloat64() * float64(3*time.Millisecond))})
			x.End()
			pause := time.Duration(rng.ExpFloat64() * float64(20*time.Millisecond))
			if rng.IntN(100) == 0 {
				pause = time.Duration(rng.IntN(25)) * time.Second
			}
			clock.Advance(30*time.Millisecond + pause)
			flush(t, p)
			w.look()
		}
		require.NoError(t, p.Shutdown(context.Background()))
		ended := spans.Ended()
		require.Len(t, ended, sections)
		require.Len(t, w.truth, 2*sections)
		var errs, bounds []float64
		for i, span := range ended {
			a := attrs(span)
			bound := a["gpu.timing.error"].AsFloat64()
			start, end := w.truth[2*i], w.truth[2*i+1]
			e := math.Abs(span.StartTime().Sub(start).Seconds())
			errs, bounds = append(errs, e), append(bounds, bound)
			require.LessOrEqual(t, e, bound+tick.Seconds()+1e-9, "section %d at %v", i, drift)
			d := end.Sub(start).Seconds()
			require.InDelta(t, d, a["gpu.duration"].AsFloat64(), tick.Seconds()+d*200e-6+1e-9)
			require.False(t, span.EndTime().Before(span.StartTime()))
		}
		errs, bounds = errs[100:], bounds[100:] // the clock rate is known by then; the earlier bounds are valid, but wide
		slices.Sort(errs)
		slices.Sort(bounds)
		n := len(errs)
		t.Logf("drift %v ppm: error p50 %.2f µs, p99 %.2f µs, max %.2f µs; bound p50 %.2f µs, max %.2f µs", drift,
			1e6*errs[n/2], 1e6*errs[n*99/100], 1e6*errs[n-1], 1e6*bounds[n/2], 1e6*bounds[n-1])
		require.Less(t, errs[n*99/100], 5e-6)
		require.Less(t, bounds[n*99/100], 10e-6, "a bound that is too wide says nothing")
	}
}
