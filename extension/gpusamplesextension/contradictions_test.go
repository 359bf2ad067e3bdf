// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension/internal/metadatatest"
	"github.com/otelgpu/otelgpu/internal/plausibility"
)

func TestContradictionsAreCountedBySourceAndReason(t *testing.T) {
	tel := componenttest.NewTelemetry()
	x, err := newSamples(*createDefaultConfig().(*Config), tel.NewTelemetrySettings())
	require.NoError(t, err)
	for _, reason := range []plausibility.Reason{
		plausibility.CounterFrozen, plausibility.CounterFrozen, plausibility.ClockOffset,
	} {
		x.Contradict(plausibility.Contradiction{Source: "dcgm", Reason: reason})
	}
	point := func(reason string, n int64) metricdata.DataPoint[int64] {
		return metricdata.DataPoint[int64]{
			Value:      n,
			Attributes: attribute.NewSet(attribute.String("source", "dcgm"), attribute.String("reason", reason)),
		}
	}
	metadatatest.AssertEqualExtensionGpuSamplesContradictions(t, tel,
		[]metricdata.DataPoint[int64]{point("counter_frozen", 2), point("clock_offset", 1)},
		metricdatatest.IgnoreTimestamp())
	require.NoError(t, x.Shutdown(t.Context()))
	require.NoError(t, tel.Shutdown(t.Context()))
}
