// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package attribution

import (
	"cmp"
	"slices"
)

// Window is a time and how its energy was divided among processes, with or without spans. A process
// gets its own share of it while its spans run, and nothing of what others used. Outside of windows,
// processes with spans get equal parts.
type Window struct {
	From, To int64
	Parts    []Part
}

// Part is the part of a process with spans. A process without one shares equally with its like what
// the others leave.
type Part struct {
	Process  uint64
	Share    float64 // of the device's energy, from 0 to 1
	Resident float64 // share of the time in which its kernels ran, from 0 to 1
}

// of returns the part of a process.
func (w *Window) of(process uint64) (Part, bool) {
	for _, p := range w.Parts {
		if p.Process == process {
			return p, true
		}
	}
	return Part{}, false
}

// integrals are what processes draw from: the device's flow, whole, and divided by the number of
// active processes whose part is unknown.
type integrals struct{ equal, whole sum }

// flow returns what the process had since it was last advanced.
func (p *process) flow(v integrals) (flow float64) {
	if p.matched {
		flow = p.rate * v.whole.since(p.seen.whole)
	} else {
		flow = v.equal.since(p.seen.equal)
	}
	p.seen = v
	return flow
}

// activate counts an active process more, or less.
func (d *Device) activate(p *process, by int) {
	d.active += by
	if p.matched {
		d.matched += by
		if d.rates += float64(by) * p.rate; d.matched == 0 {
			d.rates = 0 // subtraction leaves a rounding error
		}
	}
}

// usage is the time and the energy of a window in which a process had active spans, and what these
// have of the energy.
type usage struct {
	time         int64
	energy, used float64
}

// claimed is the usage of a process while points are read.
type claimed struct {
	usage
	active int
	since  int64
	value  float64 // of the line at since
}

// until adds the time until t, at which the line has a value.
func (c *claimed) until(t int64, value float64) {
	if c.active > 0 {
		c.time += t - c.since
		c.energy += value - c.value
	}
	c.since, c.value = t, value
}

// partly is what was settled of a window.
type partly struct {
	from   int64 // of the window
	length int64
	energy float64
	by     map[uint64]usage // by process
}

// stretch is a window inside of a move of the settled time, or the time between two windows.
type stretch struct {
	from   int64
	window *Window           // nil: unknown
	rates  map[int32]float64 // of processes that have a part
}

// collectStretches finds which part of the flow each process has while its spans are active. They
// get the whole share of the process in a window, if its kernels can have run inside of them: less
// if the kernels ran for longer. Spans that end after the move, but in the window, count, too.
func (d *Device) collectStretches(to int64, m Meter) {
	d.stretches = d.stretches[:0]
	if d.windows = m.Windows(d.settled, to, d.windows[:0]); len(d.windows) == 0 {
		return
	}
	r := d.reader(max(to, d.windows[len(d.windows)-1].To), m)
	last := d.settled
	for i := range d.windows {
		w := &d.windows[i]
		from, stop := max(w.From, last), min(w.To, to)
		if from >= stop {
			continue
		}
		if from > last {
			d.stretches = append(d.stretches, stretch{from: last})
		}
		if d.past.from != w.From || w.From >= d.settled {
			d.past = partly{from: w.From, by: map[uint64]usage{}}
		}
		before := r.begin(from)
		r.read(stop)
		at := slices.Clone(r.claims) // at the end of the move
		middle := r.value
		r.read(w.To)
		s := stretch{from: from, window: w, rates: map[int32]float64{}}
		for j := range r.claims {
			p := &d.procs.all[j]
			part, ok := w.of(p.id)
			if !ok || d.procs.byID[p.id] != int32(j) {
				continue
			}
			past := d.past.by[p.id]
			rate := part.rate(past, r.claims[j].usage, d.past.length+w.To-from, d.past.energy+r.value-before)
			s.rates[int32(j)] = rate
			past.time += at[j].time
			past.energy += at[j].energy
			past.used += rate * at[j].energy
			d.past.by[p.id] = past
		}
		d.past.length += stop - from
		d.past.energy += middle - before
		d.stretches = append(d.stretches, s)
		last = stop
	}
	if last < to {
		d.stretches = append(d.stretches, stretch{from: last})
	}
}

// claimReader reads the usage of all processes between two times.
type claimReader struct {
	d      *Device
	line   curve
	points []point
	claims []claimed // by number of the process
	value  float64   // of the line at the last time
}

// reader returns a reader from the settled time to an end.
func (d *Device) reader(end int64, m Meter) *claimReader {
	r := &claimReader{d: d, claims: make([]claimed, len(d.procs.all))}
	d.ahead = m.Knots(d.settled, end, d.ahead[:0])
	r.line.knots = d.ahead
	d.points.each(end, func(p point) { r.points = append(r.points, p) })
	slices.SortFunc(r.points, func(a, b point) int { return cmp.Compare(a.t, b.t) })
	for i := range d.procs.all {
		p := &d.procs.all[i]
		if r.claims[i].active = p.running; p.absent > 0 { // by its own count it always runs requests
			r.claims[i].active++
		}
	}
	return r
}

// begin starts a window at a time and returns the value of the line there.
func (r *claimReader) begin(t int64) float64 {
	r.read(t)
	for i := range r.claims {
		c := &r.claims[i]
		c.usage, c.since, c.value = usage{}, t, r.value
	}
	return r.value
}

// read reads until t.
func (r *claimReader) read(t int64) {
	for ; len(r.points) > 0 && r.points[0].t <= t; r.points = r.points[1:] {
		p := r.points[0]
		c := &r.claims[r.d.at(p.n).proc]
		value, _ := r.line.at(p.t)
		c.until(p.t, value)
		if c.active--; p.start {
			c.active += 2
		}
	}
	r.value, _ = r.line.at(t)
	for i := range r.claims {
		r.claims[i].until(t, r.value)
	}
}

// rate returns the part of the flow that a process has while its spans are active, in a window of a
// length and an energy, of which a past part is settled: at least its share.
func (p *Part) rate(past, next usage, length int64, energy float64) float64 {
	if next.energy <= 0 {
		return min(p.Share, 1)
	}
	ran := min(float64(past.time+next.time)/(max(p.Resident, 1e-3)*float64(length)), 1)
	all := p.Share * max(ran*energy, past.energy+next.energy)
	return min(max(0, (all-past.used)/next.energy), 1)
}

// stretchUntil begins the stretches up to a time.
func (s *sweep) stretchUntil(t int64) {
	d := s.d
	for ; s.stretched < len(d.stretches) && d.stretches[s.stretched].from <= t; s.stretched++ {
		x := &d.stretches[s.stretched]
		s.advanceBy(x.from)
		d.match(x)
	}
}

// match sets the parts of processes.
func (d *Device) match(x *stretch) {
	d.matched, d.rates, d.shares = 0, 0, 0
	d.known = x != nil && x.window != nil
	if d.known {
		for _, p := range x.window.Parts {
			d.shares += p.Share
		}
		d.shares = min(d.shares, 1)
	}
	for i := range d.procs.all {
		p := &d.procs.all[i]
		p.advance(d.v)
		if p.matched = false; d.known {
			p.rate, p.matched = x.rates[int32(i)], false
			_, p.matched = x.rates[int32(i)]
		}
		if p.matched && p.active() {
			d.matched++
			d.rates += p.rate
		}
	}
}

// divided returns how much of a flow active spans have, and how much other processes.
func (d *Device) divided(flow float64) (spans, others float64) {
	spans = d.rates * flow
	rest := (1 - d.shares) * flow
	if equal := d.active - d.matched; equal > 0 {
		d.v.equal.add(rest / float64(equal))
		return spans + rest, 0
	}
	return spans, rest
}

// fraction returns which part of the energy of free time a process has.
func (d *Device) fraction(process uint64, x interval, m Meter) float64 {
	d.windows = m.Windows(x.from, x.to, d.windows[:0])
	part, known := 0., int64(0)
	for i := range d.windows {
		w := &d.windows[i]
		length := min(w.To, x.to) - max(w.From, x.from)
		if length <= 0 {
			continue
		}
		share := 1.
		if p, ok := w.of(process); ok {
			share = p.rate(usage{}, usage{time: length, energy: float64(length)}, w.To-w.From, float64(w.To-w.From))
		} else {
			for _, p := range w.Parts {
				share -= p.Share
			}
		}
		part += max(0, share) * float64(length)
		known += length
	}
	return (part + float64(x.to-x.from-known)) / float64(x.to-x.from)
}
