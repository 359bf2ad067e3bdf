// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package criticalpath

import (
	"cmp"
	"slices"
	"sort"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// hostThread is what is known of a thread of the host.
type hostThread struct {
	pieces []timeline.Piece
	waits  []wait // by end
	any    bool   // waits are there
}

// wait is a call of a thread that ended because an activity had ended.
type wait struct {
	start, end int64
	act        int32
	name       uint32
}

// thread returns what is known of a thread of the host.
func (w *walk) thread(track uint32) *hostThread {
	th := w.threads[track]
	if th == nil {
		th = &hostThread{}
		if h := w.r.threads[track]; h != nil {
			th.pieces = h.Until(1<<62 - 1)
		}
		w.threads[track] = th
	}
	return th
}

// waiting returns the waits of a thread.
func (w *walk) waiting(track uint32) []wait {
	th := w.thread(track)
	if th.any {
		return th.waits
	}
	th.any = true
	for i := range th.pieces {
		p := &th.pieces[i]
		if p.Class != timeline.CallWait {
			continue
		}
		if act := w.endOf(track, p.Start, p.End); act != noActivity {
			th.waits = append(th.waits, wait{p.Start, p.End, act, p.Name})
		}
	}
	for i := range w.r.acts {
		a := &w.r.acts[i]
		if a.Launched && a.Thread == track && a.Blocks && a.Returned-a.Called >= leastWait &&
			a.Returned >= a.End-waitError && a.Start >= a.Called && a.Start < a.Returned {
			th.waits = append(th.waits, wait{a.Called, a.Returned, int32(i), 0})
		}
	}
	for _, run := range w.r.polls[track] {
		if run.calls < 2 {
			continue
		}
		if act := w.endOf(track, run.Start, run.End); act != noActivity {
			th.waits = append(th.waits, wait{run.Start, run.End, act, run.name})
		}
	}
	slices.SortStableFunc(th.waits, func(a, b wait) int { return cmp.Compare(a.end, b.end) })
	return th.waits
}

// endOf returns the activity whose end ended a wait of a thread: the last one that ended in it and
// was launched before the wait or by it. Where that was long before, it is the one that ended a
// little after, because clocks are not exact.
func (w *walk) endOf(track uint32, start, end int64) int32 {
	acts := w.r.acts
	after := noActivity
	for n := w.ended(w.byEnd, end+waitError) - 1; n >= 0; n-- {
		i := w.byEnd[n]
		a := &acts[i]
		switch {
		case a.End <= start:
			return after
		case a.Start >= end || a.Launched && a.Called > start && (a.Thread != track || a.Called >= end):
		case a.End > end+clockError:
			after = i
		case after != noActivity && a.End < end-longQueue:
			return after
		default:
			return i
		}
	}
	return after
}

// waitBefore returns the last wait of a thread that began before a time; the part before that time
// counts.
func (w *walk) waitBefore(track uint32, t int64) (x wait, ok bool) {
	list := w.waiting(track)
	n := sort.Search(len(list), func(i int) bool { return list[i].start >= t })
	for n--; n >= 0 && list[n].end > w.from; n-- {
		x = list[n]
		if x.end > t {
			if x.end, x.act = t, w.endOf(track, x.start, t); x.act == noActivity {
				continue
			}
		}
		return x, true
	}
	return wait{}, false
}

// at returns what a thread did until a time; a piece of RangeNone if it was in no range.
func (th *hostThread) at(t int64) timeline.Piece {
	n := sort.Search(len(th.pieces), func(i int) bool { return th.pieces[i].End >= t })
	if n < len(th.pieces) && th.pieces[n].Start < t {
		return th.pieces[n]
	}
	hole := timeline.Piece{Start: -1 << 62, End: t}
	if n > 0 {
		hole.Start = th.pieces[n-1].End
	}
	return hole
}

// specificBefore returns the end of the last piece of a thread, up to a time, that is not vague.
func (th *hostThread) specificBefore(t, from int64) int64 {
	n := sort.Search(len(th.pieces), func(i int) bool { return th.pieces[i].End > t })
	for n--; n >= 0 && th.pieces[n].End > from; n-- {
		if !th.pieces[n].Vague() {
			return th.pieces[n].End
		}
	}
	return from
}

// host follows a thread back to a wait for the device.
func (w *walk) host(track uint32) position {
	if track == nowhere {
		return position{act: noActivity, thread: nowhere}
	}
	x, waits := w.waitBefore(track, w.t)
	low := w.from
	if waits {
		low = max(low, x.end)
	}
	for w.t > low {
		th := w.thread(track)
		p := th.at(w.t)
		from := max(p.Start, low)
		if p.Vague() {
			other := nowhere
			for _, f := range w.followed {
				if f == track {
					continue
				}
				o := w.thread(f)
				q := o.at(w.t)
				if !q.Vague() {
					return position{act: noActivity, thread: f}
				}
				if p.Class == timeline.RangeNone && q.Class != timeline.RangeNone && other == nowhere {
					other = f
				}
				from = o.specificBefore(w.t, from)
			}
			if other != nowhere {
				return position{act: noActivity, thread: other}
			}
		}
		k := Host
		if p.Class == timeline.CallWait && (w.t-from > timeline.UnrecordedWait && !w.launches(track, &p) ||
			w.unrecorded(track, p.Start, p.End)) {
			k = NotRecorded
		}
		w.put(k, track, p.Name, from)
	}
	if !waits || w.t <= w.from {
		return position{act: noActivity, thread: nowhere}
	}
	name := x.name
	if name == 0 {
		name = w.thread(track).at(w.t).Name
	}
	k, end := Host, min(w.r.acts[x.act].End, w.t)
	if w.t-end > timeline.UnrecordedWait || w.unrecorded(track, x.start, x.end) {
		k = NotRecorded
	}
	w.put(k, track, name, end)
	return position{act: x.act}
}

// unrecorded reports whether a wait of a thread in an interval was for work without a record.
func (w *walk) unrecorded(track uint32, from, to int64) bool {
	list := w.r.lost[track]
	n, _ := slices.BinarySearch(list, from)
	return n < len(list) && list[n] < to
}

// launches reports whether a call of a thread launched an activity, which it may have prepared.
func (w *walk) launches(track uint32, p *timeline.Piece) bool {
	return slices.ContainsFunc(w.r.acts, func(a Activity) bool {
		return a.Launched && a.Thread == track && a.Called >= p.Start && a.Called < p.End
	})
}
