// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"context"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

func open(t testing.TB, tool *recorder, opts ...nvtx.Option) *nvtx.Annotator {
	t.Helper()
	a, err := nvtx.Open(append([]nvtx.Option{nvtx.WithLibrary(tool.Path)}, opts...)...)
	require.NoError(t, err)
	require.True(t, a.Enabled())
	return a
}

func spanContext(sampled bool) trace.SpanContext {
	c := trace.SpanContextConfig{
		TraceID: trace.TraceID{
			0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
			0x10,
		},
		SpanID: trace.SpanID{0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8},
	}
	if sampled {
		c.TraceFlags = trace.FlagsSampled
	}
	return trace.NewSpanContext(c)
}

func TestWithoutAToolNothingHappens(t *testing.T) {
	t.Setenv("NVTX_INJECTION64_PATH", "")
	a, err := nvtx.Open()
	require.NoError(t, err)
	require.False(t, a.Enabled())
	op := gpuspan.NewOperation("op")
	require.Zero(t, a.RangeStart(op, spanContext(true)))
	a.RangeEnd(0)
	var none *nvtx.Annotator
	require.False(t, none.Enabled())
	require.Zero(t, none.RangeStart(op, spanContext(true)))
	none.RangeEnd(3)
}

func TestToolThatCannotAttachIsAnError(t *testing.T) {
	a, err := nvtx.Open(nvtx.WithLibrary("/nonexistent/tool.so"))
	require.ErrorContains(t, err, "cannot load the NVTX tool (NVTX_INJECTION64_PATH): /nonexistent/tool.so: ")
	require.False(t, a.Enabled())

	foreign := ctest.CUDA(t).Path
	t.Setenv("NVTX_INJECTION64_PATH", foreign)
	a, err = nvtx.Open()
	require.EqualError(t, err, "cannot attach the NVTX tool "+foreign+": it lacks InitializeInjectionNvtx2")
	require.False(t, a.Enabled())

	refusing := newRecorder(t, "-DREFUSE").Path
	a, err = nvtx.Open(nvtx.WithLibrary(refusing))
	require.EqualError(t, err, "cannot attach the NVTX tool "+refusing+": it refused")
	require.False(t, a.Enabled())
	require.Zero(t, a.RangeStart(gpuspan.NewOperation("op"), spanContext(true)))
}

func TestToolWithoutDomainsIsSupported(t *testing.T) {
	a, err := nvtx.Open(nvtx.WithLibrary(newRecorder(t, "-DNO_DOMAINS").Path))
	require.NoError(t, err)
	require.False(t, a.Enabled())
	require.Zero(t, a.RangeStart(gpuspan.NewOperation("op"), spanContext(true)))
}

func TestToolSeesVersionAndTables(t *testing.T) {
	tool := newRecorder(t)
	t.Setenv("NVTX_INJECTION64_PATH", tool.Path)
	a, err := nvtx.Open(nvtx.WithDomain("service"))
	require.NoError(t, err)
	require.True(t, a.Enabled())
	require.EqualValues(t, 3, tool.Version())
	core, core2 := tool.Tables()
	require.EqualValues(t, 16, core)
	require.EqualValues(t, 16, core2)
	require.Equal(t, "service", tool.Events()[0].Domain)
	_, err = nvtx.Open(nvtx.WithDomain("again")) // the same attachment
	require.NoError(t, err)
	require.Equal(t, []string{"domain", "domain"}, []string{tool.Events()[0].Kind, tool.Events()[1].Kind})
}

func TestRangesCarryOperationCategoryAndIDs(t *testing.T) {
	tool := newRecorder(t)
	op := gpuspan.NewOperation("decode", gpuspan.Category("attention"))
	ids := "decode trace_id=0102030405060708090a0b0c0d0e0f10 span_id=a1a2a3a4a5a6a7a8"
	for _, c := range []struct {
		name    string
		ids     nvtx.IDs
		parent  trace.SpanContext
		text    string
		payload uint64
	}{
		{"in the message", nvtx.IDsInMessage, spanContext(true), ids, 0},
		{"not sampled", nvtx.IDsInMessage, spanContext(false), "decode", 0},
		{"no parent", nvtx.IDsInMessage, trace.SpanContext{}, "decode", 0},
		{"in the payload", nvtx.IDsInPayload, spanContext(true), "decode", 0xa1a2a3a4a5a6a7a8},
		{"none", nvtx.NoIDs, spanContext(true), "decode", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := open(t, tool, nvtx.WithIDs(c.ids))
			a.RangeEnd(a.RangeStart(op, trace.SpanContext{})) // registers
			tool.Clear()
			id := a.RangeStart(op, c.parent)
			require.NotZero(t, id)
			a.RangeEnd(id)
			events := tool.Events()
			if c.payload != 0 {
				require.Equal(t, "mark", events[0].Kind)
				require.Equal(t, "traceparent=00-0102030405060708090a0b0c0d0e0f10-a1a2a3a4a5a6a7a8-01", events[0].Text)
				require.Equal(t, c.payload, events[0].Payload)
				events = events[1:]
			}
			require.Len(t, events, 2)
			start, end := events[0], events[1]
			require.Equal(t, "start", start.Kind)
			require.Equal(t, "gpuspan", start.Domain)
			require.Equal(t, c.text, start.Text)
			require.EqualValues(t, 1, start.Category)
			require.Equal(t, c.payload, start.Payload)
			require.Equal(t, c.payload != 0, start.PayloadType == 1)
			require.Equal(t, "end", end.Kind)
			require.Equal(t, start.ID, end.ID)
			require.True(t, tool.WellFormed())
		})
	}
}

// The default text is the registered name, so that tools sum by operation; IDs and the step number
// follow it.
func TestStepsCarryTheirNumber(t *testing.T) {
	tool := newRecorder(t)
	a := open(t, tool)
	op := gpuspan.NewOperation("train")
	a.RangeEnd(a.StepStart(op, spanContext(true), 12))
	a.RangeEnd(a.StepStart(op, trace.SpanContext{}, 13))
	var got []string
	for _, e := range tool.Events() {
		if e.Kind != "domain" && e.Kind != "category" {
			got = append(got, e.Kind+" "+e.Text)
		}
	}
	require.Equal(t, []string{
		"string train", "mark traceparent=00-0102030405060708090a0b0c0d0e0f10-a1a2a3a4a5a6a7a8-01 step=12", "start train",
		"end ", "start train", "end ",
	}, got)
}

func TestOperationsAreRegisteredOnce(t *testing.T) {
	tool := newRecorder(t)
	a := open(t, tool)
	one, two := gpuspan.NewOperation("one", gpuspan.Category("data")),
		gpuspan.NewOperation("two", gpuspan.Category("data"))
	for range 3 {
		a.RangeEnd(a.RangeStart(one, trace.SpanContext{}))
		a.RangeEnd(a.RangeStart(two, trace.SpanContext{}))
	}
	kinds := map[string]int{}
	for _, e := range tool.Events() {
		kinds[e.Kind]++
	}
	require.Equal(t, map[string]int{"domain": 1, "string": 2, "category": 1, "start": 6, "end": 6}, kinds)
}

func TestLongNamesAreTruncatedAndKeepTheirIDs(t *testing.T) {
	tool := newRecorder(t)
	a := open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage))
	a.RangeEnd(a.RangeStart(gpuspan.NewOperation(strings.Repeat("x", 1000)), spanContext(true)))
	var text string
	for _, e := range tool.Events() {
		if e.Kind == "start" {
			text = e.Text
		}
	}
	require.LessOrEqual(t, len(text), 255)
	require.True(t, strings.HasPrefix(text, "xxxx"))
	require.True(t, strings.HasSuffix(text, " trace_id=0102030405060708090a0b0c0d0e0f10 span_id=a1a2a3a4a5a6a7a8"), text)
}

// Ranges start and end on any thread, survive garbage collections, and match.
func TestRangesAcrossGoroutines(t *testing.T) {
	tool := newRecorder(t)
	a := open(t, tool)
	op := gpuspan.NewOperation("op")
	const n, each = 8, 200
	ids := make(chan uint64, 64)
	var starts, ends sync.WaitGroup
	for range n {
		starts.Add(1)
		ends.Add(1)
		go func() {
			defer starts.Done()
			runtime.LockOSThread() // so that no thread both starts and ends
			defer runtime.UnlockOSThread()
			for i := range each {
				ids <- a.RangeStart(op, spanContext(i%2 == 0))
				if i%50 == 0 {
					runtime.GC()
				}
			}
		}()
		go func() {
			defer ends.Done()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for id := range ids {
				a.RangeEnd(id)
			}
		}()
	}
	starts.Wait()
	close(ids)
	ends.Wait()
	open := map[uint64]bool{}
	crossed, thread := 0, map[uint64]int64{}
	for _, e := range tool.Events() {
		switch e.Kind {
		case "start":
			require.False(t, open[e.ID])
			open[e.ID], thread[e.ID] = true, e.Thread
		case "end":
			require.True(t, open[e.ID])
			delete(open, e.ID)
			if thread[e.ID] != e.Thread {
				crossed++
			}
		}
	}
	require.Empty(t, open)
	require.Len(t, thread, n*each)
	require.Positive(t, crossed)
	require.True(t, tool.WellFormed())
}

// One annotation creates the span and the range: the range names the trace and the parent of the
// section's span.
func TestSectionsOfAProfilerAreRanges(t *testing.T) {
	tool := newRecorder(t)
	tp := sdktrace.NewTracerProvider()
	prof, err := gpuspan.New(nil, gpuspan.WithTracerProvider(tp),
		gpuspan.WithAnnotator(open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage))))
	require.NoError(t, err)
	s := prof.Stream(0, "s")
	ctx, parent := tp.Tracer("t").Start(context.Background(), "request")
	outer, inner := gpuspan.NewOperation("outer"), gpuspan.NewOperation("inner")
	x := outer.Start(ctx, s)
	y := x.Start(inner)
	y.End()
	x.End()
	parent.End()
	require.NoError(t, prof.Shutdown(context.Background()))
	var texts []string
	balance := 0
	for _, e := range tool.Events() {
		switch e.Kind {
		case "start":
			texts = append(texts, e.Text)
			balance++
		case "end":
			balance--
		}
	}
	require.Zero(t, balance)
	require.Len(t, texts, 2)
	require.Equal(t, "outer trace_id="+parent.SpanContext().TraceID().String()+" span_id="+
		parent.SpanContext().SpanID().String(), texts[0])
	require.True(t, strings.HasPrefix(texts[1], "inner"), texts[1])
}

func TestRangesDoNotAllocate(t *testing.T) {
	tool := newRecorder(t)
	a := open(t, tool)
	tool.Quiet()
	op, parent := gpuspan.NewOperation("op"), spanContext(true)
	a.RangeEnd(a.RangeStart(op, parent))
	n := testing.AllocsPerRun(200, func() { a.RangeEnd(a.RangeStart(op, parent)) })
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	require.Zero(t, n)
}

func BenchmarkRange(b *testing.B) {
	op := gpuspan.NewOperation("op")
	run := func(b *testing.B, a *nvtx.Annotator, parent trace.SpanContext) {
		b.ReportAllocs()
		for b.Loop() {
			a.RangeEnd(a.RangeStart(op, parent))
		}
	}
	b.Run("NoTool", func(b *testing.B) {
		b.Setenv("NVTX_INJECTION64_PATH", "")
		a, err := nvtx.Open()
		require.NoError(b, err)
		run(b, a, spanContext(true))
	})
	tool := newRecorder(b)
	for name, parent := range map[string]trace.SpanContext{"Registered": {}, "WithMark": spanContext(true)} {
		b.Run(name, func(b *testing.B) {
			a := open(b, tool)
			tool.Quiet()
			run(b, a, parent)
		})
	}
}
