// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

// A jump is one clock standing still while the other goes on, as CLOCK_MONOTONIC does when a virtual machine is paused.
// The rate before and after is the same, the distance of the clocks is not:
//
//	host  ───a────a────a──╮                 a: anchors
//	                      ╰──a────a────a──  between the two anchors around the jump nobody knows on which side an event lies
//
// So anchors on one side say nothing of the position on the other. What lies between the two gets the limits of both.
const (
	minJump    = 20e3 // ns; less is a change of rate, or stays within the bound
	minSegment = 4    // anchors between two jumps: with fewer it is the rate that has changed
	maxJumps   = 64   // that are remembered
)

// jump lies between two anchors.
type jump struct {
	from, to float64 // GPU times of the last anchor before and of the first after
	size     float64 // ns, at most
	segment  int     // that begins after it
}

// jumps are those that were seen, oldest first.
type jumps struct {
	list []jump
	made int // since the map began: the segment of now
}

func (j *jumps) add(from, to, size float64) {
	if len(j.list) == maxJumps {
		j.list = j.list[:copy(j.list, j.list[1:])]
	}
	j.made++
	j.list = append(j.list, jump{from, to, size, j.made})
}

// segment is the one that a GPU time lies in. gap: it may as well lie in the one before.
func (j *jumps) segment(gpu float64) (segment int, gap bool) {
	segment = j.made
	for i := len(j.list) - 1; i >= 0; i-- {
		switch k := &j.list[i]; {
		case gpu >= k.to:
			return segment, false
		case gpu > k.from:
			return segment, true
		default:
			segment = k.segment - 1
		}
	}
	return segment, false
}

// size is that of the jump at which a segment begins; 0 of one that is forgotten.
func (j *jumps) size(segment int) float64 {
	for i := range j.list {
		if j.list[i].segment == segment {
			return j.list[i].size
		}
	}
	return 0
}

// lookForJump begins a new segment with an anchor that lies where those before it cannot have led.
func (m *Map) lookForJump(p *point) {
	p.segment = m.jumps.made
	n := len(m.anchors)
	if n == 0 || len(m.current()) < minSegment {
		return
	}
	lo, hi := m.limitsOf(p.segment, p.gpu)
	if max(lo-p.after, p.before-hi) < minJump {
		return
	}
	m.anomalies.Add(1)
	m.jumps.add(m.anchors[n-1].gpu, p.gpu, max(p.after-lo, hi-p.before))
	p.segment = m.jumps.made
	change := m.opts.MaxRateChange * 1e-6
	m.known = rateKnown{m.fit.rate, change * change}
}

// current are the anchors since the last jump.
func (m *Map) current() []point {
	i := len(m.anchors)
	for i > 0 && m.anchors[i-1].segment == m.jumps.made {
		i--
	}
	return m.anchors[i:]
}
