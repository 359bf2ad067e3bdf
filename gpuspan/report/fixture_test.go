// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"math"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/report"
)

// allValues is a sketch that keeps every value, with exact quantiles.
type allValues struct{ seconds []float64 }

func newAllValues() report.Sketch { return &allValues{} }

func (k *allValues) Add(seconds float64) { k.seconds = append(k.seconds, seconds) }

// Quantile returns the smallest value that is not exceeded by a fraction q of the values.
func (k *allValues) Quantile(q float64) (float64, bool) {
	if len(k.seconds) == 0 {
		return 0, false
	}
	slices.Sort(k.seconds)
	return k.seconds[max(int(math.Ceil(q*float64(len(k.seconds)))), 1)-1], true
}

var epoch = time.Unix(1_700_000_000, 0).UTC()

// served returns a fixed run of an inference service: ten requests with one copy and one prefill
// that contains attention.
func served(opts ...report.Option) *report.Collector {
	now := epoch
	peaks := report.Peaks{Memory: 4e12, PCIe: 64e9, FLOPs: map[string]float64{"bf16": 989e12}, Source: "table"}
	c := report.NewCollector(append([]report.Option{
		report.WithService("llm"), report.WithSketch(newAllValues),
		report.WithClock(func() time.Time { t := now; now = now.Add(100 * time.Millisecond); return t }),
		report.WithDevices(report.Device{
			Ordinal: 0, ID: "GPU-1", Model: "NVIDIA H200", Floor: 2 * time.Microsecond,
			Peaks: peaks,
		}),
	}, opts...)...)
	h2d := c.Node(0, report.Info{Name: "h2d.tokens", Category: "data", Type: "copy", HostMemory: "pageable"})
	prefill := c.Node(0, report.Info{Name: "prefill", Category: "forward", ItemType: "token"})
	attention := c.Node(prefill, report.Info{Name: "attention", Category: "attention"})
	at := epoch.UnixNano()
	for i := range 10 {
		prefillTime := 4 * time.Millisecond
		if i == 0 {
			prefillTime = 40 * time.Millisecond
		}
		c.Section(h2d, statistics.Sample{
			Timed: true, Start: at, Duration: time.Millisecond, Floor: 2 * time.Microsecond,
			PCIe: statistics.Transfer{ToDevice: 20e6}, HasDelay: true, EndDelay: 10 * time.Millisecond,
		})
		c.Section(prefill, statistics.Sample{
			Timed: true, Start: at + 1e6, Duration: prefillTime, Items: 1000, FLOPs: 1e12, Precision: "bf16",
			Memory: statistics.IO{Read: 8e9, Written: 1e9}, HasDelay: true, EndDelay: time.Microsecond,
			MemoryUsed: 40e9, MemoryDelta: 1e9, Kernel: "gemm_bf16", Module: "model.cubin",
		})
		c.Section(attention, statistics.Sample{
			Timed: true, Start: at + 2e6, Duration: prefillTime / 2, FLOPs: 1e11,
			Precision: "bf16",
		})
		at += int64(time.Millisecond) + int64(prefillTime)
	}
	return c
}
