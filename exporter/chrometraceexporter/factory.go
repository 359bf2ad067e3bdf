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
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// NewFactory returns the factory of type chrome_trace.
func NewFactory() exporter.Factory {
	s := &sinks{}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithTraces(s.traces, metadata.TracesStability),
		exporter.WithMetrics(s.metrics, metadata.MetricsStability))
}

// sinks give the traces and the metrics exporter of one configuration the same files.
type sinks struct {
	sharedcomponent.Instances[*Config, *sink]
}

// use returns a reference to the sink of a configuration, with the options of the exporter that has
// it.
func (s *sinks) use(set exporter.Settings, c *Config) (*use, []exporterhelper.Option, error) {
	k, err := s.Get(c, nil, func(forget func()) (*sink, error) {
		k, err := newSink(c, set)
		if err == nil {
			k.forget = forget
		}
		return k, err
	})
	if err != nil {
		return nil, nil, err
	}
	u := &use{sink: k}
	return u, []exporterhelper.Option{
		exporterhelper.WithCapabilities(consumer.Capabilities{MutatesData: false}),
		exporterhelper.WithStart(u.start), exporterhelper.WithShutdown(u.shutdown),
		exporterhelper.WithTimeout(c.Timeout), exporterhelper.WithQueue(c.Queue), exporterhelper.WithRetry(c.Retry),
	}, nil
}

func (s *sinks) traces(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	u, options, err := s.use(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewTraces(ctx, set, cfg, u.consumeTraces, options...)
}

func (s *sinks) metrics(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
	u, options, err := s.use(set, cfg.(*Config))
	if err != nil {
		return nil, err
	}
	return exporterhelper.NewMetrics(ctx, set, cfg, u.consumeMetrics, options...)
}
