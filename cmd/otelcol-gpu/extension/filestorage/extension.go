// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package filestorage is the file_storage extension of opentelemetry-collector-contrib, whose
// queues of exporters lose no requests while the disk is full.
package filestorage

import (
	"context"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/extension"
	"go.opentelemetry.io/collector/extension/xextension/storage"

	"github.com/otelgpu/otelgpu/internal/queuestorage"
)

// NewFactory returns the factory of the extension. Type, configuration and stability are contrib's.
func NewFactory() extension.Factory {
	of := filestorage.NewFactory()
	create := func(ctx context.Context, set extension.Settings, cfg component.Config) (extension.Extension, error) {
		x, err := of.Create(ctx, set, cfg)
		if err != nil {
			return nil, err
		}
		return queuestorage.Extension(x.(storage.Extension), set.Logger), nil
	}
	return extension.NewFactory(of.Type(), of.CreateDefaultConfig, create, of.Stability())
}
