// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package clockmap

import "math"

// fit is the line through the anchors of the window, and the limits of the rate.
type fit struct {
	gpu, host float64 // a point of the line: the newest anchor's GPU time and its estimated host time
	rate      float64 // host ns per GPU ns
}

func (f *fit) at(gpu float64) float64 { return f.host + (gpu-f.gpu)*f.rate }

// rateKnown is a rate with its variance, from before the window: initially that oscillators agree
// within tens of ppm, later the result of an earlier window, so that after an idle hour the first
// sections are placed as accurately as the last.
type rateKnown struct{ rate, variance float64 }

const (
	nominalError = 50e-6 // of an oscillator
	rememberedAt = 10e9  // GPU ns that a window must span for its rate to be kept
)

// tight is how much wider than the tightest anchor another may be and still count for the rate.
const tight = 1.5

// guardFloor is the minimum relative uncertainty of the rate that the estimate assumes: how much
// rates drift within a window.
const guardFloor = 5e-9

// refit computes the line and the limits; false when the anchors contradict each other under the
// present limits.
func (m *Map) refit() bool {
	newest := &m.anchors[len(m.anchors)-1]
	lo, hi := m.limits(newest.gpu)
	if newest.slow-newest.fast > m.opts.MaxRateChange*1e-6*m.slack+roundings || lo > hi {
		return false
	}
	slow, fast := m.rates(newest, 0)
	rate, guard := m.regress(newest.gpu)
	rate = min(max(rate, slow), fast)
	m.fit = fit{gpu: newest.gpu, rate: rate, host: min(max(m.centre(newest.gpu, rate, guard), lo), hi)}
	return true
}

// regress returns the least-squares slope of the middles of the tight anchors, combined with the
// previously known rate by the variances of both, and three standard errors of it. With fewer than
// three tight anchors the known rate is returned.
func (m *Map) regress(ref float64) (rate, guard float64) {
	anchors, width := m.current(), math.Inf(1)
	for i := range anchors {
		width = min(width, anchors[i].after-anchors[i].before)
	}
	width *= tight
	var n, sx, sy float64
	host := anchors[len(anchors)-1].before
	for i := range anchors {
		if p := &anchors[i]; p.after-p.before <= width {
			n++
			sx += p.gpu - ref
			sy += p.mid(host) - (p.gpu - ref)
		}
	}
	if n < 3 {
		return m.known.rate, 3 * math.Sqrt(m.known.variance)
	}
	mx, my := sx/n, sy/n
	var sxx, sxy, syy float64
	for i := range anchors {
		if p := &anchors[i]; p.after-p.before <= width {
			x := p.gpu - ref - mx
			y := p.mid(host) - (p.gpu - ref) - my
			sxx += x * x
			sxy += x * y
			syy += y * y
		}
	}
	slope := sxy / sxx
	// a burst bounds its stamp, which is truncated
	width += float64(m.opts.Tick)
	variance := max(syy-slope*sxy, 0)/(n-2)/sxx + width*width/12/sxx/n // the second: few points can agree by chance
	weight := m.known.variance / (m.known.variance + variance)
	return m.known.rate + weight*(1+slope-m.known.rate), 3*math.Sqrt(weight*variance) + guardFloor
}

// mid returns the middle of the anchor's interval relative to host.
func (p *point) mid(host float64) float64 { return (p.before-host)/2 + (p.after-host)/2 }

// centre returns the middle of the intersection of all intervals, projected to ref with the rate
// and widened by guard times their age; the guard doubles until they intersect.
func (m *Map) centre(ref, rate, guard float64) float64 {
	anchors := m.current()
	for ; ; guard *= 2 {
		lo, hi := math.Inf(-1), math.Inf(1)
		for i := range anchors {
			p := &anchors[i]
			age := ref - p.gpu
			lo = max(lo, p.before+(rate-guard)*age)
			hi = min(hi, p.after+(rate+guard)*age)
		}
		if lo <= hi {
			return (lo + hi) / 2
		}
	}
}

// A jump is one clock standing still while the other goes on, as CLOCK_MONOTONIC does when a
// virtual machine is paused. The rate before and after is the same, the distance of the clocks is
// not:
//
//	host  ───a────a────a──╮                 a: anchors
//	                      ╰──a────a────a──  between the two anchors the side of an event is unknown
//
// So anchors on one side say nothing of the position on the other. What lies between the two gets
// the limits of both.
const (
	minJump    = 20e3 // ns; smaller ones are changes of rate, or within the bound
	minSegment = 4    // anchors between two jumps: with fewer the rate has changed instead
	maxJumps   = 64   // that are remembered
)

// jump lies between two anchors.
type jump struct {
	from, to float64 // GPU times of the last anchor before and of the first after
	size     float64 // ns, at most
	segment  int     // that begins after it
}

// jumps are the observed ones, oldest first.
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

// segment returns the segment that contains a GPU time. gap: it may also be in the previous one.
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

// size returns the size of the jump at which a segment begins; 0 for a forgotten one.
func (j *jumps) size(segment int) float64 {
	for i := range j.list {
		if j.list[i].segment == segment {
			return j.list[i].size
		}
	}
	return 0
}

// lookForJump starts a new segment at an anchor that is inconsistent with those before it.
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

// current returns the anchors since the last jump.
func (m *Map) current() []point {
	i := len(m.anchors)
	for i > 0 && m.anchors[i-1].segment == m.jumps.made {
		i--
	}
	return m.anchors[i:]
}
