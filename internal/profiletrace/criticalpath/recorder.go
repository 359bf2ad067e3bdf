// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"cmp"
	"slices"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Activity is one activity of a device.
type Activity struct {
	Start, End       int64
	Called, Returned int64  // begin and end of the call that launched it
	Stream           uint32 // by any number that is unique among all devices
	Device           uint32
	Thread           uint32 // that launched it
	Name             uint32 // of a kernel; of others by [Recorder.Label]
	Kind             Kind   // Kernel, Communication or Copy
	Launched         bool   // the call is known
	Blocks           bool   // the call may return only when the activity has ended
}

// Recorder finds the critical paths of the steps of one process. Activities arrive by start, steps
// before the activities that they launch.
type Recorder struct {
	threads  map[uint32]*timeline.History
	labels   []string
	acts     []Activity
	waits    []eventWait // by Called
	polls    map[uint32][]polling
	lost     map[uint32][]int64 // starts of waits for work without a record, by thread
	steps    []step             // not walked yet, by start, without overlap
	complete int64              // completion of the step before
	limit    int                // length of acts at which steps are walked
	whole    bool               // there are no steps
	walk     walk
	sums     sums
}

type step struct {
	start, end int64
	last       int64 // end of its last activity
	track      uint32
	name       uint32
	launched   bool // an activity of it arrived
	part       bool // the path up to complete has been walked
	partial    partial
}

// eventWait is a stream's wait for what another stream had been given before a time.
type eventWait struct {
	called, recorded int64
	stream, on       uint32
}

// polling is a thread that asks again and again whether work has ended, and launches nothing
// meanwhile: a wait.
type polling struct {
	intervals.Interval
	name  uint32
	calls int
	over  bool // the thread has launched something
}

// maxPolls bounds the waits by polling of a thread that are kept.
const maxPolls = 1 << 12

// Poll adds a call that asks whether work has ended.
func (r *Recorder) Poll(thread, name uint32, start, end int64) {
	list := r.polls[thread]
	if n := len(list); n > 0 && !list[n-1].over && start-list[n-1].End <= timeline.PauseLimit {
		list[n-1].End = end
		list[n-1].calls++
		return
	}
	if len(list) == maxPolls {
		list = slices.Delete(list, 0, maxPolls/2)
	}
	r.polls[thread] = append(list, polling{intervals.Interval{Start: start, End: end}, name, 1, false})
}

// Unrecorded states that a wait of a thread, which began then, was for launched work that has no
// record.
func (r *Recorder) Unrecorded(thread uint32, start int64) {
	list := r.lost[thread]
	if len(list) == maxPolls {
		list = slices.Delete(list, 0, maxPolls/2)
	}
	r.lost[thread] = append(list, start)
}

// Launch states that a thread launched something.
func (r *Recorder) Launch(thread uint32) {
	if list := r.polls[thread]; len(list) > 0 {
		list[len(list)-1].over = true
	}
}

// Limits of what is kept: from the first number of activities or pieces on, complete steps are
// walked; at the second one, a step is divided.
const (
	fewActivities = 1 << 13
	maxActivities = 1 << 16
	fewPieces     = 1 << 14
	manyPieces    = 1 << 16
	maxLabels     = 256
)

// NewRecorder returns a recorder of steps, or, of a process without steps, of the time from begin
// on.
func NewRecorder(steps bool, begin int64) *Recorder {
	r := &Recorder{
		threads: map[uint32]*timeline.History{}, polls: map[uint32][]polling{}, lost: map[uint32][]int64{},
		limit: fewActivities, whole: !steps, complete: begin, sums: newSums(),
	}
	if r.whole {
		r.steps = []step{{start: begin, end: begin, last: begin}}
	}
	return r
}

// Thread adds a thread of the host.
func (r *Recorder) Thread(track uint32, h *timeline.History) { r.threads[track] = h }

// Label returns the number of a name that is not among the names of the file.
func (r *Recorder) Label(name string) uint32 {
	i := slices.Index(r.labels, name)
	if i < 0 {
		if i = len(r.labels); i >= maxLabels {
			return otherName
		}
		r.labels = append(r.labels, name)
	}
	return uint32(i)
}

// Step adds a step; a step that begins within another one is part of that.
func (r *Recorder) Step(start, end int64, track, name uint32) {
	if n := len(r.steps); r.whole || end <= start || n > 0 && start < r.steps[n-1].end {
		return
	}
	r.steps = append(r.steps, step{start: start, end: end, last: start, track: track, name: name})
}

// Wait adds a wait of a stream, requested at a time, for all work that had been launched on another
// stream before a time.
func (r *Recorder) Wait(called int64, stream uint32, recorded int64, on uint32) {
	if len(r.waits) < maxActivities {
		r.waits = append(r.waits, eventWait{called, recorded, stream, on})
	}
}

// Add adds an activity.
func (r *Recorder) Add(a Activity) {
	if len(r.acts) >= r.limit || len(r.acts)&0xff == 0xff && r.pieces() >= fewPieces {
		r.settle()
	}
	r.acts = append(r.acts, a)
	if st := r.stepOf(&a); st != nil {
		st.last, st.launched = max(st.last, a.End), true
	}
}

func (r *Recorder) pieces() (n int) {
	for _, h := range r.threads {
		n += h.Len()
	}
	return n
}

// stepOf returns the step that launched the activity, as far as it has not been walked.
func (r *Recorder) stepOf(a *Activity) *step {
	if r.whole {
		return &r.steps[0]
	}
	if !a.Launched {
		return nil
	}
	i, found := slices.BinarySearchFunc(r.steps, a.Called, func(s step, t int64) int { return cmp.Compare(s.start, t) })
	if !found {
		i--
	}
	if i < 0 || r.steps[i].end <= a.Called {
		return nil
	}
	return &r.steps[i]
}

// settle walks the steps that are complete. If there are none and there is no room, it walks the
// path of the first one up to now, as if it ended with an activity.
func (r *Recorder) settle() {
	now := r.acts[len(r.acts)-1].Start
	n := 0
	for n+1 < len(r.steps) && r.steps[n+1].launched && max(r.steps[n].end, r.steps[n].last) <= now {
		n++
	}
	switch {
	case n > 0:
		r.finish(n)
	case len(r.steps) == 0:
		r.complete = max(r.complete, now)
		r.forget()
	case len(r.acts) >= maxActivities || r.pieces() >= manyPieces:
		r.divide(now)
	}
	r.limit = min(maxActivities, max(fewActivities, len(r.acts)+fewActivities/2))
}

// divide walks the path up to the last activity that has ended.
func (r *Recorder) divide(now int64) {
	st := &r.steps[0]
	from := max(st.start, r.complete)
	r.walk.prepare(r)
	last := r.walk.endedBy(r.walk.byEnd, now)
	if last >= 0 && r.acts[last].End > from {
		to := r.acts[last].End
		st.partial.add(r.walk.back(from, to, position{act: last}), &r.sums.scratch)
		st.part = true
		r.complete = to
	}
	r.forget()
	if len(r.acts) >= maxActivities { // all overlap
		r.sums.Dropped += int64(len(r.acts) / 2)
		r.acts = slices.Delete(r.acts, 0, len(r.acts)/2)
	}
}

// finish walks the first n steps.
func (r *Recorder) finish(n int) {
	r.walk.prepare(r)
	for i := range r.steps[:n] {
		st := &r.steps[i]
		from, to := max(st.start, r.complete), max(st.end, st.last)
		if to <= from {
			if st.part {
				r.sums.step(st, nil, r.complete)
			}
			continue
		}
		at := position{act: noActivity, thread: st.track}
		if st.last >= st.end {
			at.act = r.walk.endedBy(r.walk.byEnd, st.last)
		}
		r.complete = to
		r.sums.step(st, r.walk.back(from, to, at), to)
	}
	r.steps = slices.Delete(r.steps, 0, n)
	r.forget()
}

// forget drops what later paths do not reach.
func (r *Recorder) forget() {
	before := r.complete - timeline.LatencyLimit
	r.acts = slices.DeleteFunc(r.acts, func(a Activity) bool { return a.End <= before })
	for _, h := range r.threads {
		h.Forget(r.complete)
	}
	least := r.complete
	for i := range r.acts {
		if r.acts[i].Launched {
			least = min(least, r.acts[i].Called)
		}
	}
	const late = 1_000_000_000 // of launches that are still to arrive
	r.waits = slices.DeleteFunc(r.waits, func(w eventWait) bool { return w.called < least-late })
}
