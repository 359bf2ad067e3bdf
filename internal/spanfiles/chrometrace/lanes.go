// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"math"
	"slices"
	"sort"
)

const (
	maxSiblings = 1 << 16 // disjoint intervals that are kept
	maxSlots    = 1 << 17 // intervals kept for one file, about 50 bytes each
	maxLanes    = 1024    // of one track
)

// lane is one row of a track, in which intervals are disjoint or nest. It accepts intervals in any
// order: spans arrive after they end, so children come before parents, and exports of several
// batches interleave. A stack, as one would use on sorted input, cannot do that.
type lane struct {
	tid  int64
	root siblings
	down int        // number of visited levels, for tests
	path []inserted // the latest interval and the known intervals around it, the outermost first
}

// inserted is an interval with its siblings and their level, from which the next insertion starts:
// deeply nested intervals are inserted without a walk from the root.
type inserted struct {
	start, end int64
	at         *siblings
	level      int
}

// siblings are disjoint intervals in order of time. Nothing before frozen is accepted any more:
// those intervals were dropped to bound memory, so that a late interval there goes to another lane.
type siblings struct {
	slots  []slot
	frozen int64
}

type slot struct {
	start, end int64
	owner      uint64
	kids       *siblings
}

// insert adds [start, end] unless it would partly overlap an interval of the lane, or nest with
// another owner's interval. It also refuses an interval that contains an earlier one of the same
// start: viewers sort by start only and keep the file's order among equals, so a parent must be
// written first.
func (l *lane) insert(start, end int64, owner uint64) bool {
	at, level := &l.root, 1
	for n := len(l.path); n > 0; n-- {
		p := &l.path[n-1]
		if p.start <= start && end <= p.end {
			at, level = p.at, p.level
			break
		}
		if p.crossed(start, end) {
			return false
		}
		l.path = l.path[:n-1]
	}
	at, level = l.below(at, level, start, end, owner)
	if at == nil {
		return false
	}
	l.passed(start, end, at, level)
	return true
}

// crossed reports whether [start, end] begins within the interval and ends after it, so that no
// lane holds both.
func (p *inserted) crossed(start, end int64) bool {
	return p.start <= start && start < p.end && p.end < end
}

// latest returns the innermost known interval.
func (l *lane) latest() inserted {
	if n := len(l.path); n > 0 {
		return l.path[n-1]
	}
	return inserted{}
}

// passed adds an interval to the path. The path includes the intervals that were searched for a
// rejected interval: thousands like it may follow.
func (l *lane) passed(start, end int64, at *siblings, level int) {
	if n := len(l.path); n == 0 || l.path[n-1].level < level {
		l.path = append(l.path, inserted{start, end, at, level})
	}
}

// below inserts an interval among the siblings of a level. It returns the siblings that accepted it
// and their level, nil if it is rejected.
func (l *lane) below(at *siblings, level int, start, end int64, owner uint64) (*siblings, int) {
	for ; ; level++ {
		l.down++
		if start < at.frozen {
			return nil, 0
		}
		s := at.slots
		if n := len(s); n == 0 || s[n-1].end <= start && (start < end || s[n-1].end < start) {
			at.put(n, slot{start: start, end: end, owner: owner}) // the usual case: in order
			return at, level
		}
		i := sort.Search(len(s), func(k int) bool { return s[k].end > start })
		j := i + sort.Search(len(s)-i, func(k int) bool { return s[i+k].start >= end })
		if end == start && i < len(s) && s[i].start < start {
			j = i + 1 // a moment within an interval
		}
		switch {
		case i == j:
			at.put(i, slot{start: start, end: end, owner: owner})
			return at, level
		case j == i+1 && s[i].start <= start && end <= s[i].end:
			if s[i].owner != owner {
				return nil, 0
			}
			if s[i].kids == nil {
				s[i].kids = &siblings{}
			}
			l.passed(s[i].start, s[i].end, at, level)
			at = s[i].kids
		case s[i].start >= start && s[j-1].end <= end:
			if s[i].start == start && s[i].end < end {
				return nil, 0
			}
			for _, k := range s[i:j] {
				if k.owner != owner {
					return nil, 0
				}
			}
			at.enclose(i, j, slot{start: start, end: end, owner: owner, kids: &siblings{}})
			return at, level
		default:
			return nil, 0
		}
	}
}

// between moves start and end out of neighbors that they overlap by less than tolerance.
func (s *siblings) between(start, end, tolerance int64) (int64, int64) {
	i := sort.Search(len(s.slots), func(k int) bool { return s.slots[k].end > start })
	if i < len(s.slots) && s.slots[i].start < start && s.slots[i].end-start < tolerance {
		start = s.slots[i].end
		i++
	}
	if i < len(s.slots) && s.slots[i].start < end && end-s.slots[i].start < tolerance && s.slots[i].start > start {
		end = s.slots[i].start
	}
	return start, end
}

// enclose replaces slots i to j by v, which contains them. The smaller part is copied, be it inside
// or around, because many intervals may be enclosed again and again.
func (s *siblings) enclose(i, j int, v slot) {
	if within := s.slots[i:j:j]; len(within) > len(s.slots)/2 {
		if j == len(s.slots) {
			within = s.slots[i:] // with room to grow
		}
		around := append(make([]slot, 0, len(s.slots)-len(within)+8), s.slots[:i]...)
		s.slots, v.kids.slots = append(append(around, v), s.slots[j:]...), within
		return
	}
	v.kids.slots = slices.Clone(s.slots[i:j])
	s.slots = slices.Replace(s.slots, i, j, v)
}

func (s *siblings) put(i int, v slot) {
	s.slots = slices.Insert(s.slots, i, v)
	if len(s.slots) > maxSiblings {
		s.forget()
	}
}

// forget drops up to half of a lane's intervals: those inside older ones if that is enough, because
// a parent of the older ones may still arrive, otherwise the older ones themselves.
func (l *lane) forget() {
	l.path = nil
	before := l.root.count()
	l.root.seal()
	if l.root.count() > before/4*3 {
		l.root.forget()
	}
}

// sealed are the siblings inside an interval that accepts no more.
var sealed = &siblings{frozen: math.MaxInt64}

// seal drops what is inside the older half of the first disjoint intervals.
func (s *siblings) seal() {
	for len(s.slots) == 1 && s.slots[0].kids != nil {
		s = s.slots[0].kids
	}
	for i := range s.slots[:len(s.slots)/2] {
		if s.slots[i].kids != nil {
			s.slots[i].kids = sealed
		}
	}
}

// forget drops the older half of the first disjoint intervals; of a chain of intervals that each
// contain one other, the inner half.
func (s *siblings) forget() {
	at, depth := s, 0
	for ; len(at.slots) == 1 && at.slots[0].kids != nil; depth++ {
		at = at.slots[0].kids
	}
	if depth > len(at.slots) {
		at = s
		for range depth / 2 {
			at = at.slots[0].kids
		}
		at.frozen, at.slots = max(at.frozen, at.slots[0].end), nil
		return
	}
	if half := len(at.slots) / 2; half > 0 {
		at.frozen = max(at.frozen, at.slots[half-1].end)
		at.slots = append([]slot(nil), at.slots[half:]...)
	}
}

func (s *siblings) count() (n int) {
	for s != nil { // iterate over the last interval that contains others, so that chains do not recurse
		var last *siblings
		n += len(s.slots)
		for i := range s.slots {
			if k := s.slots[i].kids; k != nil {
				if last != nil {
					n += last.count()
				}
				last = k
			}
		}
		s = last
	}
	return n
}
