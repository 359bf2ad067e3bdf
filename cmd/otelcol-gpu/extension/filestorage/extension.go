// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package filestorage is the file_storage extension of opentelemetry-collector-contrib, whose
// queues of exporters lose no requests while the disk is full.
package filestorage

import (
	"context"

	"github.com/open-telemetry/opentelemetry-collector-contrib/extension/storage/filestorage"
	"github.com/shirou/gopsutil/v4/disk"
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
		c := cfg.(*filestorage.Config)
		size := func() int { return reserve(c) }
		return queuestorage.Extension(files{x.(storage.Extension), c, set.Logger}, set.Logger, size), nil
	}
	return extension.NewFactory(of.Type(), of.CreateDefaultConfig, create, of.Stability())
}

// maxReserve is what a queue takes from the disk twice when it is opened: twice the size of the
// largest requests that OTLP receivers accept.
const maxReserve = 8 << 20

// reserve leaves most of a small disk to other queues.
func reserve(cfg *filestorage.Config) int {
	n := uint64(maxReserve)
	if cfg.MaxSize > 0 {
		n = min(n, uint64(cfg.MaxSize)/8)
	}
	usage, err := disk.Usage(cfg.Directory)
	if err != nil {
		return 0
	}
	return int(min(n, usage.Free/8))
}
