// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// The numbers are a Python program's, of the rows of TARGET_INFO_GPU and of kernels.
func TestKernelsStateHowTheyFillTheDevice(t *testing.T) {
	for path, kernels := range map[string]map[string][4]float64{ // registers, blocks per SM, waves, occupancy
		recorded.Path(t, "nsys", "pipit/saxpy-mpi-cuda_nsys_perlmutter0.sqlite"): {
			"saxpy": {26, 0.0185185, 0.00462963, 0.00462963},
		},
		recorded.Path(t, "nsys", "nsys-ai/mock.sqlite"): {
			"vectorized_elementwise_kernel": {16, 0.0147059, 0.00122549, 0.00122549},
			"reduce_kernel":                 {28, 0.0147059, 0.000919118, 0.000306373},
		},
	} {
		st, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error { return nil })
		require.NoError(t, err)
		found := 0
		for _, k := range st.Devices[0].ByKernel {
			want, ok := kernels[k.Name]
			if !ok {
				continue
			}
			found++
			assert.InDelta(t, want[0], k.Registers, 0, k.Name)
			assert.InEpsilon(t, want[1], k.BlocksPerSM.Value(), 1e-5, k.Name)
			assert.InEpsilon(t, want[2], k.Waves.Value(), 1e-5, k.Name)
			assert.InEpsilon(t, want[3], k.Occupancy.Value(), 1e-4, k.Name)
		}
		assert.Len(t, kernels, found)
	}
}

// An export without a description of its devices.
func TestUnknownDevicesHaveNoOccupancy(t *testing.T) {
	path := recorded.Path(t, "nsys", "nsys-ai/mfu_2gpu_before.sqlite")
	st, err := ReadFile(t.Context(), path, Options{}, func(context.Context, ptrace.Traces) error { return nil })
	require.NoError(t, err)
	for _, k := range st.Devices[0].ByKernel {
		assert.Positive(t, k.Registers, k.Name)
		assert.Zero(t, k.BlocksPerSM.Value()+k.Waves.Value()+k.Occupancy.Value(), k.Name)
	}
}
