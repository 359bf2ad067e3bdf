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

// rateKnown is a rate with its variance, from before the window: at first that oscillators agree within tens of ppm,
// later what an earlier window said, so that after an idle hour the first sections are placed as well as the last.
type rateKnown struct{ rate, variance float64 }

const (
	nominalError = 50e-6 // of an oscillator
	rememberedAt = 10e9  // GPU ns that a window must span for its rate to be remembered
)

// tight is how much wider than the tightest anchor another may be and still count for the rate.
const tight = 1.5

// guardFloor is the least uncertainty of the rate, relative, that the estimate assumes: what rates wander within a
// window.
const guardFloor = 5e-9

// refit computes the line and the limits; false when the anchors contradict each other under the present limits.
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

// regress is the least-squares slope of the middles of the tight anchors, weighted with the rate that was known before
// by the variances of both, and three standard errors of it. With fewer than three tight anchors the known rate stands.
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
	// a burst says where its stamp lay, which is truncated
	width += float64(m.opts.Tick)
	variance := max(syy-slope*sxy, 0)/(n-2)/sxx + width*width/12/sxx/n // the second: few points can agree by chance
	weight := m.known.variance / (m.known.variance + variance)
	return m.known.rate + weight*(1+slope-m.known.rate), 3*math.Sqrt(weight*variance) + guardFloor
}

// mid is the middle of the anchor's interval relative to host.
func (p *point) mid(host float64) float64 { return (p.before-host)/2 + (p.after-host)/2 }

// centre is the middle of the intersection of all intervals, projected to ref with the rate and widened by guard times
// their age; the guard doubles until they intersect.
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
