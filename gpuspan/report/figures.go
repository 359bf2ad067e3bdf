// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"math"
	"time"
)

// merge adds the runs of o. Quantiles cannot be merged from their values and are dropped, unless f was empty.
func (f *Figures) merge(o Figures) {
	f.Count += o.Count
	f.Duration = f.Duration.merge(o.Duration)
	f.Memory.add(o.Memory)
	f.PCIe.add(o.PCIe)
	f.Items += o.Items
	if len(o.FLOPs) > 0 {
		sum := make(map[string]float64, len(f.FLOPs)+len(o.FLOPs))
		maps.Copy(sum, f.FLOPs)
		for p, v := range o.FLOPs {
			sum[p] += v
		}
		f.FLOPs = sum
	}
	f.timed.time += o.timed.time
	f.timed.memory.add(o.timed.memory)
	f.timed.pcie.add(o.timed.pcie)
	f.timed.items += o.timed.items
	f.timed.flops += o.timed.flops
}

// merge is Chan, Golub and LeVeque's pairwise update of mean and variance (1979).
func (d Durations) merge(o Durations) Durations {
	switch {
	case o.Count == 0:
		return d
	case d.Count == 0:
		return o
	}
	n, m := float64(d.Count), float64(o.Count)
	a, b := float64(d.Total)/n, float64(o.Total)/m
	va, vb := float64(d.StdDev), float64(o.StdDev)
	variance := (n*va*va+m*vb*vb)/(n+m) + n*m*(b-a)*(b-a)/((n+m)*(n+m))
	total := d.Total + o.Total
	return Durations{
		Count: d.Count + o.Count, Total: total,
		Min: min(d.Min, o.Min), Max: max(d.Max, o.Max),
		Mean:   time.Duration(math.Round(float64(total) / (n + m))),
		StdDev: time.Duration(math.Round(math.Sqrt(variance))),
	}
}
