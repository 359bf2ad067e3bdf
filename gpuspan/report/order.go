// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
)

// Order is the order of operations that have the same parent.
type Order uint8

// Orders. Children always follow their parent.
const (
	ByTime  Order = iota // longest total duration first
	ByFLOPs              // most FLOPs first
	ByBytes              // most bytes first, over all links
	ByName               // alphabetical
)

// ParseOrder reads "time", "flops", "bytes" or "name".
func ParseOrder(s string) (Order, error) {
	if i := slices.Index([]string{"time", "flops", "bytes", "name"}, s); i >= 0 {
		return Order(i), nil
	}
	return ByTime, fmt.Errorf("unknown order %q (use time, flops, bytes or name)", s)
}

func (o Order) compare(a, b *Operation) int {
	var c int
	switch o {
	case ByFLOPs:
		c = cmp.Compare(b.All.TotalFLOPs(), a.All.TotalFLOPs())
	case ByBytes:
		c = cmp.Compare(b.All.Memory.Total()+b.All.PCIe.Total(), a.All.Memory.Total()+a.All.PCIe.Total())
	case ByTime:
		c = cmp.Compare(b.All.Duration.Total, a.All.Duration.Total)
	}
	return cmp.Or(c, cmp.Compare(a.Name, b.Name))
}

// Sorted is the summary with operations in another order.
func (s Summary) Sorted(by Order) Summary {
	children := make([][]int, len(s.Operations)+1) // by parent index + 1
	for i := range s.Operations {
		p := s.Operations[i].Parent + 1
		children[p] = append(children[p], i)
	}
	out := make([]Operation, 0, len(s.Operations))
	var walk func(old, at int)
	walk = func(old, at int) {
		slices.SortStableFunc(children[old+1], func(a, b int) int {
			return by.compare(&s.Operations[a], &s.Operations[b])
		})
		for _, i := range children[old+1] {
			o := s.Operations[i]
			o.Parent = at
			out = append(out, o)
			walk(i, len(out)-1)
		}
	}
	walk(-1, -1)
	s.Operations = out
	return s
}
