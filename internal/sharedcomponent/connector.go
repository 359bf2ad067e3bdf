// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sharedcomponent

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/startpoint"
)

// Connector is embedded by connectors that make metrics and spans from spans. The Collector makes
// one component for each kind of output; both share one instance, so that each span counts once.
type Connector struct {
	Metrics startpoint.Output // without Next if no metrics pipeline has the connector as its receiver

	started, ended sync.Once // by whichever of its components is first
	stop           context.CancelFunc
	done           sync.WaitGroup
	forget         func()
}

// Embedded returns the connector itself, for the types that embed it.
func (c *Connector) Embedded() *Connector { return c }

// Capabilities implements consumer.Traces.
func (*Connector) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Begin calls first and then starts run, which lasts until End, both once. Before both components
// have started there is no input, and so nothing to write.
func (c *Connector) Begin(first func(), run func(context.Context)) {
	c.started.Do(func() {
		first()
		ctx, cancel := context.WithCancel(context.Background())
		c.stop = cancel
		c.done.Go(func() { run(ctx) })
	})
}

// End waits for run to end and calls rest, which writes the remaining data, once. If ctx ends
// before run, rest is not called. If it ends before either, End returns an error. The Collector
// stops everything that sends to a connector before its components, and each component before its
// consumers: when the first component is shut down, no input arrives any more and both outputs are
// still open.
func (c *Connector) End(ctx context.Context, rest func()) (err error) {
	c.ended.Do(func() {
		if c.stop != nil {
			c.stop()
		}
		if err = Wait(ctx, &c.done); err == nil {
			c.done.Go(rest)
			err = Wait(ctx, &c.done)
		}
		if c.forget != nil {
			c.forget()
		}
	})
	return err
}

// TwoOutputs is a pointer to a type that embeds a Connector.
type TwoOutputs interface {
	comparable
	connector.Traces
	// GiveTraces sets the consumer of spans; it returns false if one is set already.
	GiveTraces(consumer.Traces) bool
	Embedded() *Connector
}

// ConnectorFactory returns a factory whose connectors with the same configuration pointer share one
// instance as long as its output is free. The stability levels are for metrics and traces, in this
// order.
func ConnectorFactory[C comparable, I TwoOutputs](
	of component.Type, defaults component.CreateDefaultConfigFunc, create func(C, connector.Settings) (I, error),
	metrics, traces component.StabilityLevel,
) connector.Factory {
	var all Instances[C, I]
	get := func(set connector.Settings, cfg component.Config, give func(I) bool) (I, error) {
		return all.Get(cfg.(C), give, func(forget func()) (I, error) {
			c, err := create(cfg.(C), set)
			if err == nil {
				c.Embedded().forget = forget
				give(c)
			}
			return c, err
		})
	}
	return connector.NewFactory(of, defaults,
		connector.WithTracesToMetrics(func(
			_ context.Context, set connector.Settings, cfg component.Config, next consumer.Metrics,
		) (connector.Traces, error) {
			return get(set, cfg, func(c I) bool {
				free := c.Embedded().Metrics.Next == nil
				if free {
					c.Embedded().Metrics.Next = next
				}
				return free
			})
		}, metrics),
		connector.WithTracesToTraces(func(
			_ context.Context, set connector.Settings, cfg component.Config, next consumer.Traces,
		) (connector.Traces, error) {
			c, err := get(set, cfg, func(c I) bool { return c.GiveTraces(next) })
			if err != nil {
				return nil, err
			}
			return TracesOutput{c, c.Embedded()}, nil
		}, traces))
}

// TracesOutput is the component that writes traces. The Collector passes each batch to both
// components; this one accepts it only if there is no component for metrics.
type TracesOutput struct {
	connector.Traces
	base *Connector
}

// ConsumeTraces implements consumer.Traces.
func (o TracesOutput) ConsumeTraces(ctx context.Context, td ptrace.Traces) error {
	if o.base.Metrics.Next != nil {
		return nil
	}
	return o.Traces.ConsumeTraces(ctx, td)
}
