// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
)

func (c *collector) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Summary{
		Service: c.service, Start: c.start, End: c.now(), Covered: time.Duration(c.covered.length()),
		Timed: c.timed, OnHost: c.onHost, Devices: slices.Clone(c.devices), Dropped: maps.Clone(c.dropped),
		Overflow: c.overflow,
	}
	for reason, n := range c.before {
		if s.Dropped[reason] -= n; s.Dropped[reason] == 0 {
			delete(s.Dropped, reason)
		}
	}
	if latest := time.Unix(0, c.latest); c.latest != 0 && latest.After(s.End) {
		s.End = latest
	}
	w := walker{c: c, s: &s, open: map[statistics.Node]bool{}, down: map[statistics.Node][]statistics.Node{}}
	for _, n := range c.nodes[0].order {
		for in := range c.nodes[n].within {
			w.down[in] = append(w.down[in], n)
		}
		w.open[n] = true
	}
	for _, n := range c.nodes[0].order {
		if o := c.nodes[n].alone(); o.All.Count > 0 {
			w.expand(n, w.row(n, o, -1))
		} else if len(c.nodes[n].within) == 0 { // it has not run itself
			w.expand(n, -1)
		}
	}
	total := c.streams.busy() + c.loose
	s.total = total
	for i := range s.Operations {
		o := &s.Operations[i]
		if o.onHost() {
			continue // not part of the GPU's time
		}
		o.ShareOfTotal = o.All.Duration.part(total)
		if o.ShareOfParent = o.ShareOfTotal; !s.outermost(o) {
			o.ShareOfParent = o.All.Duration.partOf(s.Operations[o.Parent].whole)
		}
		o.PeakShare, o.PeakOf = o.peakShare(c.peaks(o.Device))
	}
	for _, l := range c.loops {
		s.Loops = append(s.Loops, l.summary(c.peaks(l.device)))
	}
	return s.Sorted(ByTime)
}

// walker writes the rows of a summary: of each node, below it the nodes in its context, and below
// outermost nodes the runs of others that are inside theirs on the stream.
type walker struct {
	c    *collector
	s    *Summary
	down map[statistics.Node][]statistics.Node // outermost nodes with runs inside a node's
	open map[statistics.Node]bool              // outermost nodes whose rows are still to be expanded
}

// row appends an operation that has run, and returns its index.
func (w *walker) row(id statistics.Node, o Operation, parent int) int {
	nd := w.c.nodes[id]
	o.Parent, o.whole, o.Kernels = parent, nd.all.total, slices.Clone(o.Kernels)
	if parent >= 0 {
		up := &w.s.Operations[parent]
		o.Depth, o.Path = up.Depth+1, slices.Clone(up.Path)
	}
	o.Path = append(o.Path, nd.Name)
	if o.HasL2HitRatio = nd.l2Seconds > 0; o.HasL2HitRatio {
		o.L2HitRatio = nd.l2 / nd.l2Seconds
	}
	w.s.Operations = append(w.s.Operations, o)
	return len(w.s.Operations) - 1
}

// expand appends what is below a node.
func (w *walker) expand(id statistics.Node, row int) {
	delete(w.open, id)
	for _, child := range w.c.nodes[id].order {
		w.child(child, row)
	}
	for _, in := range w.down[id] {
		nd := w.c.nodes[in]
		x := nd.within[id]
		o := Operation{Info: nd.Info, Device: nd.Device, All: x.All, First: x.First, Rest: x.Rest}
		if len(nd.within) == 1 && nd.All.Count == x.All.Count { // with all that is known of it
			o = nd.Operation
		}
		o.complete(&x.sets)
		at := w.row(in, o, row)
		if w.open[in] && nd.alone().All.Count == 0 {
			w.expand(in, at)
		}
	}
}

// child appends a node in the context of another and its descendants. Nodes that have not run are
// skipped.
func (w *walker) child(id statistics.Node, row int) {
	nd := w.c.nodes[id]
	if nd.All.Count > 0 {
		o := nd.Operation
		o.complete(&nd.sets)
		row = w.row(id, o, row)
	}
	for _, child := range nd.order {
		w.child(child, row)
	}
}

func (c *collector) peaks(device int) Peaks {
	for i := range c.devices {
		if c.devices[i].Ordinal == device {
			return c.devices[i].Peaks
		}
	}
	return Peaks{}
}

// peakShare returns the largest share of any limit that the timed runs reached: the nearest roof.
// Bytes declared as read from the L2 cache are not memory traffic.
func (o *Operation) peakShare(p Peaks) (share float64, of string) {
	f := o.All
	r := f.Rates()
	consider := func(rate, peak float64, name string) {
		if rate > 0 && peak > 0 && rate/peak > share {
			share, of = rate/peak, name
		}
	}
	consider(r.Memory*(1-o.L2HitRatio), p.Memory, "memory")
	consider(max(r.ToDevice, r.FromDevice, r.PCIe-r.ToDevice-r.FromDevice), p.PCIe, "pcie")
	if len(f.FLOPs) == 1 { // a sum over precisions has no common peak
		for precision := range f.FLOPs {
			consider(r.FLOPs, p.FLOPs[precision], precision)
		}
	}
	return share, of
}
