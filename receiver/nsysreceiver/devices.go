// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"strings"

	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// seen is a device as a process sees it: with CUDA_VISIBLE_DEVICES every process may call another
// one 0.
type seen struct{ process, ordinal int64 }

// devices reads which devices there are, and by which numbers processes call them. Activities name
// the process's number; where two processes mean different devices by one number, Nsight's own
// number is used.
func (c *collect) devices(ctx context.Context) error {
	byNumber := map[int64]int64{} // CUDA's by Nsight's
	visible, meant := map[seen]int64{}, map[int64]int64{}
	ambiguous := false
	if err := c.db.each(ctx, tableCUDA, []string{"gpuId", "cudaId", "pid"}, func(r []any) error {
		gpu, ok := number(r[0])
		cuda, is := number(r[1])
		if !ok || !is || len(visible) == maxDevices {
			return nil
		}
		if other, known := meant[cuda]; known && other != gpu {
			ambiguous = true
		}
		meant[cuda], byNumber[gpu] = gpu, cuda
		visible[seen{or(r[2], 0), cuda}] = gpu
		return nil
	}); err != nil {
		return err
	}
	if ambiguous {
		c.visible = visible
		c.p.Faults = append(c.p.Faults, "processes number devices differently: gpu.device.ordinal is Nsight's number")
	}
	return c.db.each(ctx, tableGPU, gpuColumns, func(r []any) error {
		id, ok := number(r[0])
		if !ok || len(c.p.Meta.Devices) == maxDevices {
			return nil
		}
		d := event.Device{Ordinal: or(r[3], id), Model: word(r[1]), Limits: limitsOf(r[4:])}
		if o, ok := byNumber[id]; ok {
			d.Ordinal = o
		}
		if ambiguous {
			d.Ordinal = id
		}
		c.numbers[id] = d.Ordinal
		if u := word(r[2]); len(u) == 36 {
			d.ID = "GPU-" + strings.ToLower(u)
		} else if strings.HasPrefix(u, "GPU-") {
			d.ID = u
		}
		c.p.Meta.Devices = append(c.p.Meta.Devices, d)
		return nil
	})
}

var gpuColumns = []string{
	"id", "name", "uuid", "cuDevice",
	"smCount", "maxWarpsPerSm", "threadsPerWarp", "maxBlocksPerSm", "maxRegistersPerSm", "maxShmemPerSm", "computeMajor",
	"computeMinor",
}

// limitsOf returns what limits the blocks on a device, by the columns of it from smCount on.
func limitsOf(r []any) occupancy.Device {
	return occupancy.Device{
		Multiprocessors: or(r[0], 0), Threads: or(r[1], 0) * or(r[2], 0), WarpSize: or(r[2], 0), Blocks: or(r[3], 0),
		Registers: or(r[4], 0), SharedMemory: or(r[5], 0), Major: or(r[6], 0), Minor: or(r[7], 0),
	}
}

// maxDevices bounds what a broken file may claim.
const maxDevices = 1 << 16

// ordinal returns the number of a device that a process calls n.
func (c *collect) ordinal(process, n int64) int64 {
	if gpu, ok := c.visible[seen{process, n}]; ok {
		return gpu
	}
	return n
}

// Sampled metrics of devices (--gpu-metrics-devices). Format: GPU_METRICS has timestamp in ns,
// typeId, metricId and value; TARGET_INFO_GPU_METRICS names the metric of a type and number. The
// low byte of the type is Nsight's number of the device. "GPC Clock Frequency [MHz]" is the clock
// of the multiprocessors, whose values are in Hz all the same.
const (
	tableMetrics     = "GPU_METRICS"
	tableMetricNames = "TARGET_INFO_GPU_METRICS"
	clockMetric      = "GPC Clock Frequency"
	deviceOfType     = 0xff
)

type metric struct{ kind, number int64 }

// clocks reads the clocks of devices, which show whether slow kernels were slow because of the
// clock.
func (c *collect) clocks(ctx context.Context) error {
	clock := map[metric]bool{}
	if err := c.db.each(ctx, tableMetricNames, []string{"typeId", "metricId", "metricName"}, func(r []any) error {
		kind, ok := number(r[0])
		id, is := number(r[1])
		if ok && is && strings.HasPrefix(word(r[2]), clockMetric) && len(clock) < maxDevices {
			clock[metric{kind, id}] = true
		}
		return nil
	}); err != nil || len(clock) == 0 {
		return err
	}
	return c.db.each(ctx, tableMetrics, []string{"timestamp", "typeId", "metricId", "value"}, func(r []any) error {
		m := metric{or(r[1], 0), or(r[2], -1)}
		if !clock[m] {
			return nil
		}
		value, ok := number(r[3])
		at, is := number(r[0])
		if ok && is {
			device := m.kind & deviceOfType
			if o, known := c.numbers[device]; known {
				device = o
			}
			c.p.Clock(device, at, float64(value))
		}
		return nil
	})
}
