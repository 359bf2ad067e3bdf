// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadata"
)

// NewFactory returns the factory of type gpu_samples.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

func createDefaultConfig() component.Config {
	cfg := NewDefaultConfig()
	return &cfg
}

func create(_ context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
	return newSamples(*cfg.(*Config), set.TelemetrySettings)
}
