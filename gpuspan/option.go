// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Option configures [New].
type Option interface{ apply(*section.Config) }

type optionFunc func(*section.Config)

func (f optionFunc) apply(c *section.Config) { f(c) }

// WithSettings changes settings: f is applied to the settings of the environment
// ([settings.FromEnv]), or to the result of an option before it. What f leaves alone keeps its
// value, so that an operator's GPUSPAN_ENABLED=false applies unless f sets Enabled.
func WithSettings(f func(*settings.Settings)) Option {
	return optionFunc(func(c *section.Config) {
		if f != nil {
			f(&c.Settings)
		}
	})
}

// WithTracerProvider sets where spans go; default otel.GetTracerProvider() at the time of New.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return optionFunc(func(c *section.Config) { c.Tracers = tp })
}

// WithMeterProvider sets where metrics go; default otel.GetMeterProvider() at the time of New.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return optionFunc(func(c *section.Config) { c.Meters = mp })
}

// WithErrorHandler sets the function that receives gpuspan's own errors, at most one of each kind
// every 10 s; default otel.Handle.
func WithErrorHandler(f func(error)) Option {
	return optionFunc(func(c *section.Config) { c.OnError = f })
}

// WithLogger sets the logger of the hang watchdog (see settings.Settings.HangLimit); default
// slog.Default().
func WithLogger(l *slog.Logger) Option { return optionFunc(func(c *section.Config) { c.Logger = l }) }

// WithReport configures the statistics that Snapshot reads, for example with a sketch whose
// quantiles of long runs are within 1 %: WithReport(report.WithSketch(ddsketch.New)). It has no
// effect if Settings.Report is off.
func WithReport(opts ...report.Option) Option {
	return optionFunc(func(c *section.Config) { c.ReportOptions = append(c.ReportOptions, opts...) })
}

// WithAnnotator sets the annotator to call when a section starts and ends, such as a profiler's
// range annotations (package nvtx).
func WithAnnotator(a Annotator) Option {
	return optionFunc(func(c *section.Config) {
		if c.Annotator = nil; a != nil {
			c.Annotator = annotator{a}
		}
	})
}

// WithIDGenerator states that the TracerProvider gets its IDs from g. Annotated sections then know
// the ID of their span from Start on; see [IDGenerator]. Without an annotator it changes nothing.
func WithIDGenerator(g *IDGenerator) Option {
	return optionFunc(func(c *section.Config) { c.IDs = (*spanid.Generator)(g) })
}

// WithAttributes adds attributes of the application to every span of the profiler.
func WithAttributes(kv ...attribute.KeyValue) Option {
	return optionFunc(func(c *section.Config) { c.Attributes = append(c.Attributes, kv...) })
}

// WithNamed sets the function that returns the options of operations of [Stream.StartNamed], whose
// names are only known at run time, such as category and item type. f is called once for each name,
// at its first use, and once for `(other)`, which names over Settings.Names share.
func WithNamed(f func(name string) []OperationOption) Option {
	return optionFunc(func(c *section.Config) {
		if c.Named = nil; f != nil {
			c.Named = func(name string) []func(*section.OperationConfig) {
				return []func(*section.OperationConfig){options.All(f(name), OperationOption.applyOperation)}
			}
		}
	})
}

// Sink receives the spans of sections instead of the TracerProvider. Package otlp has one that
// takes a tenth of the SDK's CPU time.
type Sink interface{ sink.Sink }

// WithSink sends the spans of sections to a sink. Spans of steps, which the program can use while
// they are open, stay with the TracerProvider. Flush and shut down the sink after the profiler.
func WithSink(s Sink) Option { return optionFunc(func(c *section.Config) { c.Sink = s }) }

// WithOutputLog writes a line for each section with a checksum ([Section.Checksum]), in stream
// order; the order of sections on different streams is unspecified. Package outputs reads and
// compares such logs. Untimed sections are missing, so trace every request of both runs, or use
// [settings.MetricsAll]. w should not block; an error of w ends the log.
func WithOutputLog(w io.Writer) Option { return optionFunc(func(c *section.Config) { c.Outputs = w }) }

// Annotator is called for sections and steps on the goroutine that starts and ends them, as for
// profilers' range annotations (package nvtx). Its methods must be quick and may be called from
// different goroutines. A panic is reported to the error handler, and the range is lost.
type Annotator interface {
	// RangeStart starts a range and returns its ID, or 0 if there is nothing to end. sc is the span
	// of the step, or of the section if IDs are reserved ([WithIDGenerator]), otherwise of the
	// section's parent; it is invalid if neither is known. A section without a parent counts as
	// sampled, because the sampler has not decided yet.
	RangeStart(o *Operation, sc trace.SpanContext) uint64
	// RangeEnd ends the range of an ID that RangeStart returned; it is not called for 0.
	RangeEnd(id uint64)
}

// StepAnnotator is an Annotator that receives the number of a step. For other annotators RangeStart
// is called for steps, too.
type StepAnnotator interface {
	// StepStart starts the range of a step; o is the operation of its loop.
	StepStart(o *Operation, sc trace.SpanContext, step int64) uint64
}

// annotator is an Annotator as the engine sees it.
type annotator struct{ a Annotator }

func (t annotator) RangeStart(o *section.Operation, sc trace.SpanContext, step int64) uint64 {
	if steps, ok := t.a.(StepAnnotator); ok && step != section.NoStep {
		return steps.StepStart(operationOf(o), sc, step)
	}
	return t.a.RangeStart(operationOf(o), sc)
}

func (t annotator) RangeEnd(id uint64) { t.a.RangeEnd(id) }

// Enabled reports whether ranges have any effect: an annotator may state that no tool is attached,
// and is then never called.
func (t annotator) Enabled() bool {
	e, ok := t.a.(interface{ Enabled() bool })
	return !ok || e.Enabled()
}

// IDSource generates the IDs of spans. It is the SDK's sdktrace.IDGenerator, which this package
// does not import.
type IDSource interface {
	// NewIDs returns the IDs of a new trace and of its first span.
	NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID)
	// NewSpanID returns the ID of a new span of a trace.
	NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID
}

// IDGenerator reserves the ID of a section's span at Start, long before the span exists, so that
// range annotations carry it. Pass the same one to the TracerProvider and to the profiler:
//
//	ids := gpuspan.NewIDGenerator(nil)
//	tp := sdktrace.NewTracerProvider(sdktrace.WithIDGenerator(ids), …)
//	prof, err := gpuspan.New(backend, gpuspan.WithTracerProvider(tp), gpuspan.WithIDGenerator(ids),
//		gpuspan.WithAnnotator(ranges))
//
// A nil IDGenerator returns random IDs.
type IDGenerator spanid.Generator

// NewIDGenerator returns a generator that gets its IDs from next, such as one for the IDs of a
// tracing service; nil means random IDs, as in the SDK.
func NewIDGenerator(next IDSource) *IDGenerator { return (*IDGenerator)(spanid.New(next)) }

// NewIDs returns the IDs that were reserved for the first span of a trace, or new ones.
func (g *IDGenerator) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	return (*spanid.Generator)(g).NewIDs(ctx)
}

// NewSpanID returns the ID reserved for a span of a trace, or a new one.
func (g *IDGenerator) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	return (*spanid.Generator)(g).NewSpanID(ctx, traceID)
}
