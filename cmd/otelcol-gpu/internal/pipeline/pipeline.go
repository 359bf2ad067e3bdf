// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package pipeline runs a Collector inside this process from YAML texts, for commands that consist
// of the same components as the service itself.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"text/template"
	"time"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/confmap/provider/envprovider"
	"go.opentelemetry.io/collector/confmap/provider/yamlprovider"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
)

// Pipeline is a running Collector.
type Pipeline struct {
	collector *otelcol.Collector
	begun     chan struct{} // closed when the Collector's Run has started
	done      chan struct{}
	err       error // valid once done is closed
	stop      sync.Once
}

// Start runs a Collector until Stop, and returns when its pipelines run. The texts are merged,
// later ones over earlier ones (maps by key, lists as a whole). Signals are left to the caller. It
// returns the error of a configuration or a component that does not start.
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
		Factories: func() (otelcol.Factories, error) { // called by Run
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
		// The context of the caller ends with a signal; Stop drains pending data, which must not be
		// dropped here.
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

// Stop drains the pipelines and ends the Collector; it may be called more than once. It waits until
// Run has started: a Collector that is shut down earlier blocks forever.
func (p *Pipeline) Stop() error {
	select {
	case <-p.begun:
		p.stop.Do(p.collector.Shutdown)
	case <-p.done:
	}
	<-p.done
	return p.err
}

// Done returns a channel that is closed when the Collector has ended, by Stop or by itself.
func (p *Pipeline) Done() <-chan struct{} { return p.done }

// Quote returns a YAML string that the Collector reads literally: it would expand a dollar sign.
func Quote(s string) string { return strings.ReplaceAll(strconv.Quote(s), "$", "$$") }

// Fill fills in a YAML template (text/template), which has Quote as quote.
func Fill(text string, data any) (string, error) {
	t, err := template.New("pipeline").Funcs(template.FuncMap{"quote": Quote}).Parse(text)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = t.Execute(&b, data)
	return b.String(), err
}

// SourceType is the component type of a [Source].
var SourceType = component.MustNewType("source")

// Source provides receivers into which other code pushes traces once the pipelines run: Next(NAME)
// leads to the receiver source/NAME of a configuration.
type Source struct{ next map[string]consumer.Traces }

type sourceReceiver struct {
	component.StartFunc
	component.ShutdownFunc
}

// NewFactory returns the receiver factory.
func (s *Source) NewFactory() receiver.Factory {
	s.next = map[string]consumer.Traces{}
	create := func(_ context.Context, set receiver.Settings, _ component.Config, next consumer.Traces) (receiver.Traces,
		error,
	) {
		s.next[set.ID.Name()] = next
		return sourceReceiver{}, nil
	}
	return receiver.NewFactory(SourceType, func() component.Config { return &struct{}{} },
		receiver.WithTraces(create, component.StabilityLevelDevelopment))
}

// Next returns the first consumer behind source/NAME, or nil if no pipeline has that receiver.
func (s *Source) Next(name string) consumer.Traces { return s.next[name] }

// SinkType is the component type of a [Sink].
var SinkType = component.MustNewType("sink")

// Sink provides exporters that pass their input to functions, one call at a time. Input for a nil
// function is dropped.
type Sink struct {
	Traces  func(ptrace.Traces)
	Metrics func(pmetric.Metrics)
	Logs    func(plog.Logs)

	mu sync.Mutex
}

// end is an exporter of any signal.
type end struct {
	component.StartFunc
	component.ShutdownFunc
	*Sink
}

func (end) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (e end) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	return take(&e.mu, e.Traces, td)
}

func (e end) ConsumeMetrics(_ context.Context, md pmetric.Metrics) error {
	return take(&e.mu, e.Metrics, md)
}

func (e end) ConsumeLogs(_ context.Context, ld plog.Logs) error { return take(&e.mu, e.Logs, ld) }

func take[T any](mu *sync.Mutex, fn func(T), v T) error {
	mu.Lock()
	defer mu.Unlock()
	if fn != nil {
		fn(v)
	}
	return nil
}

// AddTo adds the sink to the exporters.
func (s *Sink) AddTo(exporters map[component.Type]exporter.Factory) {
	exporters[SinkType] = exporter.NewFactory(SinkType, func() component.Config { return &struct{}{} },
		exporter.WithTraces(creates[exporter.Traces](s), component.StabilityLevelDevelopment),
		exporter.WithMetrics(creates[exporter.Metrics](s), component.StabilityLevelDevelopment),
		exporter.WithLogs(creates[exporter.Logs](s), component.StabilityLevelDevelopment))
}

func creates[T any](s *Sink) func(context.Context, exporter.Settings, component.Config) (T, error) {
	return func(context.Context, exporter.Settings, component.Config) (T, error) {
		return any(end{Sink: s}).(T), nil
	}
}
