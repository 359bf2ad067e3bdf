// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/shared"
)

// NewFactory makes the factory of type chrome_trace.
func NewFactory() exporter.Factory {
	s := &sinks{}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithTraces(s.traces, metadata.TracesStability),
		exporter.WithMetrics(s.metrics, metadata.MetricsStability))
}

// sinks give the traces and the metrics exporter of one configuration the same files.
type sinks struct {
	shared.Instances[*Config, *sink]
}

func (s *sinks) sink(set exporter.Settings, cfg *Config) (*sink, error) {
	return s.Get(cfg, func(*sink) bool { return true }, func(forget func()) (*sink, error) {
		k, err := newSink(cfg, set)
		if err == nil {
			k.forget = forget
		}
		return k, err
	})
}

func (s *sinks) traces(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	c := cfg.(*Config)
	k, err := s.sink(set, c)
	if err != nil {
		return nil, err
	}
	u := &use{sink: k}
	return exporterhelper.NewTraces(ctx, set, cfg, k.consumeTraces, u.options(c)...)
}

func (s *sinks) metrics(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
	c := cfg.(*Config)
	k, err := s.sink(set, c)
	if err != nil {
		return nil, err
	}
	u := &use{sink: k}
	return exporterhelper.NewMetrics(ctx, set, cfg, k.consumeMetrics, u.options(c)...)
}

func (u *use) options(c *Config) []exporterhelper.Option {
	return []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithStart(u.start), exporterhelper.WithShutdown(u.shutdown),
		exporterhelper.WithTimeout(c.Timeout), exporterhelper.WithQueue(c.Queue), exporterhelper.WithRetry(c.Retry),
	}
}
