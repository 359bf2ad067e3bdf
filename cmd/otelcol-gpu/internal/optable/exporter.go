// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package optable

import (
	"context"

	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// Type is the component type of the table as the end of a pipeline.
var Type = component.MustNewType("operation_table")

type end struct {
	component.StartFunc
	component.ShutdownFunc
	table *Table
}

func (e end) Capabilities() consumer.Capabilities { return consumer.Capabilities{} }

func (e end) ConsumeTraces(_ context.Context, td ptrace.Traces) error {
	e.table.Add(td)
	return nil
}

// NewFactory makes an exporter factory whose exporters all fill t.
func NewFactory(t *Table) exporter.Factory {
	create := func(context.Context, exporter.Settings, component.Config) (exporter.Traces, error) {
		return end{table: t}, nil
	}
	return exporter.NewFactory(Type, func() component.Config { return &struct{}{} },
		exporter.WithTraces(create, component.StabilityLevelDevelopment))
}
