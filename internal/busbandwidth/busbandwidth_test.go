// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package busbandwidth

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/semconv"
)

// Bus bandwidth relative to algorithm bandwidth, from the formulas in doc/PERFORMANCE.md of NCCL's
// tests or, if missing there, from the constructors of baseBw in their sources (sendrecv.cu,
// gather.cu, scatter.cu, alltoall.cu).
func TestFactorsEqualNCCLsTests(t *testing.T) {
	table := map[string]func(n float64) float64{
		semconv.GPUCollectiveNameAllReduce:     func(n float64) float64 { return 2 * (n - 1) / n },
		semconv.GPUCollectiveNameReduceScatter: func(n float64) float64 { return (n - 1) / n },
		semconv.GPUCollectiveNameAllGather:     func(n float64) float64 { return (n - 1) / n },
		semconv.GPUCollectiveNameAllToAll:      func(n float64) float64 { return (n - 1) / n },
		semconv.GPUCollectiveNameGather:        func(n float64) float64 { return (n - 1) / n },
		semconv.GPUCollectiveNameScatter:       func(n float64) float64 { return (n - 1) / n },
		semconv.GPUCollectiveNameBroadcast:     func(float64) float64 { return 1 },
		semconv.GPUCollectiveNameReduce:        func(float64) float64 { return 1 },
		semconv.GPUCollectiveNameSend:          func(float64) float64 { return 1 },
		semconv.GPUCollectiveNameRecv:          func(float64) float64 { return 1 },
		"barrier":                              func(float64) float64 { return 0 }, // moves nothing
	}
	for name, factor := range table {
		for _, n := range []float64{2, 3, 4, 8, 72, 1024} {
			assert.Equal(t, factor(n), Factor(name, n), "%s of %g", name, n)
		}
		for _, n := range []float64{0, 1} {
			assert.Zero(t, Factor(name, n), "%s of %g", name, n)
		}
	}
}
