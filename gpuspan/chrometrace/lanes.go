// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import "sort"

const (
	maxSiblings = 1 << 16 // intervals side by side that are remembered
	maxSlots    = 1 << 19 // intervals remembered by one file, 48 bytes each
	maxLanes    = 1024    // of one track
)

// lane is one row of a track, in which intervals are disjoint or nest. It accepts intervals in any order: spans arrive
// after they end, so children come before parents, and exports of several batches interleave. A stack, as one would
// use on sorted input, cannot do that.
type lane struct {
	tid  int64
	root siblings
	down int        // levels that were looked at, which tests count
	path []inserted // the latest interval and those that it lies in, as far as they came in order, the outermost first
}

// inserted is an interval with the siblings that it is one of. By it, intervals far within others find their place
// without a walk from the root.
type inserted struct {
	start, end int64
	at         *siblings
}

// siblings are disjoint intervals in order of time. Nothing before frozen is accepted any more: those intervals were
// forgotten to bound memory, so that what arrives there late goes to another lane.
type siblings struct {
	slots  []slot
	frozen int64
}

type slot struct {
	start, end int64
	owner      uint64
	kids       *siblings
}

// insert adds [start, end] unless it would overlap a part of what is there, or nest with another owner's interval. It
// also refuses an interval that contains an earlier one of the same start: viewers sort by start only and keep the
// file's order among equals, so a parent must be written first.
func (l *lane) insert(start, end int64, owner uint64) bool {
	at := &l.root
	for n := len(l.path); n > 0; n-- {
		if p := l.path[n-1]; p.start <= start && end <= p.end {
			at = p.at
			break
		}
		l.path = l.path[:n-1]
	}
	at = l.below(at, start, end, owner)
	if at == nil {
		return false
	}
	l.path = append(l.path, inserted{start, end, at})
	return true
}

// below is insert among siblings. It returns those that took the interval, nil where it is refused.
func (l *lane) below(at *siblings, start, end int64, owner uint64) *siblings {
	for {
		l.down++
		if start < at.frozen {
			return nil
		}
		s := at.slots
		if n := len(s); n == 0 || s[n-1].end <= start && (start < end || s[n-1].end < start) {
			at.put(n, slot{start: start, end: end, owner: owner}) // in order, as most come
			return at
		}
		i := sort.Search(len(s), func(k int) bool { return s[k].end > start })
		j := i + sort.Search(len(s)-i, func(k int) bool { return s[i+k].start >= end })
		if end == start && i < len(s) && s[i].start < start {
			j = i + 1 // a moment within an interval
		}
		switch {
		case i == j:
			at.put(i, slot{start: start, end: end, owner: owner})
			return at
		case j == i+1 && s[i].start <= start && end <= s[i].end:
			if s[i].owner != owner {
				return nil
			}
			if s[i].kids == nil {
				s[i].kids = &siblings{}
			}
			at = s[i].kids
		case s[i].start >= start && s[j-1].end <= end:
			if s[i].start == start && s[i].end < end {
				return nil
			}
			for _, k := range s[i:j] {
				if k.owner != owner {
					return nil
				}
			}
			at.enclose(i, j, slot{start: start, end: end, owner: owner, kids: &siblings{}})
			return at
		default:
			return nil
		}
	}
}

// between moves start and end out of the neighbours that they reach into by less than tolerance.
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

// enclose makes slots i to j those within v, which takes their place. What is less is copied, be it within or around:
// many intervals may be enclosed again and again.
func (s *siblings) enclose(i, j int, v slot) {
	if within := s.slots[i:j:j]; len(within) > len(s.slots)/2 {
		if j == len(s.slots) {
			within = s.slots[i:] // with room to grow
		}
		around := append(make([]slot, 0, len(s.slots)-len(within)+8), s.slots[:i]...)
		s.slots, v.kids.slots = append(append(around, v), s.slots[j:]...), within
		return
	}
	v.kids.slots = append([]slot(nil), s.slots[i:j]...)
	s.slots = append(s.slots[:i+1], s.slots[j:]...)
	s.slots[i] = v
}

// put adds a slot at i.
func (s *siblings) put(i int, v slot) {
	s.slots = append(s.slots, slot{})
	copy(s.slots[i+1:], s.slots[i:])
	s.slots[i] = v
	if len(s.slots) > maxSiblings {
		s.forget()
	}
}

// forget drops the older half of a lane's intervals.
func (l *lane) forget() {
	l.path = nil
	l.root.forget()
}

// forget drops the older half.
func (s *siblings) forget() {
	if len(s.slots) == 0 {
		return
	}
	if len(s.slots) == 1 {
		if k := s.slots[0].kids; k != nil {
			k.forget()
		}
		return
	}
	half := len(s.slots) / 2
	s.frozen = max(s.frozen, s.slots[half-1].end)
	s.slots = append([]slot(nil), s.slots[half:]...)
}

func (s *siblings) count() int {
	n := len(s.slots)
	for i := range s.slots {
		if k := s.slots[i].kids; k != nil {
			n += k.count()
		}
	}
	return n
}
