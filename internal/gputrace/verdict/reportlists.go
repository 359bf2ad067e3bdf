// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/keyed"
)

func (d *Device) operators(r *Report, f *Facts) {
	e := &r.Efficiency
	var all, atPeak, atFLOPs float64
	// in an order, so that sums are the same each time
	for _, k := range slices.SortedFunc(maps.Keys(d.ops), func(a, b opKey) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.shape, b.shape))
	}) {
		o := d.ops[k]
		op := Operator{
			Calls: o.calls, Kernels: o.kernels, Time: time.Duration(o.time), Alone: time.Duration(o.alone),
			Kernel: f.Kernel(keyed.Largest(o.names)), narrow: o.narrow, empty: o.empty, handed: o.handed,
			links: o.links, moved: o.moved, movedTime: o.movedTime, attention: o.attention,
		}
		if k.name != 0 {
			op.Name = f.Name(k.name)
		} else {
			op.Name = "(no operator)"
		}
		if k.shape != 0 {
			op.Shapes = f.Name(k.shape)
		}
		all += float64(o.time)
		if o.known {
			op.Rate = rate(o.work, o.time, f.Peak, op.Kernel)
			e.FLOPs += o.work.FLOPs
			e.Bytes += o.work.Bytes
			e.Time += op.Time
			atPeak += op.PeakShare * float64(o.time)
			if p := f.Peak.FLOPs.Of(precisionOf(o.work.Precision, op.Kernel)); p > 0 {
				atFLOPs += o.work.FLOPs / p * 1e9
			}
			for name, t := range o.names {
				if kn := d.kern[name]; kn != nil && o.time > 0 {
					part := float64(t) / float64(o.time)
					kn.work.FLOPs += o.work.FLOPs * part
					kn.work.Bytes += o.work.Bytes * part
					kn.work.Precision = o.work.Precision
					kn.worked += t
				}
			}
		}
		r.Operators = append(r.Operators, op)
	}
	slices.SortFunc(r.Operators, func(a, b Operator) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Shapes, b.Shapes))
	})
	if all > 0 {
		e.Coverage = float64(e.Time) / all
	}
	if e.NoPeak = f.Peak.Reason; f.Peak.Known {
		e.Peak = f.Peak.Name
		if e.Time > 0 {
			e.PeakShare = atPeak / float64(e.Time)
		}
		if r.Window > 0 {
			e.MFU = atFLOPs / float64(r.Window)
		}
	}
}

// precisionOf is the engine of a product of fp32: whether TF32 was allowed is not in the record, but kernels on tensor
// cores say so in their names.
func precisionOf(precision, kernel string) string {
	if precision == "fp32" && (strings.Contains(kernel, "tf32") || strings.Contains(kernel, "s1688") ||
		strings.Contains(kernel, "tensorop_s")) {
		return "tf32"
	}
	return precision
}

func rate(w Work, ns int64, p Peak, kernel string) Rate {
	r := Rate{FLOPs: w.FLOPs, Bytes: w.Bytes, Precision: precisionOf(w.Precision, kernel)}
	if ns <= 0 {
		return r
	}
	seconds := float64(ns) / 1e9
	r.FLOPRate, r.ByteRate = w.FLOPs/seconds, w.Bytes/seconds
	if !p.Known {
		return r
	}
	var compute, memory float64
	if peak := p.FLOPs.Of(r.Precision); peak > 0 {
		compute = w.FLOPs / peak
	}
	if p.MemoryBandwidth > 0 {
		memory = w.Bytes / p.MemoryBandwidth
	}
	switch {
	case compute == 0 && memory == 0:
	case compute >= memory:
		r.Bound, r.PeakShare = "compute", compute/seconds
	default:
		r.Bound, r.PeakShare = "memory", memory/seconds
	}
	return r
}

func (d *Device) byKernel(r *Report, f *Facts) {
	for id, k := range d.kern {
		e := Kernel{
			Name: f.Kernel(id), Count: k.count, Time: time.Duration(k.time), Alone: time.Duration(k.alone),
			Comm: k.comm,
		}
		if k.worked > 0 {
			e.Rate = rate(k.work, k.worked, f.Peak, e.Name)
		}
		r.ByKernel = append(r.ByKernel, e)
	}
	slices.SortFunc(r.ByKernel, func(a, b Kernel) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time),
			cmp.Compare(a.Name, b.Name))
	})
}

func (d *Device) otherLists(r *Report, f *Facts) {
	for k, c := range d.copy {
		r.Copies = append(r.Copies, Copy{
			k.direction, k.memory, c.count, c.bytes, time.Duration(c.time),
			time.Duration(c.exposed),
		})
	}
	slices.SortFunc(r.Copies, func(a, b Copy) int {
		return cmp.Or(cmp.Compare(b.Exposed, a.Exposed), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(a.Memory, b.Memory))
	})
	for k, c := range d.coll {
		name := k.collective
		if name == "" {
			name = f.Kernel(k.name)
		}
		if k.bytes > 0 {
			name += " of " + Size(k.bytes)
		}
		w := c.waiting(k)
		if k.bytes == 0 && k.place > 0 {
			name += fmt.Sprintf(" (%d in the step)", k.place)
		}
		e := Collective{
			Name: name, Count: c.count, Time: time.Duration(c.time), Waiting: time.Duration(w),
			Moving: time.Duration(c.exposed - w), mixed: k.bytes == 0 || !c.comparable(k),
		}
		if !e.mixed && c.least > 0 {
			e.bytes, e.best = k.bytes, float64(k.bytes)/time.Duration(c.least).Seconds()
		}
		r.Collectives = append(r.Collectives, e)
	}
	slices.SortFunc(r.Collectives, func(a, b Collective) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time),
			cmp.Compare(a.Name, b.Name))
	})
}
