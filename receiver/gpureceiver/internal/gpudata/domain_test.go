// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpudata

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
)

func TestValuesThatNoDeviceCanHaveAreDropped(t *testing.T) {
	b := &Batch{}
	for q, v := range map[gpuquantity.Quantity]float64{
		gpuquantity.Utilization: 2.5, gpuquantity.MemoryUsed: -1, gpuquantity.EncoderUtilization: 1.06, gpuquantity.MemoryLimit: -1, gpuquantity.PCIeReplays: -1,
	} {
		b.Add(0, q, 1, v)
	}
	assert.Empty(t, b.Values)
	assert.Equal(t, int64(5), b.Dropped[DropOutOfRange])
	assert.Len(t, b.Wrong, 2, "ratios")
	for range 1000 {
		b.Add(0, gpuquantity.Utilization, 1, 97)
	}
	assert.Len(t, b.Wrong, mostWrong)
	b.Reset()
	assert.Empty(t, b.Wrong)
	b.Add(0, gpuquantity.EncoderUtilization, 1, 1)
	b.Add(0, gpuquantity.Temperature, 1, -20)
	assert.Len(t, b.Values, 2)
}
