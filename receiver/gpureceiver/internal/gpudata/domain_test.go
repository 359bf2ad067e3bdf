// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpudata

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestValuesThatNoDeviceCanHaveAreDropped(t *testing.T) {
	b := &Batch{}
	for q, v := range map[Quantity]float64{
		Utilization: 2.5, MemoryUsed: -1, EncoderUtilization: 1.06, MemoryLimit: -1, PCIeReplays: -1,
	} {
		b.Add(0, q, 1, v)
	}
	assert.Empty(t, b.Values)
	assert.Equal(t, int64(5), b.Dropped[DropOutOfRange])
	b.Add(0, EncoderUtilization, 1, 1)
	b.Add(0, Temperature, 1, -20)
	assert.Len(t, b.Values, 2)
}
