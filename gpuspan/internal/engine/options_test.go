// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// What package gpuspan has as options, for tests of the engine alone.
type (
	Option       = func(*Config)
	StreamOption = func(*StreamConfig)
)

func WithSettings(s settings.Settings) Option           { return func(c *Config) { c.Settings = s } }
func WithSlots(n int) Option                            { return func(c *Config) { c.Slots = n } }
func WithTracerProvider(tp trace.TracerProvider) Option { return func(c *Config) { c.Tracers = tp } }
func WithMeterProvider(mp metric.MeterProvider) Option  { return func(c *Config) { c.Meters = mp } }
func WithErrorHandler(f func(error)) Option             { return func(c *Config) { c.OnError = f } }
func WithLogger(l *slog.Logger) Option                  { return func(c *Config) { c.Logger = l } }
func WithAnnotator(a Annotator) Option                  { return func(c *Config) { c.Annotator = a } }
func WithIDGenerator(g *IDGenerator) Option             { return func(c *Config) { c.IDs = g } }
func WithOutputLog(w io.Writer) Option                  { return func(c *Config) { c.Outputs = w } }
func WithReport(r report.Recorder) Option {
	return func(c *Config) { c.Recorder, c.Report = r, r != nil }
}
func AllowLegacy() StreamOption   { return func(c *StreamConfig) { c.Legacy = true } }
func NeverCaptured() StreamOption { return func(c *StreamConfig) { c.NoCapture = true } }
func Bound() StreamOption         { return func(c *StreamConfig) { c.Bound = true } }
func Category(name string) func(*OperationConfig) {
	return func(c *OperationConfig) { c.Info.Category = name }
}
func PrintReport(w io.Writer) func(*OperationConfig)  { return func(c *OperationConfig) { c.Print = w } }
func Sync(m settings.SyncMode) func(*OperationConfig) { return func(c *OperationConfig) { c.Sync = m } }
func TotalSteps(n int64) func(*LoopConfig)            { return func(c *LoopConfig) { c.Steps = n } }
func StepSchedule(s settings.Schedule) func(*LoopConfig) {
	return func(c *LoopConfig) { c.Schedule = s }
}
