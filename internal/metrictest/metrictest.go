// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package metrictest reads the metrics that a component reports about itself in tests. The
// generated packages metadatatest do, too, but each instantiates the generic functions of
// metricdatatest, which takes the compiler 5 s of CPU for a component.
package metrictest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Sum returns the values of a counter by attributes, as "reason=rank"; the key is empty if a point
// has none.
func Sum(t *testing.T, tel *componenttest.Telemetry, name string) map[string]float64 {
	t.Helper()
	m, err := tel.GetMetric(name)
	require.NoError(t, err)
	values := map[string]float64{}
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(attribute.DefaultEncoder())] = float64(p.Value)
		}
	case metricdata.Sum[float64]:
		for _, p := range data.DataPoints {
			values[p.Attributes.Encoded(attribute.DefaultEncoder())] = p.Value
		}
	default:
		require.Fail(t, "not a sum", "%s is %T", name, m.Data)
	}
	return values
}
