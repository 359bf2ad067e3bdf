// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
)

// TestMemoryIsFlatOverADay processes a day of samples of two devices with all quantities at 0.5 Hz,
// with an emission every 10 s, events, and MIG instances that come and go.
func TestMemoryIsFlatOverADay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	r, err := newReceiver(createDefaultConfig().(*Config), receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(t, err)
	r.samples = devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	other := h100
	other.ID = "GPU-2"
	b := &gpudata.Batch{}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	start := time.Now().Add(-25 * time.Hour).UnixNano()
	for s := 0; s < 24*3600; s += 2 {
		if s%600 == 0 {
			mig := h100
			mig.ID, mig.Parent = "MIG-"+time.Duration(s).String(), h100.ID
			r.adopt([]devicesamples.Device{h100, other, mig})
		}
		b.Reset()
		now := start + int64(s)*int64(time.Second)
		for d := range 3 {
			for q := range gpuquantity.Num {
				v := float64(s % 100)
				if gpuquantity.Quantity(q).Ratio() {
					v /= 100
				}
				b.Add(d, gpuquantity.Quantity(q), now, v)
			}
		}
		b.Events = append(b.Events, gpudata.Event{Event: devicesamples.Event{
			Time: now,
			Kind: devicesamples.EventXID, Code: 1,
		}})
		r.take(b)
		if s%10 == 0 {
			_ = r.collect(t0)
		}
		if s == 3*3600 {
			early = heap()
		}
	}
	late := heap()
	assert.InDelta(t, float64(early), float64(late), float64(early)/4+1<<20)
	t.Logf("heap after 3 h: %d KiB, after 24 h: %d KiB", early>>10, late>>10)
	runtime.KeepAlive(r)
}
