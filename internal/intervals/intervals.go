// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package intervals measures unions of time intervals: how long at least one of them lasted. Set
// accepts intervals in any order and keeps them; Ordered accepts them in the order of their starts
// and keeps only what the length needs.
package intervals

import (
	"math"
	"sort"
)

// Interval is [Start, End) in ns.
type Interval struct{ Start, End int64 }

// Unix returns an interval from unsigned unix ns, as in spans. Times after the year 2262 become the
// largest int64.
func Unix(start, end uint64) Interval {
	return Interval{int64(min(start, math.MaxInt64)), int64(min(end, math.MaxInt64))}
}

// Set is a union of intervals as disjoint intervals in order. The zero value is empty.
type Set []Interval

// Add adds an interval; it ignores an interval without length. If that makes more than limit
// intervals, Add joins the two with the smallest gap between them, so the length is then too large
// by that gap. A limit of 0 is no limit.
func (s *Set) Add(v Interval, limit int) {
	if v.End <= v.Start {
		return
	}
	u := *s
	i := sort.Search(len(u), func(i int) bool { return u[i].End >= v.Start })
	j := i
	for ; j < len(u) && u[j].Start <= v.End; j++ {
		v.Start, v.End = min(v.Start, u[j].Start), max(v.End, u[j].End)
	}
	if i == j {
		u = append(u, Interval{})
		copy(u[i+1:], u[i:])
	} else {
		u = append(u[:i+1], u[j:]...)
	}
	u[i] = v
	if limit > 0 && len(u) > limit {
		u = u.join()
	}
	*s = u
}

// AddAll adds all intervals of another set.
func (s *Set) AddAll(other Set, limit int) {
	for _, v := range other {
		s.Add(v, limit)
	}
}

// join closes the smallest gap between two of the intervals.
func (s Set) join() Set {
	best := 1
	for i := 2; i < len(s); i++ {
		if s[i].Start-s[i-1].End < s[best].Start-s[best-1].End {
			best = i
		}
	}
	s[best-1].End = s[best].End
	return append(s[:best], s[best+1:]...)
}

// Length returns the length of the union in ns.
func (s Set) Length() (sum int64) {
	for _, x := range s {
		sum += x.End - x.Start
	}
	return sum
}

// Within returns the length of the part of the union that is inside an interval, in ns.
func (s Set) Within(v Interval) (sum int64) {
	for i := s.after(v.Start); i < len(s) && s[i].Start < v.End; i++ {
		sum += min(s[i].End, v.End) - max(s[i].Start, v.Start)
	}
	return sum
}

// Gaps returns the parts of an interval that no interval of the set covers.
func (s Set) Gaps(v Interval) (gaps Set) {
	at := v.Start
	for i := s.after(at); i < len(s) && s[i].Start < v.End; i++ {
		if s[i].Start > at {
			gaps = append(gaps, Interval{at, s[i].Start})
		}
		at = s[i].End
	}
	if at < v.End {
		gaps = append(gaps, Interval{at, v.End})
	}
	return gaps
}

// after returns the index of the first interval that ends after t.
func (s Set) after(t int64) int { return sort.Search(len(s), func(i int) bool { return s[i].End > t }) }

// Ordered is the union of intervals that are added in the order of their starts. Intervals without
// length do not change the length, but count for the start and end of the union. The zero value is
// empty.
type Ordered struct {
	Length     int64 // ns
	Start, End int64 // of the first and the last interval; valid if Any
	Any        bool
}

// Add adds [start, end) and returns the gap before it: the time from the end of the union to start,
// at least 0; 0 for the first interval.
func (u *Ordered) Add(start, end int64) (gap int64) {
	if !u.Any {
		*u = Ordered{Length: end - start, Start: start, End: end, Any: true}
		return 0
	}
	if start > u.End {
		gap = start - u.End
		u.End = start
	}
	if end > u.End {
		u.Length += end - u.End
		u.End = end
	}
	return gap
}

// Extent returns the time from the first start to the last end, in ns.
func (u *Ordered) Extent() int64 { return u.End - u.Start }

// Clip adds the part of [start, end) that is inside [from, to).
func (u *Ordered) Clip(start, end, from, to int64) {
	start, end = max(start, from), min(end, to)
	if end > start {
		u.Add(start, end)
	}
}
