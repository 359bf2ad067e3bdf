// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"

	"github.com/otelgpu/otelgpu/internal/cputime"
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

// BenchmarkSections measures one section of 100,000 a second on eight devices, from four
// connections.
func BenchmarkSections(b *testing.B) {
	var spans []span
	for i := range uint64(512) {
		on := with(prefill, attrs{
			"gpu.timing.source": "cuda_event", "gpu.duration": 1e-3, "hw.id": fmt.Sprint("GPU-", i%8),
		})
		spans = append(spans, span{fmt.Sprint("p", i%4), 50 * i, 50*i + 1000, on, byte(i), 0, ""})
	}
	td := batch(b, attrs{"service.name": "s"}, spans...)
	list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	a := newTest(b, nil)
	n, now := uint64(0), clock
	take := func() {
		n++
		for i, s := range list.All() {
			s.SetSpanID([8]byte(binary.BigEndian.AppendUint64(nil, n<<9|uint64(i)+1)))
			if n%4 == 0 {
				s.SetStartTimestamp(s.StartTimestamp() + 25_600_000)
				s.SetEndTimestamp(s.EndTimestamp() + 25_600_000)
			}
		}
		now += 25_600_000 / 4
		a.take(td, now)
	}
	for n < 1000 {
		take()
	}
	b.ReportAllocs()
	cpu := cputime.Used()
	for b.Loop() {
		take()
	}
	b.ReportMetric(float64((cputime.Used()-cpu).Nanoseconds())/float64(b.N)/512, "cpu-ns/span")
}

// BenchmarkRanks measures batches of one rank: 8 steps with 4 phases of 8 operations below host
// spans.
func BenchmarkRanks(b *testing.B) {
	var spans []span
	op := func(name string, id, parent byte) span {
		return span{name, 0, 10, attrs{"gpu.operation.type": "section", "gpu.duration": 1e-5}, id, parent, ""}
	}
	for i := range byte(4) {
		for j := range byte(8) {
			spans = append(spans, op(fmt.Sprint("op", j), 100+i*8+j, 50+i*8+j), span{"host", 0, 10, nil, 50 + i*8 + j, 10 + i, ""})
		}
		spans = append(spans, op(fmt.Sprint("phase", i), 10+i, 1))
	}
	spans = append(spans, span{"step", 0, 100, attrs{
		"gpu.operation.type": "step", "gpu.step.index": 1, "gpu.step.duration": 1e-4,
	}, 1, 0, ""})
	td := batch(b, rankOf(0, 4), spans...)
	list := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	a := newTest(b, nil)
	n, now := int64(0), clock
	b.ReportAllocs()
	cpu := cputime.Used()
	for b.Loop() {
		n++
		now += 1e8
		for _, s := range list.All() {
			s.SetTraceID([16]byte(binary.BigEndian.AppendUint64(make([]byte, 8, 16), uint64(n))))
		}
		list.At(len(spans)-1).Attributes().PutInt("gpu.step.index", n)
		a.take(td, now)
		if n%64 == 0 {
			a.compare(now, false)
		}
	}
	b.ReportMetric(float64((cputime.Used()-cpu).Nanoseconds())/float64(b.N)/float64(len(spans)), "cpu-ns/span")
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

// BenchmarkMemory reports the memory of a series: seven for each operation, one of them a
// histogram.
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
