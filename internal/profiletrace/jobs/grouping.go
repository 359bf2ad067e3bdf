// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/straggler"
)

// jobs puts profiles of one job together: the same job where it is stated, worlds of one size, each
// rank once. They met at collectives, whatever their clocks say, or, if they met at none, their
// windows overlap. What remains alone is no job.
//
// Jobs that run in step may seem to meet. Profiles of the rank of which there are most are of as
// many jobs, so they come first; each of the others goes where its collectives ended most nearly
// together.
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
		for _, together := range []bool{true, false} { // profiles of another time only if none of the same time fits
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
	for _, x := range list {
		x.shared = nil
	}
	for _, job := range jobs {
		slices.SortFunc(job, func(a, b *profile) int { return cmp.Compare(a.rank, b.rank) })
	}
	return jobs
}

// merge joins parts of one job without common collectives, such as the tensor-parallel groups of a
// job whose other groups were not recorded, or whose ranks arrived in an unlinked order: parts with
// common collectives, or that have no process group in common and ran at one time. Where two parts
// at one time have a rank in common, several jobs ran.
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

// strangers reports whether profiles are not known to be parts of one job: they have a process
// group in common, where they would have met, or none at all.
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

// A profile is of one job rather than another where its collectives ended so many times more nearly
// together with that one's, beyond the grain of clocks in ns.
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

// join gives the collectives of the profile the job's numbers, and adds groups that are new to the
// job for the profiles that follow.
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
