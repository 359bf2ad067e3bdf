// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"math"
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// Level is the number of requests that a process ran at a time, or LoadLapsed or LoadAhead.
type Level = devicesamples.LoadLevel

// change is the number of absent requests of one of the device's processes from a time on.
type change struct {
	time           int64
	absent, beside float64 // beside while requests run, see moves
	proc           int32
}

// collectChanges finds the absent requests of all processes with pending spans up to a time.
func (d *Device) collectChanges(to int64, m Meter) {
	d.changes = d.changes[:0]
	for id, i := range d.procs.byID {
		p := &d.procs.all[i]
		d.levels = m.Levels(id, d.settled, to, d.levels[:0])
		if p.counted = len(d.levels) > 0; !p.counted {
			d.changes = append(d.changes, change{time: d.settled, proc: i})
			continue
		}
		d.countArrived(i, to)
		for j, l := range d.levels {
			if l.Time <= to {
				if l.Time > p.read && l.Running >= 0 {
					p.judge.add(l.Running, d.arrived[j])
					p.moves.add(l.Time, l.Running, d.arrived[j], p.judge.absent())
				}
				p.read, p.arrived = l.Time, d.arrived[j]
			}
		}
		for j := range d.levels {
			absent := max(0, d.running(j)-d.arrived[j]) * p.judge.absent()
			beside := absent
			if d.arrived[j] == 0 {
				beside = p.moves.beside(absent)
			}
			d.changes = append(d.changes, change{d.since(j), absent, beside, i})
		}
	}
	slices.SortFunc(d.changes, func(a, b change) int { return cmp.Compare(a.time, b.time) })
}

// countArrived counts the requests of a process that have arrived and run at each level. It keeps
// the steps until to since the last level: once that time is settled, their points are gone.
func (d *Device) countArrived(proc int32, to int64) {
	p := &d.procs.all[proc]
	read, kept := p.read, p.steps // of the last level until to
	for _, l := range d.levels {
		if l.Time <= to && l.Time > read {
			read, kept = l.Time, steps{}
		}
	}
	d.arrived = append(d.arrived[:0], make([]float64, len(d.levels))...)
	d.steps = append(d.steps[:0], make([]steps, len(d.levels))...)
	first := sort.Search(len(d.levels), func(j int) bool { return d.levels[j].Time > d.settled })
	if first > 0 && p.read == d.levels[first-1].Time {
		d.arrived[first-1] = p.arrived
	}
	if first < len(d.levels) {
		d.steps[first] = p.steps
	}
	last := d.settled
	if first < len(d.levels) {
		d.arrived[first], last = float64(p.requests), d.levels[len(d.levels)-1].Time
	}
	d.points.each(last, func(x point) {
		n := d.at(x.n)
		if n.proc != proc || x.start && !d.outermost(n) || !x.start && n.class&counted == 0 && !d.outermost(n) {
			return
		}
		step := -1.
		if x.start {
			step = 1
		}
		if x.t <= d.settled && first > 0 { // it began before it arrived
			d.arrived[first-1] += step
		}
		j := sort.Search(len(d.levels), func(j int) bool { return d.levels[j].Time >= x.t })
		if j = max(j, first); j < len(d.levels) {
			d.arrived[j] += step
			if x.t > d.settled {
				d.steps[j].add(x)
			}
		}
		if x.t > max(read, d.settled) && x.t <= to {
			kept.add(x)
		}
	})
	p.steps = kept
	for j := first + 1; j < len(d.levels); j++ {
		d.arrived[j] += d.arrived[j-1]
	}
}

// outermost reports whether n is a request that is inside no other one of its process.
func (d *Device) outermost(n *node) bool {
	p := d.at(n.parent)
	return n.timed() == onHost && (p == nil || !p.known || p.timed() != onHost || p.proc != n.proc)
}

// steps are the starts and the ends of requests that arrived, between a level and the one before.
type steps struct {
	starts, ends int64 // how many
	start, end   int64 // mean times
}

func (s *steps) add(x point) {
	n, mean := &s.ends, &s.end
	if x.start {
		n, mean = &s.starts, &s.start
	}
	*n++
	*mean += (x.t - *mean) / *n
}

// since returns the time from which a level applies: the starts of requests that arrived if there
// are more absent ones than at the level before, since requests come in bursts, and their ends if
// there are fewer, or the level itself if they end after it; otherwise the middle between the two.
func (d *Device) since(j int) int64 {
	if l := d.levels[j]; l.Running >= 0 {
		if j == 0 {
			return min(l.Time, d.settled)
		}
		if before := d.levels[j-1]; before.Running == devicesamples.LoadAhead {
			return before.Time
		} else if before.Running >= 0 {
			if j < len(d.steps) {
				more := l.Running - d.arrived[j] - (before.Running - d.arrived[j-1])
				switch x := &d.steps[j]; {
				case more > 0 && x.starts > 0:
					return x.start
				case more < 0 && x.ends > 0:
					return x.end
				case more < 0 && l.Running < d.arrived[j]: // it misses requests that still run
					return l.Time
				}
			}
			return before.Time + (l.Time-before.Time)/2
		}
	}
	return d.levels[j].Time
}

// running returns how many requests run from a level to the next one; 0 if that is unknown.
func (d *Device) running(j int) float64 {
	if l := d.levels[j]; l.Running != devicesamples.LoadAhead {
		return max(0, l.Running)
	} else if j+1 < len(d.levels) {
		return max(0, d.levels[j+1].Running)
	}
	return 0
}

// judge compares a process's count with the requests that have arrived, over about a minute of
// readings one second apart. A count that is stale is too high as often as it is too low; requests
// without a span make it too high only.
type judge struct {
	more, less float64 // how much the readings exceeded, and were below, what had arrived
	arrived    float64 // requests that had arrived, by reading
	readings   float64 // when any had arrived
}

const (
	// judgeFades is by how much older readings weigh less.
	judgeFades = 63. / 64
	// mostBelow is the share of the requests with a span that a count may miss before it is wrong,
	// in at least judgeReadings.
	mostBelow, judgeReadings = 0.25, 1.9
)

func (j *judge) fade() {
	for _, x := range []*float64{&j.more, &j.less, &j.arrived, &j.readings} {
		*x *= judgeFades
	}
}

func (j *judge) add(running, arrived float64) {
	if running == 0 && arrived == 0 {
		return
	}
	j.fade()
	j.more += max(0, running-arrived)
	j.less += max(0, arrived-running)
	j.arrived += arrived
	if arrived > 0 {
		j.readings++
	}
}

// absent returns which part of what readings exceed the arrived requests by is not a matter of
// their age.
func (j *judge) absent() float64 {
	if j.less == 0 {
		return 1
	}
	return max(0, j.more-j.less) / max(j.more, j.less)
}

// Contradicts reports whether the count of a process is lower than the requests that ran by their
// spans.
func (d *Device) Contradicts(process uint64) bool {
	i, ok := d.procs.byID[process]
	if !ok {
		return false
	}
	j := &d.procs.all[i].judge
	return j.readings >= judgeReadings && j.less-j.more > mostBelow*j.arrived
}

// moves are how much the number of absent requests differs between successive readings, over about
// a minute.
type moves struct {
	time   int64   // of the last reading
	absent float64 // at it

	readings, gap float64 // how many, and the ns between them
	change        float64 // sum of squares of the differences
	running       float64 // sum of the requests that run
	runningSquare float64
	seen, met     float64 // sum of the requests with a span, and of the absent ones beside each
	any           float64 // readings with absent ones
	absents       float64 // sum of the absent ones
	absentSquare  float64
}

func (m *moves) add(t int64, running, arrived, trusted float64) {
	absent := max(0, running-arrived) * trusted
	if m.time > 0 && t > m.time {
		sums := []*float64{
			&m.readings, &m.gap, &m.any, &m.change, &m.running, &m.runningSquare, &m.absents, &m.absentSquare, &m.seen, &m.met,
		}
		change := absent - m.absent
		for i, more := range []float64{
			1, float64(t - m.time), min(math.Ceil(absent), 1), change * change,
			running, running * running, absent, absent * absent, arrived, arrived * absent,
		} {
			*sums[i] = judgeFades**sums[i] + more
		}
	}
	m.time, m.absent = t, absent
}

// minReadings is the number of readings from which their mean is used.
const minReadings = 10

// beside returns how many absent requests run while a request runs, if the nearest reading states
// absent and none that has a span ran at it. Such a reading tells little about requests that are
// shorter than the time between two: what others met is better, because bursts have more requests
// than readings. The plain mean has half of the weight, because power rises with the number, too.
func (m *moves) beside(absent float64) float64 {
	variance := m.absentSquare - m.absents*m.absents/max(m.readings, 1)
	if variance <= 0 || m.readings < minReadings || m.seen == 0 {
		return absent
	}
	unlike := min(max(0, m.change/variance-1), 1) // 0 at half of the difference of unrelated readings
	return absent + unlike*((m.met/m.seen+m.absents/m.any)/2-absent)
}

// mostCountError bounds the part of a share that may be an error of the count.
const mostCountError = 1

// CountError returns the part of the share of a request of some length, in ns, that may be wrong in
// 95 % of requests because the number of absent requests between two readings is unknown: two
// standard deviations of that number, of the requests that run. A request between two readings may
// have none of its own; over several readings, deviations cancel.
func (d *Device) CountError(process uint64, length int64) float64 {
	i, ok := d.procs.byID[process]
	if !ok {
		return 0
	}
	m := &d.procs.all[i].moves
	if m.change == 0 || m.running == 0 {
		return 0
	}
	deviation := math.Sqrt(m.change / m.readings)
	if periods := float64(length) * m.readings / m.gap; periods > 1 {
		deviation /= 2 * math.Sqrt(periods)
	}
	return min(2*deviation*m.running/m.runningSquare, mostCountError)
}

// changeUntil applies the changes up to a time.
func (s *sweep) changeUntil(t int64) {
	d := s.d
	for ; s.changed < len(d.changes) && d.changes[s.changed].time <= t; s.changed++ {
		c := &d.changes[s.changed]
		p := &d.procs.all[c.proc]
		if p.absent == c.absent && p.beside == c.beside {
			continue
		}
		s.advanceBy(c.time)
		p.advance(d.v)
		was := p.active()
		p.absent, p.beside = c.absent, c.beside
		switch {
		case p.active() && !was:
			d.activate(p, 1)
		case was && !p.active():
			d.activate(p, -1)
		}
	}
}

// collectUnseen moves the parts of absent spans from the attributed total to their own.
func (d *Device) collectUnseen() {
	for i := range d.procs.all {
		p := &d.procs.all[i]
		if p.absent > 0 || p.unseen > 0 || p.weight != [2]float64{float64(p.inner[0]), float64(p.inner[1])} {
			p.advance(d.v)
			d.totals.Attributed -= p.unseen
			d.totals.Unseen += p.unseen
			p.unseen = 0
		}
	}
}

// crowd returns how many spans share a piece of time that was free when a late span arrived.
func (d *Device) crowd(s Span, p interval, m Meter) float64 {
	n := max(1, s.Weight)
	if !s.Yields {
		return n
	}
	d.levels = m.Levels(s.Process, p.from, p.to, d.levels[:0])
	if len(d.levels) == 0 {
		return n
	}
	d.arrived = d.arrived[:0]
	for _, l := range d.levels {
		one := 0.
		if s.Start <= l.Time && l.Time < s.End {
			one = 1
		}
		d.arrived = append(d.arrived, one)
	}
	// The reciprocal is averaged: the span has 1/running of each instant.
	share, at := 0., p.from
	part := func(to int64, others float64) {
		if to = min(to, p.to); to > at {
			share += float64(to-at) / max(n, 1+others)
			at = to
		}
	}
	part(d.levels[0].Time, 0)
	for j := range d.levels {
		to := p.to
		if j+1 < len(d.levels) {
			to = d.since(j + 1)
		}
		part(to, max(0, d.running(j)-d.arrived[j]))
	}
	return float64(p.to-p.from) / share
}

// maxWeights bounds the different weights of a device's spans; further ones are rounded to the
// nearest known one.
const maxWeights = 1 << 6

// weight returns the index of a weight.
func (d *Device) weight(w float64) uint8 {
	if !(w > 1) || math.IsInf(w, 0) {
		return 0
	}
	best := 0
	for i, known := range d.weights {
		if known == w {
			return uint8(i)
		}
		if math.Abs(known-w) < math.Abs(d.weights[best]-w) {
			best = i
		}
	}
	if len(d.weights) == maxWeights {
		return uint8(best)
	}
	d.weights = append(d.weights, w)
	return uint8(len(d.weights) - 1)
}
