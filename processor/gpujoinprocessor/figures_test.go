// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/attribution"
)

// BenchmarkLatencyBeyondSettle measures how long after end + settle a batch is released, on the
// real clock: a request every 5 ms, samples every 10 ms that arrive 20 ms after their time.
func BenchmarkLatencyBeyondSettle(b *testing.B) {
	const settle = 200 * time.Millisecond
	var mu sync.Mutex
	var over []time.Duration
	next, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		for s := range spansOf(td) {
			over = append(over, now.Sub(s.EndTimestamp().AsTime())-settle)
		}
		return nil
	})
	require.NoError(b, err)
	r := newRig(b).joinTo(next, func(c *Config) { c.Settle, c.MaxWait = settle, 5*time.Second })
	zero := time.Now().Add(-time.Second)
	w := r.device(nominal)
	w.Write(one(zero, zero))
	r.wg.Go(func() {
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-r.stop:
				return
			case now := <-tick.C:
				w.Write(one(now.Add(-20*time.Millisecond), zero))
			}
		}
	})
	id := uint64(0)
	for b.Loop() {
		id++
		td := newTraces("a")
		end := time.Now()
		td.gpu(id, 0, end.Add(-2*time.Millisecond), end)
		r.consume(td.Traces)
		time.Sleep(5 * time.Millisecond)
	}
	time.Sleep(2 * settle)
	r.close()
	slices.Sort(over)
	require.Len(b, over, int(id))
	b.ReportMetric(float64(over[len(over)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(over[len(over)*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(float64(over[len(over)-1].Microseconds()), "max-µs")
	b.ReportMetric(0, "ns/op")
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// BenchmarkMemoryAtTheBounds fills the energy attribution to `max_spans` and the queue to its size.
func BenchmarkMemoryAtTheBounds(b *testing.B) {
	b.Run("max_spans", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			budget := &attribution.Budget{Max: 1 << 18}
			d := attribution.New(attribution.Limits{}, budget)
			var s attribution.Span
			for i := uint64(1); budget.Used() < budget.Max; i++ {
				binary.BigEndian.PutUint64(s.Span[:], i)
				s.Trace[0], s.Start, s.End = 1, int64(i), int64(i+1000)
				d.Add(s, 0, nil)
			}
			b.ReportMetric((heap()-before)/(1<<20), "MiB")
			b.ReportMetric((heap()-before)/(1<<18), "B/span")
			runtime.KeepAlive(d)
		}
	})
	b.Run("queue", func(b *testing.B) {
		const size = 16 << 20
		x := newBench(b)
		var m ptrace.ProtoMarshaler
		for b.Loop() {
			r := newRig(b).join(func(c *Config) { c.Queue.Size = size })
			dev := nominal
			dev.ID = x.ids[0]
			r.device(dev).Write(one(x.now, x.now))
			before := heap()
			wire, n, err := 0, 0, error(nil)
			for err == nil {
				td := x.request(1024, time.Now().Add(-time.Second))
				size := m.TracesSize(td)
				for s := range spansOf(td) {
					id := s.SpanID()
					id[0], id[1] = byte(n>>8), byte(n)
					s.SetSpanID(id)
				}
				if err = r.proc.ConsumeTraces(context.Background(), td); err == nil {
					wire += size
					n++
				}
			}
			b.ReportMetric((heap()-before)/float64(wire), "heap-B/queue-B")
			b.ReportMetric(float64(wire)/float64(n*1024), "wire-B/span")
			r.close()
		}
	})
}
