// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Config is what a profiler is made with.
type Config struct {
	settings.Settings
	Tracers    trace.TracerProvider
	Meters     metric.MeterProvider
	OnError    func(error)
	Logger     *slog.Logger
	Recorder   report.Recorder
	Annotator  Annotator
	IDs        *IDGenerator
	Outputs    io.Writer
	Attributes []attribute.KeyValue
	Sink       Sink // instead of Tracers, for sections

	OpenTimeout time.Duration // for the driver to list its devices; default 30 s
}

// fill sets what no option said.
func (c *Config) fill() {
	if c.OpenTimeout <= 0 {
		c.OpenTimeout = 30 * time.Second
	}
	if c.OnError == nil {
		c.OnError = otel.Handle
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Tracers == nil {
		c.Tracers = otel.GetTracerProvider()
	}
	if c.Meters == nil {
		c.Meters = otel.GetMeterProvider()
	}
}
