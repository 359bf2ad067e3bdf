// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"fmt"
	"runtime"
	"testing"
)

// BenchmarkTake measures a batch of spans whose series exist.
func BenchmarkTake(b *testing.B) {
	var spans []span
	for i := range 512 {
		spans = append(spans, span{fmt.Sprint("p", i%16), 0, uint64(10 + i), prefill, byte(i), 0, ""})
	}
	td := batch(b, attrs{"service.name": "s"}, spans...)
	a := newTest(b, nil)
	b.ReportAllocs()
	for b.Loop() {
		a.take(td, clock)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/512, "ns/span")
}

// BenchmarkOutput measures one output of 7,000 series, including 1,000 histograms.
func BenchmarkOutput(b *testing.B) {
	a := newTest(b, nil)
	for i := range 1000 {
		a.take(batch(b, nil, span{fmt.Sprint("p", i), 0, 10, prefill, 1, 0, ""}), clock)
	}
	b.ReportAllocs()
	for b.Loop() {
		a.output(clock, false)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(a.Kept), "ns/series")
}

// BenchmarkMemory reports the memory of a series: seven for each operation, one of them a histogram.
func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		a := newTest(b, func(c *Config) { c.CardinalityLimit = 20_000; c.MaxSeries = 200_000 })
		before := heap()
		for i := range 10_000 {
			a.take(batch(b, nil, span{fmt.Sprint("p", i), 0, 10, prefill, 1, 0, ""}), clock)
		}
		b.ReportMetric(float64(heap()-before)/float64(a.Kept), "B/series")
		runtime.KeepAlive(a)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
