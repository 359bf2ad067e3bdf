// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"io"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Config configures a profiler.
type Config struct {
	settings.Settings
	Tracers    trace.TracerProvider
	Meters     metric.MeterProvider
	OnError    func(error)
	Logger     *slog.Logger
	Recorder   report.Recorder
	Annotator  Annotator
	IDs        *spanid.Generator
	Outputs    io.Writer
	Attributes []attribute.KeyValue
	Named      func(name string) []func(*OperationConfig) // options of the operations of StartNamed; may be nil
	Sink       sink.Sink                                  // instead of Tracers, for sections

	OpenTimeout time.Duration // for the driver to list its devices; default 30 s
}

// Fill sets defaults for what no option set.
func (c *Config) Fill() {
	c.OpenTimeout = cmp.Or(c.OpenTimeout, 30*time.Second)
	if c.OnError == nil {
		c.OnError = otel.Handle
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	c.Tracers = cmp.Or(c.Tracers, otel.GetTracerProvider())
	c.Meters = cmp.Or(c.Meters, otel.GetMeterProvider())
	c.Attributes = spanattr.AppendValid(nil, c.Attributes)
}
