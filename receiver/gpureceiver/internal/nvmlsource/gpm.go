// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvmlsource

import (
	"time"

	"github.com/otelgpu/otelgpu/internal/countertracker"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/nvml"
)

// gpmMetrics are the metrics that are asked for; percents, and MiB per second.
var gpmMetrics = []struct {
	id       uint32
	quantity gpudata.Quantity
	scale    float64
	rate     bool
}{
	{nvml.GPMMetricGraphicsUtil, gpudata.Utilization, percent, false}, // of instances; boards have GetUtilizationRates
	{nvml.GPMMetricSMUtil, gpudata.SMUtilization, percent, false},
	{nvml.GPMMetricSMOccupancy, gpudata.SMOccupancy, percent, false},
	{nvml.GPMMetricAnyTensorUtil, gpudata.TensorUtilization, percent, false},
	{nvml.GPMMetricDRAMBWUtil, gpudata.DRAMUtilization, percent, false},
	{nvml.GPMMetricFP64Util, gpudata.PipeFP64, percent, false},
	{nvml.GPMMetricFP32Util, gpudata.PipeFP32, percent, false},
	{nvml.GPMMetricFP16Util, gpudata.PipeFP16, percent, false},
	{nvml.GPMMetricIntegerUtil, gpudata.PipeInt, percent, false},
	{nvml.GPMMetricDFMATensorUtil, gpudata.PipeTensorDFMA, percent, false},
	{nvml.GPMMetricHMMATensorUtil, gpudata.PipeTensorHMMA, percent, false},
	{nvml.GPMMetricIMMATensorUtil, gpudata.PipeTensorIMMA, percent, false},
	{nvml.GPMMetricPCIeTXPerSec, gpudata.PCIeTransmit, mebi, true},
	{nvml.GPMMetricPCIeRXPerSec, gpudata.PCIeReceive, mebi, true},
	{nvml.GPMMetricNVLinkTotalTXPerSec, gpudata.NVLinkTransmit, mebi, true},
	{nvml.GPMMetricNVLinkTotalRXPerSec, gpudata.NVLinkReceive, mebi, true},
}

// gpm computes ratios from two hardware samples of one device or instance.
type gpm struct {
	lib     nvml.Library
	unit    *unit
	filled  bool                   // request.Samples[0] holds the sample before
	request nvml.GpmMetricsGetType // Samples[1] gets the present one
	sums    []countertracker.Sum   // by metric; of rates
}

// newGPM is nil when the device has no GPM.
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
	for i, m := range gpmMetrics {
		g.request.Metrics[i].MetricID = m.id
	}
	return g
}

// read takes a hardware sample and adds the ratios since the one before, with the time of the newer one.
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
	for i, m := range gpmMetrics {
		if m.quantity == gpudata.Utilization && !g.unit.mig() {
			continue
		}
		x := &g.request.Metrics[i]
		if nvml.Return(x.NvmlReturn) != nvml.Success {
			b.Dropped[gpudata.DropBlank]++
			continue
		}
		v := x.Value * m.scale
		if m.rate {
			v = g.sums[i].AddRate(t, v, sampling)
		}
		b.Add(device, m.quantity, t, v)
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
