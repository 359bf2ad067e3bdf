// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package straggler_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/straggler"
)

// One of two, two of four, and one of any number of ranks are found; equal ranks are not reported.
func TestUpToHalfOfTheRanksAreStragglers(t *testing.T) {
	for name, tt := range map[string]struct {
		own  []float64
		slow []int64
	}{
		"one of two":      {[]float64{0.050, 0.080}, []int64{1}},
		"two of four":     {[]float64{0.081, 0.0500, 0.080, 0.0502}, []int64{0, 2}},
		"one of four":     {[]float64{0.0501, 0.0500, 0.080, 0.0502}, []int64{2}},
		"four of eight":   {[]float64{0.0501, 0.0500, 0.080, 0.0502, 0.081, 0.082, 0.083, 0.0503}, []int64{2, 4, 5, 6}},
		"even ranks":      {[]float64{0.0500, 0.0505}, nil},
		"even four ranks": {[]float64{0.0500, 0.0501, 0.0506, 0.0510}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			ranks := make([]straggler.Rank, len(tt.own))
			for i, own := range tt.own {
				p := &straggler.Sections{}
				p.Add("backward", "", own, straggler.Extent{}, nil)
				ranks[i] = straggler.Rank{Rank: int64(i), Own: own, Phases: p}
			}
			all, _ := straggler.Compare(ranks)
			var slow []int64
			for _, v := range all {
				if v.Slow {
					slow = append(slow, v.Rank)
					assert.Equal(t, "backward", v.Section)
					assert.InDelta(t, 0.03, v.Delay, 0.004)
				}
			}
			assert.Equal(t, tt.slow, slow)
		})
	}
}
