// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package collectivesreceiver

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/receiver"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/receiver/collectivesreceiver/internal/metadata"
)

// NewFactory returns the factory of type collectives. One receiver serves the metrics and the logs
// pipelines of a configuration, because files are read once.
func NewFactory() receiver.Factory {
	var all sharedcomponent.Instances[*Config, *collectives]
	shared := func(set receiver.Settings, of component.Config, give func(*collectives)) (*collectives, error) {
		cfg := of.(*Config)
		c, err := all.Get(cfg, nil, func(forget func()) (*collectives, error) { return newReceiver(set, cfg, forget) })
		if err == nil {
			give(c)
		}
		return c, err
	}
	return receiver.NewFactory(metadata.Type, createDefaultConfig,
		receiver.WithMetrics(func(
			_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Metrics,
		) (receiver.Metrics, error) {
			return shared(set, cfg, func(c *collectives) { c.metrics.out.Next = next })
		}, metadata.MetricsStability),
		receiver.WithLogs(func(
			_ context.Context, set receiver.Settings, cfg component.Config, next consumer.Logs,
		) (receiver.Logs, error) {
			return shared(set, cfg, func(c *collectives) { c.logs.next = next })
		}, metadata.LogsStability))
}
