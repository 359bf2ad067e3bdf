// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"fmt"
	"slices"
)

// ItemTotal is the number of processed items of a type.
type ItemTotal struct {
	Type  string  `json:"type"`                 // token, row, image
	Count int64   `json:"count"`                // over all operations
	Rate  float64 `json:"per_second,omitempty"` // per second of wall time; 0 when no time has passed
}

// Items returns the sums of the items of all operations by type, largest first. It omits operations
// within one that counts the same type, which includes their items, and operations that state items
// without a type.
func (s Summary) Items() []ItemTotal {
	count := map[string]int64{}
	for i := range s.Operations {
		o := &s.Operations[i]
		same := func(a *Operation) bool { return a.ItemType == o.ItemType && a.All.Items != 0 }
		if o.ItemType != "" && o.All.Items != 0 && !s.above(o, same) {
			count[o.ItemType] += o.All.Items
		}
	}
	var out []ItemTotal
	for _, t := range sortedKeys(count) {
		n := ItemTotal{Type: t, Count: count[t]}
		if w := s.Wall().Seconds(); w > 0 {
			n.Rate = float64(n.Count) / w
		}
		out = append(out, n)
	}
	slices.SortStableFunc(out, func(a, b ItemTotal) int { return cmp.Compare(b.Count, a.Count) })
	return out
}

// Category returns the summary of one category: its operations, and operations without a category
// below them. It removes operations of other categories; operations of the category below removed
// ones move up. Shares refer to the remaining operations. Loops are removed, because they have no
// category.
func (s Summary) Category(name string) Summary {
	return s.only(name, func(o *Operation) string { return o.Category })
}

// Level returns the summary of one level of tiles, as Category does for a category.
func (s Summary) Level(name string) Summary {
	return s.only(name, func(o *Operation) string { return o.Level })
}

// only keeps the operations whose group has the name. An operation without a group is in its
// parent's.
func (s Summary) only(name string, group func(*Operation) string) Summary {
	at := make([]int, len(s.Operations)) // new index + 1, also of the closest operation around that is left
	in := make([]bool, len(s.Operations))
	var ops []Operation
	for i := range s.Operations {
		o := s.Operations[i]
		up, inherited := 0, false
		if o.Parent >= 0 {
			up, inherited = at[o.Parent], in[o.Parent]
		}
		g := group(&o)
		if in[i] = g == name && name != "" || g == "" && inherited; !in[i] {
			at[i] = up
			continue
		}
		if o.Parent = up - 1; up == 0 {
			o.Depth, o.Path = 0, o.Path[len(o.Path)-1:]
		} else {
			o.Depth = ops[o.Parent].Depth + 1
			o.Path = append(slices.Clone(ops[o.Parent].Path), o.Name)
		}
		ops = append(ops, o)
		at[i] = len(ops)
	}
	s.Operations, s.Loops, s.total = ops, nil, 0
	total := s.Total()
	for i := range ops {
		o := &ops[i]
		o.ShareOfTotal = 0
		if !o.onHost() {
			o.ShareOfTotal = o.All.Duration.part(total)
		}
		switch {
		case o.Parent < 0:
			o.ShareOfParent = o.ShareOfTotal
		case !o.onHost():
			o.ShareOfParent = o.All.Duration.partOf(ops[o.Parent].All.Duration.Total)
		}
	}
	return s
}

// Order is the order of operations that have the same parent.
type Order uint8

// Orders. Children always follow their parent.
const (
	ByTime  Order = iota // longest total duration first
	ByFLOPs              // most FLOPs first
	ByBytes              // most bytes first, over all links
	ByName               // alphabetical
)

// ParseOrder returns the order named "time", "flops", "bytes" or "name", and an error for other
// names.
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

// Sorted returns a copy of the summary with its operations in another order.
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
