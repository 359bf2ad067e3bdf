// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/debugexporter"
	"go.opentelemetry.io/collector/otelcol"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/receiver"
	"go.opentelemetry.io/collector/service/telemetry/otelconftelemetry"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/pipeline"
	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
)

const yaml = `
receivers: {source/a: {}}
exporters: {sink: {}}
service:
  telemetry: {logs: {level: error}, metrics: {level: none}}
  pipelines: {traces: {receivers: [source/a], exporters: [sink]}}
`

func factories(source *pipeline.Source, table *summarytable.Table) func() (otelcol.Factories, error) {
	return func() (otelcol.Factories, error) {
		f := otelcol.Factories{Telemetry: otelconftelemetry.NewFactory()}
		var err error
		if f.Receivers, err = otelcol.MakeFactoryMap[receiver.Factory](source.NewFactory()); err != nil {
			return f, err
		}
		f.Exporters, err = otelcol.MakeFactoryMap[exporter.Factory](debugexporter.NewFactory())
		(&pipeline.Sink{Traces: table.Add}).AddTo(f.Exporters)
		return f, err
	}
}

func TestSpansFromASourceReachTheTable(t *testing.T) {
	var source pipeline.Source
	table := summarytable.New()
	p, err := pipeline.Start(t.Context(), component.BuildInfo{}, factories(&source, table), yaml)
	require.NoError(t, err)
	require.Nil(t, source.Next("b"), "no such receiver")
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("x")
	require.NoError(t, source.Next("a").ConsumeTraces(t.Context(), td))
	require.NoError(t, p.Stop())
	require.NoError(t, p.Stop(), "a second time")
	all, gpu := table.Spans()
	require.Equal(t, int64(1), all)
	require.Zero(t, gpu)
}

func TestLaterTextsOverrideEarlierOnes(t *testing.T) {
	var source pipeline.Source
	p, err := pipeline.Start(t.Context(), component.BuildInfo{}, factories(&source, summarytable.New()),
		yaml, "receivers: {source/b: {}}\nservice: {pipelines: {traces: {receivers: [source/b]}}}")
	require.NoError(t, err)
	require.NotNil(t, source.Next("b"))
	require.Nil(t, source.Next("a"), "lists are replaced")
	require.NoError(t, p.Stop())
}

func TestAPipelineThatCannotStartStatesWhy(t *testing.T) {
	_, err := pipeline.Start(t.Context(), component.BuildInfo{}, factories(&pipeline.Source{}, summarytable.New()),
		"receivers: {nowhere: {}}")
	require.ErrorContains(t, err, "nowhere")
}

func TestAnInterruptedStartEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	p, err := pipeline.Start(ctx, component.BuildInfo{}, factories(&pipeline.Source{}, summarytable.New()), yaml)
	if err != nil { // it may return before it first checks the context
		require.ErrorContains(t, err, "interrupted")
	}
	select {
	case <-p.Done():
	default:
		require.NoError(t, p.Stop())
	}
}

func TestQuotedTextIsTakenLiterally(t *testing.T) {
	require.Equal(t, `"a$${env:B} \"c\""`, pipeline.Quote(`a${env:B} "c"`))
}
