// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import "math"

// calibration compares the errors of left-out knots with what the bound predicts for them,
// continuously.
type calibration struct {
	residual, time, shape float64 // mean squares
	n                     int
}

// leastTime is the least share of the predicted error of refresh times that is stated,
// leastCalibrated the number of left-out knots from which it is less than the whole.
const leastTime, leastCalibrated, leastShapes = 0.04, 3, 6

// mostFactor is the largest factor of the error of the shape.
const mostFactor = 3

// timeFactor returns the share of the error of refresh times that is stated: less than the whole if
// left-out knots show that knots are placed far better than their windows, as the knots of a
// regular counter at steady power are.
func (c *calibration) timeFactor() float64 {
	if c.n < leastCalibrated {
		return 1
	}
	least := min(max(5*math.Sqrt(c.residual/max(c.time+c.shape, 1e-9)), leastTime), 1)
	// What the largest factor of the shape does not explain: the counter is older than assumed.
	return max(least, math.Sqrt(max(c.residual-mostFactor*mostFactor*c.shape, 0)/max(c.time, 1e-9)))
}

// seen returns the root mean square of the errors of the shape that the factor was learned from.
func (c *calibration) seen() float64 {
	if c.n < leastShapes {
		return 0
	}
	return math.Sqrt(c.shape)
}

// factor returns the ratio of the errors of the shape to the predicted ones. Until left-out knots
// show it, an unknown lag of power is assumed.
func (c *calibration) factor() float64 {
	least := 0.5
	if c.n < leastShapes {
		least = 1.5
	}
	return min(max(math.Sqrt(max(c.residual-c.time, 0)/max(c.shape, 1e-9)), least), mostFactor)
}

// learn learns from the knot b between a and c.
func (c *calibration) learn(e *Energy, a, b, d knot) {
	which := e.choose()
	left, right := (b.v-a.v)/(b.t-a.t), (d.v-b.v)/(d.t-b.t)
	p := period{
		k0: a.t, k1: d.t, ended: true, window: max(a.window, b.window, d.window), mean: (d.v - a.v) / (d.t - a.t),
		spread: math.Sqrt(e.steps), linear: which == linear, sharp: 1,
	}
	if !p.linear {
		p.lag = lags[which-1]
		_, p.steps0 = e.power.at(a.t + p.lag)
		_, p.steps1 = e.power.at(d.t + p.lag)
		p.recent = e.power.recent(a.t + p.lag)
	}
	steps := 0.0
	if !p.linear {
		_, steps = e.power.at(b.t + p.lag)
	}
	time, shape := e.ends(&p, max(left, right), math.Abs(right-left), b.t, steps, 1)
	s0, s1, s2 := e.value(which, a.t), e.value(which, b.t), e.value(which, d.t)
	r := math.Abs(a.v + (d.v-a.v)*(s1-s0)/max(s2-s0, 1e-9) - b.v)
	r = min(r, 30*math.Hypot(time, shape)+1e-6)
	c.n++
	weight := max(1-math.Exp2(-1.0/shapeHalf), 1/float64(c.n))
	c.residual += (r*r - c.residual) * weight
	c.time += (time*time - c.time) * weight
	c.shape += (shape*shape - c.shape) * weight
}
