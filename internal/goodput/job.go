// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package goodput

// Job is the account of one job. The zero value is an empty job.
type Job struct {
	Start, End int64 // unix ns: of its first and last span, or of its devices
	World      int64 // number of ranks as the spans state it; 0: not stated

	ranks map[int64]*rank
	own   passes

	devices map[string]*Activity // of no rank, by hw.id
	on      map[string]int64     // the rank that has or had a device
}

// Span is a span of one rank that belongs to a bucket.
type Span struct {
	Rank       int64
	Attempt    string // identity of the process
	Start, End int64  // unix ns
	Bucket     Bucket
	Step       bool // the span is a step, with the following values
	Index      int64
	Data       int64 // ns that it waited for data
	Sync       int64 // ns that it communicated or waited for other ranks; 0: not known
}

// MaxRanks is the largest number of ranks of a job.
const MaxRanks = 1 << 16

// Add adds a span, whose order does not matter. It reports whether there was room for its rank.
func (j *Job) Add(s Span) bool {
	if s.End <= s.Start || s.Start <= 0 {
		return true
	}
	r := j.ranks[s.Rank]
	if r == nil {
		if len(j.ranks) >= MaxRanks {
			return false
		}
		if j.ranks == nil {
			j.ranks = map[int64]*rank{}
		}
		r = &rank{}
		j.ranks[s.Rank] = r
	}
	if j.Start == 0 || s.Start < j.Start {
		j.Start = s.Start
	}
	j.End = max(j.End, s.End)
	if s.Step {
		step := Step{s.Index, s.Start, s.End, s.Data, min(s.Sync, s.End-s.Start)}
		if r.step(step, s.Attempt) {
			j.own.add(step)
		}
	} else {
		r.began(s.Attempt, s.Start)
		r.add(s.Start, s.End, s.Bucket)
	}
	r.fold(&j.own)
	return true
}

// Alive notes the end of a span of any kind: the rank's process does not hang until then.
func (j *Job) Alive(of, end int64) {
	if r := j.ranks[of]; r != nil {
		r.alive = max(r.alive, end)
	}
}

// Spin notes that the device of a rank has been busy from the end of the rank's last span until a
// time: a kernel that waits for another rank does not end, and no span shows it.
func (j *Job) Spin(of, until int64) {
	if r := j.ranks[of]; r != nil {
		r.spin(until)
		j.End = max(j.End, r.hanging())
	}
}

// Busy returns until when the device of a rank is known to be busy since the end of its last span.
func (j *Job) Busy(of int64) int64 {
	r := j.ranks[of]
	if r == nil {
		return 0
	}
	if n := len(r.spins); n > 0 {
		return max(r.end(), r.spins[n-1].end)
	}
	return r.end()
}

// Account returns the seconds of each bucket, over all GPUs of the job, and how often a rank's
// process began again. What no span says is busy or idle where the activity of the device is known.
// The buckets sum to the wall time times the number of GPUs: of all ranks, also if they send no
// spans, and of devices without a rank.
func (j *Job) Account() (seconds [Buckets]float64, restarts int) {
	for _, r := range j.ranks {
		for b, ns := range r.total(j.Start, j.End, &j.own) {
			seconds[b] += float64(ns) / 1e9
		}
		restarts = max(restarts, len(r.attempts)-1)
	}
	var sums [Buckets]int64
	others := j.others(&sums)
	for b, ns := range sums {
		seconds[b] += float64(ns) / 1e9
	}
	if silent := j.World - int64(len(j.ranks)+others); silent > 0 {
		seconds[Unknown] += float64(silent) * float64(j.End-j.Start) / 1e9
	}
	return seconds, restarts
}

// Ranks returns the number of ranks that sent spans.
func (j *Job) Ranks() int { return len(j.ranks) }
