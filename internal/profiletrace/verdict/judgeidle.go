// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package verdict

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/semconv"
)

func (j *judge) idleChain(cause string, n int64) []string {
	return []string{cause, "nothing was launched", fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))}
}

// idle judges idle time: each cause's time is claimed by one finding.
func (j *judge) idle(d *Device) {
	a := j.account
	if a.idles[CauseLoader] > 0 {
		v := j.idled(CauseLoader, semconv.GPUFindingKindLoader, finding.High, "the host waited for data in "+clip(j.loader()),
			"more loader workers, prefetching, decoding ahead of time")
		v.Evidence = "most " + v.Evidence
		if contains(j.loader(), "__iter__", "__init__") {
			v.Remedy = "keep the loader's workers from epoch to epoch (persistent_workers=True)"
		}
		j.add(v)
	}
	j.launching(d)
	j.hostRanges()
	j.afterWaits()
	j.otherThreads()
	j.calls(CauseCall, semconv.GPUFindingKindSlowRuntimeCalls, "the host was in slow calls of the runtime",
		"warm up before what is measured, load modules eagerly, keep handles and streams")
	j.calls(CauseAllocation, semconv.GPUFindingKindAllocation, "the host allocated and freed memory",
		"a caching allocator, buffers that are kept, no empty_cache in the loop, expandable segments")
	if a.idles[CauseSynchronization] > 0 {
		v := j.idled(CauseSynchronization, semconv.GPUFindingKindSynchronization, finding.High,
			"the host waited for the device",
			"where what follows does not need the result at once, read it later or asynchronously (item, cpu, nonzero, print "+
				"force a wait)")
		v.Chain[1] = "its queue was empty when the wait ended"
		v.Chain[2] += " from the end of waits to the next work"
		if d != nil && 2*d.fedWaits > a.idles[CauseSynchronization] {
			v.Chain[0] = "the host waited for each of its copies to the device"
			v.Evidence += "; " + d.fedBy()
			v.Remedy = "gather small tensors into one copy, from pinned memory with non_blocking=True"
		}
		j.add(v)
	}
	j.held(CauseCapture, semconv.GPUFindingKindGraphCapture, finding.High, "the host captured graphs",
		"capture once, before what is measured; pad inputs to the sizes that were captured")
	j.held(CausePeer, semconv.GPUFindingKindWaitingForRank, finding.Medium, "the host waited for another rank",
		"profile the other ranks: the late one is the cause")
	j.dependency(d)
	j.held(CauseProfiler, semconv.GPUFindingKindProfilerOverhead, finding.High, "the profiler itself held the host up",
		"not the program's own time: leave the first steps out (schedule with wait and warmup), record less")
	if n := a.idles[CauseUnknown]; n > 0 {
		j.add(finding.Finding{
			Kind: semconv.GPUFindingKindUnexplainedIdle, Gain: time.Duration(n), Certainty: finding.Low,
			Chain:    []string{"the file does not say why", fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))},
			Evidence: "no call in the file launched what came next",
			Remedy:   "record the runtime's calls and the host's ranges too",
		})
	}
}

// idled is a finding on all idle time of a cause, with where most of it was.
func (j *judge) idled(c Cause, kind string, sure finding.Certainty, what, remedy string) finding.Finding {
	n, p := j.account.idles[c], j.account.places(j.f, c)
	return finding.Finding{
		Kind: kind, Gain: time.Duration(n), Where: p, Certainty: sure, Chain: j.idleChain(what, n),
		Evidence: "in " + Names(p), Remedy: remedy,
	}
}

// held judges what held the host up and has no more to it than where.
func (j *judge) held(c Cause, kind string, sure finding.Certainty, what, remedy string) {
	if j.account.idles[c] > 0 {
		j.add(j.idled(c, kind, sure, what, remedy))
	}
}

// dependency judges launched work that did not begin: it waited for another device where that worked meanwhile.
func (j *judge) dependency(d *Device) {
	n := j.account.idles[CauseDependency]
	if n == 0 {
		return
	}
	idle := fmt.Sprintf("%s idle for %s", j.device0(), finding.Duration(n))
	v := finding.Finding{
		Kind: semconv.GPUFindingKindDependency, Gain: time.Duration(n), Certainty: finding.Low, Chain: []string{
			"launched work waited for something that the file does not show (an event, a callback, another device)", idle,
		},
		Evidence: fmt.Sprintf("each time for more than %s after the launch", finding.Duration(latencyLimit)),
	}
	if j.f.Windows && d != nil && d.held.launches >= leastBatch*d.held.gaps {
		v.Certainty = finding.Medium
		v.Chain[0] = "the driver held launches back (Windows' WDDM hands them to the device in batches)"
		v.Evidence += fmt.Sprintf("; then %.3g launches that had waited began one after the other, in the mean of %d times",
			float64(d.held.launches)/float64(d.held.gaps), d.held.gaps)
		v.Remedy = "ask for the stream's state after launching (cudaStreamQuery hands a batch over), CUDA graphs, hardware-" +
			"accelerated GPU scheduling, the driver mode TCC or MCDM where the device has it, or Linux"
	}
	p := j.account.places(j.f, CauseDependency)
	p = slices.DeleteFunc(p, func(p finding.Place) bool { return p.Name == NoRange })
	if len(p) > 0 && 2*int64(p[0].Time) > n {
		v.Certainty, v.Where, v.Remedy = finding.Medium, p,
			"split batches so that devices work at the same time (a pipeline), or split layers among them"
		v.Chain = []string{"devices work in turn: launched work waited while " + p[0].Name + " worked", idle}
		v.Evidence += "; meanwhile worked " + Names(p)
	}
	j.add(v)
}

// afterWaits judges work without a name that followed waits. Whether the waits were of use is not in the file.
func (j *judge) afterWaits() {
	n := j.account.idles[CauseAfterWait]
	if n == 0 {
		return
	}
	w := min(n, j.account.waited)
	v := j.idled(CauseAfterWait, semconv.GPUFindingKindHostWork, finding.Low, "",
		"record stacks (with_stack=True) or annotate the program, so that the file names it; what does not need the "+
			"device's result belongs before the wait")
	if 2*w >= n {
		v.Certainty = finding.Medium
	}
	v.Chain[0] = "the host waited for the device in " + clip(v.Where[0].Name) + ", then did something in no named range"
	v.Evidence = fmt.Sprintf("after %s, each time for more than %s", Names(v.Where), finding.Duration(pauseLimit))
	if w > 0 {
		v.Evidence += fmt.Sprintf("; if that does not need what was waited for, the wait was of no use, and %s would have "+
			"run beside the device", finding.Duration(w))
	}
	j.add(v)
}

// loader is the name of the range that waited for data for longest.
func (j *judge) loader() string {
	times := map[uint32]int64{}
	for _, s := range j.account.spent {
		if s.at.cause == CauseLoader {
			times[s.at.name] += s.time
		}
	}
	return j.f.Name(boundedmap.Largest(times))
}

func (j *judge) launching(d *Device) {
	a := j.account
	n := a.idles[CauseDispatch] + a.idles[CauseLatency]
	if n == 0 {
		return
	}
	p := a.places(j.f, CauseDispatch)
	v := finding.Finding{
		Kind: semconv.GPUFindingKindLaunchBound, Gain: time.Duration(n), Where: p, Certainty: finding.High,
		Chain: []string{
			"the host launches slower than the device works", "the queue runs empty between kernels",
			fmt.Sprintf("%s idle for %s, %s of it until launched work begins", j.device0(), finding.Duration(n),
				finding.Duration(a.idles[CauseLatency])),
		},
		Remedy: "CUDA graphs or torch.compile(mode=\"reduce-overhead\"), larger batches, fused operators",
	}
	var text []string
	if d != nil && d.kernels > 0 {
		text = append(text, fmt.Sprintf("%d of %s are shorter than %s", d.short,
			finding.Count(d.kernels, "kernel", "kernels"),
			finding.Duration(shortKernel)))
	}
	if len(p) > 0 {
		text = append(text, "most in "+Names(p))
	}
	v.Evidence = strings.Join(text, "; ")
	graphs := d != nil && 2*d.ofGraphs > n
	if graphs {
		v.Chain[0], v.Chain[1] = "the host launches graphs slower than the device works them off",
			"the queue runs empty between graphs"
		v.Remedy = "fewer and larger graphs, no work of the host between replays"
	}
	if a.idles[CauseLatency] > a.idles[CauseDispatch] {
		v.Chain[0], v.Chain[1] = "short kernels", "the gaps between queued kernels add up"
		if d != nil && 2*d.short < d.kernels {
			v.Chain[0] = "many kernels"
		}
		if graphs {
			v.Chain[0], v.Remedy = v.Chain[0]+", launched by graphs already", "fused operators, larger batches"
		}
	}
	j.add(v)
}

// hostRanges has a finding for each range that alone is worth it, and one for the rest.
func (j *judge) hostRanges() {
	by := map[string]*finding.Place{}
	in := map[string][]finding.Place{}
	for _, s := range j.account.spent {
		k := s.at
		if k.cause != CauseHost {
			continue
		}
		name, around := j.f.Name(k.name), ""
		if k.in != k.name {
			around = j.f.Name(k.in &^ innerName)
		}
		p := boundedmap.Of(by, name)
		p.Name = name
		p.Time += time.Duration(s.time)
		p.Count += s.count
		at := finding.Place{Name: name, In: around, Time: time.Duration(s.time), Count: s.count}
		if k.in&innerName != 0 {
			at.Name, at.In = at.In, at.Name
		}
		in[name] = append(in[name], at)
	}
	var list []finding.Place
	for _, p := range by {
		list = append(list, *p)
	}
	sortPlaces(list)
	var rest time.Duration
	var restOf []finding.Place
	own := 0
	// What is too little by its own name counts for the named range around it.
	var outer []finding.Place
	sums := map[string]*finding.Place{}
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
				in[name] = append(in[name], finding.Place{Name: inner.Name, In: "", Time: inner.Time, Count: inner.Count})
			}
		}
	}
	for _, g := range sums {
		outer = append(outer, *g)
	}
	sortPlaces(outer)
	for _, p := range outer {
		if own == maxHost || p.Name == "" || float64(p.Time) < thresholdGain*float64(j.length) {
			rest += p.Time
			p.Name = cmp.Or(p.Name, NoRange)
			restOf = append(restOf, p)
			continue
		}
		own++
		around := Longest(in[p.Name])
		v := finding.Finding{
			Kind: semconv.GPUFindingKindHostWork, Gain: p.Time, Certainty: finding.High, Where: around,
			Chain:    j.idleChain("the host was in "+clip(p.Name), int64(p.Time)),
			Evidence: "most in " + Names(around),
			Remedy:   "move it off the launching thread, overlap it with the device, or do it on the device",
		}
		if Compiles(p.Name) {
			v.Chain[0], v.Remedy = "the host compiled, in "+clip(p.Name),
				"compile before what is measured, keep a cache of compiled code, shapes that do not change"
		}
		j.add(v)
	}
	if rest > 0 {
		v := finding.Finding{
			Kind: semconv.GPUFindingKindHostWork, Gain: rest, Certainty: finding.Medium,
			Where: restOf[:min(topPlaces, len(restOf))],
			Chain: j.idleChain("the host did other things", int64(rest)), Evidence: "in " + Names(restOf),
		}
		if restOf[0].Name == NoRange {
			v.Certainty, v.Remedy = finding.Low,
				"record stacks (with_stack=True) or annotate the program, so that the file names what the host did; "+
					"where it waits for requests, nothing is lost"
		}
		j.add(v)
	}
}

// otherThreads adds to what is said of the host's own work what another thread did meanwhile.
func (j *judge) otherThreads() {
	name := boundedmap.Largest(j.account.other)
	if n := j.account.other[name]; n > 0 && 2*n > j.account.idles[CauseHost]+j.account.idles[CauseAfterWait] {
		for i := range j.list {
			if v := &j.list[i]; v.Kind == semconv.GPUFindingKindHostWork {
				v.Evidence += fmt.Sprintf("; meanwhile another thread of the process was in %s (%s): threads of Python run "+
					"one at a time", clip(j.f.Name(name)), finding.Duration(n))
				v.Remedy = "move that thread's work into another process; " + v.Remedy
				break
			}
		}
	}
}

// Compiles reports whether a range stands for making code, which is not running compiled code. Of a frame its function
// says so, or a module that does nothing else.
func Compiles(name string) bool {
	if name = strings.ToLower(name); !contains(name, compiling...) {
		return false
	}
	words := []string{
		"compile", "compilation", "dynamo", "inductor", "autotun", "codegen", "nvrtc",
	}
	if path, call, frame := strings.Cut(name, "): "); frame {
		if contains(path, compilers...) {
			return true
		}
		if contains(path, "eval_frame") { // runs what was compiled
			return false
		}
		name, words = call, append(words, "_bench")
	}
	return !contains(name, "cache lookup") && contains(strings.ReplaceAll(name, "compiled", ""), words...)
}

// compiling are parts of all names of ranges that make code, and of others: most ranges have none.
var compiling = []string{"compil", "dynamo", "inductor", "autotun", "codegen", "nvrtc", "_bench", "cpp_extension"}

// compilers are parts of the paths of modules that make code.
var compilers = []string{
	"_dynamo/convert_frame", "_dynamo/symbolic_convert", "_inductor/graph", "_inductor/scheduler", "_inductor/codegen",
	"_inductor/async_compile", "triton/compiler/", "utils/cpp_extension", "jax/_src/compiler",
}

func contains(s string, words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(s, word) })
}

func (j *judge) calls(c Cause, kind, what, remedy string) {
	n := j.account.idles[c]
	if n == 0 {
		return
	}
	v := j.idled(c, kind, finding.High, what, remedy)
	var most, frees, mallocs int64
	for _, s := range j.account.spent {
		if s.at.cause != c {
			continue
		}
		most = max(most, s.most)
		if name := j.f.Name(s.at.name); !strings.Contains(j.f.Name(s.at.in&^innerName), "::") {
			continue
		} else if contains(name, "Free", "MemUnmap", "MemRelease") {
			frees += s.count
		} else {
			mallocs += s.count
		}
	}
	if c == CauseAllocation && min(frees, mallocs) >= manyRetries {
		v.Chain[0] = "the framework's allocator gave memory back and took it anew, as it does at the limit of the " +
			"device's memory"
		v.Remedy = "smaller batches, activation checkpointing, expandable segments, no empty_cache in the loop"
		if m := j.f.Memory.Highest; m > 0 {
			v.Evidence += fmt.Sprintf("; tensors had %s at most", finding.Held(m))
		}
	}
	if 2*most > n {
		v.Evidence += fmt.Sprintf("; one call alone %s, as of a first run", finding.Duration(most))
	}
	j.add(v)
}

// outside judges what the host did before the first activity of the device, or after the last one: no part of the
// window. Only what is named counts, for a profiler itself starts and ends there.
func (j *judge) outside(a *Account, effect string) {
	if j.length <= 0 {
		return
	}
	sub := judge{subject: j.subject, f: j.f, length: j.length, account: &a.account}
	for _, c := range [...]Cause{CauseLoader, CauseCall, CausePeer, CauseHost} {
		sub.length += a.idles[c]
	}
	sub.idle(nil)
	for _, v := range sub.list {
		switch v.Kind {
		case semconv.GPUFindingKindSlowRuntimeCalls:
			v.Chain[0], v.Remedy = "start-up: slow calls of the runtime",
				"once per process: warm up before what is measured, load modules eagerly"
		case semconv.GPUFindingKindLoader, semconv.GPUFindingKindWaitingForRank:
		case semconv.GPUFindingKindHostWork:
			if v.Certainty != finding.High {
				continue
			}
		default:
			continue
		}
		text := fmt.Sprintf(effect, j.device0(), finding.Duration(v.Gain))
		same := func(in finding.Finding) bool { return in.Kind == v.Kind && in.Chain[0] == v.Chain[0] }
		if i := slices.IndexFunc(j.list, same); i >= 0 {
			j.list[i].Evidence += "; besides, " + text
			continue
		}
		v.Chain, v.Outside = []string{v.Chain[0], text}, true
		j.list = append(j.list, v)
	}
}
