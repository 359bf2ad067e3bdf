// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// BenchmarkPollingShare is the processor time of the polling thread, spans included, at 2,000 sections a second on 4 streams, as a share of
// one core. b.N is the number of sections.
func BenchmarkPollingShare(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, _ := benchProfiler(b, WithTracerProvider(tp))
	var streams []*Stream
	for i := range 4 {
		streams = append(streams, p.Stream(uintptr(10+i), "load", NeverCaptured()))
	}
	cpu := func() (d time.Duration) {
		_ = p.poller.call(context.Background(), func() { d, _ = threadCPU() })
		return d
	}
	ctx := sampledContext()
	before, start := cpu(), time.Now()
	for i := range b.N {
		benchOp.Start(ctx, streams[i%4]).EndWith(benchWork)
		time.Sleep(time.Until(start.Add(time.Duration(i+1) * time.Second / 2000)))
	}
	wall := time.Since(start)
	b.ReportMetric(100*(cpu()-before).Seconds()/wall.Seconds(), "%core")
	b.ReportMetric(float64(b.N)/wall.Seconds(), "sections/s")
	b.ReportMetric(float64(p.drops[dropPoolFull].Load()), "dropped")
}

// BenchmarkSaturation is how many sections a second become spans when two goroutines start them as fast as slots come back.
func BenchmarkSaturation(b *testing.B) {
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(sdktrace.NewBatchSpanProcessor(discard{})))
	defer func() { _ = tp.Shutdown(context.Background()) }()
	p, _ := benchProfiler(b, WithTracerProvider(tp), WithSlots(4096))
	ctx := sampledContext()
	var wg sync.WaitGroup
	start := time.Now()
	for i := range 2 {
		s := p.Stream(uintptr(10+i), "load", NeverCaptured())
		wg.Go(func() {
			for done := 0; done < b.N/2; {
				x := benchOp.Start(ctx, s)
				if x.slot == nil {
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
	b.ReportMetric(float64(p.statuses[statusTimed].Load())/time.Since(start).Seconds(), "sections/s")
}

// Two goroutines with streams of their own must not slow each other down.
func BenchmarkSectionTwoStreams(b *testing.B) {
	p, _ := benchProfiler(b)
	ctx := sampledContext()
	streams := []*Stream{p.Stream(10, "a", NeverCaptured()), p.Stream(11, "b", NeverCaptured())}
	inBatches(b, p, func(n int) {
		var wg sync.WaitGroup
		for _, s := range streams {
			wg.Go(func() {
				for range n { // each does n, so that ns/op is the time of one section while the other goroutine does the same
					benchOp.Start(ctx, s).EndWith(benchWork)
				}
			})
		}
		wg.Wait()
	})
}

// TestMemoryIsFlat runs sections, steps and nests until what grows would show. GPUSPAN_TEST_SECTIONS sets how many sections; the default keeps
// the test quick.
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
	backend := newScripted()
	backend.quick = true
	p, err := New(backend, WithTracerProvider(tp))
	require.NoError(t, err)
	defer func() { require.NoError(t, p.Shutdown(context.Background())) }()
	s := p.Stream(3, "main")
	loop := p.Loop("train", s)
	heap := func() uint64 {
		require.NoError(t, p.Flush(context.Background()))
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	run := func(n int) {
		done := 0
		for ctx, step := range loop.Steps(context.Background()) {
			f := step.Phase(Forward)
			for range 20 {
				x := testOp.Start(ctx, s)
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
	before := heap()
	run(n)
	after := heap()
	t.Logf("%d sections: heap %d KiB before, %d KiB after", n, before>>10, after>>10)
	if after > before+512<<10 {
		t.Errorf("heap grew from %d to %d bytes in %d sections", before, after, n)
	}
}
