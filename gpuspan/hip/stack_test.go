// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

func TestDevicesAreWholeAtAnyStackDepth(t *testing.T) {
	b := open(t, ctest.HIP(t))
	ctest.AtEachDepth(func(int) {
		devices, err := b.Devices()
		require.True(t, err == nil && len(devices) == 1 && devices[0].Model == "AMD Instinct Stub" &&
			devices[0].UUID == "GPU-1a2b3c4d5e6f7080" &&
			devices[0].PCIBDF == "0000:c1:00.0" && devices[0].MemoryTotal == 16<<30, devices)
	})
}
