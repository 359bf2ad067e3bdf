// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Spending is where time went: by class, and idle time by cause.
type Spending struct {
	Parts  [timeline.ClassCount]int64
	Idles  [timeline.Causes]int64
	Spent  []spent
	index  []uint32 // of spent by location, plus 1; the size is a power of two, at most three quarters full
	Waited int64    // of CauseAfterWait: time for which work would have overlapped the device without the waits
	// of CauseDispatch and CauseLatency: what the profiler's recording cost the host, an estimate
	Recorded int64
	Other    amounts // work of other threads during the host's own work
}

// StepSpending is the account of a step. The zero value is empty.
type StepSpending struct {
	Spending
	Copies Spending // exposed, by the ranges that requested them
	Comms  amounts
}

type locationKey struct {
	Cause    timeline.Cause
	Name, In uint32
}

// spent is how often and how long an entry occurred.
type spent struct {
	At                locationKey
	Count, Time, Most int64
}

// maxPlaces bounds the named locations of an account; further ones have no name.
const maxPlaces = 1 << 14

// Idle adds idle time of one cause.
func (a *Spending) Idle(s timeline.Share) {
	n := s.To - s.From
	a.Idles[s.Cause] += n
	a.Waited += s.Waited
	a.Recorded += s.Recorded
	if s.Others != 0 {
		a.Other.add(s.Others, n)
	}
	switch s.Cause {
	case timeline.CauseUnknown, timeline.CauseLatency, timeline.CauseNotRecorded:
		return
	}
	p := a.Location(locationKey{s.Cause, s.Name, s.In})
	p.Count++
	p.Time += n
	p.Most = max(p.Most, n)
}

// Clone returns a copy that shares no memory with the account.
func (a *Spending) Clone() Spending {
	c := *a
	c.Spent, c.index, c.Other = slices.Clone(a.Spent), slices.Clone(a.index), maps.Clone(a.Other)
	return c
}

// Put adds an entry of another account.
func (a *Spending) Put(s spent) {
	p := a.Location(s.At)
	p.Count += s.Count
	p.Time += s.Time
	p.Most = max(p.Most, s.Most)
}

// Location returns the entry of a location.
func (a *Spending) Location(k locationKey) *spent {
	if 4*len(a.Spent) >= 3*len(a.index) {
		a.grow()
	}
	for {
		at := a.slot(k)
		switch i := a.index[at]; {
		case i > 0:
			return &a.Spent[i-1]
		case len(a.Spent) >= maxPlaces && k.Name|k.In != 0:
			k.Name, k.In = 0, 0
			continue
		}
		a.Spent = append(a.Spent, spent{At: k})
		a.index[at] = uint32(len(a.Spent))
		return &a.Spent[len(a.Spent)-1]
	}
}

// slot returns the location's index, or where it would be inserted.
func (a *Spending) slot(k locationKey) uint64 {
	mask := uint64(len(a.index) - 1)
	at := (uint64(k.Cause)<<56 ^ uint64(k.In)<<28 ^ uint64(k.Name)) * 0x9e3779b97f4a7c15 >> 32
	for at &= mask; a.index[at] != 0 && a.Spent[a.index[at]-1].At != k; at = (at + 1) & mask {
	}
	return at
}

// grow allocates four times as many locations.
func (a *Spending) grow() {
	n := max(16, 4*len(a.index))
	a.index = make([]uint32, n)
	a.Spent = slices.Grow(a.Spent, 3*n/4+1-len(a.Spent))
	for i := range a.Spent {
		a.index[a.slot(a.Spent[i].At)] = uint32(i + 1)
	}
}

// Take adds the part of a claim within [from, to).
func (a *StepSpending) Take(c timeline.Claim, from, to int64) {
	c.From, c.To = max(from, c.From), min(to, c.To)
	n := c.To - c.From
	if n <= 0 {
		return
	}
	switch c.Class {
	case timeline.Idle:
		a.Idle(timeline.Share{Claim: c})
		return
	case timeline.Communicating:
		a.Comms.add(c.Name, n)
	case timeline.Copying:
		a.Copies.Location(locationKey{Name: c.Name, In: c.In}).Time += n
	}
	a.Parts[c.Class] += n
}

// IdleTime returns all idle time that has a cause.
func (a *Spending) IdleTime() (sum int64) {
	for _, n := range a.Idles {
		sum += n
	}
	return sum - a.Idles[timeline.CauseNotRecorded]
}

// amounts are times by name.
type amounts map[uint32]int64

func (m *amounts) add(name uint32, n int64) {
	if *m == nil {
		*m = amounts{}
	}
	if _, ok := (*m)[name]; !ok && len(*m) >= maxPlaces {
		name = 0
	}
	(*m)[name] += n
}
