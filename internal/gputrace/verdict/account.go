// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import "slices"

// account is where time went: by class, and of idle time by cause.
type account struct {
	parts  [classCount]int64
	idles  [causeCount]int64
	where  map[uint64]int // into spent, by placeKey.packed
	spent  []spent
	waited int64   // of CauseAfterWait: what would have run beside the device without the waits
	other  amounts // what other threads did while the host did its own work
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

// causeBits of a packed place are above those of two names, of which there are far fewer than 2^28: see
// gputrace.Names.
const causeBits = 56

// packed is the place as a number, which maps find faster.
func (k placeKey) packed() uint64 {
	return uint64(k.cause)<<causeBits | uint64(k.in)<<28 | uint64(k.name)
}

// spent is how often and how long time went somewhere.
type spent struct {
	at                placeKey
	count, time, most int64
}

// maxPlaces bounds the names of an account; what is more has no name.
const maxPlaces = 1 << 14

func (a *account) idle(s share) {
	n := s.to - s.from
	a.idles[s.cause] += n
	a.waited += s.waited
	if s.others != 0 {
		a.other.add(s.others, n)
	}
	switch s.cause {
	case CauseUnknown, CauseLatency:
		return
	}
	p := a.place(placeKey{s.cause, s.name, s.in})
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
	i, ok := a.where[k.packed()]
	if !ok && len(a.spent) >= maxPlaces {
		k.name, k.in = 0, 0
		i, ok = a.where[k.packed()]
	}
	if !ok {
		if a.where == nil {
			a.where = map[uint64]int{}
		}
		i = len(a.spent)
		a.where[k.packed()] = i
		if len(a.spent) == cap(a.spent) { // append alone would allocate five times what is needed
			a.spent = slices.Grow(a.spent, max(len(a.spent), 8))
		}
		a.spent = append(a.spent, spent{at: k})
	}
	return &a.spent[i]
}

// Take adds the part of a claim that lies in [from, to).
func (a *Account) Take(c Claim, from, to int64) {
	from, to = max(from, c.From), min(to, c.To)
	if to <= from {
		return
	}
	switch c.Class {
	case Idle:
		a.idle(share{from: from, to: to, cause: c.Cause, name: c.Name, in: c.In})
		return
	case Communicating:
		a.comms.add(c.Name, to-from)
	case Copying:
		a.copies.place(placeKey{name: c.Name, in: c.In}).time += to - from
	}
	a.parts[c.Class] += to - from
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
