// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processorhelper"

	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor/internal/metadata"
)

// NewFactory returns the factory of type gpu_derive.
func NewFactory() processor.Factory {
	return processor.NewFactory(metadata.Type, createDefaultConfig, processor.WithTraces(create, metadata.TracesStability))
}

func create(ctx context.Context, set processor.Settings, cfg component.Config, next consumer.Traces) (processor.Traces,
	error,
) {
	d, err := newDeriver(cfg.(*Config), set.TelemetrySettings)
	if err != nil {
		return nil, err
	}
	p, err := processorhelper.NewTraces(ctx, set, cfg, next, d.process,
		processorhelper.WithCapabilities(consumer.Capabilities{MutatesData: true}),
		processorhelper.WithStart(d.start), processorhelper.WithShutdown(d.shutdown))
	return counted{p, d}, err
}
