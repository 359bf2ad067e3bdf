// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"io"
	"log/slog"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// config is what the options of New add up to.
type config struct {
	Settings
	tracers   trace.TracerProvider
	meters    metric.MeterProvider
	onError   func(error)
	logger    *slog.Logger
	recorder  report.Recorder
	annotator Annotator
	ids       *IDGenerator
	outputs   io.Writer
	attrs     []attribute.KeyValue
}

// fill sets what no option said.
func (c *config) fill() {
	if c.onError == nil {
		c.onError = otel.Handle
	}
	if c.logger == nil {
		c.logger = slog.Default()
	}
	if c.tracers == nil {
		c.tracers = otel.GetTracerProvider()
	}
	if c.meters == nil {
		c.meters = otel.GetMeterProvider()
	}
}

// Option configures [New].
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithSettings replaces all settings. Options after it change single ones.
func WithSettings(s Settings) Option { return optionFunc(func(c *config) { c.Settings = s }) }

// WithTracerProvider sets where spans go; default otel.GetTracerProvider() at the time of New.
func WithTracerProvider(tp trace.TracerProvider) Option {
	return optionFunc(func(c *config) { c.tracers = tp })
}

// WithMeterProvider sets where metrics go; default otel.GetMeterProvider() at the time of New.
func WithMeterProvider(mp metric.MeterProvider) Option {
	return optionFunc(func(c *config) { c.meters = mp })
}

// WithErrorHandler sets who hears of gpuspan's own errors, at most once in 10 s for each kind; default otel.Handle.
func WithErrorHandler(f func(error)) Option { return optionFunc(func(c *config) { c.onError = f }) }

// WithLogger sets where the hang watchdog writes its line; default slog.Default().
func WithLogger(l *slog.Logger) Option { return optionFunc(func(c *config) { c.logger = l }) }

// WithReport sets the recorder that Snapshot reads, as one with a sketch for quantiles of long runs within 1 %:
// WithReport(report.NewCollector(report.WithSketch(ddsketch.New))). Default: report.NewCollector().
func WithReport(r report.Recorder) Option {
	return optionFunc(func(c *config) { c.recorder, c.Report = r, r != nil })
}

// WithAnnotator sets what is told of each section as it starts and ends, as a profiler's range annotations (package nvtx).
func WithAnnotator(a Annotator) Option { return optionFunc(func(c *config) { c.annotator = a }) }

// WithIDGenerator says that the TracerProvider draws its ids from g. Annotated sections then know the id of their span from Start on; see [IDGenerator]. Without an
// annotator it changes nothing.
func WithIDGenerator(g *IDGenerator) Option { return optionFunc(func(c *config) { c.ids = g }) }

// WithAttributes puts attributes of the application's own on every span of the profiler.
func WithAttributes(kv ...attribute.KeyValue) Option {
	return optionFunc(func(c *config) { c.attrs = append(c.attrs, kv...) })
}

// WithVerbosity sets how much is timed; default VerbosityDefault.
func WithVerbosity(v Verbosity) Option { return optionFunc(func(c *config) { c.Verbosity = v }) }

// WithMetrics sets which sections the profiler's metrics cover; default MetricsTimed.
func WithMetrics(m MetricsMode) Option { return optionFunc(func(c *config) { c.Metrics = m }) }

// WithSlots sets how many sections of one stream may be open or pending at once, about 0.6 KiB each; further ones only count.
// Default 256.
func WithSlots(n int) Option { return optionFunc(func(c *config) { c.Slots = n }) }

// WithSchedule sets the schedule of loops that have none of their own; default: every step is recorded.
func WithSchedule(s Schedule) Option { return optionFunc(func(c *config) { c.Schedule = s }) }
