// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package pipeline

import (
	"context"
	"sync"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// SinkType is the component type of a [Sink].
var SinkType = component.MustNewType("sink")

// Sink makes exporters that hand what comes to functions, one call at a time. A nil function drops it.
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

// AddTo makes the sink one of the exporters.
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
