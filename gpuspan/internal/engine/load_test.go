// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/cpu"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
)

// BenchmarkPollingShare measures the CPU time of the polling thread, spans included, at 2,000
// sections a second on 4 streams, as a fraction of one core. b.N is the number of sections.
func BenchmarkPollingShare(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, _ := benchProfiler(b, enginetest.WithTracerProvider(tp))
	var streams []*section.Stream
	for i := range 4 {
		streams = append(streams, p.Stream(uintptr(10+i), "load", enginetest.NeverCaptured()))
	}
	ctx := enginetest.Sampled()
	before, start := pollingCPU(p), time.Now()
	for i := range b.N {
		benchOp.Start(ctx, streams[i%4]).EndWith(benchWork)
		time.Sleep(time.Until(start.Add(time.Duration(i+1) * time.Second / 2000)))
	}
	wall := time.Since(start)
	b.ReportMetric(100*(pollingCPU(p)-before).Seconds()/wall.Seconds(), "%core")
	b.ReportMetric(float64(b.N)/wall.Seconds(), "sections/s")
	b.ReportMetric(float64(p.Drops()["pool_full"]), "dropped")
}

// BenchmarkSaturation measures how many sections become spans per second when two goroutines start
// them as fast as slots are freed, and how many per second of CPU time of the polling thread, which
// is the limit: starting a section costs a fiftieth of its span.
func BenchmarkSaturation(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, _ := benchProfiler(b, enginetest.WithTracerProvider(tp), enginetest.WithSlots(4096))
	ctx := enginetest.Sampled()
	var wg sync.WaitGroup
	cpu := pollingCPU(p)
	start := time.Now()
	for i := range 2 {
		s := p.Stream(uintptr(10+i), "load", enginetest.NeverCaptured())
		wg.Go(func() {
			for done := 0; done < b.N/2; {
				x := benchOp.Start(ctx, s)
				if x.Slot == nil {
					runtime.Gosched()
					continue
				}
				x.EndWith(benchWork)
				done++
			}
		})
	}
	wg.Wait()
	_ = p.Flush(context.Background())
	n := float64(p.Statuses()["ok"])
	b.ReportMetric(n/time.Since(start).Seconds(), "sections/s")
	if d := pollingCPU(p) - cpu; d > 0 {
		b.ReportMetric(n/d.Seconds(), "sections/core-s")
	}
}

// pollingCPU returns the CPU time of the polling thread, or 0 if unknown.
func pollingCPU(p *engine.Profiler) (d time.Duration) {
	_ = p.Poller.Call(context.Background(), func() { d, _ = cpu.ThreadTime() })
	return d
}

// BenchmarkSectionBurst starts sections from several goroutines at the same moment, each on its own
// stream. They must not slow each other down. It reports the median over bursts, because a busy
// machine interrupts many of them.
func BenchmarkSectionBurst(b *testing.B) {
	for _, goroutines := range []int{1, 2} {
		b.Run(strconv.Itoa(goroutines), func(b *testing.B) {
			p, _ := benchProfiler(b)
			ctx := enginetest.Sampled()
			var streams []*section.Stream
			for i := range goroutines {
				streams = append(streams, p.Stream(uintptr(10+i), "burst", enginetest.NeverCaptured()))
			}
			const burst = 100
			var mu sync.Mutex
			var times []float64
			for done := 0; done < b.N; done += burst {
				enginetest.Paused(p, func() {
					var wg sync.WaitGroup
					var ready atomic.Int32
					for _, s := range streams {
						wg.Go(func() {
							for ready.Add(1); ready.Load() < int32(goroutines); {
							}
							start := time.Now()
							for range burst {
								benchOp.Start(ctx, s).EndWith(benchWork)
							}
							d := float64(time.Since(start).Nanoseconds()) / burst
							mu.Lock()
							times = append(times, d)
							mu.Unlock()
						})
					}
					wg.Wait()
				})
				_ = p.Flush(context.Background())
			}
			slices.Sort(times)
			b.ReportMetric(times[len(times)/2], "ns/op")
			b.ReportMetric(times[0], "min-ns/op")
		})
	}
}

// residentMemory returns the resident set size of the process in bytes, or 0 if unknown.
func residentMemory() (bytes int64) {
	b, err := os.ReadFile("/proc/self/statm")
	if f := strings.Fields(string(b)); err == nil && len(f) > 1 {
		pages, _ := strconv.ParseInt(f[1], 10, 64)
		bytes = pages * int64(os.Getpagesize())
	}
	return bytes
}

// TestMemoryIsFlat runs sections, steps and nests until a leak would show. GPUSPAN_TEST_SECTIONS
// sets the number of sections; the default keeps the test quick.
func TestMemoryIsFlat(t *testing.T) {
	n := 200_000
	if v := os.Getenv("GPUSPAN_TEST_SECTIONS"); v != "" {
		var err error
		n, err = strconv.Atoi(v)
		require.NoError(t, err)
	} else if testing.Short() {
		n = 20_000
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewSimpleSpanProcessor(discard{})))
	backend := enginetest.NewBackend()
	backend.Quick = true
	p, err := engine.New(backend, enginetest.WithTracerProvider(tp))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	loop := p.Loop("train", s)
	heap := func() uint64 {
		enginetest.Flush(t, p)
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run := func(n int) {
		done := 0
		for ctx, step := range loop.Steps(context.Background()) {
			f := step.Phase("forward")
			for range 20 {
				x := enginetest.Op.Start(ctx, s)
				x.Link(ctx)
				x.Start(benchOp).EndWith(benchWork)
				x.End()
			}
			f.End()
			if done += 42; done >= n {
				break
			}
			if done%(42*2) == 0 {
				_ = p.Flush(context.Background())
			}
		}
	}
	run(n / 4) // pools and maps grow to their size
	before, resident := heap(), residentMemory()
	run(n)
	after, resident2 := heap(), residentMemory()
	t.Logf("%d sections: heap %d KiB before, %d KiB after; resident %d MiB, %d MiB", n, before>>10, after>>10,
		resident>>20, resident2>>20)
	if after > before+512<<10 {
		t.Errorf("heap grew from %d to %d bytes in %d sections", before, after, n)
	}
}
