// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/connector/connectortest"
	"go.opentelemetry.io/collector/consumer/consumertest"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
)

// buckets are the same for both.
var buckets = []any{
	"1us", "2us", "5us", "10us", "20us", "50us", "100us", "200us", "500us", "1ms", "2ms", "5ms", "10ms", "20ms", "50ms",
	"100ms", "200ms", "500ms",
	"1s", "2s", "5s", "10s", "20s", "50s", "60s",
}

// spanMetrics counts calls and durations by the same dimensions as gpu_metrics, but not bytes,
// FLOPs, items and energy.
var spanMetrics = map[string]any{
	"histogram":                     map[string]any{"unit": "s", "explicit": map[string]any{"buckets": buckets}},
	"exemplars":                     map[string]any{"enabled": true, "max_per_data_point": 5},
	"metrics_flush_interval":        "1h",
	"aggregation_cardinality_limit": 2000,
	"dimensions": []any{
		map[string]any{"name": "gpu.operation.type"},
		map[string]any{"name": "gpu.operation.category"},
		map[string]any{"name": "hw.id"},
		map[string]any{"name": "gpu.timing.status"},
	},
}

func newConnector(tb testing.TB, f connector.Factory, conf map[string]any) connector.Traces {
	tb.Helper()
	cfg := f.CreateDefaultConfig()
	require.NoError(tb, confmap.NewFromStringMap(conf).Unmarshal(cfg))
	require.NoError(tb, confmap.Validate(cfg))
	c, err := f.CreateTracesToMetrics(context.Background(), connectortest.NewNopSettings(f.Type()), cfg,
		consumertest.NewNop())
	require.NoError(tb, err)
	require.NoError(tb, c.Start(context.Background(), componenttest.NewNopHost()))
	tb.Cleanup(func() { require.NoError(tb, c.Shutdown(context.Background())) })
	return c
}

func BenchmarkMetrics(b *testing.B) {
	td := sections()
	for _, c := range []struct {
		name string
		make func() connector.Traces
	}{
		{"gpu_metrics", func() connector.Traces {
			return newConnector(b, gpumetricsconnector.NewFactory(), map[string]any{"flush_interval": "1h", "max_spans": 0}) // the same spans each time
		}},
		{"span_metrics", func() connector.Traces { return newConnector(b, spanmetricsconnector.NewFactory(), spanMetrics) }},
	} {
		b.Run("by="+c.name, func(b *testing.B) {
			peer := c.make()
			b.ReportAllocs()
			cpu := newCPUMeter(b)
			cpu.start()
			for b.Loop() {
				if err := peer.ConsumeTraces(context.Background(), td); err != nil {
					b.Fatal(err)
				}
			}
			cpu.stop()
			perSpan(b)
			cpu.report(b)
		})
	}
}
