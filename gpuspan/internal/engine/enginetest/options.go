// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Option is an option of package gpuspan, for tests of the engine alone.
type Option = func(*section.Config)

// StreamOption is an option of a stream in package gpuspan.
type StreamOption = func(*section.StreamConfig)

func WithSettings(s settings.Settings) Option { return func(c *section.Config) { c.Settings = s } }

func WithSlots(n int) Option { return func(c *section.Config) { c.Slots = n } }

func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *section.Config) { c.Tracers = tp }
}

func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *section.Config) { c.Meters = mp }
}

func WithErrorHandler(f func(error)) Option { return func(c *section.Config) { c.OnError = f } }

func WithLogger(l *slog.Logger) Option { return func(c *section.Config) { c.Logger = l } }

func WithAnnotator(a section.Annotator) Option { return func(c *section.Config) { c.Annotator = a } }

func WithIDGenerator(g *spanid.Generator) Option { return func(c *section.Config) { c.IDs = g } }

func WithOutputLog(w io.Writer) Option { return func(c *section.Config) { c.Outputs = w } }

func WithReport(o report.Option) Option {
	return func(c *section.Config) { c.ReportOptions = append(c.ReportOptions, o) }
}

func AllowLegacy() StreamOption { return func(c *section.StreamConfig) { c.Legacy = true } }

func NeverCaptured() StreamOption { return func(c *section.StreamConfig) { c.NoCapture = true } }

func Bound() StreamOption { return func(c *section.StreamConfig) { c.Bound = true } }

func Category(name string) func(*section.OperationConfig) {
	return func(c *section.OperationConfig) { c.Info.Category = name }
}

func PrintReport(w io.Writer) func(*section.OperationConfig) {
	return func(c *section.OperationConfig) { c.Print = w }
}

func Sync(m settings.SyncMode) func(*section.OperationConfig) {
	return func(c *section.OperationConfig) { c.Sync = m }
}

func TotalSteps(n int64) func(*spans.LoopConfig) { return func(c *spans.LoopConfig) { c.Steps = n } }

func StepSchedule(s settings.Schedule) func(*spans.LoopConfig) {
	return func(c *spans.LoopConfig) { c.Schedule = s }
}
