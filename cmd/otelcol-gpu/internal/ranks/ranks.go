// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package ranks compares the ranks of one job by their profiles: which rank is the straggler at the collectives, by how
// much, and its activity during that time.
//
// Lateness is computed from the arrivals of ranks at the collectives that they run together (package straggler), so
// that a waiting rank is never mistaken for a working one. If clocks cannot be aligned, it is computed from how long
// ranks run the collectives, since the last rank runs them shortest; if no collectives match, from how long each rank
// communicates in all. Without collectives, steps without exposed communication are compared.
package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// Limits of what is kept of one profile; the rest is ignored. Of the host's ranges, the longest are kept.
const (
	maxActivities = 1 << 20
	maxRanges     = 1 << 17
	maxProfiles   = 1 << 12
)

// Profiles collects the ranks of profiles. The zero value is usable; it is not safe for concurrent use.
type Profiles struct {
	list     []*profile
	unranked string // the last file that does not state its rank
	rankless int    // such files with collectives
}

// profile is one rank's window.
type profile struct {
	file        string
	job         string
	rank, world int64
	window      intervals.Interval

	collectives []straggler.Collective
	labels      map[string]string // of process groups, for people
	messages    map[sentAs]facts.Message
	model       string               // of its only device
	compute     []intervals.Interval // kernels that are not collectives
	moves       []intervals.Interval // copies and memsets
	kernels     map[string]ran       // of compute, by name
	ranges      []hostRange
	rangesOf    map[int64]int    // all ranges, by thread
	shortest    int64            // shorter ranges are not kept, ns
	idle        finding.Location // where its host was longest while its device was idle, from its findings
	steps       int
	stepTime    float64 // s, of all steps
	exposed     float64 // s, of exposed communication, of all steps

	// of the first of a job
	shared map[string][]straggler.Collective // of one profile for each group of the job
	doubt  bool                              // a profile of the job matches another job as well
}

// ran is how often and how long, in ns, kernels of a name ran.
type ran struct{ count, time int64 }

// hostRange is a range on a thread of the host.
type hostRange struct {
	intervals.Interval
	thread int64
	name   string
}

// Add adds spans of a file at the detail kernels. Files without a rank are ignored.
func (p *Profiles) Add(file string, td ptrace.Traces) {
	for _, rs := range td.ResourceSpans().All() {
		var r spanfacts.Resource
		r.Load(rs.Resource().Attributes())
		if r.Rank < 0 {
			p.unranked = file
		}
		if r.Rank < 0 || r.WorldSize == 1 {
			continue
		}
		x := p.profile(file, &r)
		if x == nil {
			continue
		}
		for _, ss := range rs.ScopeSpans().All() {
			var scope spanfacts.Scope
			scope.Load(&r, ss.Scope().Attributes())
			for _, s := range ss.Spans().All() {
				x.add(s, &scope)
			}
		}
	}
}

// NotCompared returns the note that several files have collectives and no rank; empty otherwise.
func (p *Profiles) NotCompared() string {
	if p.rankless < 2 {
		return ""
	}
	return fmt.Sprintf("%d profiles have collectives but no rank, so they are not compared "+
		"(PyTorch's do if the profiler starts after init_process_group, exports of Nsight Systems by their "+
		"environment or a name as rank3.sqlite)", p.rankless)
}

// Judged adds the findings on the devices of a file that was added, once.
func (p *Profiles) Judged(file string, devices []facts.Report) {
	if file == p.unranked && slices.ContainsFunc(devices, func(d facts.Report) bool { return len(d.Collectives) > 0 }) {
		p.rankless++
	}
	for _, x := range p.list {
		if x.file != file || len(devices) != 1 {
			continue
		}
		x.model = devices[0].Model
		for _, v := range devices[0].Findings {
			if v.Kind == semconv.GPUFindingKindHostWork && v.Certainty == finding.High && !v.Outside && len(v.Where) > 0 &&
				v.Gain > x.idle.Time {
				x.idle.Name, x.idle.Time = v.Where[0].Name, v.Gain
				if v.Where[0].In != "" { // the locations of a finding are inside its range, or are the range
					x.idle.Name = v.Where[0].In
				}
			}
		}
	}
}

func (p *Profiles) profile(file string, r *spanfacts.Resource) *profile {
	for _, x := range slices.Backward(p.list) {
		if x.file == file && x.rank == r.Rank && x.job == r.JobID {
			return x
		}
	}
	if len(p.list) == maxProfiles {
		return nil
	}
	x := &profile{
		file: file, job: r.JobID, rank: r.Rank, world: r.WorldSize, kernels: map[string]ran{}, labels: map[string]string{},
		messages: map[sentAs]facts.Message{},
	}
	p.list = append(p.list, x)
	return x
}

func (x *profile) add(s ptrace.Span, scope *spanfacts.Scope) {
	at := intervals.Unix(uint64(s.StartTimestamp()), uint64(s.EndTimestamp()))
	var f spanfacts.Facts
	if !f.Load(s, scope) {
		thread, ok := s.Attributes().Get(string(semconv.ThreadIDKey))
		if ok {
			x.hostRange(hostRange{at, thread.Int(), s.Name()})
		}
		return
	}
	if f.Kind == spanfacts.Step {
		x.steps++
		x.stepTime += f.StepTime()
		x.exposed += f.StepExposed
		return
	}
	if x.window == (intervals.Interval{}) {
		x.window = at
	}
	x.window.Start, x.window.End = min(x.window.Start, at.Start), max(x.window.End, at.End)
	if len(x.collectives)+len(x.compute)+len(x.moves) >= maxActivities {
		return
	}
	switch f.Kind {
	case spanfacts.Collective:
		c := x.collective(s, f.Name, at)
		x.message(&c, s.Attributes())
		x.collectives = append(x.collectives, c)
	case spanfacts.Kernel, spanfacts.Graph:
		x.compute = append(x.compute, at)
		k := x.kernels[f.Name]
		x.kernels[f.Name] = ran{k.count + 1, k.time + at.End - at.Start}
	case spanfacts.Copy, spanfacts.Memset:
		x.moves = append(x.moves, at)
	}
}

// hostRange adds a range of the host. If there are too many, the shorter half is dropped: what explains a device that
// is idle for long is a long range.
func (x *profile) hostRange(r hostRange) {
	if x.rangesOf == nil {
		x.rangesOf = map[int64]int{}
	}
	x.rangesOf[r.thread]++
	if r.End-r.Start < x.shortest {
		return
	}
	if x.ranges = append(x.ranges, r); len(x.ranges) < maxRanges {
		return
	}
	lengths := make([]int64, len(x.ranges))
	for i, r := range x.ranges {
		lengths[i] = r.End - r.Start
	}
	slices.Sort(lengths)
	x.shortest = lengths[len(lengths)/2] + 1
	x.ranges = slices.DeleteFunc(x.ranges, func(r hostRange) bool { return r.End-r.Start < x.shortest })
}

// collective identifies a run by its process group and its number there. Groups of one mesh dimension share a
// description, and groups that were split from another share a name, so a group is identified by its unique name and
// its ranks, or by its description if a source has no more. Transfers between two ranks are numbered by pair, since
// each rank counts its own.
func (x *profile) collective(s ptrace.Span, kernel string, at intervals.Interval) straggler.Collective {
	m := s.Attributes()
	c := straggler.Collective{Rank: x.rank, Name: kernel, Start: at.Start, End: at.End}
	if size, ok := m.Get(string(semconv.GPUIOSizeKey)); ok {
		c.Bytes = size.Int()
	}
	group, ok := m.Get(string(semconv.GPUCollectiveGroupIDKey))
	if !ok {
		group, _ = m.Get(string(semconv.GPUCollectiveGroupNameKey))
	}
	c.Group = group.Str()
	if label, ok := m.Get(string(semconv.GPUCollectiveGroupNameKey)); ok && x.labels[c.Group] == "" {
		x.labels[c.Group] = label.Str()
	}
	if peer, ok := m.Get(string(semconv.GPUCollectivePeerRankKey)); ok {
		c.Group = fmt.Sprintf("%s %d-%d", c.Group, min(x.rank, peer.Int()), max(x.rank, peer.Int()))
		return c
	}
	name, _ := m.Get(string(semconv.GPUCollectiveNameKey))
	operation := name.Str()
	paired := operation == semconv.GPUCollectiveNameSend || operation == semconv.GPUCollectiveNameRecv ||
		strings.Contains(operation, "coalesced")
	if number, ok := m.Get(string(semconv.GPUCollectiveSequenceKey)); ok && !paired {
		c.Sequence, c.Stated = number.Int(), true
	}
	return c
}

// jobs puts profiles of one job together: the same job where it is stated, worlds of one size, each rank once. They met
// at collectives, whatever their clocks say, or, if they met at none, their windows overlap. What remains alone is
// no job.
//
// Jobs that run in step may seem to meet. Profiles of the rank of which there are most are of as many jobs, so they
// come first; each of the others goes where its collectives ended most nearly together.
func (p *Profiles) jobs() (jobs [][]*profile) {
	list := slices.Clone(p.list)
	number := map[int64]int{}
	for _, x := range list {
		straggler.Number(x.collectives)
		number[x.rank]++
	}
	slices.SortStableFunc(list, func(a, b *profile) int {
		return cmp.Or(cmp.Compare(number[b.rank], number[a.rank]), cmp.Compare(a.rank, b.rank),
			cmp.Compare(a.window.Start, b.window.Start))
	})
	same := func(x *profile, job []*profile) bool { return job[0].job == x.job && job[0].world == x.world }
	has := func(x *profile, job []*profile) bool {
		return slices.ContainsFunc(job, func(y *profile) bool { return y.rank == x.rank })
	}
	for _, x := range list {
		var best, other meeting // of the jobs that have room, and of all others
		at := -1
		for _, together := range []bool{true, false} { // profiles of another time only if none of its own fits
			if at >= 0 {
				break
			}
			for i, job := range jobs {
				if !same(x, job) || slices.ContainsFunc(job, x.overlaps) != together {
					continue
				}
				m, ok := x.meets(job[0])
				switch {
				case !ok:
				case !has(x, job) && (at < 0 || m.spread < best.spread):
					best, other, at = m, best, i
				case other.first == nil || m.spread < other.spread:
					other = m
				}
			}
		}
		if at < 0 {
			jobs = append(jobs, []*profile{x})
			continue
		}
		jobs[at] = append(jobs[at], x)
		best.join(x)
		if other.first != nil && other.spread < clearly*best.spread+clearly*timeGrain {
			best.first.doubt, other.first.doubt = true, true
		}
	}
	join := func(x *profile, fits func(job []*profile) bool) {
		i := slices.IndexFunc(jobs, func(job []*profile) bool { return same(x, job) && !has(x, job) && fits(job) })
		if i < 0 {
			jobs = append(jobs, []*profile{x})
		} else {
			jobs[i] = append(jobs[i], x)
		}
	}
	jobs = merge(jobs)
	found := jobs
	jobs = slices.DeleteFunc(slices.Clone(found), func(job []*profile) bool { return len(job) < 2 })
	together := len(jobs)
	for _, job := range found {
		if x := job[0]; len(job) == 1 {
			join(x, func(job []*profile) bool {
				return slices.ContainsFunc(job, x.overlaps) &&
					(len(x.collectives) < straggler.FewMeetings || slices.IndexFunc(jobs[:together], func(other []*profile) bool {
						return other[0] == job[0]
					}) < 0)
			})
		}
	}
	jobs = slices.DeleteFunc(jobs, func(job []*profile) bool { return len(job) < 2 })
	for _, job := range jobs {
		slices.SortFunc(job, func(a, b *profile) int { return cmp.Compare(a.rank, b.rank) })
	}
	return jobs
}

// merge joins parts of one job without common collectives, such as the tensor-parallel groups of a job whose other
// groups were not recorded, or whose ranks arrived in an unlinked order: parts with common collectives, or that have no
// process group in common and ran at one time. Where two parts at one time have a rank in common, several jobs ran.
func merge(jobs [][]*profile) [][]*profile {
	for i := 0; i < len(jobs); i++ {
		for j := i + 1; j < len(jobs); j++ {
			if a, b := jobs[i], jobs[j]; alike(a, b) && met(a, b) {
				jobs[i], jobs = slices.Concat(a, b), slices.Delete(jobs, j, j+1)
				i = -1 // parts that met a larger part may have met others
				break
			}
		}
	}
	for i := 0; i < len(jobs); i++ {
		parts := []int{i}
		for j := i + 1; j < len(jobs); j++ {
			if a, b := jobs[i], jobs[j]; a[0].job == b[0].job && a[0].world == b[0].world && coincide(a, b) {
				parts = append(parts, j)
			}
		}
		whole := jobs[i]
		for _, j := range parts[1:] {
			if !alike(whole, jobs[j]) || strangers(whole, jobs[j]) {
				whole = nil
				break
			}
			whole = slices.Concat(whole, jobs[j])
		}
		if whole == nil || len(parts) == 1 {
			continue
		}
		jobs[i] = whole
		for _, j := range slices.Backward(parts[1:]) {
			jobs = slices.Delete(jobs, j, j+1)
		}
	}
	return jobs
}

// alike reports whether profiles may belong to one job, by what they state.
func alike(a, b []*profile) bool {
	return a[0].job == b[0].job && a[0].world == b[0].world && !slices.ContainsFunc(a, func(x *profile) bool {
		return slices.ContainsFunc(b, func(y *profile) bool { return x.rank == y.rank })
	})
}

func coincide(a, b []*profile) bool {
	return slices.ContainsFunc(a, func(x *profile) bool { return slices.ContainsFunc(b, x.overlaps) })
}

// strangers reports whether profiles are not known to be parts of one job: they have a process group in common, where
// they would have met, or none at all.
func strangers(a, b []*profile) bool {
	groups := map[string]bool{}
	for _, x := range a {
		for g := range x.groups() {
			groups[g] = true
		}
	}
	theirs := 0
	for _, y := range b {
		for g := range y.groups() {
			if theirs++; groups[g] {
				return true
			}
		}
	}
	return len(groups) == 0 || theirs == 0
}

// met reports whether a profile of one part met one of the other.
func met(a, b []*profile) bool {
	return slices.ContainsFunc(a, func(x *profile) bool {
		return slices.ContainsFunc(b, func(y *profile) bool {
			_, _, ok := straggler.Met(x.collectives, y.collectives)
			return ok
		})
	})
}

func (x *profile) overlaps(y *profile) bool {
	return x.window.Start < y.window.End && y.window.Start < x.window.End
}

// A profile is of one job rather than another where its collectives ended so many times more nearly together with that
// one's, beyond the grain of clocks in ns.
const clearly, timeGrain = 4, 1_000

// meeting describes how a profile met the profiles of a job.
type meeting struct {
	first         *profile
	collectives   []straggler.Collective // numbered like the job's
	clock, spread int64                  // see straggler.Met
}

// meets reports how a profile met the profiles of a job, starting with first, and whether it did.
func (x *profile) meets(first *profile) (m meeting, ok bool) {
	if first.shared == nil {
		first.shared = map[string][]straggler.Collective{}
		first.share(first, 0)
	}
	var theirs []straggler.Collective
	for group := range x.groups() {
		theirs = append(theirs, first.shared[group]...)
	}
	m.first, m.collectives = first, slices.Clone(x.collectives)
	straggler.Renumber(m.collectives, theirs)
	m.clock, m.spread, ok = straggler.Met(theirs, m.collectives)
	return m, ok
}

// join gives the collectives of the profile the job's numbers, and adds groups that are new to the job for the
// profiles that follow.
func (m *meeting) join(x *profile) {
	x.collectives = m.collectives
	m.first.share(x, m.clock)
}

func (x *profile) groups() map[string]bool {
	groups := map[string]bool{}
	for _, c := range x.collectives {
		groups[c.Group] = true
	}
	return groups
}

// share adds the collectives of groups that are new to the job, on the clock of its first profile.
func (x *profile) share(y *profile, clock int64) {
	fresh := y.groups()
	for group := range x.shared {
		delete(fresh, group)
	}
	for _, c := range y.collectives {
		if fresh[c.Group] {
			c.Start, c.End = c.Start-clock, c.End-clock
			x.shared[c.Group] = append(x.shared[c.Group], c)
		}
	}
}
