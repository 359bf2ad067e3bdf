// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package summarytable_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/cmd/otelcol-gpu/internal/summarytable"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

func TestKernelsHaveColumnsOnTheirLaunches(t *testing.T) {
	kernel := map[string]any{"gpu.operation.type": "kernel", "gpu.duration": 1e-3}
	table := summarytable.New()
	table.Add(batch(t, span{id: 1, name: "gemm", attrs: kernel}, span{id: 2, name: "tiny", attrs: kernel},
		span{id: 3, name: "old", attrs: kernel}, span{id: 4, name: "section", attrs: section(1e-3, nil)}))
	require.NotContains(t, render(t, table, 0)[0], "OCCUP", "nothing is known")

	launched := func(registers int64, occupancy, waves float64, length time.Duration) facts.Launched {
		return facts.Launched{
			Registers: registers, Occupancy: facts.MeanOf(occupancy, length), Waves: facts.MeanOf(waves, length),
		}
	}
	table.Kernels([]facts.Kernel{
		{Name: "gemm", Launched: launched(64, 0.5, 3, 3*time.Millisecond)},
		{Name: "gemm", Launched: launched(128, 0.25, 1, time.Millisecond)},
		{Name: "tiny", Launched: launched(16, 0.0001, 0.0001, time.Millisecond)},
		{Name: "section", Launched: launched(16, 0.5, 1, time.Millisecond)},
	})
	lines := render(t, table, 0)
	require.Equal(t, "OPERATION TYPE COUNT GPU TIME SHARE GB/s TFLOP/s % PEAK BOUND OCCUP % WAVES REGS J", lines[0])
	require.Contains(t, lines, "gemm kernel 1 1.000 ms 25.0% - - - - 43.8 2.50 128 -")
	require.Contains(t, lines, "tiny kernel 1 1.000 ms 25.0% - - - - <0.1 <0.01 16 -")
	require.Contains(t, lines, "old kernel 1 1.000 ms 25.0% - - - - - - - -")
	require.Contains(t, lines, "section section 1 1.000 ms 25.0% - - - - - - - -")
}
