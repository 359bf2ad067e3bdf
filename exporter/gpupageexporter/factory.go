// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"context"
	"net"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exporterhelper"

	"github.com/otelgpu/otelgpu/exporter/gpupageexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/page"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// Option configures [NewFactory].
type Option func(*options)

type options struct {
	model    *page.Model
	listener net.Listener
}

// WithModel makes all exporters of the factory fill this model, for a program that also reads it.
func WithModel(m *page.Model) Option { return func(o *options) { o.model = m } }

// WithListener lets the factory's exporter serve on l instead of its `endpoint`, for a program that
// reserves an address before the Collector starts.
func WithListener(l net.Listener) Option { return func(o *options) { o.listener = l } }

// NewFactory returns the factory of type gpu_page.
func NewFactory(opts ...Option) exporter.Factory {
	var o options
	for _, f := range opts {
		f(&o)
	}
	var pages sharedcomponent.Instances[*Config, *server]
	of := func(set exporter.Settings, cfg component.Config) (*server, error) {
		c := cfg.(*Config)
		return pages.Get(c, nil, func(forget func()) (*server, error) {
			return newServer(c, set, o, forget), nil
		})
	}
	return exporter.NewFactory(metadata.Type, createDefaultConfig,
		exporter.WithTraces(func(ctx context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
			s, err := of(set, cfg)
			if err != nil {
				return nil, err
			}
			return exporterhelper.NewTraces(ctx, set, cfg, s.traces, s.exporterOptions()...)
		}, metadata.TracesStability),
		exporter.WithMetrics(func(
			ctx context.Context, set exporter.Settings, cfg component.Config,
		) (exporter.Metrics, error) {
			s, err := of(set, cfg)
			if err != nil {
				return nil, err
			}
			return exporterhelper.NewMetrics(ctx, set, cfg, s.metrics, s.exporterOptions()...)
		}, metadata.MetricsStability))
}

// queueSize is how many requests wait for the page at most; then the pipeline waits.
const queueSize = 64

// exporterOptions returns options with a queue, so that the page reads spans on another core than
// the pipeline. Reading them, also while the page is not open, takes a fifth of the time of the
// pipeline's last stage.
func (s *server) exporterOptions() []exporterhelper.Option {
	return []exporterhelper.Option{
		exporterhelper.WithStart(s.start), exporterhelper.WithShutdown(s.shutdown),
		exporterhelper.WithTimeout(exporterhelper.TimeoutConfig{}), // no network is involved
		exporterhelper.WithQueue(configoptional.Some(exporterhelper.QueueBatchConfig{
			Sizer:           exporterhelper.RequestSizerTypeRequests,
			QueueSize:       queueSize,
			NumConsumers:    1, // spans stay in order
			BlockOnOverflow: true,
		})),
	}
}
