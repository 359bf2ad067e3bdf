// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/semconv"
)

// module begins the names of modules of PyTorch.
const module = "nn.Module: "

// instances returns the name that a module or an annotation shares with its other instances:
// "nn.Module: Linear" of "nn.Module: Linear_83", "iteration" of "iteration 3".
func instances(name string) string {
	if strings.HasPrefix(name, module) {
		class, _, _ := vocabulary.SplitInstance(name)
		return class
	}
	if class := strings.TrimRight(name, "0123456789"); class != name {
		if word := strings.TrimRight(class, " #"); word != class && word != "" {
			return word
		}
	}
	return name
}

// hostRanges adds a finding for each range that is worth one by itself, and one for the rest.
func (j *judge) hostRanges() {
	by := map[string]*finding.Location{}
	in := map[string][]finding.Location{}
	for _, s := range j.account.Spent {
		k := s.At
		if k.Cause != timeline.CauseHost {
			continue
		}
		name, around := j.f.Name(k.Name), ""
		if k.In != k.Name {
			around = j.f.Name(k.In &^ timeline.InnerName)
		}
		// A function that many modules or numbered annotations call is one entry, and so are the
		// instances of a module or annotation.
		inner := k.In&timeline.InnerName != 0
		if class := instances(name); class != name {
			name = class
			if inner && around != "" {
				name, around, inner = around, class, false
			}
		}
		p := boundedmap.Of(by, name)
		p.Name = name
		p.Time += time.Duration(s.Time)
		p.Count += s.Count
		at := finding.Location{Name: name, In: around, Time: time.Duration(s.Time), Count: s.Count}
		if inner {
			at.Name, at.In = at.In, at.Name
		}
		same := slices.IndexFunc(in[name], func(l finding.Location) bool { return l.Name == at.Name && l.In == at.In })
		if same < 0 {
			in[name] = append(in[name], at)
			continue
		}
		in[name][same].Time += at.Time
		in[name][same].Count += at.Count
	}
	var list []finding.Location
	for _, p := range by {
		list = append(list, *p)
	}
	finding.SortLocations(list)
	var rest time.Duration
	var restOf []finding.Location
	own := 0
	// Time that is too short under its own name counts for the named range around it.
	var outer []finding.Location
	sums := map[string]*finding.Location{}
	for _, p := range list {
		if p.Name == "" || float64(p.Time) >= thresholdGain*float64(j.length) {
			outer = append(outer, p)
			continue
		}
		for _, inner := range in[p.Name] {
			name := cmp.Or(inner.In, inner.Name)
			g := boundedmap.Of(sums, name)
			g.Name = name
			g.Time += inner.Time
			g.Count += inner.Count
			if name != p.Name {
				in[name] = append(in[name], finding.Location{Name: inner.Name, In: "", Time: inner.Time, Count: inner.Count})
			}
		}
	}
	for _, g := range sums {
		outer = append(outer, *g)
	}
	finding.SortLocations(outer)
	for _, p := range outer {
		if own == maxHost || p.Name == "" || float64(p.Time) < thresholdGain*float64(j.length) {
			rest += p.Time
			p.Name = cmp.Or(p.Name, facts.NoRange)
			restOf = append(restOf, p)
			continue
		}
		own++
		around := finding.Longest(in[p.Name])
		v := finding.Finding{
			Kind: semconv.GPUFindingKindHostWork, Gain: p.Time, Certainty: finding.High, Where: around,
			Chain:    j.idleChain("the host was in "+finding.Clip(p.Name), int64(p.Time)),
			Evidence: "most in " + finding.Names(around),
		}
		j.add(v)
	}
	if rest > 0 {
		v := finding.Finding{
			Kind: semconv.GPUFindingKindHostWork, Gain: rest, Certainty: finding.Medium,
			Where: restOf[:min(finding.MaxPlaces, len(restOf))],
			Chain: j.idleChain("the host worked in many short ranges", int64(rest)), Evidence: "in " + finding.Names(restOf),
		}
		if own == maxHost {
			v.Chain[0] = "the host worked in further ranges"
		}
		if restOf[0].Name == facts.NoRange {
			v.Chain[0] = "the host worked in no named range"
			v.Certainty, v.Remedy = finding.Low,
				"record stacks (with_stack=True) or annotate the program, so that the file names what the host did; "+
					"where it waits for requests, nothing is lost"
		}
		j.add(v)
	}
}

// otherThreads adds to a finding on host work what another thread did meanwhile.
func (j *judge) otherThreads() {
	name := boundedmap.Largest(j.account.Other)
	own := j.account.Idles[timeline.CauseHost] + j.account.Idles[timeline.CauseAfterWait]
	if n := j.account.Other[name]; n > 0 && 2*n > own {
		for i := range j.list {
			if v := &j.list[i]; v.Kind == semconv.GPUFindingKindHostWork {
				v.Evidence += fmt.Sprintf("; meanwhile another thread of the process was in %s (%s): threads of Python run "+
					"one at a time", finding.Clip(j.f.Name(name)), finding.Duration(n))
				v.Remedy = "move that thread's work into another process; " + v.Remedy
				break
			}
		}
	}
}

// afterWaits judges work without a name that followed waits. The file does not show whether the
// waits were necessary.
func (j *judge) afterWaits() {
	n := j.account.Idles[timeline.CauseAfterWait]
	if n == 0 {
		return
	}
	w := min(n, j.account.Waited)
	v := j.idled(timeline.CauseAfterWait, semconv.GPUFindingKindHostWork, finding.Low, "")
	v.Remedy = "record stacks (with_stack=True) or annotate the program, so that the file names it; what does not " +
		"need the device's result belongs before the wait"
	if 2*w >= n {
		v.Certainty = finding.Medium
	}
	v.Chain[0] = "the host waited for the device in " + finding.Clip(v.Where[0].Name) +
		", then did something in no named range"
	v.Evidence = fmt.Sprintf("after %s, each time for more than %s", finding.Names(v.Where),
		finding.Duration(timeline.AfterWait))
	if w > 0 {
		v.Evidence += fmt.Sprintf("; if that does not need what was waited for, the wait was useless, and %s would have "+
			"run beside the device", finding.Duration(w))
	}
	j.add(v)
}

// claimHostWork sets the gain, the locations and the evidence of a finding on host work in ranges
// of one sort. It subtracts that time from the account, so that no finding on host work claims it
// again. It returns false if the time is below the threshold.
func (j *judge) claimHostWork(v *finding.Finding, is func(name string) bool) bool {
	known := map[uint32]bool{} // few names account for many times
	matches := func(id uint32) bool {
		yes, ok := known[id]
		if !ok {
			yes = is(j.f.Name(id))
			known[id] = yes
		}
		return yes
	}
	var sum, afterWaits int64
	var claimed []int
	for i, s := range j.account.Spent {
		if s.At.Cause != timeline.CauseHost && s.At.Cause != timeline.CauseAfterWait ||
			!matches(s.At.Name) && !matches(s.At.In&^timeline.InnerName) {
			continue
		}
		name, in := j.f.Name(s.At.Name), j.f.Name(s.At.In&^timeline.InnerName)
		if s.At.Cause == timeline.CauseAfterWait { // for work on the device, inside the range
			name = in
			afterWaits += s.Time
		}
		if s.At.In&timeline.InnerName != 0 {
			name, in = in, name
		}
		sum += s.Time
		claimed = append(claimed, i)
		v.Where = append(v.Where, finding.Location{
			Name: cmp.Or(name, in), In: in, Time: time.Duration(s.Time), Count: s.Count,
		})
	}
	if float64(sum) < thresholdGain*float64(j.length) || sum == 0 {
		return false
	}
	for _, i := range claimed {
		j.account.Spent[i].Time, j.account.Spent[i].Count = 0, 0
	}
	j.account.Idles[timeline.CauseHost] -= sum - afterWaits
	j.account.Idles[timeline.CauseAfterWait] -= afterWaits
	v.Gain, v.Where = time.Duration(sum), finding.Longest(v.Where)
	v.Evidence = "in " + finding.Names(v.Where)
	return true
}
