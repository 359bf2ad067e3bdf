// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import "math"

// lags are by how many seconds a power reading can be later than the counter, as candidates.
var lags = [...]float64{0, .0125, .025, .05, .075, .1, .15, .2, .3, .4, .5, .6, .75, 1}

const (
	longestLag = 1.0 // s
	linear     = 0   // candidate: energy is linear between two knots; candidate i is power at lags[i-1]
	candidates = len(lags) + 1
	// linearFavor multiplies the squared residual of the linear candidate, which wins only if it is
	// clearly better.
	linearFavor = 1.1
	// undecided is the difference of squared residuals, relative to the error of refresh times,
	// that shows nothing.
	undecided = 1e-4
	// doubt is this difference after the first left-out knot, relative to the least squared residual.
	doubt = 16
	// scoreHalf and gainHalf are the half-lives of the forgetting means, in knots.
	scoreHalf, shapeHalf, gainHalf = 128, 64, 8
)

// choose returns the shape that predicts left-out knots best.
func (e *Energy) choose() int {
	if !e.power.known() || e.track.exact() {
		return linear
	}
	if e.scored == 0 {
		if e.track.period()*float64(e.thin.every) < 2*e.power.gap {
			return linear
		}
		return e.nearest()
	}
	n := candidates
	if e.power.gap > longestLag {
		n = 2
	}
	// At steady power all candidates are right, and the usual lag is the best guess for when it
	// changes.
	least := e.scores[linear] * linearFavor
	for _, x := range e.scores[1:n] {
		least = min(least, x)
	}
	margin := undecided * e.calib.time
	if e.thin.groups < groupsToDecide { // a few knots are best explained by chance
		margin += least * doubt / float64(e.scored)
	}
	if usual := e.nearest(); usual < n && e.scores[usual] <= least+margin {
		return usual
	}
	best := linear
	for i := 1; i < n; i++ {
		if e.scores[i] <= least {
			best = i
		}
	}
	return best
}

// usualLag returns by how much power is late before the candidates have been compared. Knots cannot
// wait for power that is read rarely.
func (e *Energy) usualLag(metered bool) float64 {
	if metered && e.power.gap > longestLag {
		return 0
	}
	return e.power.lag()
}

// nearest returns the candidate that is nearest to the usual lag.
func (e *Energy) nearest() int {
	usual, best := e.usualLag(true), 1
	for i, lag := range lags {
		if math.Abs(lag-usual) < math.Abs(lags[best-1]-usual) {
			best = i + 1
		}
	}
	return best
}

// value returns a candidate's shape at t.
func (e *Energy) value(candidate int, t float64) float64 {
	if candidate == linear {
		return t
	}
	v, _ := e.power.at(t + lags[candidate-1])
	return v
}

func (e *Energy) shape(p *period, t float64) float64 {
	if p.linear {
		return t
	}
	v, _ := e.power.at(t + p.lag)
	return v
}

// score learns from each knot that has both neighbors how well the candidates predict it.
func (e *Energy) score() {
	for len(e.pending) >= 2 {
		k := e.pending[min(2, len(e.pending)-1)]
		if e.power.known() && e.power.newest() < k.t+longestLag && !e.powerStopped(k.hi) {
			return
		}
		if len(e.pending) == 2 {
			if e.gained == 0 {
				e.learnGain(e.pending[0], e.pending[1])
			}
			return
		}
		a, b, c := e.pending[0], e.pending[1], e.pending[2]
		e.learnGain(b, c)
		n := candidates
		if !e.power.known() {
			n = 1
		}
		weight := 1 - math.Exp2(-1.0/scoreHalf)
		for i := range n {
			s0, s1, s2 := e.value(i, a.t), e.value(i, b.t), e.value(i, c.t)
			r := a.v + (c.v-a.v)*(s1-s0)/max(s2-s0, 1e-9) - b.v
			e.scores[i] += (r*r - e.scores[i]) * max(weight, 1/float64(e.scored+1))
		}
		e.scored++
		e.calib.learn(e, a, b, c)
		e.pending = e.pending[:copy(e.pending, e.pending[1:])]
	}
}

// learnGain learns the joules per unit of each shape between two knots.
func (e *Energy) learnGain(a, b knot) {
	weight := max(1-math.Exp2(-1.0/gainHalf), 1/float64(e.gained+1))
	which := e.choose()
	for i := range candidates {
		if i != linear && !e.power.known() {
			break
		}
		d := e.value(i, b.t) - e.value(i, a.t)
		if d <= 0 {
			continue
		}
		ratio := (b.v - a.v) / d
		if i == which && e.gained > 0 && e.gains[i] > 0 {
			off := math.Abs(ratio/e.gains[i] - 1)
			e.gainOff += (off - e.gainOff) * max(1-math.Exp2(-1.0/gainHalf), 1/float64(e.gained))
		}
		e.gains[i] += (ratio - e.gains[i]) * weight
	}
	e.gained++
}
