// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipeline runs a Collector inside this process from YAML texts, for commands that are built of the same
// components as the service itself.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/otelcol"
)

// Pipeline is a running Collector.
type Pipeline struct {
	collector *otelcol.Collector
	begun     chan struct{} // closed when the Collector's Run has begun
	done      chan struct{}
	err       error // valid once done is closed
	stop      sync.Once
}

// Start runs a Collector until Stop, and returns once its pipelines run. The texts are merged, later ones over earlier
// ones (maps by key, lists as a whole). Signals are left to the caller. A configuration or a component that does not
// start is the error.
func Start(ctx context.Context, info component.BuildInfo, factories func() (otelcol.Factories, error),
	yaml ...string,
) (*Pipeline, error) {
	uris := make([]string, len(yaml))
	for i, text := range yaml {
		uris[i] = "yaml:" + text
	}
	p := &Pipeline{begun: make(chan struct{}), done: make(chan struct{})}
	begin := sync.OnceFunc(func() { close(p.begun) })
	var err error
	p.collector, err = otelcol.NewCollector(otelcol.CollectorSettings{
		BuildInfo: info,
		Factories: func() (otelcol.Factories, error) { // asked for by Run
			begin()
			return factories()
		},
		DisableGracefulShutdown: true,
		ConfigProviderSettings: otelcol.ConfigProviderSettings{ResolverSettings: confmap.ResolverSettings{
			URIs:              uris,
			ProviderFactories: []confmap.ProviderFactory{envprovider.NewFactory(), yamlprovider.NewFactory()},
		}},
	})
	if err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		// The context of the caller ends with a signal; what is under way is drained by Stop, not cut off here.
		p.err = p.collector.Run(context.WithoutCancel(ctx))
	}()
	return p, p.wait(ctx)
}

// wait polls for the running state: the Collector announces it nowhere else.
func (p *Pipeline) wait(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for p.collector.GetState() != otelcol.StateRunning {
		select {
		case <-p.done:
			if p.err != nil {
				return p.err
			}
			return errors.New("the pipeline ended before it ran")
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("interrupted before the pipeline ran: %w", context.Cause(ctx)), p.Stop())
		case <-tick.C:
		}
	}
	return nil
}

// Stop drains the pipelines and ends the Collector; it may be called more than once. A Collector must not be shut down
// before its Run has begun: one would wait for what the other only then announces.
func (p *Pipeline) Stop() error {
	select {
	case <-p.begun:
		p.stop.Do(p.collector.Shutdown)
	case <-p.done:
	}
	<-p.done
	return p.err
}

// Done is closed when the Collector has ended, by Stop or by itself.
func (p *Pipeline) Done() <-chan struct{} { return p.done }

// Quote makes a YAML string that the Collector takes literally: it would expand a dollar sign.
func Quote(s string) string { return strings.ReplaceAll(strconv.Quote(s), "$", "$$") }
