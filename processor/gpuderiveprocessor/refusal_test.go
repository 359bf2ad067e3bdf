// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/internal/metrictest"
	"github.com/otelgpu/otelgpu/internal/sinktest"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor/internal/metadata"
)

// The next component rejects batches, which arrive again: the sums of steps, the spans and the
// counts are the same as after one attempt.
func TestRejectedBatchesAreDerivedAndCountedOnce(t *testing.T) {
	for seed := range uint64(20) {
		s := &sinktest.Sink{Shares: seed%2 == 0, Changes: seed%3 == 0, Reject: sinktest.Randomly(seed, 0.6, 0)}
		var step ptrace.Span
		next, err := consumer.NewTraces(func(ctx context.Context, td ptrace.Traces) error {
			for _, rs := range td.ResourceSpans().All() {
				if span := rs.ScopeSpans().At(0).Spans().At(0); span.SpanID()[0] == 1 {
					step = ptrace.NewSpan()
					span.CopyTo(step)
				}
			}
			return s.ConsumeTraces(ctx, td)
		})
		require.NoError(t, err)
		tel := componenttest.NewTelemetry()
		set := processortest.NewNopSettings(metadata.Type)
		set.TelemetrySettings = tel.NewTelemetrySettings()
		cfg := createDefaultConfig().(*Config)
		cfg.Attributes = spanfacts.Full
		assembling(nil)(cfg)
		p, err := NewFactory().CreateTraces(t.Context(), set, cfg, next)
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
		for i := len(stepTree) - 1; i >= 0; i-- { // the step last, in one batch with its first child
			td := ptrace.NewTraces()
			put(t, td, stepTree[i])
			if i == 1 {
				put(t, td, stepTree[0])
				i--
			}
			sinktest.Send(t, p, td)
		}
		s.Check(t, len(stepTree), false)
		assertGained(t, stepWant, gained(step, stepTree[0].a))
		assert.Equal(t, map[string]float64{"": 1}, metrictest.Sum(t, tel, "otelcol_processor_gpu_derive_steps_assembled"))
		total := 0.
		for _, n := range metrictest.Sum(t, tel, "otelcol_processor_gpu_derive_spans") {
			total += n
		}
		assert.EqualValues(t, len(stepTree)-1, total, fmt.Sprint("seed ", seed))
		require.NoError(t, p.Shutdown(t.Context()))
		require.NoError(t, tel.Shutdown(context.Background()))
	}
}
