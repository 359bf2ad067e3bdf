// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package intervals

import "math"

// Compact is a set in half the memory, to keep it until it is used. The zero value is empty.
type Compact struct {
	start int64
	list  []stretch
}

// stretch is an interval and the gap before it, in ns: 4 s at most, so longer ones take several.
type stretch struct{ gap, length uint32 }

// Compact returns the set in half the memory.
func (s Set) Compact() Compact {
	if len(s) == 0 {
		return Compact{}
	}
	c := Compact{start: s[0].Start, list: make([]stretch, 0, len(s))}
	at := c.start
	for _, v := range s {
		gap, length := v.Start-at, v.End-v.Start
		for ; gap > math.MaxUint32; gap -= math.MaxUint32 {
			c.list = append(c.list, stretch{gap: math.MaxUint32})
		}
		for ; length > math.MaxUint32; length -= math.MaxUint32 {
			c.list = append(c.list, stretch{uint32(gap), math.MaxUint32})
			gap = 0
		}
		c.list = append(c.list, stretch{uint32(gap), uint32(length)})
		at = v.End
	}
	return c
}

// Set returns the set.
func (c *Compact) Set() Set {
	s := make(Set, 0, len(c.list))
	at := c.start
	for _, v := range c.list {
		start := at + int64(v.gap)
		at = start + int64(v.length)
		switch {
		case v.length == 0: // a part of a gap
		case len(s) > 0 && s[len(s)-1].End == start:
			s[len(s)-1].End = at
		default:
			s = append(s, Interval{start, at})
		}
	}
	return s
}
