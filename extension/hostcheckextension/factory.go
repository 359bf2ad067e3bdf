// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hostcheckextension

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"

	"github.com/otelgpu/otelgpu/extension/hostcheckextension/internal/metadata"
)

// NewFactory returns the factory of type host_check.
func NewFactory() extension.Factory {
	return extension.NewFactory(metadata.Type, createDefaultConfig, create, metadata.ExtensionStability)
}

func createDefaultConfig() component.Config { return &Config{} }

func create(_ context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
	return newHostCheck(cfg.(*Config), set.TelemetrySettings)
}
