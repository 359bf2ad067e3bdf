// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"math"
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/semconv"
)

// pace is how long kernels of one kind (name, launch configuration, shapes) took over the window.
// If most kinds became slower together, the cause is the device: its clocks were lowered, or
// another process used it.
type pace struct {
	samples []paced
	recent  [4]uint64 // kinds of the last kernels
	stride  int       // one kernel out of this many is kept
	skipped int
}

type paced struct {
	start, length int64
	kind, after   uint64 // after includes the kernels before, if neither shapes nor a step are known
	step          int32  // the step that launched it, from 1 on; 0: none
	shaped        bool   // kind knows the shapes of the inputs
}

// Limits of pace. Limits without a name in the registry are sizes of samples, which the standard
// error accounts for, bounds of memory, and the resolution of clocks.
const (
	maxPaced    = 1 << 14 // kept kernels; beyond this number, every second is dropped and the interval doubles
	leastPaced  = 12      // of a kind
	leastSteps  = 6       // that run a kind equally often, for a comparison by position
	leastLength = 2_000   // ns: shorter ones vary by the clock's resolution
	perSlot     = 40      // kernels
	maxSlots    = 32      // parts of the window that are compared
	fewSlots    = 8       // of a short window, with fewer kernels
	positions   = 16      // of a kind in a step: a kernel is compared with those at the same position

	// Slower is the factor above which a part is slow: more than boost clocks vary.
	Slower  = semconv.FindingThrottleFactor
	certain = semconv.FindingThrottleSigmas // standard errors of the difference of two parts
)

// add adds a kernel. Without shapes and steps, the kernels before it tell apart kernels of one name
// that have different inputs.
func (p *pace) add(x paced) {
	x.after = x.kind
	if !x.shaped && x.step == 0 {
		for _, k := range p.recent {
			x.after = x.after*0x100000001b3 ^ k
		}
	}
	copy(p.recent[:], p.recent[1:])
	p.recent[len(p.recent)-1] = x.kind
	if p.skipped++; x.length < leastLength || p.skipped < p.stride {
		return
	}
	p.skipped = 0
	if len(p.samples) == maxPaced {
		p.samples, p.stride = event.EverySecond(p.samples), 2*max(1, p.stride)
	}
	p.samples = append(p.samples, x)
}

// Slowdown is what slower kernels cost.
type Slowdown struct {
	Part       float64 // of the computing time, what would not have been needed
	Factor     float64 // how much longer the same kernels took, on average over the slow parts
	From, To   int64   // of the slow parts
	Kinds, All int     // kinds that were slower, and that were compared
	Shaped     bool    // of some of them the shapes are known
	Slow, Fast float64 // clocks; 0: not known
}

// slowdown compares parts of the window by kinds of kernel: each kind with its own median, each
// part by the mean over its kernels, and slow parts with the others. If that shows nothing, smaller
// parts and the kernels before each may. ok is false if the data is insufficient.
func (p *pace) slowdown(clocks []event.ClockReading) (s Slowdown, ok bool) {
	for after := range 2 {
		list, median := p.comparable()
		n := min(maxSlots, len(list)/perSlot)
		if s, ok = slowdownOf(list, median, n, clocks); !ok && n < fewSlots {
			s, ok = slowdownOf(list, median, min(fewSlots, len(list)/leastPaced), clocks)
		}
		if ok && after == 0 {
			break
		}
		for i := range p.samples { // the second time, as they were
			x := &p.samples[i]
			x.kind, x.after = x.after, x.kind
		}
	}
	return s, ok
}

// slowdownOf compares n parts of the window.
func slowdownOf(list []paced, median []float64, n int, clocks []event.ClockReading) (s Slowdown, ok bool) {
	if n < 4 {
		return s, false
	}
	levels := make([]float64, n) // mean of length ÷ median length of its kind, over the middle half
	noise := 0.0                 // variance of a level
	for i := range levels {
		var ratios []float64
		for k := i * len(list) / n; k < (i+1)*len(list)/n; k++ {
			ratios = append(ratios, float64(list[k].length)/median[k])
		}
		_, v := moments(ratios)
		noise += v / float64(len(ratios)*n)
		sort.Float64s(ratios)
		levels[i], _ = moments(ratios[len(ratios)/4 : len(ratios)*3/4])
	}
	limit, factor := twoClasses(levels)
	if factor < max(Slower, 1+certain*math.Sqrt(2*noise)) || !steady(levels, limit) {
		return s, false
	}
	var saved, all, slowTime float64
	type pair struct{ slow, slowN, fast, fastN float64 }
	kinds := map[inStep]*pair{}
	at := placesOf(list)
	for i, level := range levels {
		first := i * len(list) / n
		part := list[first : (i+1)*len(list)/n]
		for j, x := range part {
			k := boundedmap.Of(kinds, inStep{x.kind, at[first+j]})
			s.Shaped = s.Shaped || x.shaped
			all += float64(x.length)
			if level < limit {
				k.fast, k.fastN = k.fast+float64(x.length), k.fastN+1
				continue
			}
			k.slow, k.slowN = k.slow+float64(x.length), k.slowN+1
			saved += float64(x.length) * (1 - 1/factor)
			slowTime += float64(x.length)
		}
		if level >= limit {
			if s.To == 0 {
				s.From = part[0].start
			}
			last := part[len(part)-1]
			s.To = last.start + last.length
		}
	}
	both := map[uint64]*pair{} // means of the positions at which a kind was in both
	alike := 0.0               // time of slow kernels that were fast at the same position
	for key, k := range kinds {
		if k.slowN > 0 && k.fastN > 0 {
			c := boundedmap.Of(both, key.kind)
			alike += k.slow
			c.slow += k.slow / k.slowN
			c.fast += k.fast / k.fastN
		}
	}
	for _, c := range both {
		if s.All++; c.slow > (1+Slower)/2*c.fast {
			s.Kinds++
		}
	}
	if s.All < 1 || 2*s.Kinds < s.All || 2*alike < slowTime {
		return s, false
	}
	s.Part, s.Factor = saved/all, slowTime/(slowTime-saved)
	s.Slow, s.Fast = clocksOf(clocks, s.From, s.To)
	return s, true
}

// inStep is a kernel's kind and its position in its step; -1: all positions.
type inStep struct {
	kind     uint64
	position int
}

// comparable returns the samples that have others to compare with, the median of those others for
// each, and the number of kinds. If most steps run a kind equally often, as a loop does, a kernel
// is compared with those at the same position of other steps: without shapes, kernels of one name
// differ by their inputs.
func (p *pace) comparable() (list []paced, median []float64) {
	type step struct {
		kind uint64
		step int32
	}
	counts := map[step]int{}
	for _, x := range p.samples {
		counts[step{x.kind, x.step}]++
	}
	often := map[uint64]map[int]int{} // steps that run a kind a number of times
	for k, n := range counts {
		if k.step != 0 {
			if often[k.kind] == nil {
				often[k.kind] = map[int]int{}
			}
			often[k.kind][n]++
		}
	}
	usual := map[uint64]int{}
	for kind, sizes := range often {
		all := 0
		for _, n := range sizes {
			all += n
		}
		if n := boundedmap.Largest(sizes); p.stride <= 1 && sizes[n] >= leastSteps && 4*sizes[n] >= 3*all {
			usual[kind] = n
		}
	}
	at := make([]inStep, len(p.samples))
	seen := map[step]int{}
	by := map[inStep][]int64{}
	for i, x := range p.samples {
		at[i] = inStep{x.kind, -1}
		if k := (step{x.kind, x.step}); usual[x.kind] == counts[k] {
			at[i].position = seen[k]
			seen[k]++
		}
		by[at[i]] = append(by[at[i]], x.length)
	}
	medians := map[inStep]float64{}
	for k, lengths := range by {
		if len(lengths) >= leastPaced || k.position >= 0 {
			slices.Sort(lengths)
			medians[k] = float64(lengths[len(lengths)/2])
		}
	}
	for i, x := range p.samples {
		if m := medians[at[i]]; m > 0 {
			list, median = append(list, x), append(median, m)
		}
	}
	return list, median
}

// placesOf returns the position in its step of each sample among the samples of its kind, out of a
// number of positions: parts of a step that differ by design (longer sequences, other layers) are
// not compared with each other.
func placesOf(list []paced) []int {
	type step struct {
		kind uint64
		step int32
	}
	counts, seen := map[step]int{}, map[step]int{}
	for _, x := range list {
		counts[step{x.kind, x.step}]++
	}
	at := make([]int, len(list))
	for i, x := range list {
		if k := (step{x.kind, x.step}); x.step != 0 {
			at[i] = positions * seen[k] / counts[k]
			seen[k]++
		}
	}
	return at
}

// twoClasses divides levels into a lower and an upper class with the best separation (Otsu's
// threshold), and returns the minimum of the upper class and the factor by which it is above the
// lower. The factor is 0 unless the distance between the classes is at least four times the
// variation within them.
func twoClasses(levels []float64) (limit, factor float64) {
	sorted := slices.Sorted(slices.Values(levels))
	best := 0.0
	for k := 2; k < len(sorted)-1; k++ { // a single level may be chance
		low, lowVar := moments(sorted[:k])
		high, highVar := moments(sorted[k:])
		n, m := float64(k), float64(len(sorted)-k)
		if between := n * m * (high - low) * (high - low); between > best {
			best, limit, factor = between, sorted[k], 0
			if within := math.Sqrt((n*lowVar + m*highVar) / (n + m)); high-low >= 4*within {
				factor = high / low
			}
		}
	}
	return limit, factor
}

// steady reports whether most levels of both classes are next to one of their own class: a device
// becomes slower for a while, whereas random high levels are isolated.
func steady(levels []float64, limit float64) bool {
	var alone, all [2]int
	for i, level := range levels {
		slow := level >= limit
		class := 0
		if slow {
			class = 1
		}
		all[class]++
		if (i == 0 || levels[i-1] >= limit != slow) && (i == len(levels)-1 || levels[i+1] >= limit != slow) {
			alone[class]++
		}
	}
	return 2*alone[0] <= all[0] && 2*alone[1] <= all[1]
}

// moments returns mean and variance.
func moments(list []float64) (mean, variance float64) {
	for _, x := range list {
		mean += x / float64(len(list))
	}
	for _, x := range list {
		variance += (x - mean) * (x - mean) / float64(len(list))
	}
	return mean, variance
}

// clocksOf returns the median clocks within and without an interval that ends with parts;
// 0 if unknown.
func clocksOf(clocks []event.ClockReading, from, to int64) (within, without float64) {
	var in, out []float64
	for _, c := range clocks {
		if from <= c.Time && c.Time < to {
			in = append(in, c.Clock)
		} else {
			out = append(out, c.Clock)
		}
	}
	if len(in) == 0 || len(out) == 0 {
		return 0, 0
	}
	slices.Sort(in)
	slices.Sort(out)
	return in[len(in)/2], out[len(out)/2]
}
