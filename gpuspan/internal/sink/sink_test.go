// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

func TestFactsAreAttributesInOrderAndByKind(t *testing.T) {
	var f Facts
	f.Stated(FactItems, 3)
	f.Float(FactDuration, 0.5)
	f.Float(FactFLOPs, 2e9)
	f.Stated(FactRead, 0) // unknown
	f.Float(FactStartDelay, 0)
	want := []attribute.KeyValue{
		semconv.GPUDurationKey.Float64(0.5), semconv.GPUStartDelayKey.Float64(0),
		semconv.GPUFLOPCountKey.Float64(2e9), semconv.GPUOperationItemsKey.Int64(3),
	}
	require.Equal(t, want, f.Attributes(nil, 0, NumFacts))
	require.Equal(t, want[:2], f.Attributes(nil, 0, FirstStated), "what was measured")
	require.Equal(t, want[2:], f.Attributes(nil, FirstStated, NumFacts), "what the application states")
}

func TestEachFactHasAKeyOfItsOwn(t *testing.T) {
	keys := map[attribute.Key]bool{}
	for _, k := range FactKeys {
		require.NotEmpty(t, k)
		keys[k] = true
	}
	require.Len(t, keys, int(NumFacts))
	require.LessOrEqual(t, int(NumFacts), 16, "the bits of Known")
}
