// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ddsketch_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
)

func TestReportHasQuantilesOfTheWholeRun(t *testing.T) {
	const n = 50_000
	c := statistics.New(time.Now, []report.Option{report.WithSketch(ddsketch.New)}).(section.Statistics)
	node := c.Node(0, report.Info{Name: "x"})
	r := rand.New(rand.NewPCG(7, 7))
	x := make([]float64, n)
	for i := range x {
		d := time.Duration(math.Exp(r.NormFloat64()*2+12)) + 1
		x[i] = float64(d)
		c.Section(node, statistics.Sample{Timed: true, Duration: d, Occurrence: int64(i + 1)})
	}
	slices.Sort(x)
	got := c.Summary().Operations[0].All.Duration
	require.InEpsilon(t, x[n/2-1], float64(got.P50), .0101)
	require.InEpsilon(t, x[n*99/100-1], float64(got.P99), .0101)
}
