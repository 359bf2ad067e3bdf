// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

func (d *Device) operators(r *Report, f *Context) {
	e := &r.Efficiency
	var all, atPeak, atFLOPs float64
	// sorted, so that sums are reproducible
	for _, k := range slices.SortedFunc(maps.Keys(d.ops), func(a, b opKey) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.shape, b.shape))
	}) {
		o := d.ops[k]
		o.Name, o.Shapes = cmp.Or(f.Name(k.name), "(no operator)"), f.Name(k.shape)
		o.Kernel = f.Kernel(boundedmap.Largest(o.names))
		all += float64(o.Time)
		if o.Calls > 0 {
			for name, t := range o.names {
				if kn := d.kern[name]; kn != nil && t > 0 {
					part := float64(t) / float64(o.Time)
					kn.FLOPs += o.FLOPs * part
					kn.Bytes += o.Bytes * part
					kn.Precision = o.Precision
					kn.worked += t
				}
			}
			o.over(o.Time, f.Peak, o.Kernel)
			e.FLOPs += o.FLOPs
			e.Bytes += o.Bytes
			e.Time += o.Time
			atPeak += o.PeakShare * float64(o.Time)
			if p := f.Peak.FLOPs.Of(o.Precision); p > 0 {
				atFLOPs += o.FLOPs / p * 1e9
			}
		}
		r.Operators = append(r.Operators, o.Operator)
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

// over sets the rate of work that took t, mostly in the kernel.
func (r *Rate) over(t time.Duration, p Peak, kernel string) {
	r.Precision = vocabulary.PrecisionOf(r.Precision, kernel)
	if t <= 0 {
		return
	}
	seconds := float64(t) / 1e9
	r.FLOPRate, r.ByteRate = r.FLOPs/seconds, r.Bytes/seconds
	if !p.Known {
		return
	}
	var compute, memory float64
	if peak := p.FLOPs.Of(r.Precision); peak > 0 {
		compute = r.FLOPs / peak
	}
	if p.MemoryBandwidth > 0 {
		memory = r.Bytes / p.MemoryBandwidth
	}
	switch {
	case compute == 0 && memory == 0:
	case compute >= memory:
		r.Bound, r.PeakShare = "compute", compute/seconds
	default:
		r.Bound, r.PeakShare = "memory", memory/seconds
	}
}

func (d *Device) byKernel(r *Report, f *Context) {
	for _, id := range slices.Sorted(maps.Keys(d.kern)) { // sorted, because many have one short name
		k := d.kern[id]
		if k.Name = f.Kernel(id); k.worked > 0 {
			k.over(k.worked, f.Peak, k.Name)
		}
		r.ByKernel = append(r.ByKernel, k.Kernel)
	}
	slices.SortStableFunc(r.ByKernel, func(a, b Kernel) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name))
	})
}

func (d *Device) otherLists(r *Report, f *Context) {
	for k, c := range d.copies {
		c.Direction, c.Memory = k.direction, k.memory
		r.Copies = append(r.Copies, *c)
	}
	slices.SortFunc(r.Copies, func(a, b Copy) int {
		return cmp.Or(cmp.Compare(b.Exposed, a.Exposed), cmp.Compare(a.Direction, b.Direction),
			cmp.Compare(a.Memory, b.Memory))
	})
	for k, c := range d.coll {
		name := cmp.Or(k.collective, f.Kernel(k.name))
		if k.bytes > 0 {
			name += " of " + finding.Size(k.bytes)
		}
		w := c.waiting(k)
		if k.bytes == 0 && k.occurrence > 0 {
			name += fmt.Sprintf(" (#%d of the step)", k.occurrence)
		}
		e := Collective{
			Name: name, Count: c.count, Time: c.time, Waiting: w, Moving: c.exposed - w,
			Mixed: k.bytes == 0 || !c.comparable(k),
		}
		if !e.Mixed && c.least > 0 {
			e.Bytes, e.Best = k.bytes, float64(k.bytes)/c.least.Seconds()
		}
		r.Collectives = append(r.Collectives, e)
	}
	slices.SortFunc(r.Collectives, func(a, b Collective) int {
		return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Name, b.Name), cmp.Compare(b.Count, a.Count),
			cmp.Compare(b.Waiting, a.Waiting))
	})
}

// FedBy returns how many copies from the host there were, and their mean size.
func (r *Report) FedBy() string {
	var count, bytes int64
	for _, c := range r.Copies {
		if c.Direction == timeline.HostToDevice {
			count, bytes = count+c.Count, bytes+c.Bytes
		}
	}
	return fmt.Sprintf("%s of %s in the mean", finding.Count(count, "copy", "copies"), finding.Size(bytes/max(1, count)))
}
