// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package series

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
)

// MaxBuckets is how many series of a connector have explicit buckets. In Prometheus' text format
// each of them has 19 lines of about 300 bytes, so that 30,000 would be a page of 170 MB, which
// takes seconds. Beyond the limit the metric with most series has count and sum only, in all
// series: quantiles over a part of them would be wrong.
const MaxBuckets = 2000

// withoutBuckets returns the names of histograms that exceed MaxBuckets, starting with the most
// series.
func withoutBuckets(resources iter.Seq[[]Family]) map[string]bool {
	count, all := map[string]int{}, 0
	for families := range resources {
		for i := range families {
			if f := &families[i]; f.Form == Histogram {
				count[f.Name] += f.Len()
				all += f.Len()
			}
		}
	}
	bare := map[string]bool{}
	for _, name := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	}) {
		if all <= MaxBuckets {
			break
		}
		bare[name] = true
		all -= count[name]
	}
	return bare
}

// LogBare warns of histograms that lost their buckets.
func LogBare(log *zap.Logger, names []string) {
	if len(names) > 0 {
		log.Warn("more series than have buckets: these histograms have only count and sum (use `histogram::exponential`, or "+
			"keep fewer resources apart)", zap.Strings("metrics", names), zap.Int("max_series", MaxBuckets))
	}
}

// writeHistogram adds a point to a histogram, without buckets if there are too many.
func (st *Settings) writeHistogram(m pmetric.Metric, d *distribution) histogramPoint {
	p := d.write(m)
	if st.bare[m.Name()] {
		points := m.Histogram().DataPoints()
		last := points.At(points.Len() - 1)
		last.ExplicitBounds().FromRaw(nil)
		last.BucketCounts().FromRaw(nil)
	}
	return p
}
