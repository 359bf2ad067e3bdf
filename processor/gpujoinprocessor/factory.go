// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"

	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/metadata"
)

// NewFactory returns the factory of type gpu_join.
func NewFactory() processor.Factory {
	return processor.NewFactory(metadata.Type, createDefaultConfig, processor.WithTraces(create, metadata.TracesStability))
}

func create(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces,
	error,
) {
	return newProcessor(ctx, set, cfg.(*Config), next)
}
