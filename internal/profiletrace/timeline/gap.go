// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"slices"

	"github.com/otelgpu/otelgpu/internal/intervals"
)

// Launch is the call that put the work which ends a gap on the device.
type Launch struct {
	Known      bool
	Start, End int64
	Previous   int64  // end of the launch before, by the same thread or the main one
	Recorded   int64  // what the profiler's recording cost the thread since its launch before, in ns; an estimate
	Waits      int64  // waits for the device, so far, of the launching process
	Unit       Unit   // the unit that it belongs to
	Threads    []*Log // the launching thread, then threads that it may have waited for
	// Others returns the name of what another thread did for most of an interval; 0: nothing. May
	// be nil.
	Others func(from, to int64) uint32
	// Beside returns the device that worked during most of an interval while this one did not; 0:
	// none. May be nil.
	Beside func(from, to int64) uint32

	Lead *Lead // of the device; nil: none
	// Lost is when launched work without a record may have run, in order.
	Lost intervals.Set
}

// Lead is the head start that a wait took from the host: without the wait it would have been that
// much earlier. The cost is the idle time until the queue has filled again, within some launches.
type Lead struct {
	time     int64
	wait     piece
	Launches int // for so many more

	recorded int64 // how much earlier the host would launch without what recording has cost since a wait for the device
	waits    int64 // of those launches
}

// Record adds what recording cost the host until a launch. A wait for the device takes the head
// start from it.
func (a *Lead) Record(l *Launch) {
	if a.waits != l.Waits {
		a.waits, a.recorded = l.Waits, 0
	}
	a.recorded += l.Recorded
}

// refill is the number of launches after a wait within which a device that runs empty again is
// still idle because of it.
const refill = 8

// Unit is what work belongs together in: a step, else the outermost range on the host.
type Unit struct {
	Start, End int64
	Name       uint32
}

// Share is a part of a gap.
type Share struct {
	Claim
	Others uint32 // what another thread did meanwhile, of the host's own work only
	Waited int64  // of CauseAfterWait: time for which work would have overlapped the device without the wait
	// of CauseDispatch and CauseLatency: what the profiler's recording cost the host, an estimate
	Recorded int64
}

// Splitter finds the causes of gaps; its lists are reused. The zero value is ready.
type Splitter struct {
	pieces, other []piece
	shares        []Share
}

func (s *Splitter) put(from, to int64, c Cause, name, in uint32) {
	if to <= from {
		return
	}
	if n := len(s.shares); n > 0 {
		if x := &s.shares[n-1]; x.To == from && x.Cause == c && x.Name == name && x.In == in {
			x.To = to
			return
		}
	}
	s.shares = append(s.shares, Share{Claim: Claim{from, to, Idle, c, name, in}})
}

// Split finds the causes of the gap [from, to), which the launch ended; its parts add up to the
// gap.
func (s *Splitter) Split(from, to int64, l *Launch) []Share {
	s.shares = s.shares[:0]
	s.explain(from, to, l)
	for _, lost := range l.Lost {
		s.unrecorded(lost)
	}
	return s.shares
}

// unrecorded takes an interval from the causes that were found: the device may have worked.
func (s *Splitter) unrecorded(lost intervals.Interval) {
	for i := 0; i < len(s.shares); i++ {
		x := s.shares[i]
		from, to := max(x.From, lost.Start), min(x.To, lost.End)
		if from >= to || x.Cause == CauseNotRecorded {
			continue
		}
		parts := make([]Share, 0, 3)
		part := func(from, to int64, c Cause) {
			if from < to {
				y := Share{Claim: Claim{From: from, To: to, Class: Idle, Cause: c}}
				if c != CauseNotRecorded {
					y = x
					y.From, y.To = from, to
					y.Waited, y.Recorded = min(y.Waited, to-from), min(y.Recorded, to-from)
				}
				parts = append(parts, y)
			}
		}
		part(x.From, from, x.Cause)
		part(from, to, CauseNotRecorded)
		part(to, x.To, x.Cause)
		s.shares = slices.Replace(s.shares, i, i+1, parts...)
		i += len(parts) - 1
	}
}

// explain sets the shares of the gap by what the threads of the host did.
func (s *Splitter) explain(from, to int64, l *Launch) {
	if l.Known && l.End <= from {
		s.waited(from, to, l)
		return
	}
	late := to
	if l.Known {
		late = max(from, min(to, l.End))
	}
	s.pieces = s.pieces[:0]
	s.did(from-clockSlack, late, l.Threads)
	if !l.Known {
		for _, p := range s.pieces {
			start := max(p.start, from)
			switch p.class {
			case RangeLoader, RangePeer, RangeProfiler, RangeOutside:
				s.put(start, p.end, causeOf[p.class], p.name, p.in)
			default:
				c := CauseUnknown
				if p.awaits(start, l) {
					c = CauseNotRecorded
				}
				s.put(start, p.end, c, 0, 0)
			}
		}
		s.rest(from, to, CauseUnknown)
		return
	}
	s.host(from, l)
	s.rest(from, late, CauseHost)
	for i := range s.shares {
		x := &s.shares[i]
		own := x.Cause == CauseHost || x.Cause == CauseAfterWait
		if l.Others != nil && own && x.To-x.From > quietLimit {
			x.Others = l.Others(x.From, x.To)
		}
	}
	s.waited(late, to, l)
	s.record(l.Lead)
}

// awaits reports whether the host waited for the device from a time at which the device had no
// recorded work, for so long that it had other work. The call that launches the next work by itself
// may prepare it.
func (p *piece) awaits(start int64, l *Launch) bool {
	return p.class == CallWait && p.end-start > UnrecordedWait && !(l.Known && p.since == l.Start)
}

// record estimates how much of the dispatch, and of the latency after it, is what recording cost
// the host.
func (s *Splitter) record(a *Lead) {
	for i := range s.shares {
		if x := &s.shares[i]; a != nil && (x.Cause == CauseDispatch || x.Cause == CauseLatency) {
			x.Recorded = min(a.recorded, x.To-x.From)
			a.recorded -= x.Recorded
		}
	}
}

// waited adds the time in which the work was launched and did not run.
func (s *Splitter) waited(from, to int64, l *Launch) {
	c, name := CauseLatency, uint32(0)
	if to-from > LatencyLimit {
		if c = CauseDependency; l.Beside != nil {
			name = l.Beside(from, to)
		}
	}
	s.put(from, to, c, name, 0)
}

// rest assigns what no thread explains.
func (s *Splitter) rest(from, to int64, c Cause) {
	if n := len(s.shares); n > 0 {
		from = s.shares[n-1].To
	}
	s.put(from, to, c, 0, 0)
}

// did sets pieces to what the threads did: at each moment the activity of the most specific thread;
// if several are equal, of the first.
func (s *Splitter) did(from, to int64, threads []*Log) {
	for i, t := range threads {
		if i == 0 {
			s.pieces = t.over(s.pieces, from, to)
			continue
		}
		vague := false
		for _, p := range s.pieces {
			vague = vague || p.class.weight() < RangeOperator
		}
		if !vague {
			return
		}
		s.other = append(s.other[:0], s.pieces...)
		s.pieces = s.pieces[:0]
		for _, p := range s.other {
			if p.class.weight() == RangeOperator {
				s.pieces = append(s.pieces, p)
				continue
			}
			at := len(s.pieces)
			s.pieces = t.over(s.pieces, p.start, p.end)
			for j := at; j < len(s.pieces); j++ {
				x := &s.pieces[j]
				// Of two named ranges the later one is what the other thread waits for.
				within := x.class == RangeNamed && p.class == RangeNamed && x.since > p.since
				if x.class.weight() <= p.class.weight() && !within {
					x.hostState = p.hostState
				}
			}
		}
	}
}

// host assigns the pieces, which may start a little before the gap, to causes. A stretch is the
// time between two events that are causes by themselves; whether the host was busy launching is
// determined for each stretch. A wait costs at most its own length: without it, the host would have
// been that much earlier.
func (s *Splitter) host(from int64, l *Launch) {
	since := l.Previous // begin of the stretch
	cost := int64(0)    // what may still count for the wait with which it began
	after := false      // it began with one
	var none Lead
	a := l.Lead
	if a == nil {
		a = &none
	} else if a.Launches <= 0 {
		a.time = 0
	}
	for i := 0; i < len(s.pieces); {
		p := s.pieces[i]
		if c := causeOf[p.class]; c != CauseUnknown {
			if start := max(p.start, from); p.awaits(start, l) && (l.Beside == nil || l.Beside(start, p.end) == 0) {
				s.put(start, p.end, CauseNotRecorded, 0, 0)
			} else {
				s.put(start, p.end, c, p.name, p.in)
			}
			if since = p.end; c == CauseSynchronization {
				cost += p.end - p.since
				a.time += p.end - p.since
				a.wait, a.Launches, after = p, refill, true
			} else {
				cost, a.time, after = 0, 0, false
			}
			i++
			continue
		}
		end := i
		for end < len(s.pieces) && causeOf[s.pieces[end].class] == CauseUnknown {
			end++
		}
		quiet := min(s.pieces[end-1].end, max(l.Start, s.pieces[i].start)) - max(since, l.Previous)
		for ; i < end; i++ {
			p := s.pieces[i]
			start := max(p.start, from)
			busy := quiet <= quietLimit || quiet <= PauseLimit && p.end-p.start < longPiece || p.class == CallLaunch
			busy = busy && p.class != RangeSave
			left := a.time
			if !busy {
				left = min(left, cost)
			}
			// a range around the wait as well explains nothing more
			nameless := p.class <= RangeStep || p.since <= a.wait.start && p.class != RangeSave
			to := min(p.end, start+left)
			long := !busy && (quiet > PauseLimit || nameless && a.wait.in == 0 && p.end-start > AfterWait)
			// unless most of it comes after the wait, as in a range that copies a state to the host
			// and saves it
			specific := long && p.class > RangeStep && 2*(p.end-a.wait.end) > p.end-p.since
			switch {
			case start >= p.end || specific:
			case long && nameless && after:
				// It is too long to lead to the next launch: it is other work, which may need the
				// result of the wait.
				s.put(start, p.end, CauseAfterWait, a.wait.name, a.wait.in)
				s.shares[len(s.shares)-1].Waited += to - start
				a.time, cost, start = a.time-(to-start), cost-(to-start), p.end
			case left > 0 && (busy || nameless):
				s.put(start, to, CauseSynchronization, a.wait.name, a.wait.in)
				a.time, cost, start = a.time-(to-start), cost-min(cost, to-start), to
			}
			switch {
			case busy:
				s.put(start, p.end, CauseDispatch, p.name, p.in)
			case p.class <= RangeStep:
				s.put(start, p.end, CauseHost, 0, 0)
			default:
				s.put(start, p.end, CauseHost, p.name, p.in)
			}
		}
	}
}

// causeOf is the cause of ranges that are one by themselves; CauseUnknown of others.
var causeOf = [rangeCount]Cause{
	RangeLoader: CauseLoader, RangePeer: CausePeer, CallWait: CauseSynchronization, CallAllocate: CauseAllocation,
	CallOther: CauseCall, RangeProfiler: CauseProfiler, RangeOutside: CauseNoLoad, RangeCapture: CauseCapture,
}
