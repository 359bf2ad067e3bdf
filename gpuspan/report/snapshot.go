// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"maps"
	"slices"
	"time"
)

// Summary implements Recorder. It omits operations that have not run since the last Reset, and sorts the others
// [ByTime].
func (c *Collector) Summary() Summary {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := Summary{
		Service: c.service, Start: c.start, End: c.now(), Covered: time.Duration(c.covered.length()),
		Timed: c.timed, OnHost: c.onHost, Devices: slices.Clone(c.devices), Dropped: maps.Clone(c.dropped),
		Overflow: c.overflow,
	}
	if latest := time.Unix(0, c.latest); c.latest != 0 && latest.After(s.End) {
		s.End = latest
	}
	up := c.within()
	down := map[Node][]Node{} // nodes inside an outermost node; of the root: nodes inside no other
	for _, n := range c.nodes[0].order {
		down[up[n]] = append(down[up[n]], n)
	}
	for _, n := range down[0] {
		c.walk(&s, n, down, -1, 0, nil)
	}
	total := s.Total()
	for i := range s.Operations {
		o := &s.Operations[i]
		if o.onHost() {
			continue // not part of the GPU's time
		}
		of := total
		if !s.outermost(o) {
			of = s.Operations[o.Parent].All.Duration.Total
		}
		o.ShareOfTotal, o.ShareOfParent = o.All.Duration.part(total), o.All.Duration.part(of)
		o.PeakShare, o.PeakOf = o.peakShare(c.peaks(o.Device))
	}
	for _, l := range c.loops {
		s.Loops = append(s.Loops, l.summary(c.peaks(l.device)))
	}
	return s.Sorted(ByTime)
}

// walk appends a node and its descendants. Nodes that have not run are skipped.
func (c *Collector) walk(s *Summary, id Node, down map[Node][]Node, parent, depth int, path []string) {
	nd := c.nodes[id]
	if nd.All.Count > 0 {
		path = append(slices.Clone(path), nd.Name)
		o := nd.Operation
		o.Parent, o.Depth, o.Path, o.Kernels = parent, depth, path, slices.Clone(o.Kernels)
		o.All, o.First, o.Rest = o.All.complete(&nd.all), o.First.complete(&nd.first), o.Rest.complete(&nd.rest)
		if o.HasL2HitRatio = nd.l2Seconds > 0; o.HasL2HitRatio {
			o.L2HitRatio = nd.l2 / nd.l2Seconds
		}
		for _, d := range nd.within {
			o.inside += d
		}
		s.Operations = append(s.Operations, o)
		parent, depth = len(s.Operations)-1, depth+1
	}
	for _, child := range slices.Concat(nd.order, down[id]) {
		c.walk(s, child, down, parent, depth, path)
	}
}

func (c *Collector) peaks(device int) Peaks {
	for i := range c.devices {
		if c.devices[i].Ordinal == device {
			return c.devices[i].Peaks
		}
	}
	return Peaks{}
}

// peakShare returns the largest share of any limit that the timed runs reached: the nearest roof. Bytes declared as
// read from the L2 cache are not memory traffic.
func (o *Operation) peakShare(p Peaks) (share float64, of string) {
	f := o.All
	r := f.Rates()
	consider := func(rate, peak float64, name string) {
		if rate > 0 && peak > 0 && rate/peak > share {
			share, of = rate/peak, name
		}
	}
	consider(r.Memory*(1-o.L2HitRatio), p.Memory, "memory")
	consider(max(r.PCIeRead, r.PCIeWritten, r.PCIe-r.PCIeRead-r.PCIeWritten), p.PCIe, "pcie")
	if len(f.FLOPs) == 1 { // a sum over precisions has no common peak
		for precision := range f.FLOPs {
			consider(r.FLOPs, p.FLOPs[precision], precision)
		}
	}
	return share, of
}
