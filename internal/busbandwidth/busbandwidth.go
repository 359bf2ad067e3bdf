// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package busbandwidth relates the rate of a collective to the rate that each link carries, as
// NCCL's tests define it (nccl-tests, doc/PERFORMANCE.md).
package busbandwidth

import "github.com/otelgpu/otelgpu/semconv"

// Factor returns the ratio of bus bandwidth to algorithm bandwidth for a collective of n ranks: the
// least that each link carries, for any algorithm. It returns 0 if the ratio is not defined or the
// group is unknown.
func Factor(collective string, n float64) float64 {
	if n < 2 {
		return 0
	}
	switch collective {
	case semconv.GPUCollectiveNameAllReduce:
		return 2 * (n - 1) / n
	case semconv.GPUCollectiveNameAllGather, semconv.GPUCollectiveNameReduceScatter, semconv.GPUCollectiveNameAllToAll,
		semconv.GPUCollectiveNameGather, semconv.GPUCollectiveNameScatter:
		return (n - 1) / n
	case semconv.GPUCollectiveNameBroadcast, semconv.GPUCollectiveNameReduce, semconv.GPUCollectiveNameSend,
		semconv.GPUCollectiveNameRecv:
		return 1
	}
	return 0
}
