// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/countertracker"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// gpmMetrics are the quantities that GPM measures.
var gpmMetrics = slices.DeleteFunc(gpuquantity.All(), func(q gpuquantity.Quantity) bool { return q.Info().GPM.ID == 0 })

// gpm computes ratios from two hardware samples of one device or instance.
type gpm struct {
	lib     nvml.Library
	unit    *unit
	filled  bool                   // request.Samples[0] holds the sample before
	request nvml.GpmMetricsGetType // Samples[1] gets the present one
	sums    []countertracker.Sum   // by metric; of rates
}

// newGPM returns nil when the device has no GPM.
func (s *source) newGPM(u *unit) *gpm {
	support := nvml.GpmSupport{Version: 1}
	if s.lib.Call("nvmlGpmQueryDeviceSupport", u.board, &support) != nvml.Success || support.IsSupportedDevice == 0 {
		return nil
	}
	g := &gpm{lib: s.lib, unit: u, sums: make([]countertracker.Sum, len(gpmMetrics))}
	g.request.Version, g.request.NumMetrics = 1, uint32(len(gpmMetrics))
	for i := range g.request.Samples {
		sample, ret := s.number("nvmlGpmSampleAlloc")
		if ret != nvml.Success {
			g.close()
			return nil
		}
		g.request.Samples[i] = nvml.Handle(sample)
	}
	for i, q := range gpmMetrics {
		g.request.Metrics[i].MetricID = q.Info().GPM.ID
	}
	return g
}

// read takes a hardware sample and adds the ratios since the one before, with the time of the newer
// one.
func (g *gpm) read(b *gpudata.Batch, device int, sampling time.Duration) {
	var ret nvml.Return
	samples := &g.request.Samples
	if g.unit.mig() {
		ret = g.lib.Call("nvmlGpmMigSampleGet", g.unit.board, g.unit.instance, samples[1])
	} else {
		ret = g.lib.Call("nvmlGpmSampleGet", g.unit.board, samples[1])
	}
	t := time.Now().UnixNano()
	if ret != nvml.Success {
		g.filled = false
		b.Dropped[gpudata.DropStatus]++
		return
	}
	if g.filled {
		if g.lib.Call("nvmlGpmMetricsGet", &g.request) != nvml.Success {
			b.Dropped[gpudata.DropStatus]++
		} else {
			g.add(b, device, t, sampling)
		}
	}
	samples[0], samples[1] = samples[1], samples[0]
	g.filled = true
}

func (g *gpm) add(b *gpudata.Batch, device int, t int64, sampling time.Duration) {
	for i, q := range gpmMetrics {
		m := &q.Info().GPM
		if m.InstanceOnly && !g.unit.mig() {
			continue
		}
		x := &g.request.Metrics[i]
		if nvml.Return(x.NvmlReturn) != nvml.Success {
			b.Dropped[gpudata.DropBlank]++
			continue
		}
		v := x.Value * m.Scale
		if m.Form == gpuquantity.Rate {
			v = g.sums[i].AddRate(t, v, sampling)
		}
		b.Add(device, q, t, v)
	}
}

func (g *gpm) close() {
	if g == nil {
		return
	}
	for _, s := range g.request.Samples {
		if s != 0 {
			_ = g.lib.Call("nvmlGpmSampleFree", s)
		}
	}
}
