// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"cmp"
	"math"
	"slices"
)

// loopKey identifies the loop of a job.
type loopKey struct{ service, name, job string }

func (st *Step) loop() loopKey { return loopKey{st.Service, st.Name, st.Job} }

// stepKey identifies the step of a loop that all ranks make.
type stepKey struct {
	loopKey
	index int64
}

// stepsOf puts the steps of the range into the state. If there are more than shownSteps, steps of a
// rank whose numbers follow each other are one entry with their mean and their slowest, so that all
// of the range is shown.
func (m *Model) stepsOf(s *State, from, to float64, total bins, wanted func(service string) bool) {
	var list []Step
	m.steps.each(func(st *Step) {
		if st.Time >= from && st.Time-1000*st.Duration <= to && wanted(st.Service) {
			list = append(list, *st)
			total.at(int64(st.Time/1000)/bucketSeconds).Spans++
		}
	})
	if len(m.steps.list) == maxSteps {
		m.steps.each(func(st *Step) {
			if s.StepsSince == 0 || st.Time < s.StepsSince {
				s.StepsSince = st.Time
			}
		})
		if s.StepsSince <= from {
			s.StepsSince = 0
		}
	}
	s.StepCount = len(list)
	againstPeers(list)
	s.Longest = longest(list)
	s.Steps = append(s.Steps, merged(list)...)
	slices.SortStableFunc(s.Steps, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Service, b.Service),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Index, b.Index))
	})
}

// againstPeers sets Late of the steps that several ranks have made: their own time against the
// median of the ranks.
func againstPeers(list []Step) {
	peers := map[stepKey][]*Step{}
	for i := range list {
		if st := &list[i]; st.Rank >= 0 && st.Duration > 0 {
			k := stepKey{st.loop(), st.Index}
			peers[k] = append(peers[k], st)
		}
	}
	own := func(st *Step) float64 { return max(0, st.Duration-st.Exposed) }
	for _, ranks := range peers {
		if len(ranks) < 2 {
			continue
		}
		times := make([]float64, len(ranks))
		for i, st := range ranks {
			times[i] = own(st)
		}
		if middle := median(times); middle > 0 {
			for _, st := range ranks {
				st.Late = min(own(st)/middle, math.MaxFloat64)
				st.WorstLate = st.Late
			}
		}
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[(len(list)-1)/2]/2 + list[len(list)/2]/2
}

// longest returns the longest steps, each with its slowest rank.
func longest(list []Step) []Step {
	slowest := map[stepKey]*Step{}
	for i := range list {
		st := &list[i]
		k := stepKey{st.loop(), st.Index}
		if x := slowest[k]; x == nil || st.Duration > x.Duration {
			slowest[k] = st
		}
	}
	out := make([]Step, 0, len(slowest))
	for _, st := range slowest {
		out = append(out, *st)
	}
	slices.SortFunc(out, func(a, b Step) int {
		return cmp.Or(cmp.Compare(b.Duration, a.Duration), cmp.Compare(a.Time, b.Time), cmp.Compare(a.Name, b.Name),
			cmp.Compare(a.Index, b.Index))
	})
	out, _ = most(out, shownLongest)
	return out
}

// merged returns at most about shownSteps entries: of all ranks the same groups of numbers.
func merged(list []Step) []Step {
	if len(list) <= shownSteps {
		return list
	}
	type onRank struct {
		loopKey
		rank int64
	}
	series := map[onRank][]Step{}
	first, last := map[loopKey]int64{}, map[loopKey]int64{} // numbers on all ranks
	for _, st := range list {
		loop := st.loop()
		k := onRank{loop, st.Rank}
		series[k] = append(series[k], st)
		if n, ok := first[loop]; !ok || st.Index < n {
			first[loop] = st.Index
		}
		last[loop] = max(last[loop], st.Index)
	}
	groups := int64(max(4, shownSteps/len(series)))
	sizes := map[loopKey]int64{} // powers of two, so that groups stay as they are while steps are added
	for loop, n := range last {
		size := int64(1)
		for (n-first[loop])/size >= groups {
			size *= 2
		}
		sizes[loop] = size
	}
	var out []Step
	for k, steps := range series {
		loop := k.loopKey
		size := sizes[loop]
		slices.SortFunc(steps, func(a, b Step) int { return cmp.Compare(a.Index, b.Index) })
		for len(steps) > 0 {
			n := 1
			for n < len(steps) && steps[n].Index/size == steps[0].Index/size {
				n++
			}
			out = append(out, meanStep(steps[:n]))
			steps = steps[n:]
		}
	}
	return out
}

// meanStep returns the mean of steps; its trace and worst lateness are of the slowest.
func meanStep(steps []Step) Step {
	out := slices.MaxFunc(steps, func(a, b Step) int { return cmp.Compare(a.Duration, b.Duration) })
	n := float64(len(steps))
	out.Index, out.Count, out.Worst = steps[0].Index, len(steps), out.Duration
	out.Start = steps[0].Time - 1000*steps[0].Duration
	out.Duration, out.Exposed, out.Other, out.Overlap, out.Items = 0, 0, 0, 0, 0
	phases, order := map[string]float64{}, []string{}
	var mfu, joules, late mean
	for i := range steps {
		st := &steps[i]
		out.Time = max(out.Time, st.Time)
		out.Duration += st.Duration / n // first divided: sums of hostile values overflow
		out.Exposed += st.Exposed / n
		out.Other += st.Other / n
		out.Overlap += st.Overlap / n
		out.Items += st.Items / n
		mfu.add(st.MFU/n, st.MFU > 0)
		joules.add(st.Energy/n, st.Energy > 0)
		late.add(st.Late/n, st.Late > 0)
		out.WorstLate = max(out.WorstLate, st.Late)
		for _, p := range st.Phases {
			if _, known := phases[p.Name]; !known {
				order = append(order, p.Name)
			}
			phases[p.Name] += p.Duration / n
		}
	}
	of := func(m mean) float64 { return ratio(m.sum, m.count/n) }
	out.MFU, out.Energy, out.Late = of(mfu), of(joules), of(late)
	out.Phases = make([]Phase, 0, len(order))
	for _, name := range order {
		out.Phases = append(out.Phases, Phase{name, phases[name]})
	}
	roundPhases(out.Phases)
	for _, v := range []*float64{
		&out.Duration, &out.Worst, &out.Exposed, &out.Other, &out.Overlap, &out.Items, &out.MFU,
		&out.Energy, &out.Late, &out.WorstLate,
	} {
		*v = rounded(*v)
	}
	return out
}
