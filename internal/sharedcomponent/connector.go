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

// Connector is what connectors embed that make metrics and spans of spans. The Collector makes one component for each
// kind of output; both are one instance, so that each span counts once.
type Connector struct {
	Metrics startpoint.Output // without Next where no metrics pipeline has the connector as its receiver

	started, ended sync.Once // by whichever of its components comes first
	stop           context.CancelFunc
	done           sync.WaitGroup
	forget         func()
}

// Embedded is the connector itself, of what embeds it.
func (c *Connector) Embedded() *Connector { return c }

// Capabilities implements consumer.Traces.
func (*Connector) Capabilities() consumer.Capabilities {
	return consumer.Capabilities{MutatesData: false}
}

// Begin calls first and then runs what writes until End, once. Until both components have started there is no input,
// and so nothing to write.
func (c *Connector) Begin(first func(), run func(context.Context)) {
	c.started.Do(func() {
		first()
		ctx, cancel := context.WithCancel(context.Background())
		c.stop = cancel
		c.done.Go(func() { run(ctx) })
	})
}

// End calls rest, which writes what was not written yet, when what Begin runs has ended, once. The Collector stops all
// that sends to a connector before its components, and each of those before what it sends to: when the first is shut
// down, nothing comes any more, and both outputs are still open.
func (c *Connector) End(rest func()) {
	c.ended.Do(func() {
		if c.stop != nil {
			c.stop()
		}
		c.done.Wait()
		rest()
		if c.forget != nil {
			c.forget()
		}
	})
}

// TwoOutputs is a pointer to what embeds a Connector.
type TwoOutputs interface {
	comparable
	connector.Traces
	// GiveTraces sets where spans go; false where that is set.
	GiveTraces(consumer.Traces) bool
	Embedded() *Connector
}

// ConnectorFactory makes a factory whose connectors of one configuration, a pointer, are one instance as long as the
// output is free. The levels are those of metrics and of traces.
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

// TracesOutput is the component that writes traces. The Collector gives each batch to both components; this one takes
// it only where the one for metrics is not there.
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
