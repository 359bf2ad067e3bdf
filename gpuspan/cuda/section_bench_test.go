// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// hollow calls an empty C function instead of record and the capture check on one stream or two, so
// that benchmarks measure gpuspan and the call into C, not the stub.
type hollow struct {
	*cuda.Backend
	stream uintptr
	second uintptr
	empty  dl.Func
	rest   sync.Mutex // while locked, the polling thread waits in Query
}

func (h *hollow) Query(e backend.Event) backend.Status {
	h.rest.Lock()
	defer h.rest.Unlock()
	return h.Backend.Query(e)
}

func (h *hollow) Record(c *backend.Call) backend.Status {
	if c.Args[1] == h.stream || c.Args[1] == h.second {
		return backend.Status(h.empty.Call(c.Args[0], c.Args[1]))
	}
	return h.Backend.Record(c)
}

func (h *hollow) Capturing(s backend.StreamHandle) (bool, backend.Status) {
	if s == h.stream || s == h.second {
		return false, backend.Status(h.empty.Call(s, 0))
	}
	return h.Backend.Capturing(s)
}

// hollowRig returns a profiler over a hollow backend with one stream.
func hollowRig(tb testing.TB, stub *ctest.Stub, emptied bool, slots int, opts ...gpuspan.StreamOption) (*hollow,
	*gpuspan.Profiler, *gpuspan.Stream,
) {
	back, err := cuda.Open(cuda.WithLibrary(stub.Path))
	require.NoError(tb, err)
	lib, err := dl.Open(stub.Path)
	require.NoError(tb, err)
	h := &hollow{Backend: back, empty: lib.Lookup("stub_empty")}
	set := settings.Default()
	set.Slots = slots
	prof, err := gpuspan.New(h, gpuspan.WithSettings(func(s *settings.Settings) { *s = set }), gpuspan.WithTracerProvider(sdktrace.NewTracerProvider()),
		gpuspan.WithErrorHandler(func(error) {}))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = prof.Shutdown(context.Background()) })
	handle := appStream(tb, back, 0)
	s := prof.Stream(handle, "s", opts...)
	require.True(tb, s.DeviceTimed())
	if emptied {
		h.stream = handle
	}
	return h, prof, s
}

func TestSectionsOnADriverDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	const runs = 200
	h, prof, s := hollowRig(t, ctest.CUDA(t), false, 4*runs)
	op := gpuspan.NewOperation("op")
	ctx := context.Background()
	section := func() { op.Start(ctx, s).EndWith(gpuspan.Work{Bytes: 1 << 20}) }
	section()
	require.NoError(t, prof.Flush(ctx))
	h.rest.Lock()
	section() // the polling thread now blocks in its query
	time.Sleep(20 * time.Millisecond)
	n := testing.AllocsPerRun(runs, section)
	h.rest.Unlock()
	require.Zero(t, n)
}

// BenchmarkSectionDriver measures Start and EndWith with two driver calls (records) and with four
// (also capture checks). Stub includes the stub's own work, which emulates a clock and a queue.
func BenchmarkSectionDriver(b *testing.B) {
	for _, c := range []struct {
		name string
		stub bool
		opts []gpuspan.StreamOption
	}{
		{name: "Records", opts: []gpuspan.StreamOption{gpuspan.NeverCaptured()}},
		{name: "RecordsAndCaptureChecks"},
		{name: "StubRecords", stub: true, opts: []gpuspan.StreamOption{gpuspan.NeverCaptured()}},
		{name: "StubRecordsAndCaptureChecks", stub: true},
	} {
		b.Run(c.name, func(b *testing.B) {
			const slots = 4096
			h, prof, s := hollowRig(b, ctest.CUDA(b), !c.stub, slots, c.opts...)
			ctx := context.Background()
			op := gpuspan.NewOperation("op")
			var total time.Duration
			// measures the caller: the polling thread is blocked, then catches up
			for done := 0; done < b.N; done += slots / 2 {
				h.rest.Lock()
				start := time.Now()
				for range min(slots/2, b.N-done) {
					op.Start(ctx, s).EndWith(gpuspan.Work{Bytes: 1 << 20, FLOPs: 1e9, Precision: gpuspan.FP32})
				}
				total += time.Since(start)
				h.rest.Unlock()
				_ = prof.Flush(ctx)
			}
			b.ReportMetric(float64(total.Nanoseconds())/float64(b.N), "ns/op")
		})
	}
}

// BenchmarkTwoStreams measures the same section on two goroutines, each with its own stream. With a
// core for each, the time per section should be the same as with one goroutine. The calls are
// empty, because the stub counts its calls, which makes streams wait for each other. It reports the
// median over bursts, because a busy machine interrupts many.
func BenchmarkTwoStreams(b *testing.B) {
	const burst = 256
	h, prof, first := hollowRig(b, ctest.CUDA(b), true, 2*burst, gpuspan.NeverCaptured())
	handle := appStream(b, h.Backend, 0)
	streams := []*gpuspan.Stream{first, prof.Stream(handle, "t", gpuspan.NeverCaptured())}
	h.second = handle
	op := gpuspan.NewOperation("op")
	for n := 1; n <= len(streams); n++ {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			ctx := context.Background()
			var times []float64
			for done := 0; done < b.N; done += burst {
				h.rest.Lock()
				var wg sync.WaitGroup
				var ready atomic.Int32
				took := make([]float64, n)
				for i, s := range streams[:n] {
					wg.Go(func() {
						for ready.Add(1); ready.Load() < int32(n); {
						}
						start := time.Now()
						for range burst {
							op.Start(ctx, s).EndWith(gpuspan.Work{Bytes: 1 << 20})
						}
						took[i] = float64(time.Since(start).Nanoseconds()) / burst
					})
				}
				wg.Wait()
				h.rest.Unlock()
				times = append(times, took...)
				_ = prof.Flush(ctx)
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "ns/op")
		})
	}
}
