// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"testing"

	"github.com/open-telemetry/opentelemetry-collector-contrib/connector/spanmetricsconnector"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/connector"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/connector/gpumetricsconnector"
)

// BenchmarkOTLPInToOut decodes, processes and encodes a batch: without components, with gpu_derive
// and gpu_metrics, and with the equivalent upstream components.
func BenchmarkOTLPInToOut(b *testing.B) {
	wire, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(sections())
	require.NoError(b, err)
	encode, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error {
		_, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
		return err
	})
	require.NoError(b, err)
	for _, c := range []struct {
		name  string
		first consumer.Traces
	}{
		{"pass_through", encode},
		{"gpu_derive+gpu_metrics", derivers(b, tee(b, newConnector(b, gpumetricsconnector.NewFactory(),
			map[string]any{"flush_interval": "1h"}), encode))["gpu_derive"]},
		{"transform+span_metrics", derivers(b, tee(b, newConnector(b, spanmetricsconnector.NewFactory(), spanMetrics),
			encode))["transform"]},
	} {
		b.Run("by="+c.name, func(b *testing.B) {
			b.ReportAllocs()
			cpu := newCPUMeter(b)
			cpu.start()
			for b.Loop() {
				td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(wire)
				if err != nil {
					b.Fatal(err)
				}
				if err := c.first.ConsumeTraces(context.Background(), td); err != nil {
					b.Fatal(err)
				}
			}
			cpu.stop()
			perSpan(b)
			cpu.report(b)
		})
	}
}

// tee passes data to a connector and then to the rest of a pipeline.
func tee(tb testing.TB, c connector.Traces, next consumer.Traces) consumer.Traces {
	both, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
		if err := c.ConsumeTraces(ctx, td); err != nil {
			return err
		}
		return next.ConsumeTraces(ctx, td)
	})
	require.NoError(tb, err)
	return both
}
