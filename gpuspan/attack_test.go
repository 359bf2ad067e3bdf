// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// Common misuse must not panic, block or lose measurements.

func TestNilProvidersAndCallbacksAreTheDefaults(t *testing.T) {
	gpu := simgpu.New(simgpu.NewManualClock(time.Unix(1_700_000_000, 0)))
	p, err := gpuspan.New(gpu, nil, gpuspan.WithTracerProvider(nil), gpuspan.WithMeterProvider(nil),
		gpuspan.WithErrorHandler(nil), gpuspan.WithLogger(nil), gpuspan.WithReport(nil), gpuspan.WithAnnotator(nil),
		gpuspan.WithIDGenerator(nil), gpuspan.WithOutputLog(nil), gpuspan.WithSink(nil), gpuspan.WithNamed(nil),
		gpuspan.WithAttributes())
	require.NoError(t, err)
	s := p.Stream(gpu.Stream(0), "main", nil)
	op := gpuspan.NewOperation("op", nil, gpuspan.PrintReport(nil), gpuspan.Attributes())
	x := op.Start(nil, s) //nolint:staticcheck // nil on purpose
	x.SetAttributes()
	x.Link(nil)                    //nolint:staticcheck // nil on purpose
	require.Nil(t, x.Context(nil)) //nolint:staticcheck // nil on purpose
	x.End()
	s.StartNamed(nil, "").End() //nolint:staticcheck // nil on purpose
	s.EndNamed("", gpuspan.Work{})
	for _, step := range train.NewLoop(p, "", s, nil, train.TotalSteps(1)).Steps(nil) { //nolint:staticcheck // nil on purpose
		step.Phase("").End()
	}
	require.NoError(t, p.Flush(nil))    //nolint:staticcheck // nil on purpose
	require.NoError(t, p.Shutdown(nil)) //nolint:staticcheck // nil on purpose
}

func TestZeroValuesDoNothing(t *testing.T) {
	var p gpuspan.Profiler
	var s gpuspan.Stream
	var o gpuspan.Operation
	var x gpuspan.Section
	var e gpuspan.Elapsed
	var l train.Loop
	ctx := context.Background()
	require.NotPanics(t, func() {
		require.Nil(t, p.Stream(3, "main"))
		require.NoError(t, p.Flush(ctx))
		require.False(t, p.Enabled())
		p.SetEnabled(true)
		p.Reset()
		p.Snapshot()
		p.Misuse()
		p.Devices()
		p.Source()
		o.Start(ctx, &s).End()
		o.Launch(ctx, &s, nil)
		o.RecordMeasured(ctx, &s, time.Now(), time.Second, gpuspan.Work{})
		x.EndWith(gpuspan.Work{Items: 1})
		x.Start(&o).StartOn(&o, &s).End()
		<-x.Elapsed().Done()
		<-e.Done()
		s.StartNamed(ctx, "x")
		s.EndNamed("x", gpuspan.Work{})
		s.Close()
		n := 0
		for range l.Steps(ctx) {
			if n++; n == 3 {
				break
			}
		}
		require.Equal(t, 3, n, "a loop runs its body all the same")
		require.NoError(t, p.Shutdown(ctx))
	})
}

func TestASectionMayEndElsewhereAndTwice(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	r.busy(h, time.Millisecond)
	var ends sync.WaitGroup
	for range 64 {
		ends.Go(func() { x.EndWith(gpuspan.Work{Items: 1}) })
	}
	ends.Wait()
	r.clock.Advance(2 * time.Millisecond)
	r.flush()
	spans := r.spans.Ended()
	require.Len(t, spans, 1)
	require.EqualValues(t, 1, attrs(spans[0])["gpu.operation.items"].AsInt64(), "the work of one End")
}

// Ends a section that started before Shutdown, starts another after it, and calls every method of
// the profiler.
func TestUseAfterShutdown(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	open := op.Start(context.Background(), s)
	require.NoError(t, r.p.Shutdown(context.Background()))
	before := len(r.spans.Ended())
	require.NoError(t, r.p.Shutdown(context.Background()), "again")
	require.False(t, op.Start(context.Background(), s).Timed())
	require.False(t, open.Timed())
	open.EndWith(gpuspan.Work{Items: 1})
	s.StartNamed(context.Background(), "late")
	s.EndNamed("late", gpuspan.Work{})
	for range train.NewLoop(r.p, "late", s, train.TotalSteps(2)).Steps(context.Background()) {
	}
	r.p.SetEnabled(true)
	require.False(t, r.p.Enabled())
	require.NoError(t, r.p.Flush(context.Background()))
	r.p.Reset()
	r.p.Snapshot()
	require.Nil(t, r.p.Stream(99, "late"))
	require.Len(t, r.spans.Ended(), before)
}

// Many goroutines run one section each on a few streams. Each section becomes a span or is counted
// as dropped. GPUSPAN_TEST_GOROUTINES=100000 takes half a minute.
func TestManyGoroutines(t *testing.T) {
	n := 10_000
	if v := os.Getenv("GPUSPAN_TEST_GOROUTINES"); v != "" {
		_, err := fmt.Sscan(v, &n)
		require.NoError(t, err)
	} else if testing.Short() || raceEnabled {
		n = 1000
	}
	r := newRig(t, slots(1<<12))
	op := gpuspan.NewOperation("op")
	var streams []*gpuspan.Stream
	for range 4 {
		s, _ := r.stream()
		streams = append(streams, s)
	}
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			x := op.Start(context.Background(), streams[i%len(streams)])
			runtime.Gosched()
			x.EndWith(gpuspan.Work{Items: 1})
		})
	}
	close(start)
	all.Wait()
	r.clock.Advance(time.Second)
	r.flush()
	stats, ok := r.p.Stats(op)
	require.True(t, ok)
	require.EqualValues(t, n, stats.Count)
	require.EqualValues(t, n, stats.Items)
}

func TestNamesOfAnyLengthAndBytes(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	long := strings.Repeat("n", 1<<20)
	for _, name := range []string{"", "\xff\xfe", "a\x00b", long, strings.Repeat("é", 5000)} {
		x := gpuspan.NewOperation(name, gpuspan.Category(name), gpuspan.ItemType(name), gpuspan.Describe(name)).
			Start(context.Background(), s)
		x.SetAttributes(attribute.String(name, name), attribute.StringSlice("list", []string{name}))
		x.End()
		s.StartNamed(context.Background(), name)
		s.EndNamed(name, gpuspan.Work{})
	}
	r.clock.Advance(time.Millisecond)
	r.flush()
	spans := r.spans.Ended()
	require.Len(t, spans, 10)
	for _, span := range spans {
		require.True(t, utf8.ValidString(span.Name()))
		require.NotEmpty(t, span.Name())
		for _, kv := range span.Attributes() {
			require.True(t, utf8.ValidString(string(kv.Key)) && utf8.ValidString(kv.Value.String()), kv.Key)
		}
	}
	summary := r.p.Snapshot()
	for _, write := range []func(io.Writer) error{summary.WriteText, summary.WriteJSON, summary.WriteCSV, summary.WriteDOT} {
		var out strings.Builder
		require.NoError(t, write(&out))
		require.True(t, utf8.ValidString(out.String()))
	}
}

// A child process that os/exec starts inherits no profiler, and the parent keeps measuring.
func TestChildProcessesInheritNothing(t *testing.T) {
	if os.Getenv("GPUSPAN_TEST_CHILD") != "" {
		gpu := simgpu.New(simgpu.NewManualClock(time.Unix(1_700_000_000, 0)))
		p, err := gpuspan.New(gpu)
		require.NoError(t, err)
		gpuspan.NewOperation("child").Start(context.Background(), p.Stream(gpu.Stream(0), "s")).End()
		require.NoError(t, p.Shutdown(context.Background()))
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	r := newRig(t)
	s, h := r.stream()
	x := gpuspan.NewOperation("parent").Start(context.Background(), s)
	child := exec.Command(self, "-test.run", "^TestChildProcessesInheritNothing$")
	child.Env = append(os.Environ(), "GPUSPAN_TEST_CHILD=1")
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	r.busy(h, time.Millisecond)
	x.End()
	r.clock.Advance(2 * time.Millisecond)
	r.flush()
	require.Len(t, r.spans.Ended(), 1)
}

// quarrelsome is application code that panics wherever it is called.
type quarrelsome struct{}

func (quarrelsome) OnStart(context.Context, sdktrace.ReadWriteSpan) { panic("start") }
func (quarrelsome) OnEnd(sdktrace.ReadOnlySpan)                     { panic(errors.New("end")) }
func (quarrelsome) Shutdown(context.Context) error                  { return nil }
func (quarrelsome) ForceFlush(context.Context) error                { return nil }
func (quarrelsome) Write([]byte) (int, error)                       { panic("write") }

func TestPanicsOfCallbacksStayInside(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans), sdktrace.WithSpanProcessor(quarrelsome{}))
	r := newRig(t, gpuspan.WithTracerProvider(tp), gpuspan.WithOutputLog(quarrelsome{}),
		gpuspan.WithNamed(func(string) []gpuspan.OperationOption { panic("named") }),
		gpuspan.WithErrorHandler(func(error) { panic("handler") }))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op", gpuspan.PrintReport(quarrelsome{}))
	for i := range 10 {
		x := op.Start(context.Background(), s)
		x.Checksum(uint64(i))
		x.End()
		s.StartNamed(context.Background(), "named")
		s.EndNamed("named", gpuspan.Work{})
	}
	require.Panics(t, func() {
		op.Launch(context.Background(), s, func() { panic("the application's own") })
	})
	r.clock.Advance(time.Millisecond)
	r.flush()
	stats, _ := r.p.Stats(op)
	require.EqualValues(t, 11, stats.Count, "with the launch that panicked")
}
