// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
)

// baggageProcessor copies baggage to attributes when a span starts, as the contrib project's
// processor does.
type baggageProcessor struct{ sdktrace.SpanProcessor }

func (baggageProcessor) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	for _, m := range baggage.FromContext(ctx).Members() {
		s.SetAttributes(attribute.String(m.Key(), m.Value()))
	}
}

// correlated adds the trace and the span of the context to each record, as a bridge to
// OpenTelemetry's logs does.
type correlated struct{ slog.Handler }

func (h correlated) Handle(ctx context.Context, r slog.Record) error {
	if sc := trace.SpanContextFromContext(ctx); sc.IsValid() {
		r.AddAttrs(slog.String("trace_id", sc.TraceID().String()), slog.String("span_id", sc.SpanID().String()),
			slog.String("trace_flags", sc.TraceFlags().String()))
	}
	return h.Handler.Handle(ctx, r)
}

// Each subtest is a row of the table in docs/gpuspan.md: sections behave as users of the SDK expect
// of spans.
func TestSectionsBehaveAsSpansOfTheSDK(t *testing.T) {
	doc, err := os.ReadFile("../docs/gpuspan.md")
	require.NoError(t, err)
	op := gpuspan.NewOperation("op")
	spans := tracetest.NewSpanRecorder()
	limits := sdktrace.NewSpanLimits()
	limits.AttributeValueLengthLimit = 4
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(baggageProcessor{spans}),
		sdktrace.WithRawSpanLimits(limits), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample())))
	r, reader := metricRig(t, gpuspan.WithTracerProvider(tp))
	s, h := r.stream()
	run := func(ctx context.Context, in func(gpuspan.Section)) sdktrace.ReadOnlySpan {
		before := len(spans.Ended())
		x := op.Start(ctx, s)
		r.busy(h, time.Millisecond)
		in(x)
		x.End()
		r.clock.Advance(2 * time.Millisecond)
		r.flush()
		ended := spans.Ended()[before:]
		if len(ended) == 0 {
			return nil
		}
		return ended[0]
	}
	nothing := func(gpuspan.Section) {}
	state, err := trace.ParseTraceState("ot=th:8")
	require.NoError(t, err)
	remote := func(flags trace.TraceFlags) context.Context {
		return trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: flags, TraceState: state, Remote: true,
		}))
	}
	rows := map[string]func(*testing.T){
		"parent-based sampler": func(t *testing.T) {
			require.NotNil(t, run(remote(trace.FlagsSampled), nothing))
			require.Nil(t, run(remote(0), nothing))
		},
		"consistent probability sampling": func(t *testing.T) {
			span := run(remote(trace.FlagsSampled), nothing)
			require.Equal(t, "ot=th:8", span.SpanContext().TraceState().String())
		},
		"baggage": func(t *testing.T) {
			member, err := baggage.NewMember("user", "ada")
			require.NoError(t, err)
			bag, err := baggage.New(member)
			require.NoError(t, err)
			span := run(baggage.ContextWithBaggage(context.Background(), bag), nothing)
			require.Equal(t, "ada", attrs(span)["user"].AsString())
		},
		"span limits": func(t *testing.T) {
			span := run(context.Background(), func(x gpuspan.Section) { x.SetAttributes(attribute.String("text", "longer")) })
			require.Equal(t, "long", attrs(span)["text"].AsString())
		},
		"canceled context": func(t *testing.T) {
			ctx, cancel := context.WithCancel(remote(trace.FlagsSampled))
			span := run(ctx, func(gpuspan.Section) { cancel() })
			require.Equal(t, trace.SpanID{2}, span.Parent().SpanID())
		},
		"`context.WithoutCancel`": func(t *testing.T) {
			ctx, cancel := context.WithCancel(remote(trace.FlagsSampled))
			cancel()
			span := run(context.WithoutCancel(ctx), nothing)
			require.Equal(t, trace.SpanID{2}, span.Parent().SpanID())
		},
		"logs within a section": func(t *testing.T) {
			var lines strings.Builder
			logger := slog.New(correlated{slog.NewTextHandler(&lines, nil)})
			for _, ctx := range []context.Context{remote(trace.FlagsSampled), remote(0)} { // timed, and only counted
				run(ctx, func(x gpuspan.Section) { logger.InfoContext(x.Context(ctx), "inside") })
				require.Contains(t, lines.String(), "msg=inside trace_id="+trace.TraceID{1}.String()+
					" span_id="+trace.SpanID{2}.String()+" trace_flags="+trace.SpanContextFromContext(ctx).TraceFlags().String()+"\n")
			}
		},
		"host spans within a section": func(t *testing.T) {
			ctx, parent := tp.Tracer("").Start(context.Background(), "request")
			run(ctx, func(x gpuspan.Section) {
				_, host := tp.Tracer("").Start(x.Context(ctx), "host")
				require.Equal(t, parent.SpanContext().SpanID(), host.(sdktrace.ReadOnlySpan).Parent().SpanID())
			})
		},
		"exemplars": func(t *testing.T) {
			require.Nil(t, run(remote(0), nothing))
			span := run(remote(trace.FlagsSampled), nothing)
			var of []trace.SpanID
			for _, p := range collect(t, reader)["gpu.operation.duration"] {
				for _, e := range p.exemplars {
					of = append(of, e.SpanID())
				}
			}
			require.NotEmpty(t, of)
			var exported []trace.SpanID
			for _, s := range spans.Ended() {
				exported = append(exported, s.SpanContext().SpanID())
			}
			require.Subset(t, exported, of)
			require.Equal(t, trace.TraceID{1}, span.SpanContext().TraceID())
		},
	}
	_, table, _ := strings.Cut(string(doc), "\n| subject | of a section |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	require.Equal(t, len(rows), strings.Count(table, "\n"), "each row has a test")
	for row, test := range rows {
		t.Run(row, func(t *testing.T) {
			require.Contains(t, string(doc), "\n| "+row+" |", "a row of the table")
			test(t)
		})
	}
}
