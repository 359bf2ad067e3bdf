// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPartsDoNotChangeTheDevice writes the device's utilization and two pods' own, with other
// values at the same times.
func TestPartsDoNotChangeTheDevice(t *testing.T) {
	st, w := newPartRig(t, NewDefaultConfig())
	at := time.Unix(1_800_000_000, 0)
	const n = 5
	for i := range n {
		now := at.Add(time.Duration(i) * time.Second).UnixNano()
		for part, v := range map[Part]float64{{Pod: "a"}: 0.7, {Pod: "b"}: 0.25} {
			w.(PartWriter).WriteParts(part, []Sample{sampleOf(now, Utilization, v)})
		}
		w.Write([]Sample{sampleOf(now, Utilization, 0.95)})
	}
	v := st.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-0")
	require.True(t, ok)
	start, end := at.UnixNano(), at.Add((n-1)*time.Second).UnixNano()
	mean, coverage := d.Mean(Utilization, start, end)
	assert.InDelta(t, 0.95, mean, 1e-12)
	assert.Equal(t, 1.0, coverage)
	got := map[string]float64{}
	for _, p := range d.Parts(nil) {
		mean, coverage := p.Mean(Utilization, start, end)
		assert.Equal(t, 1.0, coverage)
		got[p.Part().Pod] = mean
	}
	assert.InDeltaMapValues(t, map[string]float64{"a": 0.7, "b": 0.25}, got, 1e-12)
}

// TestPartsAreBounded writes more parts than a device keeps: the oldest ones go, and their memory
// returns to the budget.
func TestPartsAreBounded(t *testing.T) {
	cfg := NewDefaultConfig()
	st, w := newPartRig(t, cfg)
	at := time.Unix(1_800_000_000, 0)
	for i := range 3 * MaxParts {
		w.(PartWriter).WriteParts(Part{PID: int64(i)}, []Sample{
			sampleOf(at.Add(time.Duration(i)*time.Millisecond).UnixNano(), MemoryUsed, 1),
		})
	}
	v := st.Acquire()
	d, _ := v.Lookup("GPU-0")
	parts := d.Parts(nil)
	v.Release()
	require.Len(t, parts, MaxParts)
	for _, p := range parts {
		assert.GreaterOrEqual(t, p.Part().PID, int64(2*MaxParts))
	}
	assert.EqualValues(t, MaxParts*minPoints*pointSize, st.bytes)
	st.mu.Lock()
	st.sweep(at.Add(cfg.MaxAge + time.Minute))
	st.mu.Unlock()
	assert.Zero(t, st.bytes, "parts without samples for max_age are dropped")
}

func newPartRig(t *testing.T, cfg Config) (*Store, DeviceWriter) {
	st := NewStore(cfg, func() time.Time { return time.Unix(1_800_000_010, 0) })
	w, err := st.Register(gpuID, Device{ID: "GPU-0"})
	require.NoError(t, err)
	return st, w
}

func sampleOf(t int64, f Field, v float64) Sample {
	s := Sample{Time: t}
	s.Set(f, v)
	return s
}

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
