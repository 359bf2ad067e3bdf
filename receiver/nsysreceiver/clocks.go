// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"strings"
)

// Sampled metrics of devices (--gpu-metrics-devices). Format: GPU_METRICS has timestamp in ns, typeId, metricId and
// value; TARGET_INFO_GPU_METRICS names the metric of a type and number. The low byte of the type is Nsight's number of
// the device. "GPC Clock Frequency [MHz]" is the clock of the multiprocessors, whose values are in Hz all the same.
const (
	tableMetrics     = "GPU_METRICS"
	tableMetricNames = "TARGET_INFO_GPU_METRICS"
	clockMetric      = "GPC Clock Frequency"
	deviceOfType     = 0xff
)

type metric struct{ kind, number int64 }

// clocks reads the clocks of devices, which say whether slow kernels were slow for want of clock.
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
