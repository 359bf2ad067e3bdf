// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
)

// BenchmarkTakeSecond measures the receiver's work for one second of 8 GPUs × 20 quantities at 10
// Hz (1600 values): states, samples, rings.
func BenchmarkTakeSecond(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(b, err)
	r.samples = devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	var devices []devicesamples.Device
	for i := range 8 {
		d := h100
		d.ID += string(rune('a' + i))
		devices = append(devices, d)
	}
	r.adopt(devices)
	batch := &gpudata.Batch{}
	now := time.Now().Add(-24 * time.Hour).UnixNano()
	second := func() {
		batch.Reset()
		for d := range devices {
			for q := range 20 {
				for i := range 10 {
					batch.Add(d, gpuquantity.Quantity(q), now+int64(i)*int64(100*time.Millisecond), 1)
				}
			}
		}
		now += int64(time.Second)
		r.take(batch)
	}
	for range 400 { // rings full
		second()
	}
	b.ReportAllocs()
	b.ResetTimer()
	for b.Loop() {
		second()
	}
}

// BenchmarkCollect measures one emission of the metrics of 8 GPUs.
func BenchmarkCollect(b *testing.B) {
	cfg := createDefaultConfig().(*Config)
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(b, err)
	var devices []devicesamples.Device
	for i := range 8 {
		d := h100
		d.ID += string(rune('a' + i))
		devices = append(devices, d)
	}
	r.adopt(devices)
	batch := &gpudata.Batch{}
	now := t0.UnixNano()
	b.ReportAllocs()
	for b.Loop() {
		batch.Reset()
		now += int64(time.Second)
		for d := range devices {
			for q := range gpuquantity.Num {
				batch.Add(d, gpuquantity.Quantity(q), now, 1)
			}
		}
		r.take(batch)
		_ = r.collect(t0)
	}
}
