// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuprofilesconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/xconnector"
	"go.opentelemetry.io/collector/consumer/xconsumer"

	"github.com/otelgpu/otelgpu/connector/gpuprofilesconnector/internal/metadata"
)

// NewFactory returns the factory of type gpu_profiles.
func NewFactory() connector.Factory {
	return xconnector.NewFactory(metadata.Type, createDefaultConfig,
		xconnector.WithTracesToProfiles(func(
			_ context.Context, set connector.Settings, cfg component.Config, next xconsumer.Profiles,
		) (connector.Traces, error) {
			return newConnector(cfg.(*Config), set, next)
		}, metadata.TracesToProfilesStability))
}
