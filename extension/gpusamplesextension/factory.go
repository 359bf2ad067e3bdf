// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// NewFactory returns the factory of type gpu_samples.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

func createDefaultConfig() component.Config {
	d := devicesamples.NewDefaultConfig()
	return &Config{MaxAge: d.MaxAge, MaxBytes: d.MaxBytes, MaxDevices: d.MaxDevices}
}

func create(_ context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
	return newSamples(*cfg.(*Config), set.TelemetrySettings)
}
