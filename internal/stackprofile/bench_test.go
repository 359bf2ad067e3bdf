// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stackprofile

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/cputime"
)

// BenchmarkSpan measures one span: read, queued, resolved and counted.
func BenchmarkSpan(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	td := ptrace.NewTraces()
	ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
	for _, d := range draw(rng, 80) {
		d.write(ss)
	}
	x := New(Options{Repeats: -1, Window: time.Minute})
	now := int64(epoch) + int64(time.Second)
	n := ss.Len()
	b.ReportAllocs()
	began := cputime.Used()
	for b.Loop() {
		x.Add(td, now)
		x.Resolve(now, true)
	}
	b.ReportMetric(float64((cputime.Used()-began).Nanoseconds())/float64(b.N)/float64(n), "cpu-ns/span")
}

// BenchmarkMemory reports the memory of 100,000 stacks.
func BenchmarkMemory(b *testing.B) {
	const stacks = 100_000
	for b.Loop() {
		x := New(Options{Repeats: -1, Window: time.Hour})
		before := heap()
		for i := range stacks / 100 {
			td := ptrace.NewTraces()
			ss := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans()
			for j := range 100 {
				drawn{
					trace: i + 1, id: 100*i + j + 1, name: fmt.Sprint("n", 100*i+j), device: 1, start: 10 * j, end: 10*j + 10,
				}.write(ss)
			}
			x.Add(td, int64(epoch)+1e10)
			x.Resolve(int64(epoch)+1e10, true)
		}
		b.ReportMetric(float64(heap()-before)/(1<<20), "MiB")
		runtime.KeepAlive(x)
	}
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
