// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpupageexporter

import (
	"context"
	"net"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"

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

// WithListener lets the factory's exporter serve on l instead of its `endpoint`, for a program that reserves an address
// before the Collector starts.
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
		exporter.WithTraces(func(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Traces, error) {
			return of(set, cfg)
		}, metadata.TracesStability),
		exporter.WithMetrics(func(_ context.Context, set exporter.Settings, cfg component.Config) (exporter.Metrics, error) {
			return of(set, cfg)
		}, metadata.MetricsStability))
}
