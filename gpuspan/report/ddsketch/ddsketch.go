// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ddsketch provides quantiles over whole runs to package report, with DataDog's DDSketch
// library (Masson, Rim and Lee, VLDB 2019): every quantile is within 1 % of the duration of that
// rank.
package ddsketch

import (
	"math"

	"github.com/DataDog/sketches-go/ddsketch"

	"github.com/otelgpu/otelgpu/gpuspan/report"
)

const (
	relativeAccuracy = 0.01
	// 1 % of accuracy needs about 115 bins a decade: 1024 bins cover 1 ns to 100 s.
	maxBins = 1024
)

type sketch struct{ s *ddsketch.DDSketch }

// New returns a sketch of durations with 1 % relative accuracy in at most 1024 bins (8 KiB); if
// durations span more than nine decades, the lowest bins are merged. Use it as
// report.WithSketch(ddsketch.New).
func New() report.Sketch {
	s, _ := ddsketch.LogCollapsingLowestDenseDDSketch(relativeAccuracy, maxBins) // fails for accuracies outside of (0, 1)
	return sketch{s}
}

// Add implements report.Sketch. Invalid values (negative, NaN) are ignored.
func (k sketch) Add(seconds float64) {
	if seconds >= 0 {
		_ = k.s.Add(seconds)
	}
}

// Quantile implements report.Sketch with nearest ranks: of ten durations the 99th percentile is the
// longest. The library's own rank is q·(n−1), rounded down, by which it is the second longest.
func (k sketch) Quantile(q float64) (float64, bool) {
	n := k.s.GetCount()
	if n > 1 {
		q = min(max((math.Ceil(q*n)-.5)/(n-1), 0), 1) // half a rank more, or rounding could lose one
	}
	v, err := k.s.GetValueAtQuantile(q)
	return v, err == nil
}
