// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package otlpsink

import (
	"context"
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/otlp"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// client receives the requests of the SDK's exporter as the bytes that it would send.
type client struct {
	mu       sync.Mutex
	requests [][]byte
	discard  bool
	bytes    int
}

func (c *client) Start(context.Context) error { return nil }
func (c *client) Stop(context.Context) error  { return nil }

func (c *client) UploadTraces(_ context.Context, spans []*tracepb.ResourceSpans) error {
	b, err := proto.Marshal(&collectorpb.ExportTraceServiceRequest{ResourceSpans: spans})
	if err != nil {
		return err
	}
	_, err = c.Send(context.Background(), b)
	return err
}

// Send receives the requests of the sink.
func (c *client) Send(_ context.Context, b []byte) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bytes += len(b)
	if !c.discard {
		c.requests = append(c.requests, slices.Clone(b))
	}
	return 0, nil
}

// spans decodes the sent data with the Collector's own decoder, into one list per scope.
func (c *client) spans(t *testing.T) map[string]any {
	out := map[string]any{}
	for _, b := range c.requests {
		r := ptraceotlp.NewExportRequest()
		require.NoError(t, r.UnmarshalProto(b))
		// and with the official one, which rejects fields outside the schema
		var official collectorpb.ExportTraceServiceRequest
		require.NoError(t, proto.Unmarshal(b, &official))
		require.Empty(t, official.ProtoReflect().GetUnknown())
		for _, rs := range r.Traces().ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					require.NotContains(t, out, s.SpanID().String())
					out[s.SpanID().String()] = map[string]any{
						"resource": rs.Resource().Attributes().AsRaw(), "scope": ss.Scope().Name(), "version": ss.Scope().Version(),
						"scope attributes": ss.Scope().Attributes().AsRaw(), "schema": ss.SchemaUrl(),
						"trace": s.TraceID(), "parent": s.ParentSpanID(), "state": s.TraceState().AsRaw(), "flags": s.Flags(),
						"name": s.Name(), "kind": s.Kind(),
						"start": s.StartTimestamp(), "end": s.EndTimestamp(), "attributes": s.Attributes().AsRaw(), "links": links(s),
						"status": s.Status().Code(), "message": s.Status().Message(),
					}
				}
			}
		}
	}
	return out
}

func links(s ptrace.Span) (out []any) {
	for _, l := range s.Links().All() {
		// the SDK's exporter omits the trace state of links
		out = append(out, []any{l.TraceID(), l.SpanID(), l.Flags(), l.Attributes().AsRaw()})
	}
	return out
}

// counter generates sequential IDs, so that two runs have the same ones.
type counter struct{ n uint64 }

func (c *counter) NewIDs(ctx context.Context) (t trace.TraceID, s trace.SpanID) {
	c.n++
	binary.BigEndian.PutUint64(t[8:], c.n)
	return t, c.NewSpanID(ctx, t)
}

func (c *counter) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	c.n++
	binary.BigEndian.PutUint64(s[:], c.n)
	return s
}

var who = []attribute.KeyValue{
	attribute.String("service.name", "inference"), attribute.Int("process.pid", 4711),
	attribute.StringSlice("tags", []string{"a", "b"}),
}

// program runs sections with everything that a section can state.
func program(t *testing.T, c *client, sink bool) {
	ctx := context.Background()
	ids := gpuspan.NewIDGenerator(&counter{})
	clock := simgpu.NewManualClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	gpu := simgpu.New(clock, simgpu.WithJitter(0), simgpu.WithTick(0), simgpu.WithClockError(0, 0))
	set := settings.Default()
	set.MemoryUsage = true
	opts := []gpuspan.Option{gpuspan.WithIDGenerator(ids), gpuspan.WithSettings(func(s *settings.Settings) { *s = set })}
	var end func()
	if sink {
		s, err := otlp.New(otlp.To(c), otlp.Resource(who...))
		require.NoError(t, err)
		opts = append(opts, gpuspan.WithSink(s))
		end = func() { require.NoError(t, s.Shutdown(ctx)) }
	} else {
		exporter, err := otlptrace.New(ctx, c)
		require.NoError(t, err)
		tp := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithIDGenerator(ids),
			sdktrace.WithResource(resource.NewSchemaless(who...)))
		opts = append(opts, gpuspan.WithTracerProvider(tp))
		end = func() { require.NoError(t, tp.Shutdown(ctx)) }
	}
	p, err := gpuspan.New(gpu, opts...)
	require.NoError(t, err)
	settle := func() {
		clock.Advance(10 * time.Millisecond)
		require.NoError(t, p.Flush(ctx))
	}
	handle := gpu.Stream(0)
	s, host := p.Stream(handle, "main"), p.Stream(gpu.Stream(0), "host", gpuspan.Sync(settings.SyncNone))
	state, err := trace.ParseTraceState("vendor=x")
	require.NoError(t, err)
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{9}, SpanID: trace.SpanID{8},
		TraceFlags: trace.FlagsSampled, TraceState: state,
	})
	remote := trace.ContextWithRemoteSpanContext(ctx, sc)
	local := trace.ContextWithSpanContext(ctx, sc.WithSpanID(trace.SpanID{7}))
	not := trace.ContextWithSpanContext(ctx, sc.WithTraceFlags(0))

	op := gpuspan.NewOperation("prefill", gpuspan.Category("prefill"), gpuspan.ItemType("token"))
	copied := gpuspan.NewOperation("copy", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned),
		gpuspan.Attributes(attribute.Float64("own", 0.5), attribute.Bool("b", false)))
	x := op.Start(remote, s)
	y := x.Start(copied)
	gpu.Launch(handle, simgpu.Kernel{Duration: time.Millisecond})
	y.Chunk(0, 2)
	y.EndWith(gpuspan.Work{Bytes: 1 << 20})
	x.LinkItems(local, 3)
	x.Link(remote)
	x.SetAttributes(attribute.Int64Slice("list", []int64{-1, 1 << 40}), attribute.BoolSlice("bools", []bool{true}),
		attribute.Float64Slice("floats", []float64{1.5}),
		attribute.String("empty", ""), attribute.String("gpu.operation.category", "again"))
	x.SetAttributes(attribute.String("long", strings.Repeat("x", 1<<14)))
	x.Checksum(1 << 63)
	x.EndWith(gpuspan.Work{Read: 1, Written: 2, Items: 512, FLOPs: 1e12, Precision: gpuspan.BF16})
	settle() // one by one, because IDs are generated when sections are written, which two streams may be in either order
	late := op.Start(ctx, s)
	clock.Advance(10 * time.Millisecond)
	late.End() // the device waited for it
	settle()
	op.Start(not, s).End()
	settle()
	op.Start(local, host).End()
	settle()
	op.RecordMeasured(local, s, clock.Now(), time.Millisecond, gpuspan.Work{Items: 1})
	settle()
	require.NoError(t, p.Shutdown(ctx))
	end()
}

// timed lists attributes that differ between two runs of the program: each run has its own clock,
// which advances at every read, and the number of reads depends on the machine. So does the
// presence of the last two.
var timed = []string{"gpu.duration", "gpu.start.delay", "gpu.end.delay", "gpu.timing.error"}

// within is the tolerance of times; up to 5 µs were observed on a busy machine. The program's own
// steps are 1 ms and more.
const within = 500 * time.Microsecond

func TestSinkAndSDKEncodeTheSameSpans(t *testing.T) {
	var sdk, own client
	program(t, &sdk, false)
	program(t, &own, true)
	want, got := sdk.spans(t), own.spans(t)
	require.Len(t, want, 5)
	require.ElementsMatch(t, slices.Collect(maps.Keys(want)), slices.Collect(maps.Keys(got)))
	stated := map[string]int{}
	for id, span := range want {
		a, b := span.(map[string]any), got[id].(map[string]any)
		for _, key := range []string{"start", "end"} {
			require.InDelta(t, float64(a[key].(pcommon.Timestamp)), float64(b[key].(pcommon.Timestamp)),
				float64(within), key)
			delete(a, key)
			delete(b, key)
		}
		for _, on := range []string{"attributes", "scope attributes"} {
			one, other := a[on].(map[string]any), b[on].(map[string]any)
			for _, key := range timed {
				x, ok := one[key]
				y, both := other[key]
				delete(one, key)
				delete(other, key)
				if ok && both {
					require.InDelta(t, x, y, within.Seconds(), key)
					stated[key]++
				}
			}
		}
		for _, m := range []map[string]any{a, b} {
			// gpu.stream.id counts through the process; the scope says which stream of a device is
			// the first
			own, scope := m["attributes"].(map[string]any), m["scope attributes"].(map[string]any)
			require.True(t, own["gpu.stream.id"] != nil || scope["gpu.stream.id"] != nil)
			delete(own, "gpu.stream.id")
			delete(scope, "gpu.stream.id")
		}
	}
	for _, key := range timed {
		require.NotZero(t, stated[key], key)
	}
	require.Equal(t, want, got)
}
