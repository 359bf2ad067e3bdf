// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestNormalizedIDsAreFinal normalizes IDs of every form once and twice.
func TestNormalizedIDsAreFinal(t *testing.T) {
	const uuid = "11111111-2222-3333-4444-555555555555"
	random := rand.New(rand.NewPCG(1, 2))
	prefixes := []string{"", "GPU-", "gpu-", "MIG-", "mig-", "Mig-", "MIG-GPU-", "mig-gpu-"}
	for range 1000 {
		id := uuid
		for range random.IntN(4) {
			id = prefixes[random.IntN(len(prefixes))] + id
		}
		if random.IntN(2) == 0 {
			id += fmt.Sprintf("/%d/%d", random.IntN(15), random.IntN(8))
		}
		once := NormalizeID(id)
		assert.Equal(t, once, NormalizeID(once), id)
		assert.Equal(t, once, NormalizeID("MIG-"+id), id)
	}
	for _, id := range []string{"", "gpu-", "GPU-MIG-", "-", "serial/0"} {
		assert.Equal(t, NormalizeID(id), NormalizeID(NormalizeID(id)), id)
	}
}

// TestThrottleMaskKeepsUnknownReasons checks every bit of NVML's mask alone and in pairs. A float64
// holds 53 adjacent bits: of a wider pair, the lower one remains.
func TestThrottleMaskKeepsUnknownReasons(t *testing.T) {
	assert.Zero(t, ThrottleMask(1), "idle")
	for i := 2; i < 64; i++ {
		for j := i; j < 64; j++ {
			mask := uint64(1)<<i | uint64(1)<<j
			want := mask
			if j-i > 52 {
				want = 1 << i
			}
			require.Equal(t, want, uint64(ThrottleMask(mask|1)), "%d and %d", i, j)
		}
	}
	for bit, name := range map[ThrottleReason]string{
		0x100: "display_clock_setting", 0x200: "board_limit", 0x400: "reliability", 0x800: "0x800",
		1 << 63: "0x8000000000000000",
	} {
		assert.Equal(t, name, bit.String())
	}
}
