// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package dcgmsource

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// envEngine names a real host engine, as the setting `endpoint` does. The tests of this file then run against it and
// tests with the stub are skipped; LD_LIBRARY_PATH must lead to the engine's libdcgm.so.4.
const envEngine = "OTELGPU_DCGM_ENGINE"

// engine returns the engine and for how long a test watches it: OTELGPU_DCGM_SECONDS, 15 without it.
func engine(t *testing.T) (target string, length time.Duration) {
	t.Helper()
	if target = os.Getenv(envEngine); target == "" {
		t.Skip("needs a host engine of DCGM, named by " + envEngine)
	}
	seconds, err := strconv.Atoi(os.Getenv("OTELGPU_DCGM_SECONDS"))
	if err != nil {
		seconds = 15
	}
	return target, time.Duration(seconds) * time.Second
}

// engineSource opens a source on the engine.
func engineSource(t *testing.T, target string, sampling time.Duration) *source {
	t.Helper()
	s := newSource(Settings{
		Target: target, Sampling: sampling, Slow: 2 * time.Second, KeepAge: 2 * time.Minute, MaxStaleness: time.Minute,
		Profiling: true,
	}, newClient())
	require.NoError(t, s.Open())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NotEmpty(t, s.Devices())
	return s
}

type series struct {
	device   int
	quantity gpuquantity.Quantity
}

// every are the quantities that a whole board with profiling has at each sampling.
var every = []gpuquantity.Quantity{
	gpuquantity.Power, gpuquantity.Energy, gpuquantity.MemoryUsed, gpuquantity.SMUtilization, gpuquantity.SMOccupancy,
	gpuquantity.TensorUtilization, gpuquantity.DRAMUtilization, gpuquantity.PipeFP64, gpuquantity.PipeFP32, gpuquantity.PipeFP16,
	gpuquantity.PCIeTransmit, gpuquantity.PCIeReceive, gpuquantity.NVLinkTransmit, gpuquantity.NVLinkReceive,
}

// Two receivers watch one engine: each series has a point for each interval of its receiver until the end.
func TestEngineEverySeriesGoesOnAtItsReceiversRate(t *testing.T) {
	target, length := engine(t)
	samplings := []time.Duration{100 * time.Millisecond, time.Second}
	sources := make([]*source, len(samplings))
	points := make([]map[series][]int64, len(samplings))
	for k, sampling := range samplings {
		sources[k], points[k] = engineSource(t, target, sampling), map[series][]int64{}
	}
	begin := time.Now()
	for time.Since(begin) < length {
		time.Sleep(250 * time.Millisecond)
		for k, s := range sources {
			b := &gpudata.Batch{}
			require.NoError(t, s.Read(b))
			for _, v := range b.Values {
				x := series{int(v.Device), v.Quantity}
				points[k][x] = append(points[k][x], v.Time)
			}
		}
	}
	for k, s := range sources {
		sampling := samplings[k]
		for i, d := range s.Devices() {
			if d.Parent != "" {
				continue
			}
			for _, q := range every {
				times := points[k][series{i, q}]
				// The engine may be late under load, but misses no more than one interval in ten.
				assert.GreaterOrEqual(t, len(times), int(length/sampling)*9/10, "%s of %s at %s", q, d.Name, sampling)
				if len(times) > 0 {
					last := time.Since(time.Unix(0, times[len(times)-1]))
					assert.Less(t, last, 3*sampling+5*time.Second, "%s of %s at %s has ended", q, d.Name, sampling)
				}
			}
		}
		t.Logf("%s: %d devices, %d series", sampling, len(s.Devices()), len(points[k]))
	}
}

// A receiver that opens and closes takes nothing from another one.
func TestEngineAReceiverThatGoesTakesNothingAway(t *testing.T) {
	target, _ := engine(t)
	s := engineSource(t, target, 100*time.Millisecond)
	for range 3 {
		other := newSource(s.set, newClient())
		require.NoError(t, other.Open())
		require.NoError(t, other.Read(&gpudata.Batch{}))
		require.NoError(t, other.Close())
		require.NoError(t, s.Read(&gpudata.Batch{}))
		time.Sleep(2 * time.Second)
		b := &gpudata.Batch{}
		require.NoError(t, s.Read(b))
		for _, q := range every {
			assert.GreaterOrEqual(t, len(of(b, 0, q)), 15, q.String())
		}
	}
}
