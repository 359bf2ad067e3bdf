// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
)

// NewFactory makes the factory of type chrome_trace.
func NewFactory() exporter.Factory {
	s := &shared{sinks: map[component.ID]*sink{}}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithTraces(s.traces, metadata.TracesStability),
		exporter.WithMetrics(s.metrics, metadata.MetricsStability))
}

// shared gives the traces and the metrics exporter of one ID the same files. It belongs to the factory: there is no
// other place that both are made from.
type shared struct {
	mu    sync.Mutex
	sinks map[component.ID]*sink
}

// sink is the sink of an ID with a configuration. Another configuration under the same ID, as after a reload, is
// another sink.
func (s *shared) sink(set exporter.Settings, cfg *Config) (*sink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, ok := s.sinks[set.ID]; ok && k.cfg == cfg {
		return k, nil
	}
	k, err := newSink(cfg, set)
	if err != nil {
		return nil, err
	}
	k.forget = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.sinks[set.ID] == k {
			delete(s.sinks, set.ID)
		}
	}
	s.sinks[set.ID] = k
	return k, nil
}

func (s *shared) traces(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
	c := cfg.(*Config)
	k, err := s.sink(set, c)
	if err != nil {
		return nil, err
	}
	u := &use{sink: k}
	return exporterhelper.NewTraces(ctx, set, cfg, k.consumeTraces, u.options(c)...)
}

func (s *shared) metrics(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
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
