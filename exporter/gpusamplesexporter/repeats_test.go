// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

// Gauges, sums, increases, rates, the last XID and a server's busy time.
func TestRepeatedPointsCountOnce(t *testing.T) {
	first := time.Now().Add(-time.Minute)
	id := map[string]any{"hw.id": "GPU-1"}
	var feed []pmetric.Metrics
	for i := range 20 {
		at := first.Add(time.Duration(i) * time.Second)
		md := batch(t,
			point{name: "hw.power", at: at, value: 100 + float64(i), attrs: id},
			point{name: "hw.energy", at: at, value: float64(100 * i), sum: true, attrs: id},
			point{name: "DCGM_FI_PROF_PCIE_TX_BYTES", at: at, value: 1000 + float64(i), attrs: map[string]any{"UUID": "GPU-1"}},
			point{name: "DCGM_FI_DEV_XID_ERRORS", at: at, value: float64(13 + i/5), attrs: map[string]any{"UUID": "GPU-1"}},
			point{name: "hw.energy", at: at, value: 10, delta: true, attrs: map[string]any{"hw.id": "GPU-2"}},
			point{name: "nv_inference_request_duration_us", at: at, value: float64(i * i * 1e5), sum: true},
			point{name: "nv_inference_request_success", at: at, value: float64(i), sum: true},
		)
		feed = append(feed, md)
	}
	sinktest.Repeats(t, feed, func(t *testing.T) (func(pmetric.Metrics) error, func() any) {
		x, store := start(t, createDefaultConfig().(*Config))
		return func(md pmetric.Metrics) error { return x.ConsumeMetrics(context.Background(), md) }, func() any {
			from, to := first.UnixNano(), first.Add(time.Hour).UnixNano()
			v := store.Acquire()
			defer v.Release()
			var got []any
			for _, id := range []string{"GPU-1", "GPU-2"} {
				d, ok := v.Lookup(id)
				require.True(t, ok)
				got = append(got, d.Events(0, to, nil))
				for _, f := range []devicesamples.Field{gpuquantity.Power, gpuquantity.Energy, gpuquantity.PCIeTransmit} {
					got = append(got, d.Values(f, 0, nil))
				}
			}
			name, ok := store.LoadOf("dcgm")
			require.True(t, ok)
			return append(got, store.LoadLevels(name, from, to, nil))
		}
	})
}

// DCGM writes the largest integers for unknown values; smaller ones are masks of reasons.
func TestBlankIntegersAreNoValue(t *testing.T) {
	for v, known := range map[int64]bool{
		math.MaxInt64 - 1024: true, math.MaxInt64 - 15: false, math.MaxInt64: false, 4: true,
	} {
		p := pmetric.NewNumberDataPoint()
		p.SetIntValue(v)
		_, got := number(p, gpuquantity.Throttle)
		assert.Equal(t, known, got, v)
	}
	for v, known := range map[int64]bool{
		1<<62 - 1024: true, 1 << 62: false, math.MaxInt64 - 15: false, -1 << 62: false, 4: true, // 1<<62 - 1 rounds up
	} {
		p := pmetric.NewNumberDataPoint()
		p.SetIntValue(v)
		_, got := number(p, gpuquantity.Energy)
		assert.Equal(t, known, got, v)
		p.SetDoubleValue(float64(v))
		_, got = number(p, gpuquantity.Energy)
		assert.Equal(t, known, got, v)
	}
}

func TestADeviceIsForgottenAfterTenMinutesWithoutPoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, err := newWriter(createDefaultConfig().(*Config), exportertest.NewNopSettings(metadata.Type))
		require.NoError(t, err)
		x.out = devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
		send := func(id string) {
			md := batch(t, point{name: "hw.power", at: time.Now(), value: 100, attrs: map[string]any{"hw.id": id}})
			require.NoError(t, x.consume(t.Context(), md))
		}
		send("GPU-1")
		time.Sleep(10 * time.Minute)
		send("GPU-2")
		assert.Len(t, x.devices, 2)
		time.Sleep(time.Nanosecond)
		send("GPU-2")
		assert.Len(t, x.devices, 1)
		require.NoError(t, x.shutdown(t.Context()))
	})
}
