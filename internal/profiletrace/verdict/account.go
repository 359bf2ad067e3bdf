// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import "slices"

// account is where time went: by class, and of idle time by cause.
type account struct {
	parts  [classCount]int64
	idles  [causeCount]int64
	spent  []spent
	index  []uint32 // of spent by place, and 1 more; a table of a power of two, at most three quarters full
	waited int64    // of CauseAfterWait: what would have run beside the device without the waits
	other  amounts  // what other threads did while the host did its own work
}

// Account is an account that a step keeps. The zero value is empty.
type Account struct {
	account
	copies account // exposed, by the ranges that asked
	comms  amounts
}

type placeKey struct {
	cause    Cause
	name, in uint32
}

// spent is how often and how long time went somewhere.
type spent struct {
	at                placeKey
	count, time, most int64
}

// maxPlaces bounds the names of an account; what is more has no name.
const maxPlaces = 1 << 14

func (a *account) idle(s share) {
	n := s.To - s.From
	a.idles[s.Cause] += n
	a.waited += s.waited
	if s.others != 0 {
		a.other.add(s.others, n)
	}
	switch s.Cause {
	case CauseUnknown, CauseLatency:
		return
	}
	p := a.place(placeKey{s.Cause, s.Name, s.In})
	p.count++
	p.time += n
	p.most = max(p.most, n)
}

// put adds what was spent elsewhere.
func (a *account) put(s spent) {
	p := a.place(s.at)
	p.count += s.count
	p.time += s.time
	p.most = max(p.most, s.most)
}

// place is what was spent at a place.
func (a *account) place(k placeKey) *spent {
	if 4*len(a.spent) >= 3*len(a.index) {
		a.grow()
	}
	for {
		at := a.slot(k)
		switch i := a.index[at]; {
		case i > 0:
			return &a.spent[i-1]
		case len(a.spent) >= maxPlaces && k.name|k.in != 0:
			k.name, k.in = 0, 0
			continue
		}
		a.spent = append(a.spent, spent{at: k})
		a.index[at] = uint32(len(a.spent))
		return &a.spent[len(a.spent)-1]
	}
}

// slot is where the index has the place, or would have it.
func (a *account) slot(k placeKey) uint64 {
	mask := uint64(len(a.index) - 1)
	at := (uint64(k.cause)<<56 ^ uint64(k.in)<<28 ^ uint64(k.name)) * 0x9e3779b97f4a7c15 >> 32
	for at &= mask; a.index[at] != 0 && a.spent[a.index[at]-1].at != k; at = (at + 1) & mask {
	}
	return at
}

// grow makes room for four times as many places.
func (a *account) grow() {
	n := max(16, 4*len(a.index))
	a.index = make([]uint32, n)
	a.spent = slices.Grow(a.spent, 3*n/4+1-len(a.spent))
	for i := range a.spent {
		a.index[a.slot(a.spent[i].at)] = uint32(i + 1)
	}
}

// Take adds the part of a claim that lies in [from, to).
func (a *Account) Take(c Claim, from, to int64) {
	c.From, c.To = max(from, c.From), min(to, c.To)
	n := c.To - c.From
	if n <= 0 {
		return
	}
	switch c.Class {
	case Idle:
		a.idle(share{Claim: c})
		return
	case Communicating:
		a.comms.add(c.Name, n)
	case Copying:
		a.copies.place(placeKey{name: c.Name, in: c.In}).time += n
	}
	a.parts[c.Class] += n
}

// idleTime is all idle time that has a cause.
func (a *account) idleTime() (sum int64) {
	for _, n := range a.idles {
		sum += n
	}
	return sum
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
