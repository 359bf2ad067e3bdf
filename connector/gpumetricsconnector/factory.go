// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"go.opentelemetry.io/collector/connector"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
)

// NewFactory makes the factory of type gpu_metrics.
func NewFactory() connector.Factory {
	i := &instances{}
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(i.metrics, metadata.TracesToMetricsStability),
		connector.WithTracesToTraces(i.traces, metadata.TracesToTracesStability))
}
