// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpurequestsconnector/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/shared"
)

// NewFactory makes the factory of type gpu_requests.
func NewFactory() connector.Factory {
	i := &instances{}
	return connector.NewFactory(metadata.Type, createDefaultConfig,
		connector.WithTracesToMetrics(i.metrics, metadata.TracesToMetricsStability),
		connector.WithTracesToTraces(i.traces, metadata.TracesToTracesStability))
}

// instances are the connectors of a factory. The Collector makes one component for each kind of output; both share
// one instance, so that each account is kept once.
type instances struct {
	shared.Instances[*Config, *gpuRequests]
}

func (i *instances) metrics(
	_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics,
) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuRequests) bool { return c.metrics.Next == nil })
	if err != nil {
		return nil, err
	}
	c.metrics.Next = next
	return c, nil
}

func (i *instances) traces(
	_ context.Context, set connector.Settings, cfg component.Config, next consumer.Traces,
) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuRequests) bool { return c.traces == nil })
	if err != nil {
		return nil, err
	}
	c.traces = next
	return tracesOutput{c}, nil
}

// get is the connector of a configuration whose output is still free, else a new one.
func (i *instances) get(cfg *Config, set connector.Settings, free func(*gpuRequests) bool) (*gpuRequests, error) {
	return i.Get(cfg, free, func(forget func()) (*gpuRequests, error) {
		c, err := newConnector(cfg, set)
		if err == nil {
			c.forget = forget
		}
		return c, err
	})
}

// tracesOutput is the connector as an input of traces pipelines. The Collector gives each batch to both components;
// this one takes it only where the one for metrics is not there.
type tracesOutput struct{ *gpuRequests }

func (f tracesOutput) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if f.metrics.Next != nil {
		return nil
	}
	return f.gpuRequests.ConsumeTraces(ctx, td)
}
