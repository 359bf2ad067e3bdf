// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package nvmlsource

import (
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/otelgpu/otelgpu/internal/countersum"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// gpmMetrics are the metrics that are asked for; percents, and MiB per second.
var gpmMetrics = []struct {
	id       nvml.GpmMetricId
	quantity gpudata.Quantity
	scale    float64
	rate     bool
}{
	{nvml.GPM_METRIC_GRAPHICS_UTIL, gpudata.Utilization, percent, false}, // of instances; boards have GetUtilizationRates
	{nvml.GPM_METRIC_SM_UTIL, gpudata.SMUtilization, percent, false},
	{nvml.GPM_METRIC_SM_OCCUPANCY, gpudata.SMOccupancy, percent, false},
	{nvml.GPM_METRIC_ANY_TENSOR_UTIL, gpudata.TensorUtilization, percent, false},
	{nvml.GPM_METRIC_DRAM_BW_UTIL, gpudata.DRAMUtilization, percent, false},
	{nvml.GPM_METRIC_FP64_UTIL, gpudata.PipeFP64, percent, false},
	{nvml.GPM_METRIC_FP32_UTIL, gpudata.PipeFP32, percent, false},
	{nvml.GPM_METRIC_FP16_UTIL, gpudata.PipeFP16, percent, false},
	{nvml.GPM_METRIC_INTEGER_UTIL, gpudata.PipeInt, percent, false},
	{nvml.GPM_METRIC_DFMA_TENSOR_UTIL, gpudata.PipeTensorDFMA, percent, false},
	{nvml.GPM_METRIC_HMMA_TENSOR_UTIL, gpudata.PipeTensorHMMA, percent, false},
	{nvml.GPM_METRIC_IMMA_TENSOR_UTIL, gpudata.PipeTensorIMMA, percent, false},
	{nvml.GPM_METRIC_PCIE_TX_PER_SEC, gpudata.PCIeTransmit, mebi, true},
	{nvml.GPM_METRIC_PCIE_RX_PER_SEC, gpudata.PCIeReceive, mebi, true},
	{nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, gpudata.NVLinkTransmit, mebi, true},
	{nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC, gpudata.NVLinkReceive, mebi, true},
}

// gpm computes ratios from two hardware samples of one device or instance.
type gpm struct {
	lib      nvml.Interface
	board    nvml.Device
	instance int // GPU instance, -1 for the whole board
	samples  [2]nvml.GpmSample
	filled   bool // samples[0] holds the sample before
	request  nvml.GpmMetricsGetType
	sums     map[gpudata.Quantity]*countersum.Sum
}

// newGPM is nil when the device has no GPM.
func newGPM(lib nvml.Interface, board nvml.Device, instance int) *gpm {
	support, ret := board.GpmQueryDeviceSupport()
	if ret != nvml.SUCCESS || support.IsSupportedDevice == 0 {
		return nil
	}
	g := &gpm{lib: lib, board: board, instance: instance, sums: map[gpudata.Quantity]*countersum.Sum{}}
	for i := range g.samples {
		sample, ret := lib.GpmSampleAlloc()
		if ret != nvml.SUCCESS {
			g.close()
			return nil
		}
		g.samples[i] = sample
	}
	for i, m := range gpmMetrics {
		g.request.Metrics[i].MetricId = uint32(m.id)
		if m.rate {
			g.sums[m.quantity] = &countersum.Sum{}
		}
	}
	return g
}

// read takes a hardware sample and adds the ratios since the one before, with the time of the newer one.
func (g *gpm) read(b *gpudata.Batch, device int, sampling time.Duration) {
	var ret nvml.Return
	if g.instance >= 0 {
		ret = g.board.GpmMigSampleGet(g.instance, g.samples[1])
	} else {
		ret = g.board.GpmSampleGet(g.samples[1])
	}
	t := time.Now().UnixNano()
	if ret != nvml.SUCCESS {
		g.filled = false
		b.Dropped[gpudata.DropStatus]++
		return
	}
	if g.filled {
		g.request.NumMetrics = uint32(len(gpmMetrics))
		g.request.Sample1, g.request.Sample2 = g.samples[0], g.samples[1]
		if g.lib.GpmMetricsGet(&g.request) != nvml.SUCCESS {
			b.Dropped[gpudata.DropStatus]++
		} else {
			g.add(b, device, t, sampling)
		}
	}
	g.samples[0], g.samples[1] = g.samples[1], g.samples[0]
	g.filled = true
}

func (g *gpm) add(b *gpudata.Batch, device int, t int64, sampling time.Duration) {
	for i, m := range gpmMetrics {
		if m.quantity == gpudata.Utilization && g.instance < 0 {
			continue
		}
		x := &g.request.Metrics[i]
		if nvml.Return(x.NvmlReturn) != nvml.SUCCESS {
			b.Dropped[gpudata.DropBlank]++
			continue
		}
		v := x.Value * m.scale
		if m.rate {
			v = g.sums[m.quantity].AddRate(t, v, sampling)
		}
		b.Add(device, m.quantity, t, v)
	}
}

func (g *gpm) close() {
	if g == nil {
		return
	}
	for _, s := range g.samples {
		if s != nil {
			_ = g.lib.GpmSampleFree(s)
		}
	}
}
