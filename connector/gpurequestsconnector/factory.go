// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"go.opentelemetry.io/collector/connector"

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
)

// NewFactory returns the factory of type gpu_requests.
func NewFactory() connector.Factory {
	return sharedcomponent.ConnectorFactory(
		metadata.Type, createDefaultConfig, newConnector, metadata.TracesToMetricsStability,
		metadata.TracesToTracesStability)
}
