// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/open-telemetry/opentelemetry-collector-contrib/exporter/prometheusexporter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	guarded "github.com/otelgpu/otelgpu/cmd/otelcol-gpu/exporter/prometheusexporter"
	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
	"github.com/otelgpu/otelgpu/internal/freeport"
)

// exposed returns the URL of a page of gpu_metrics with 30,000 series of steps.
func exposed(t testing.TB) string {
	ctx := context.Background()
	address, err := freeport.Address()
	require.NoError(t, err)
	f := guarded.NewFactory()
	cfg := f.CreateDefaultConfig().(*prometheusexporter.Config)
	cfg.ServerConfig.NetAddr.Endpoint = address
	e, err := f.CreateMetrics(ctx, exportertest.NewNopSettings(f.Type()), cfg)
	require.NoError(t, err)
	require.NoError(t, e.Start(ctx, componenttest.NewNopHost()))
	t.Cleanup(func() { require.NoError(t, e.Shutdown(ctx)) })

	connectors := gpumetricsconnector.NewFactory()
	c, err := connectors.CreateTracesToMetrics(ctx, connectortest.NewNopSettings(connectors.Type()),
		connectors.CreateDefaultConfig(), e)
	require.NoError(t, err)
	require.NoError(t, c.Start(ctx, componenttest.NewNopHost()))
	now := time.Now()
	for service := range 20 {
		td := ptrace.NewTraces()
		rs := td.ResourceSpans().AppendEmpty()
		rs.Resource().Attributes().PutStr("service.name", fmt.Sprint("trainer-", service))
		rs.Resource().Attributes().PutStr("host.name", fmt.Sprint("node-", service))
		spans := rs.ScopeSpans().AppendEmpty().Spans()
		for loop := range 1500 {
			s := spans.AppendEmpty()
			s.SetTraceID(pcommon.TraceID{1, byte(service), byte(loop >> 8), byte(loop)})
			s.SetSpanID(pcommon.SpanID{1, byte(service), byte(loop >> 8), byte(loop)})
			s.SetName(fmt.Sprint("train loop ", loop))
			s.SetStartTimestamp(pcommon.NewTimestampFromTime(now.Add(-time.Second)))
			s.SetEndTimestamp(pcommon.NewTimestampFromTime(now))
			s.Attributes().PutStr("gpu.operation.type", "step")
		}
		require.NoError(t, c.ConsumeTraces(ctx, td))
	}
	require.NoError(t, c.Shutdown(ctx)) // writes the points
	return "http://" + address + "/metrics"
}

func scraped(t testing.TB, url string) []byte {
	r, err := http.Get(url)
	require.NoError(t, err)
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	return page
}

func TestThirtyThousandSeriesAreScrapedIn32MB(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	page := scraped(t, exposed(t))
	assert.Equal(t, 30_000, bytes.Count(page, []byte("\ngpu_step_duration_seconds_count{")))
	assert.Less(t, len(page), 32_000_000)
}

func BenchmarkScrapeOfThirtyThousandSeries(b *testing.B) {
	url := exposed(b)
	for b.Loop() {
		b.SetBytes(int64(len(scraped(b, url))))
	}
}
