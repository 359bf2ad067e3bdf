// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/shared"
)

// NewFactory makes the factory of type gpu_metrics.
func NewFactory() connector.Factory {
	i := &instances{}
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(i.metrics, metadata.TracesToMetricsStability),
		connector.WithTracesToTraces(i.traces, metadata.TracesToTracesStability))
}

// instances are the connectors of a factory. A connector with two outputs is two components for the Collector; here
// both are one, so that spans are counted and ranks compared once.
type instances struct {
	shared.Instances[*Config, *gpuMetrics]
}

func (i *instances) metrics(
	_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics,
) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuMetrics) bool { return c.metrics.Next == nil })
	if err != nil {
		return nil, err
	}
	c.metrics.Next = next
	return c, nil
}

func (i *instances) traces(
	_ context.Context, set connector.Settings, cfg component.Config, next consumer.Traces,
) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuMetrics) bool { return c.spans == nil })
	if err != nil {
		return nil, err
	}
	c.giveSpans(next)
	return tracesOutput{c}, nil
}

// get is the connector of a configuration whose output is still free, else a new one.
func (i *instances) get(cfg *Config, set connector.Settings, free func(*gpuMetrics) bool) (*gpuMetrics, error) {
	return i.Get(cfg, free, func(forget func()) (*gpuMetrics, error) {
		c, err := newConnector(cfg, set)
		if err == nil {
			c.forget = forget
		}
		return c, err
	})
}

// tracesOutput is the connector that writes traces. The Collector gives each batch to both outputs' components; this
// one takes it only where the other is not there.
type tracesOutput struct{ *gpuMetrics }

func (o tracesOutput) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if o.metrics.Next != nil {
		return nil
	}
	return o.gpuMetrics.ConsumeTraces(ctx, td)
}
