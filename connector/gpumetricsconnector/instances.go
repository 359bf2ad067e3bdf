// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/shared"
)

// instances are the connectors of a factory. A connector with two outputs is two components for the Collector; here it is one with two
// faces, so that what is counted, compared and said is so once.
type instances struct {
	shared.Instances[*Config, *gpuMetrics]
}

func (i *instances) metrics(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuMetrics) bool { return c.metrics == nil })
	if err != nil {
		return nil, err
	}
	c.metrics = next
	return c, nil
}

func (i *instances) traces(_ context.Context, set connector.Settings, cfg component.Config, next consumer.Traces) (connector.Traces, error) {
	c, err := i.get(cfg.(*Config), set, func(c *gpuMetrics) bool { return c.spans == nil })
	if err != nil {
		return nil, err
	}
	c.giveSpans(next)
	return tracesFace{c}, nil
}

// get is the connector of a configuration whose face is still free, else a new one.
func (i *instances) get(cfg *Config, set connector.Settings, free func(*gpuMetrics) bool) (*gpuMetrics, error) {
	return i.Get(cfg, free, func(forget func()) (*gpuMetrics, error) {
		c, err := newConnector(cfg, set)
		if err == nil {
			c.forget = forget
		}
		return c, err
	})
}

// tracesFace is the connector as an input of traces pipelines. The Collector gives each batch to both faces; this one takes them
// only where the other is not there.
type tracesFace struct{ *gpuMetrics }

func (f tracesFace) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if f.metrics != nil {
		return nil
	}
	return f.gpuMetrics.ConsumeTraces(ctx, td)
}
