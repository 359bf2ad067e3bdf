// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package enginetest

import (
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/timeline"
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Option is an option of package gpuspan, for tests of the engine alone.
type Option = func(*record.Config)

// StreamOption is an option of a stream in package gpuspan.
type StreamOption = func(*timeline.StreamConfig)

func WithSettings(s settings.Settings) Option { return func(c *record.Config) { c.Settings = s } }

func WithSlots(n int) Option { return func(c *record.Config) { c.Slots = n } }

func WithTracerProvider(tp trace.TracerProvider) Option {
	return func(c *record.Config) { c.Tracers = tp }
}

func WithMeterProvider(mp metric.MeterProvider) Option {
	return func(c *record.Config) { c.Meters = mp }
}

func WithErrorHandler(f func(error)) Option { return func(c *record.Config) { c.OnError = f } }

func WithLogger(l *slog.Logger) Option { return func(c *record.Config) { c.Logger = l } }

func WithAnnotator(a record.Annotator) Option { return func(c *record.Config) { c.Annotator = a } }

func WithIDGenerator(g *spanid.Generator) Option { return func(c *record.Config) { c.IDs = g } }

func WithOutputLog(w io.Writer) Option { return func(c *record.Config) { c.Outputs = w } }

func WithReport(r report.Recorder) Option {
	return func(c *record.Config) { c.Recorder, c.Report = r, r != nil }
}

func AllowLegacy() StreamOption { return func(c *timeline.StreamConfig) { c.Legacy = true } }

func NeverCaptured() StreamOption { return func(c *timeline.StreamConfig) { c.NoCapture = true } }

func Bound() StreamOption { return func(c *timeline.StreamConfig) { c.Bound = true } }

func Category(name string) func(*record.OperationConfig) {
	return func(c *record.OperationConfig) { c.Info.Category = name }
}

func PrintReport(w io.Writer) func(*record.OperationConfig) {
	return func(c *record.OperationConfig) { c.Print = w }
}

func Sync(m settings.SyncMode) func(*record.OperationConfig) {
	return func(c *record.OperationConfig) { c.Sync = m }
}

func TotalSteps(n int64) func(*tree.LoopConfig) { return func(c *tree.LoopConfig) { c.Steps = n } }

func StepSchedule(s settings.Schedule) func(*tree.LoopConfig) {
	return func(c *tree.LoopConfig) { c.Schedule = s }
}
