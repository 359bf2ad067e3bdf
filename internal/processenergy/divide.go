// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package processenergy

import (
	"math"
	"slices"
)

// idleState is the idle power of a device with or without a context.
type idleState struct {
	used Usage
	// watts is the mean power of windows in which nothing ran, spread the mean deviation from it; 0
	// before the first.
	watts, spread float64
	above         int // windows without work in sequence whose power was well above watts
	// floor is the lowest power reading, and floors how many readings were near it.
	floor  float64
	floors int
}

const (
	// mostIdle is the share of its power limit, or of the highest power so far, that a device uses
	// at most without work.
	mostIdle = 0.25
	// busier is the power relative to the idle power from which on something runs that is not in
	// the list of processes.
	busier = 1.2
	// idleError is the relative error of an idle power that was measured: it changes with the
	// temperature.
	idleError = 0.03
	// follow is the weight of a new window in the mean.
	follow = 0.1
	// leastAbove is the number of windows without work after which a higher power is idle power.
	leastAbove = 30
	// leastFloors is the number of readings near the lowest one that show that power does not fall
	// below it, and nearFloor how near these are.
	leastFloors, nearFloor = 3, 1.05
)

// read adds a power reading. Work has pauses, so the lowest power of a busy device is the power of
// an idle one, if it was read several times.
func (s *idleState) read(watts float64) {
	switch {
	case watts <= 0:
	case s.floor == 0 || watts < s.floor/nearFloor:
		s.floor, s.floors = watts, 1
	case watts <= s.floor*nearFloor:
		s.floor = min(s.floor, watts)
		s.floors++
	}
}

// measure updates the idle power by the power of a window without work, if it can be idle power:
// it is at most most, and if it is well above the idle power so far, lasts.
func (s *idleState) measure(watts, most float64) {
	above := s.watts > 0 && watts > busier*s.watts
	if s.above++; !above {
		s.above = 0
	}
	switch {
	case watts > most, above && s.above < leastAbove:
	case s.watts == 0, above, watts < s.watts/busier:
		s.watts, s.spread, s.above = watts, idleError*watts, 0
	default:
		s.spread += follow * (math.Abs(watts-s.watts) - s.spread)
		s.watts += follow * (watts - s.watts)
	}
}

// AddPower adds a power reading in watts, and whether any process has a context.
func (d *Device) AddPower(watts float64, contexts bool) {
	d.highest = max(d.highest, watts)
	d.idle[index(contexts)].read(watts)
}

// mostIdle returns the highest power that can be idle power, in watts.
func (d *Device) mostIdle() float64 {
	if d.limit > 0 {
		return mostIdle * d.limit
	}
	return mostIdle * d.highest
}

// idlePower returns the idle power and its error, in watts. If it was not measured, it is anything
// up to the lowest power so far.
func (d *Device) idlePower(contexts bool, watts float64) (power, err float64) {
	s := &d.idle[index(contexts)]
	if s.watts > 0 {
		return s.watts, idleError*s.watts + s.spread
	}
	most := d.mostIdle()
	if s.floors >= leastFloors && s.floor <= most {
		return s.floor, idleError * s.floor
	}
	most = min(most, watts)
	if s.floor > 0 {
		most = min(most, s.floor)
	}
	return most / 2, most / 2
}

// Of the device's mean utilization, processes must leave a share of hidden and at least
// leastHidden unexplained, so that the rest is taken for work of other processes. The mean is over
// hiddenMemory seconds, because drivers report the utilization with a delay of up to a second.
const (
	hidden       = 0.1
	leastHidden  = 0.02
	hiddenMemory = 10
)

// step is the change of a residency that counts as an edge.
const step = 0.1

// divide divides the energy of a window.
func (d *Device) divide(w *window, joules float64) {
	seconds := float64(w.to-w.from) * 1e-9
	watts := joules / seconds
	d.total += joules
	var resident float64
	for i := range w.samples {
		resident += w.samples[i].Share
	}
	if len(w.samples) == 0 && w.utilization <= 0 && !w.mixed && !w.gap {
		d.idle[index(w.contexts)].measure(watts, d.mostIdle())
	}
	d.highest = max(d.highest, watts)
	idle, idleErr := d.idlePower(w.contexts, watts)
	// The counter is refreshed in steps, so one window may have less than its idle energy, and the
	// next more.
	want := idle*seconds + d.lent
	used := min(want, joules)
	d.lent = min(want-used, idle)
	active := joules - used
	state := &d.idle[index(w.contexts)].used
	state.Joules += used
	state.bound += idleErr * seconds
	if w.gap {
		d.widen(w, active)
	}
	if resident == 0 {
		// Less than the error of the idle power is idle, too.
		if w.utilization <= 0 && active < (busier-1)*idle*seconds {
			state.Joules += active
			clear(d.shares)
			return
		}
		if w.utilization == 0 {
			resident = unseen(w.samples)
		}
	}
	if resident == 0 {
		d.rest.Joules += active
		d.rest.bound += idleErr * seconds
		clear(d.shares)
		return
	}
	if !w.gap {
		d.model.learn(w.samples, seconds, active/seconds)
	}
	d.share(w, resident, active, idleErr, seconds)
}

// widen makes the bounds of all processes none and all of the active energy of a window with a gap.
func (d *Device) widen(w *window, active float64) {
	for k, u := range d.used {
		if !slices.ContainsFunc(w.samples, func(s Sample) bool { return s.Process == k }) {
			u.bound += active
		}
	}
	for i := range w.samples {
		w.samples[i].Low, w.samples[i].High = 0, 1
	}
}

// unseen lets processes that no measurement of a window shows busy, though it has active energy,
// share it by how much each varies, with an error of all of it. It returns the sum of their
// residencies.
func unseen(samples []Sample) (resident float64) {
	for i := range samples {
		resident += samples[i].Spread
	}
	for i := range samples {
		s := &samples[i]
		s.Share, s.Low, s.High = s.Spread, s.Spread, s.Spread
		s.Spread = resident * max(1, s.Share/(resident-s.Share))
	}
	return resident
}

// share divides the active energy of a window among its processes and the rest.
func (d *Device) share(w *window, resident, active, idleErr, seconds float64) {
	fitted := d.model.known()
	parts := d.parts[:0]
	var sum, low, high float64
	add := func(s *Sample, by weight) {
		p := part{
			mid:  by.watts * s.Share,
			low:  by.watts * (1 - by.uncertainty) * s.Low,
			high: by.watts * (1 + by.uncertainty) * s.High,

			spread: by.watts * s.Spread,
		}
		sum, low, high = sum+p.mid, low+p.low, high+p.high
		parts = append(parts, p)
	}
	plain := weight{1, unknownPower}
	for i := range w.samples {
		by := plain
		if fitted {
			by = d.model.of(w.samples[i].Process)
			if resident > overlapping {
				by.uncertainty = max(by.uncertainty, contention)
			}
		}
		add(&w.samples[i], by)
	}
	if more := d.explain(w.utilization, resident, seconds) * resident; more > 0 {
		if fitted {
			plain.watts = d.model.mean
		}
		add(&Sample{Share: more, High: 2 * more}, plain)
	}
	d.parts = parts
	edge := d.edge(w, active/seconds)
	left := active
	d.divided = d.divided[:0]
	for i, p := range parts {
		u := Usage{Joules: active * p.mid / sum}
		if i == len(parts)-1 {
			u.Joules = left // exactly, without the rounding of the division
		}
		left -= u.Joules
		share := p.mid / sum
		off := max(ratio(p.high, low-p.low)-share, share-ratio(p.low, high-p.high))
		u.bound = active*off + share*idleErr*seconds
		u.edges = edge
		if len(parts) == 1 {
			u.edges = 0
		} else if i < len(w.samples) {
			spread := active * (1 - share) * p.spread / sum
			u.edges += spread * spread
		}
		if i < len(w.samples) {
			if active > 0 {
				off += math.Sqrt(u.edges) / active
			}
			d.divided = append(d.divided, Share{w.samples[i].Process, share, min(off, 1), w.samples[i].Share})
		}
		if i == len(w.samples) {
			d.rest.add(u)
			continue
		}
		u.Seconds = w.samples[i].Share * seconds
		d.account(w.samples[i].Process, u)
	}
	if d.Shared != nil {
		d.Shared(w.from, w.to, d.divided)
	}
}

// explain returns what processes do not explain of the device's utilization, relative to what they
// explain; 0 if it is within the errors of both.
func (d *Device) explain(utilization, resident, seconds float64) float64 {
	if utilization < 0 {
		d.meanBusy, d.meanResident = 0, 0
		return 0
	}
	keep := math.Exp(-seconds / hiddenMemory)
	d.meanBusy += (1 - keep) * (utilization - d.meanBusy)
	d.meanResident += (1 - keep) * (resident - d.meanResident)
	if more := d.meanBusy - d.meanResident; more > max(hidden*d.meanBusy, leastHidden) {
		return more / d.meanResident
	}
	return 0
}

// part is a process's part of a window, in any unit.
type part struct{ mid, low, high, spread float64 }

func ratio(a, others float64) float64 {
	if a+others <= 0 {
		return 0
	}
	return a / (a + max(others, 0))
}

func (d *Device) account(k Key, u Usage) {
	of := d.used[k]
	if of == nil {
		if len(d.used) >= d.most {
			d.overflow++
			d.beyond.add(u)
			return
		}
		of = &Usage{}
		d.used[k] = of
	}
	of.add(u)
}

// edge returns the square of the error by work that started or ended in a window, of which the
// driver's measurements show the time with an error of half a period: none if all processes
// continue as before.
func (d *Device) edge(w *window, watts float64) float64 {
	now := d.earlier
	clear(now)
	changed := len(d.shares) != len(w.samples)
	for i := range w.samples {
		s := &w.samples[i]
		before, ok := d.shares[s.Process]
		now[s.Process] = s.Share
		changed = changed || !ok || math.Abs(s.Share-before) >= step
	}
	d.shares, d.earlier = now, d.shares
	if !changed {
		return 0
	}
	e := float64(d.period) * 1e-9 / 2 * watts / 2
	return e * e
}
