// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package goodput divides the time of a job's GPUs into buckets: work that lasts, work that was
// lost and done again, and everything else. The buckets of a job sum to its wall time times its
// GPUs.
//
// Spans may arrive in any order and several times. Each rank has a timeline of segments: where
// spans overlap, the bucket with the highest priority has the time.
package goodput

import (
	"slices"
	"sort"
	"time"
)

// Bucket is what time was spent on, in the order of priority: a later one wins where spans overlap.
type Bucket uint8

// Buckets.
const (
	Unknown Bucket = iota // no span says, and nothing is known of the device
	Idle                  // between two attempts, or no span says and no kernel ran
	Busy                  // no span says, and kernels ran
	Hang                  // nothing ended for long, or the device was busy without a span
	Startup
	Productive
	Data
	RankWait // steps that waited for other ranks
	Evaluation
	Checkpoint
	Lost // steps that a later attempt repeated
	Compilation
	Buckets // number of buckets
)

// Names are the names of the buckets in metrics.
var Names = [Buckets]string{
	"unknown", "idle", "busy", "hang", "startup", "productive", "data", "rank_wait", "evaluation", "checkpoint", "lost",
	"compilation",
}

const (
	maxSegments = 2048 // of a rank; older ones are summed up
	maxSteps    = 4096 // of a rank whose work can still be lost
	maxSamples  = 255  // of the durations of steps

	hangSteps = 5 // median steps after which a gap is a hang, and at least
	hangLeast = time.Minute

	maxSpins = 64 // of a rank; older ones are idle time

	// The ranks send a step within this time.
	arriveWithin = int64(10 * time.Minute)
)

// Step is a step of the training loop.
type Step struct {
	Index      int64
	Start, End int64 // unix ns
	Data       int64 // ns of it in which the rank waited for data
	Sync       int64 // ns of it in which the rank communicated or waited for other ranks; 0: not known
}

// segment is a part of a rank's time.
type segment struct {
	start, end int64
	bucket     Bucket
}

// attempt is an incarnation of a rank's process.
type attempt struct {
	id    string
	start int64 // of its first span
	first Step  // its earliest step; zero: none
}

// rank is the timeline of one rank.
type rank struct {
	segments []segment // by start, without overlaps
	steps    []Step    // by start
	attempts []attempt // by start
	spins    []segment // by start: the device was busy from the end of a span on, and no span shows it
	device   string    // hw.id; empty: not known
	active   Activity  // of the device
	first    int64     // unix ns: the start of the first span
	alive    int64     // unix ns: the end of the newest span of any kind
	recent   []int64   // durations of the newest steps
	next     int       // place of the next of them

	// The first steps, whose waits are summed up until one of them is lost or another one comes.
	summed             int
	summedData, waited int64 // ns

	folded     [Buckets]int64 // ns of older segments
	foldedTo   int64          // where these end; 0: none
	foldedData int64          // ns, of older steps
	foldedWait int64          // ns, of older steps
}

// add gives the time of a span to a bucket where no bucket of higher priority has it.
func (r *rank) add(start, end int64, bucket Bucket) {
	start = max(start, r.foldedTo)
	if start >= end {
		return
	}
	if r.first == 0 || start < r.first {
		r.first = start
	}
	from := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].end > start })
	to := from
	var out []segment
	put := func(s, e int64, b Bucket) {
		switch n := len(out); {
		case s >= e:
		case n > 0 && out[n-1].end == s && out[n-1].bucket == b:
			out[n-1].end = e
		default:
			out = append(out, segment{s, e, b})
		}
	}
	at := start
	for ; to < len(r.segments) && r.segments[to].start < end; to++ {
		s := r.segments[to]
		put(s.start, min(s.end, start), s.bucket)
		put(at, s.start, bucket)
		put(max(s.start, start), min(s.end, end), max(s.bucket, bucket))
		put(max(s.start, end), s.end, s.bucket)
		at = max(at, s.end)
	}
	put(at, end, bucket)
	r.segments = slices.Replace(r.segments, from, to, out...)
}

// began notes the process of a span, which begins an attempt if it is another one.
func (r *rank) began(id string, start int64) *attempt {
	for i := range r.attempts {
		if a := &r.attempts[i]; a.id == id {
			a.start = min(a.start, start)
			return a
		}
	}
	r.attempts = append(r.attempts, attempt{id: id, start: start})
	slices.SortFunc(r.attempts, func(a, b attempt) int { return int(a.start - b.start) })
	return r.began(id, start)
}

// step adds a step, and reports whether it is new. Steps of the same number or higher that ended
// before are lost.
func (r *rank) step(s Step, id string) bool {
	at := sort.Search(len(r.steps), func(i int) bool { return r.steps[i].Start >= s.Start })
	if at < len(r.steps) && r.steps[at].Start == s.Start && r.steps[at].Index == s.Index {
		return false // repeated, or the span around the first step
	}
	r.steps = slices.Insert(r.steps, at, s)
	r.changed(at)
	r.add(s.Start, s.End, Productive)
	if a := r.began(id, s.Start); a.first == (Step{}) || s.Start < a.first.Start {
		a.first = s
	}
	lowest := int64(1) << 62 // of the steps from the place on
	for _, later := range r.steps[at+1:] {
		lowest = min(lowest, later.Index)
	}
	if lowest <= s.Index {
		r.add(s.Start, s.End, Lost) // it arrived after the step that repeats it
	}
	for i := at - 1; i >= 0 && r.steps[i].Index >= s.Index; i-- {
		r.add(r.steps[i].Start, r.steps[i].End, Lost)
		r.changed(i)
	}
	if len(r.recent) < maxSamples {
		r.recent = append(r.recent, s.End-s.Start)
	} else {
		r.recent[r.next%maxSamples] = s.End - s.Start
	}
	r.next++
	return true
}

// changed notes that a step changed, so that what it is part of is summed up again.
func (r *rank) changed(step int) {
	if step < r.summed {
		r.summed, r.summedData, r.waited = 0, 0, 0
	}
}

// waits returns how long the rank waited for data and for other ranks in all steps, in ns.
func (r *rank) waits(own *passes) (data, wait int64) {
	for ; r.summed < len(r.steps) && r.steps[r.summed].End < r.end()-arriveWithin; r.summed++ {
		d, w := r.within(r.steps[r.summed], own)
		r.summedData, r.waited = r.summedData+d, r.waited+w
	}
	data, wait = r.foldedData+r.summedData, r.foldedWait+r.waited
	for _, s := range r.steps[r.summed:] {
		d, w := r.within(s, own)
		data, wait = data+d, wait+w
	}
	return data, wait
}

// spin notes that the device was busy from the end of the rank's last span until a time. A short
// one, as while the spans of a running job are under way, is replaced by the next one.
func (r *rank) spin(until int64) {
	end := r.end()
	if until <= end {
		return
	}
	if n := len(r.spins); n > 0 {
		if last := r.spins[n-1]; last.end > end || last.end-last.start <= r.limit() {
			if last.end > end {
				until = max(until, last.end)
			}
			r.spins = r.spins[:n-1]
		}
	}
	r.spins = append(r.spins[max(0, len(r.spins)+1-maxSpins):], segment{start: end, end: until})
}

// end is the end of the rank's last span; 0: none.
func (r *rank) end() int64 {
	if n := len(r.segments); n > 0 {
		return r.segments[n-1].end
	}
	return 0
}

// fold sums up what is older than the limits.
func (r *rank) fold(own *passes) {
	if n := len(r.steps) - maxSteps; n > maxSteps/8 {
		for _, s := range r.steps[:n] {
			data, wait := r.within(s, own)
			r.foldedData, r.foldedWait = r.foldedData+data, r.foldedWait+wait
		}
		r.steps = slices.Delete(r.steps, 0, n)
		r.changed(0)
	}
	if len(r.segments) <= maxSegments {
		return
	}
	n := len(r.segments) - maxSegments/2
	end := r.segments[n].start
	sums := r.sums(r.segments[:n], r.foldedTo, end)
	for b, v := range sums {
		r.folded[b] += v
	}
	r.foldedTo = end
	r.segments = slices.Delete(r.segments, 0, n)
}

// sums returns the time of each bucket in an interval.
func (r *rank) sums(segments []segment, start, end int64) (sums [Buckets]int64) {
	if start == 0 && len(segments) > 0 {
		start = segments[0].start
	}
	limit := r.limit()
	gap := func(from, to int64) {
		switch {
		case from >= to:
		case slices.ContainsFunc(r.attempts, func(a attempt) bool { return a.start > from && a.start <= to }):
			hang := int64(0) // the process hung until it was killed
			for _, s := range r.spins {
				if n := min(s.end, to) - from; s.start <= from && n > limit {
					hang = n
				}
			}
			sums[Hang] += hang
			sums[Idle] += to - from - hang
		case to-from > limit:
			sums[Hang] += to - from
		default:
			r.active.fill(&sums, from, to)
		}
	}
	for _, s := range segments {
		gap(start, s.start)
		sums[s.bucket] += s.end - s.start
		start = s.end
	}
	gap(start, end)
	return sums
}

// limit is the length of a gap in ns from which on it is a hang.
func (r *rank) limit() int64 { return max(int64(hangLeast), hangSteps*r.median()) }

// hanging returns until when the device has been busy, if that is for so long after the last span
// that the rank hangs; 0: it does not.
func (r *rank) hanging() int64 {
	n := len(r.spins)
	if n == 0 || len(r.recent) < 3 || r.spins[n-1].end-max(r.alive, r.end()) <= r.limit() {
		return 0
	}
	return r.spins[n-1].end
}

// median returns the median duration of the newest steps.
func (r *rank) median() int64 {
	if len(r.recent) == 0 {
		return 0
	}
	return slices.Sorted(slices.Values(r.recent))[len(r.recent)/2]
}

// bucketAt returns the bucket of a time.
func (r *rank) bucketAt(t int64) Bucket {
	i := sort.Search(len(r.segments), func(i int) bool { return r.segments[i].end > t })
	if i < len(r.segments) && r.segments[i].start <= t {
		return r.segments[i].bucket
	}
	return Productive // folded
}

// within returns how much of a productive step the rank waited for data and for other ranks, in ns.
func (r *rank) within(s Step, own *passes) (data, wait int64) {
	if r.bucketAt(s.Start) != Productive {
		return 0, 0
	}
	data = min(s.Data, s.End-s.Start)
	// The first step of a process compiles, which is not the same work on all ranks.
	if !slices.ContainsFunc(r.attempts, func(a attempt) bool { return a.first.Start == s.Start }) {
		wait = min(own.wait(s), s.End-s.Start-data)
	}
	return data, wait
}

// total returns the time of each bucket between the start and the end of the job.
func (r *rank) total(start, end int64, own *passes) [Buckets]int64 {
	sums := r.sums(r.segments, r.foldedTo, 0) // no time after the last segment
	last := r.end()
	if until := r.hanging(); until > 0 {
		sums[Hang] += until - last
		last = until
	}
	r.active.fill(&sums, start, r.first)
	r.active.fill(&sums, last, end)
	for b, v := range r.folded {
		sums[b] += v
	}
	move := func(n int64, from, to Bucket) {
		n = max(0, min(n, sums[from]))
		sums[from] -= n
		sums[to] += n
	}
	data, wait := r.waits(own)
	move(data, Productive, Data)
	move(wait, Productive, RankWait)
	for i := range r.attempts {
		// What the first step of a process takes longer than usual is compilation and warm-up.
		if first := r.attempts[i].first; len(r.recent) > 2 && first.End > 0 {
			move(first.End-first.Start-r.median(), r.bucketAt(first.Start), Compilation)
		}
	}
	return sums
}
