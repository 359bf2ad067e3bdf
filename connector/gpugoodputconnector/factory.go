// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpugoodputconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/connector/gpugoodputconnector/internal/metadata"
)

// NewFactory returns the factory of type gpu_goodput.
func NewFactory() connector.Factory {
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(func(
			_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics,
		) (connector.Traces, error) {
			return newConnector(cfg.(*Config), set, next)
		}, metadata.TracesToMetricsStability))
}
