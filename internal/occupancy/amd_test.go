// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package occupancy

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// AMD's table for CDNA 2 in "Register pressure in AMD CDNA2 GPUs" (AMD lab notes): registers and
// waves on a SIMD.
func TestOccupancyOfCDNA2IsAsAMDDocuments(t *testing.T) {
	for registers, waves := range map[int64]int64{
		64: 8, 72: 7, 80: 6, 96: 5, 128: 4, 168: 3, 256: 2, 512: 1, 513: 0,
	} {
		groups, _ := (&Device{Target: "gfx90a"}).Resident(Launch{Threads: 64, Registers: registers})
		assert.Equal(t, 4*waves, groups, registers)
	}
}

func TestWavesOfAMDDevices(t *testing.T) {
	mi300x := Device{Target: "gfx942", Multiprocessors: 304}
	waves, share, limit := mi300x.Waves(Launch{Blocks: 304 * 6, Threads: 256, Registers: 128})
	assert.InDelta(t, 6.0/4, waves, 1e-12)
	assert.InDelta(t, 0.5, share, 1e-12)
	assert.Equal(t, LimitRegisters, limit)
	// An RX 7900 XTX has 96 compute units, thus 48 pairs, each with 64 waves of 32 work-items.
	navi := Device{Target: "gfx1100", Multiprocessors: 96}
	waves, share, limit = navi.Waves(Launch{Blocks: 48 * 8, Threads: 256, Registers: 96})
	assert.InDelta(t, 1, waves, 1e-12)
	assert.InDelta(t, 1, share, 1e-12)
	assert.Equal(t, LimitThreads, limit)
	for name, d := range map[string]Device{
		"unknown target": {Target: "gfx1", Multiprocessors: 304, WarpSize: 32, Major: 9, Threads: 2048},
		"unknown number": {Target: "gfx942"},
	} {
		waves, share, limit = d.Waves(Launch{Blocks: 304, Threads: 256, Registers: 32})
		assert.Zero(t, waves, name)
		assert.Zero(t, share, name)
		assert.Equal(t, LimitUnknown, limit, name)
	}
	for _, l := range []Launch{
		{Threads: 1025},
		{Threads: 0},
		{Threads: 64, Registers: -1},
		{Threads: 64, Scalars: 1 << 60},
		{Threads: 64, SharedMemory: 64<<10 + 1},
		{Threads: 1024, Registers: 512},
	} {
		l.Blocks = 304
		waves, _, _ = mi300x.Waves(l)
		assert.Zero(t, waves, "%+v", l)
	}
	for _, x := range []struct {
		device                        string
		vectors, accumulators, number int64
		ok                            bool
	}{
		{"gfx1", 8, 8, 8, true},
		{"gfx942", 8, 1<<32 - 8, 0, false},
		{"gfx908", 32, 32, 32, true},
		{"gfx90a", 32, 32, 64, true},
	} {
		n, ok := Vectors(x.device, x.vectors, x.accumulators)
		assert.Equal(t, x.number, n)
		assert.Equal(t, x.ok, ok)
	}
}

// llvm.tsv has what LLVM's compiler states for kernels with given resources, in waves per SIMD,
// rounded up.
func TestOccupancyOfAMDDevicesIsAsLLVMStates(t *testing.T) {
	file, err := os.ReadFile("testdata/llvm.tsv")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(file)), "\n")[1:]
	require.Greater(t, len(lines), 800)
	for _, line := range lines {
		f := strings.Split(line, "\t")
		var n [7]int64
		for i := range f[1:] {
			n[i+1], err = strconv.ParseInt(f[i+1], 10, 64)
			require.NoError(t, err)
		}
		to := targets[f[0]]
		if !to.accumulators {
			n[1] = roundUp(n[1], 4) // accumulators begin at a multiple of 4
		}
		vectors, ok := Vectors(f[0], n[1], n[2])
		assert.True(t, ok)
		l := Launch{Threads: n[5], Registers: vectors, Scalars: n[3], SharedMemory: n[4]}
		d := Device{Target: f[0]}
		groups, limit := d.Resident(l)
		assert.NotEqual(t, LimitUnknown, limit)
		assert.Equal(t, n[6], divideUp(groups*divideUp(l.Threads, to.wave), to.simds), line)
	}
}
