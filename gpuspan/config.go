// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"log/slog"

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
	attrs     []attribute.KeyValue
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

// WithReport sets the recorder that Snapshot reads, as one with a sketch for exact quantiles of long runs:
// WithReport(report.NewCollector(report.WithSketch(ddsketch.New))). Default: report.NewCollector().
func WithReport(r report.Recorder) Option {
	return optionFunc(func(c *config) { c.recorder, c.Report = r, r != nil })
}

// WithAnnotator sets what is told of each section as it starts and ends, as a profiler's range annotations (package nvtx).
func WithAnnotator(a Annotator) Option { return optionFunc(func(c *config) { c.annotator = a }) }

// WithAttributes puts attributes on every span of the profiler.
func WithAttributes(kv ...attribute.KeyValue) Option {
	return optionFunc(func(c *config) { c.attrs = append(c.attrs, kv...) })
}

// WithVerbosity sets how much is timed.
func WithVerbosity(v Verbosity) Option { return optionFunc(func(c *config) { c.Verbosity = v }) }

// WithMetrics sets which sections the profiler's metrics cover.
func WithMetrics(m MetricsMode) Option { return optionFunc(func(c *config) { c.Metrics = m }) }

// WithSlots sets how many sections of one stream may be open or pending at once.
func WithSlots(n int) Option { return optionFunc(func(c *config) { c.Slots = n }) }

// WithSchedule sets the schedule of loops that have none of their own.
func WithSchedule(s Schedule) Option { return optionFunc(func(c *config) { c.Schedule = s }) }

// Annotator is told of sections on the goroutine that starts and ends them. Both calls must be quick and may come from
// different goroutines.
type Annotator interface {
	// RangeStart begins a range for a section below parent, which may be invalid. Its result goes to RangeEnd.
	RangeStart(o *Operation, parent trace.SpanContext) uint64
	// RangeEnd ends a range.
	RangeEnd(id uint64)
}
