// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// The histograms with most series lose their buckets first, in all resources, and no more than
// necessary.
func TestHistogramsOfManySeriesHaveNoBuckets(t *testing.T) {
	for name, tt := range map[string]struct {
		steps, phases, counts int // series
		bare                  []string
	}{
		"as many as have buckets": {800, 1200, 5000, nil},
		"one more":                {800, 1201, 0, []string{"gpu.step.phase.duration"}},
		"the other is larger":     {1201, 800, 0, []string{"gpu.step.duration"}},
		"each alone is too large": {2001, 2002, 0, []string{"gpu.step.duration", "gpu.step.phase.duration"}},
	} {
		t.Run(name, func(t *testing.T) {
			st := &Settings{CardinalityLimit: 1 << 20}
			resources := make([][]Family, 2)
			for r := range resources {
				resources[r] = []Family{
					{Name: "gpu.step.duration", Form: Histogram, Bounds: []float64{1, 2}},
					{Name: "gpu.step.phase.duration", Form: Histogram, Bounds: []float64{1, 2}},
					{Name: "gpu.operation.count", Form: Count},
				}
				for f, n := range []int{tt.steps, tt.phases, tt.counts} {
					for i := r; i < n; i += 2 {
						attrs := pcommon.NewMap()
						attrs.PutInt("i", int64(i))
						s := resources[r][f].Get(st, attrs, 1e18)
						if f < 2 {
							s.Record(1.5, 1, spanfacts.Key{}, 2e18, 1)
						} else {
							s.Add(1, 1)
						}
					}
				}
			}
			assert.Equal(t, tt.bare, st.Output(slices.Values(resources)))
			assert.Empty(t, st.Output(slices.Values(resources)), "reported once")
			for _, families := range resources {
				out := pmetric.NewMetrics()
				st.Write(out, pcommon.NewMap(), "", families, 2e18, 0)
				for _, m := range out.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
					if m.Type() != pmetric.MetricTypeHistogram {
						continue
					}
					var buckets []uint64
					if !slices.Contains(tt.bare, m.Name()) {
						buckets = []uint64{0, 1, 0}
					}
					p := m.Histogram().DataPoints().At(m.Histogram().DataPoints().Len() - 1)
					assert.Equal(t, buckets, p.BucketCounts().AsRaw(), m.Name())
					assert.Len(t, p.ExplicitBounds().AsRaw(), max(0, len(buckets)-1))
					assert.EqualValues(t, 1, p.Count())
					assert.EqualValues(t, 1.5, p.Sum())
					zero := m.Histogram().DataPoints().At(0)
					assert.Len(t, zero.ExplicitBounds().AsRaw(), max(0, len(buckets)-1), "the point of 0")
				}
			}
		})
	}
}

func TestHistogramsWithoutBucketsAreLogged(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	LogBare(zap.New(core), nil)
	assert.Zero(t, logs.Len())
	LogBare(zap.New(core), []string{"a"})
	assert.Equal(t, 1, logs.FilterMessageSnippet("use `histogram::exponential`, or keep fewer").Len())
}
