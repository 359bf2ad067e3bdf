// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"math"
	"testing"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/internal/cputime"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/metadata"
	"github.com/otelgpu/otelgpu/semconv"
)

// bench has 8 devices with 120 s of samples of all fields at 10 Hz, and a processor whose parts are
// called directly, so that nothing waits.
type bench struct {
	p     *joinProcessor
	now   time.Time
	ids   [8]string
	first time.Time
}

func newBench(b testing.TB) *bench {
	x := &bench{now: time.Now()}
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	x.first = x.now.Add(-2 * time.Minute)
	for i := range x.ids {
		x.ids[i] = fmt.Sprintf("GPU-0000000%d-86f3-7a43-b711-4771313afc50", i)
		w, err := store.Register(component.MustNewID("gpu"), devicesamples.Device{
			ID: x.ids[i], Interval: 100 * time.Millisecond, Source: "dcgm",
		})
		if err != nil {
			b.Fatal(err)
		}
		for at := x.first; !at.After(x.now); at = at.Add(100 * time.Millisecond) {
			s := devicesamples.Sample{Time: at.UnixNano()}
			for f := range devicesamples.NumFields {
				s.Set(devicesamples.Field(f), at.Sub(x.first).Seconds())
			}
			s.Set(devicesamples.Throttle, 0)
			watts := 300 + 30*math.Sin(at.Sub(x.first).Seconds())
			s.Set(devicesamples.Power, watts)
			s.Set(devicesamples.Energy, 300*at.Sub(x.first).Seconds()+30*(1-math.Cos(at.Sub(x.first).Seconds())))
			w.Write([]devicesamples.Sample{s})
		}
	}
	cfg := createDefaultConfig().(*Config)
	set := processortest.NewNopSettings(metadata.Type)
	p, err := newProcessor(context.Background(), set, cfg, nil)
	if err != nil {
		b.Fatal(err)
	}
	p.engine.reader = store
	p.ident = identifier{seed: maphash.MakeSeed()}
	x.p = p
	return x
}

// Each request covers a window of time, with one span after the other on every device.
const (
	perRequest = 1024
	window     = 64 * time.Millisecond
	spanLength = window * 8 / perRequest
)

// request returns n spans with the attributes of gpuspan.
func (x *bench) request(n int, from time.Time) ptrace.Traces {
	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "bench")
	rs.Resource().Attributes().PutStr("service.instance.id", "1")
	rs.Resource().Attributes().PutStr("host.name", "node1")
	spans := rs.ScopeSpans().AppendEmpty().Spans()
	spans.EnsureCapacity(n)
	for i := range n {
		s := spans.AppendEmpty()
		s.SetName("attention")
		s.SetTraceID(pcommon.TraceID{1, byte(i / 16)})
		var id pcommon.SpanID
		binary.BigEndian.PutUint64(id[:], uint64(i+1))
		s.SetSpanID(id)
		start := from.Add(time.Duration(i/8) * spanLength)
		s.SetStartTimestamp(pcommon.NewTimestampFromTime(start))
		s.SetEndTimestamp(pcommon.NewTimestampFromTime(start.Add(spanLength)))
		a := s.Attributes()
		a.EnsureCapacity(16)
		a.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeSection)
		a.PutStr(string(semconv.GPUOperationCategoryKey), "attention")
		a.PutStr(string(semconv.HWIDKey), x.ids[i%len(x.ids)])
		a.PutStr(string(semconv.HWModelKey), "NVIDIA H200")
		a.PutInt(string(semconv.GPUDeviceOrdinalKey), int64(i%len(x.ids)))
		a.PutInt(string(semconv.GPUStreamIDKey), 1)
		a.PutDouble(string(semconv.GPUDurationKey), 0.01)
		a.PutInt(string(semconv.GPUIOSizeKey), 1<<20)
		a.PutDouble(string(semconv.GPUFLOPCountKey), 1e9)
		a.PutStr(string(semconv.GPUTimingSourceKey), "cuda_event")
	}
	return td
}

// BenchmarkJoin measures the join of a stream of requests of 1024 spans without the queue: find the
// GPU spans and their devices, add them to the energy attribution, settle, write. Compare
// cpu-ns/span with BenchmarkAppendAttributes, the cost of adding as many attributes to a span.
func BenchmarkJoin(b *testing.B) {
	x := newBench(b)
	b.ReportAllocs()
	var spent time.Duration
	j := x.newJoins()
	for b.Loop() {
		b.StopTimer()
		td := j.next()
		b.StartTimer()
		spent += j.join(b, td)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*perRequest), "cpu-ns/span")
}

// joins makes requests that follow one another, and joins them.
type joins struct {
	*bench
	proto ptrace.Traces
	from  time.Time
	id    uint64
}

func (x *bench) newJoins() *joins {
	return &joins{bench: x, proto: x.request(perRequest, x.first), from: x.first}
}

func (x *joins) next() ptrace.Traces {
	if x.from = x.from.Add(window); x.from.After(x.now.Add(-x.p.cfg.Settle)) {
		x.from = x.first
		for id, board := range x.p.engine.boards {
			board.dev.Close()
			delete(x.p.engine.boards, id)
		}
	}
	td := ptrace.NewTraces()
	x.proto.CopyTo(td)
	shift := pcommon.Timestamp(x.from.Sub(x.first))
	for s := range spansOf(td) {
		x.id++
		s.SetSpanID(spanID(x.id))
		s.SetStartTimestamp(s.StartTimestamp() + shift)
		s.SetEndTimestamp(s.EndTimestamp() + shift)
	}
	return td
}

// join joins a request and returns the CPU time.
func (x *joins) join(b *testing.B, td ptrace.Traces) time.Duration {
	p := x.p
	arrived := x.from.Add(window)
	left := arrived.Add(p.cfg.Settle)
	at := cputime.Used()

	t := p.batches.Get().(*batch)
	t.scan(td, p.ident, arrived.UnixNano(), p.cfg.MaxWait)
	p.engine.look(t, arrived)
	through := context.WithValue(context.Background(), pendingKey{}, &pendingRequest{td: td, batch: t})
	p.engine.arrive(t, arrived, true)
	t.pack(td)

	if from, _ := pendingBatch(through, td, p.engine); from != t || !p.engine.settled(t, left, false) {
		b.Fatal("not settled")
	}
	p.write(t)
	t.build(&p.attrs)
	p.put(t)

	return cputime.Used() - at
}

// BenchmarkAppendAttributes only adds as many attributes to a span as the join does, in the same
// way.
func BenchmarkAppendAttributes(b *testing.B) {
	const n = perRequest
	x := newBench(b)
	proto := x.request(n, x.first)
	b.ReportAllocs()
	var spent time.Duration
	for b.Loop() {
		b.StopTimer()
		td := ptrace.NewTraces()
		proto.CopyTo(td)
		b.StartTimer()
		at := cputime.Used()
		for s := range spansOf(td) {
			to := s.Attributes()
			to.EnsureCapacity(to.Len() + len(written))
			for _, k := range written[:16] {
				to.PutDouble(k, 1)
			}
		}
		spent += cputime.Used() - at
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*n), "cpu-ns/span")
}

// BenchmarkPassHostSpans measures a request without GPU spans.
func BenchmarkPassHostSpans(b *testing.B) {
	x := newBench(b)
	td := x.request(perRequest, x.now)
	for s := range spansOf(td) {
		s.Attributes().Remove(string(semconv.GPUOperationTypeKey))
	}
	t := &batch{}
	b.ReportAllocs()
	var spent time.Duration
	id := uint64(0)
	for b.Loop() {
		b.StopTimer()
		for s := range spansOf(td) {
			id++
			s.SetParentSpanID(s.SpanID())
			s.SetSpanID(spanID(id))
		}
		b.StartTimer()
		at := cputime.Used()
		t.scan(td, x.p.ident, x.now.UnixNano(), x.p.cfg.MaxWait)
		x.p.engine.follow(t.host)
		t.reset()
		spent += cputime.Used() - at
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N*perRequest), "cpu-ns/span")
}
