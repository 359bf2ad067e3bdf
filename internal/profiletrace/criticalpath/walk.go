// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"cmp"
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/intervals"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Kind is what a segment of a path is.
type Kind uint8

// Kinds.
const (
	Host          Kind = iota // a thread of the host worked, or waited for something other than the device
	LaunchDelay               // from the call that launched the work to its start
	Kernel                    // a kernel that is no communication ran
	Communication             // a collective, or a message, was on the device
	Copy                      // a copy or memset ran
	QueueDelay                // from the end of the activity that the work waited for to its start
	Unexplained               // the device waited for something that the profile does not show
	NotRecorded               // the host waited for the device, which has no recorded work
	kindCount
)

// Limits, in ns.
const (
	clockError = int64(1_000)  // of times of one device that were rounded to microseconds
	waitError  = int64(10_000) // a wait may seem to end before the work that it waited for
	shortQueue = int64(5_000)  // a queued activity follows the one before within this time, on any stream
	longQueue  = int64(20_000) // a stream that waited for another one follows within this time
	leastWait  = int64(10_000) // a shorter call did not wait
)

const noActivity = int32(-1)

// position is where a walk is: at an activity, or else on a thread of the host.
type position struct {
	act    int32
	thread uint32
}

// segment is a part of a path.
type segment struct {
	start, end int64
	kind       Kind
	lane       uint32 // stream, or thread of the host
	name       uint32
	gain       int64 // what could be saved at most: of a part that is no activity, the time without any
}

// walk walks back over what a recorder holds.
type walk struct {
	r        *Recorder
	byEnd    []int32            // activities by end
	busy     intervals.Set      // when any activity ran
	streams  map[uint32][]int32 // activities of each stream by start
	before   []int32            // by activity: the one before on its stream; noActivity: none
	delay    int64              // usual time from a launch to the start, on an idle stream
	threads  map[uint32]*hostThread
	followed []uint32 // threads that launched activities
	waits    map[uint32][]eventWait
	segments []segment
	inferred int64 // waits of work for other streams, by times
	stated   int64 // likewise, as the profile states them
	from     int64
	t        int64
}

// prepare indexes what the recorder holds.
func (w *walk) prepare(r *Recorder) {
	w.r = r
	acts := r.acts
	w.byEnd = slices.Grow(w.byEnd[:0], len(acts))
	for i := range acts {
		w.byEnd = append(w.byEnd, int32(i))
	}
	slices.SortFunc(w.byEnd, func(a, b int32) int {
		return cmp.Or(cmp.Compare(acts[a].End, acts[b].End), cmp.Compare(a, b))
	})
	w.streams, w.threads, w.followed = map[uint32][]int32{}, map[uint32]*hostThread{}, w.followed[:0]
	w.busy = w.busy[:0]
	for i := range acts {
		s := acts[i].Stream
		w.streams[s] = append(w.streams[s], int32(i))
		w.busy.Add(intervals.Interval{Start: acts[i].Start, End: acts[i].End}, 0)
	}
	for i := range r.steps {
		if th := r.steps[i].track; !r.whole && !slices.Contains(w.followed, th) {
			w.followed = append(w.followed, th)
		}
	}
	w.waits = map[uint32][]eventWait{}
	for _, x := range r.waits {
		w.waits[x.stream] = append(w.waits[x.stream], x)
	}
	for _, list := range w.waits {
		slices.SortFunc(list, func(a, b eventWait) int { return cmp.Compare(a.called, b.called) })
	}
	w.before = slices.Grow(w.before[:0], len(acts))
	var delays []int64
	// The activity before is the one that started before, which may still run: with programmatic
	// dependent launch, a kernel starts before the previous one of its stream ends.
	last := map[uint32]int32{}
	for i := range acts {
		a := &acts[i]
		p, seen := last[a.Stream]
		if last[a.Stream] = int32(i); !seen {
			p = noActivity
		}
		w.before = append(w.before, p)
		if !a.Launched {
			continue
		}
		if !slices.Contains(w.followed, a.Thread) {
			w.followed = append(w.followed, a.Thread)
		}
		idle := p == noActivity || acts[p].End <= a.Called
		if d := a.Start - a.Called; idle && d >= 0 && d <= timeline.LatencyLimit {
			delays = append(delays, d)
		}
	}
	w.delay = 0
	if len(delays) > 0 {
		slices.Sort(delays)
		w.delay = delays[len(delays)/2]
	}
}

// ended returns how many activities of a list by end had ended at a time.
func (w *walk) ended(list []int32, t int64) int {
	return sort.Search(len(list), func(i int) bool { return w.r.acts[list[i]].End > t })
}

// endedBy returns the last activity of a list by end that ended until then.
func (w *walk) endedBy(list []int32, t int64) int32 {
	n := w.ended(list, t)
	if n == 0 {
		return noActivity
	}
	return list[n-1]
}

// put adds the segment from a time to where the walk is.
func (w *walk) put(k Kind, lane, name uint32, from int64) {
	from = max(from, w.from)
	if from >= w.t {
		return
	}
	if n := len(w.segments); n > 0 {
		if s := &w.segments[n-1]; s.start == w.t && s.kind == k && s.lane == lane && s.name == name && k == Host {
			s.start, w.t = from, from
			return
		}
	}
	w.segments = append(w.segments, segment{start: from, end: w.t, kind: k, lane: lane, name: name})
	w.t = from
}

// back returns the path that leads to a position at a time, from a time on, the last segment first.
func (w *walk) back(from, to int64, at position) []segment {
	w.segments, w.from, w.t = w.segments[:0], from, to
	still := 0
	for w.t > from {
		t := w.t
		if at.act != noActivity {
			at = w.activity(at.act)
		} else {
			at = w.host(at.thread)
		}
		if w.t < t {
			still = 0
		} else if still++; still > 1000 || at == (position{act: noActivity, thread: nowhere}) {
			w.put(Unexplained, 0, 0, from)
		}
	}
	for i := range w.segments {
		s := &w.segments[i]
		if s.gain = s.end - s.start; s.kind != Kernel && s.kind != Communication && s.kind != Copy {
			s.gain -= w.busy.Within(intervals.Interval{Start: s.start, End: s.end})
		}
	}
	return w.segments
}

// nowhere is the thread of a position to which nothing leads.
const nowhere = ^uint32(0)

// activity goes from an activity to what explains its start.
func (w *walk) activity(i int32) position {
	acts := w.r.acts
	a := &acts[i]
	w.put(a.Kind, a.Stream, a.Name, a.Start)
	if w.t <= w.from {
		return position{act: noActivity, thread: nowhere}
	}
	t := w.t
	cause, ready := w.before[i], int64(-1<<62)
	if cause != noActivity {
		ready = min(acts[cause].End, t)
	}
	launched := a.Launched && min(a.Called+w.delay, t) >= ready
	if launched {
		ready = min(a.Called+w.delay, t)
	}
	if c := w.event(i); c != noActivity && min(acts[c].End, t) > ready {
		cause, launched, ready = c, false, min(acts[c].End, t)
		w.stated++
	} else if t-ready > shortQueue {
		if c := w.beside(i, max(ready, t-longQueue-1)); c != noActivity {
			cause, launched, ready = c, false, acts[c].End
			w.inferred++
		}
	}
	if t-ready > timeline.LatencyLimit {
		if c := w.running(i); c != noActivity {
			w.inferred++
			return position{act: c}
		}
	}
	switch {
	case launched:
		called := min(a.Called, t)
		if t-called > timeline.LatencyLimit && a.Blocks && a.Returned >= t { // the call prepares pageable memory
			return position{act: noActivity, thread: a.Thread}
		}
		if t-called > timeline.LatencyLimit {
			w.put(Unexplained, a.Stream, 0, called+cmp.Or(w.delay, timeline.LatencyLimit))
		}
		w.put(LaunchDelay, a.Stream, 0, called)
		return position{act: noActivity, thread: a.Thread}
	case cause == noActivity || !a.Launched && t-ready > timeline.LatencyLimit:
		if cause = w.endedBy(w.byEnd, t); cause == noActivity || cause >= i {
			w.put(Unexplained, a.Stream, 0, w.from)
			return position{act: noActivity, thread: nowhere}
		}
	}
	k := QueueDelay
	if t-acts[cause].End > longQueue { // the device was not idle while another stream's activity ran
		if c := w.running(i); c != noActivity {
			w.put(acts[c].Kind, acts[c].Stream, acts[c].Name, max(acts[c].Start, acts[cause].End))
		}
	}
	if w.t-acts[cause].End > timeline.LatencyLimit {
		k = Unexplained
	}
	w.put(k, a.Stream, 0, acts[cause].End)
	return position{act: cause}
}

// beside returns the activity of another stream that ended last before the start of one, after a
// time.
func (w *walk) beside(i int32, after int64) int32 {
	acts := w.r.acts
	for n := w.ended(w.byEnd, acts[i].Start) - 1; n >= 0 && acts[w.byEnd[n]].End > after; n-- {
		if c := w.byEnd[n]; c < i && acts[c].Stream != acts[i].Stream {
			return c
		}
	}
	return noActivity
}

// running returns the activity of another stream that was running when one started on the same
// device, which then had no room for it before; of several, the one that started last.
func (w *walk) running(i int32) int32 {
	acts := w.r.acts
	a := &acts[i]
	const most = 512 // activities that are compared
	for c := i - 1; c >= max(0, i-most); c-- {
		b := &acts[c]
		if b.End > a.Start && b.Start < a.Start && b.Stream != a.Stream && b.Device == a.Device &&
			(b.Kind == Copy) == (a.Kind == Copy) {
			return c
		}
	}
	return noActivity
}

// event returns the activity for which the activity's stream had to wait, as the profile states it;
// of several, the one that ended last.
func (w *walk) event(i int32) (found int32) {
	acts := w.r.acts
	a := &acts[i]
	list := w.waits[a.Stream]
	found = noActivity
	if len(list) == 0 || !a.Launched {
		return found
	}
	since := int64(-1 << 62) // earlier waits were for the activity before
	if p := w.before[i]; p != noActivity && acts[p].Launched {
		since = acts[p].Called
	}
	n := sort.Search(len(list), func(k int) bool { return list[k].called >= a.Called })
	for n--; n >= 0 && list[n].called > since; n-- {
		x := &list[n]
		of := w.streams[x.on]
		k, _ := slices.BinarySearch(of, i)
		for k--; k >= 0; k-- {
			c := of[k]
			if acts[c].Launched && acts[c].Called <= x.recorded {
				if found == noActivity || acts[c].End > acts[found].End {
					found = c
				}
				break
			}
		}
	}
	return found
}
