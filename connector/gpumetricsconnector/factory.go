// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

// NewFactory makes the factory of type gpu_metrics.
func NewFactory() connector.Factory {
	return connector.NewFactory(metadata.Type, newDefaultConfig, connector.WithTracesToMetrics(create, metadata.TracesToMetricsStability))
}

func create(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
	return newConnector(cfg.(*Config), set, next)
}
