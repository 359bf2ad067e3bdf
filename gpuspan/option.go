// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Option configures [New].
type Option interface{ apply(*engine.Config) }

type optionFunc func(*engine.Config)

func (f optionFunc) apply(c *engine.Config) { f(c) }

// WithSettings replaces all settings. Options after it change single ones.
func WithSettings(s settings.Settings) Option {
	return optionFunc(func(c *engine.Config) { c.Settings = s })
}

// WithTracerProvider sets where spans go; default otel.GetTracerProvider() at the time of New.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return optionFunc(func(c *engine.Config) { c.Tracers = tp })
}

// WithMeterProvider sets where metrics go; default otel.GetMeterProvider() at the time of New.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return optionFunc(func(c *engine.Config) { c.Meters = mp })
}

// WithErrorHandler sets who hears of gpuspan's own errors, at most once in 10 s for each kind; default otel.Handle.
func WithErrorHandler(f func(error)) Option {
	return optionFunc(func(c *engine.Config) { c.OnError = f })
}

// WithLogger sets where the hang watchdog writes its line; default slog.Default().
func WithLogger(l *slog.Logger) Option { return optionFunc(func(c *engine.Config) { c.Logger = l }) }

// WithReport sets the recorder that Snapshot reads, as one with a sketch for quantiles of long runs within 1 %:
// WithReport(report.NewCollector(report.WithSketch(ddsketch.New))). Default: report.NewCollector().
func WithReport(r report.Recorder) Option {
	return optionFunc(func(c *engine.Config) { c.Recorder, c.Report = r, r != nil })
}

// WithAnnotator sets what is told of each section as it starts and ends, as a profiler's range annotations (package
// nvtx).
func WithAnnotator(a Annotator) Option {
	return optionFunc(func(c *engine.Config) {
		if c.Annotator = nil; a != nil {
			c.Annotator = annotator{a}
		}
	})
}

// WithIDGenerator says that the TracerProvider draws its ids from g. Annotated sections then know the id of their span
// from Start on; see [IDGenerator]. Without an annotator it changes nothing.
func WithIDGenerator(g *IDGenerator) Option {
	return optionFunc(func(c *engine.Config) { c.IDs = (*engine.IDGenerator)(g) })
}

// WithAttributes puts attributes of the application's own on every span of the profiler.
func WithAttributes(kv ...attribute.KeyValue) Option {
	return optionFunc(func(c *engine.Config) { c.Attributes = append(c.Attributes, kv...) })
}

// Sink takes the spans of sections instead of the TracerProvider; package otlp has one, at a tenth of what the SDK
// takes.
type Sink interface{ engine.Sink }

// WithSink lets a sink take the spans of sections. Spans of steps, which live while the program runs, stay with the
// TracerProvider. Flush and shut down the sink after the profiler.
func WithSink(s Sink) Option { return optionFunc(func(c *engine.Config) { c.Sink = s }) }

// WithOutputLog writes a line for each section that states a checksum ([Section.Checksum]), in the order in which they
// are read back: that of the stream, and any order between streams. Package outputs reads and compares such logs.
// Sections that are not timed are missing, so trace every request of both runs, or use [settings.MetricsAll]. w should
// not block; an error ends the log.
func WithOutputLog(w io.Writer) Option { return optionFunc(func(c *engine.Config) { c.Outputs = w }) }
