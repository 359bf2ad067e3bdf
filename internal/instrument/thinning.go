// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package instrument

import (
	"math"
	"slices"
)

const (
	windowsPerPeriod = 22 // the unknown time of a refresh is then below 5 % of a period
	groupsToDecide   = 6
	groupHalf        = 16
	mostExcess       = 1.5      // of the residual of skipped changes over what their windows alone cause
	decisive         = 10       // likewise, from which one period shows that power does not explain the counter
	threeTimes       = 1.7 / 12 // variance of a skipped change and of two knots, each uniform in its window
)

// thinning decides whether only every n-th change of a counter is a knot: the unknown refresh time
// distorts short periods, and power can explain what the counter does between distant knots.
type thinning struct {
	every  int // 1: each change
	size   int // changes of a group; 0: not decided yet
	group  []knot
	scores [len(lags)]float64
	noise  float64
	groups int
}

// add adds a change. Until changes have been compared, power is assumed to explain the counter: the
// windows alone would otherwise hide the energy of short spans.
func (x *thinning) add(e *Energy, k knot) {
	x.group = append(x.group, k)
	if x.groups < groupsToDecide {
		x.every = 1
		if !e.track.exact() && len(e.power.pts) > 0 {
			x.every = max(x.sizeOf(e), 1)
		}
	}
}

func (x *thinning) restart() { x.group = x.group[:0] }

// sizeOf returns how many changes make a period of windowsPerPeriod windows that is known when it is settled.
func (x *thinning) sizeOf(e *Energy) int {
	n := len(x.group)
	if n < 2 {
		return 0
	}
	window := 0.0
	for _, k := range x.group {
		window += k.window / float64(n)
	}
	gap := (x.group[n-1].t - x.group[0].t) / float64(n-1)
	longest := min(windowsPerPeriod*window, e.settle-1)
	if gap <= 0 || longest < 2*gap {
		return 0
	}
	return int(math.Round(longest / gap))
}

// evaluate compares what power predicts for the changes inside of complete groups with the changes.
func (x *thinning) evaluate(e *Energy) {
	if e.track.exact() || len(e.power.pts) == 0 {
		x.group = x.group[:0]
		return
	}
	for {
		if x.size == 0 {
			if len(x.group) < groupsToDecide {
				return
			}
			if x.size = x.sizeOf(e); x.size < 2 {
				x.size = 0
				x.group = x.group[:copy(x.group, x.group[len(x.group)/2:])]
				return
			}
		}
		if len(x.group) <= x.size || e.power.newest() < x.group[x.size].t+longestLag {
			return
		}
		x.compare(e, x.group[:x.size+1])
		x.group = x.group[:copy(x.group, x.group[x.size:])]
	}
}

func (x *thinning) compare(e *Energy, group []knot) {
	n := len(group) - 1
	a, b := group[0], group[n]
	weight := max(1-math.Exp2(-1.0/groupHalf), 1/float64(x.groups+1))
	x.groups++
	p := (b.v - a.v) / (b.t - a.t)
	noise := 0.0
	for _, k := range group[1:n] {
		noise += p * p * k.window * k.window * threeTimes / float64(n-1)
	}
	x.noise += (noise - x.noise) * weight
	best := math.Inf(1)
	for i := range lags {
		s0, s1 := e.value(i+1, a.t), e.value(i+1, b.t)
		sum := 0.0
		for _, k := range group[1:n] {
			r := a.v + (b.v-a.v)*(e.value(i+1, k.t)-s0)/max(s1-s0, 1e-9) - k.v
			sum += r * r / float64(n-1)
		}
		x.scores[i] += (sum - x.scores[i]) * weight
		best = min(best, x.scores[i])
	}
	if x.groups < groupsToDecide {
		return
	}
	every := x.every
	switch excess := best / max(x.noise, 1e-12); {
	case excess <= mostExcess:
		every = x.size
	case excess > mostExcess*4/3:
		every = 1
	}
	if every != x.every { // residuals of other periods are not comparable
		x.every = every
		e.scored, e.calib.n = 0, min(e.calib.n, leastCalibrated)
		e.scores = [candidates]float64{}
		e.pending = e.pending[:0]
		if every > 1 {
			for i, s := range x.scores {
				e.scores[i+1] = s
			}
			e.scores[linear], e.scored = slices.Max(x.scores[:]), 1
		}
	}
}
