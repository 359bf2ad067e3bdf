// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

// maxFlowEnds bounds the launches and the work that wait for their other end.
const maxFlowEnds = 1 << 16

// flowEnd is a place on a track where an arrow may begin or end.
type flowEnd struct {
	pid, tid   int64
	start, end int64 // of the slice
	at         int64 // time at which the host launched; 0: the slice's start
}

// correlated is a launch by its correlation number, which is unique only within one trace of one process.
type correlated struct {
	pid         int64
	trace       [16]byte
	correlation int64
}

type spanKey struct {
	trace [16]byte
	span  [8]byte
}

// flows pairs launches with work. An arrow is written when both of its ends are in the file, since a viewer complains
// of an end without a start.
type flows struct {
	launches *recent[correlated, flowEnd]
	spans    *recent[spanKey, flowEnd]
	byCorr   *recent[correlated, []flowEnd] // work whose launch has not been seen
	byParent *recent[spanKey, []flowEnd]
	next     int64
}

func newFlows() *flows {
	return &flows{
		launches: newRecent[correlated, flowEnd](maxFlowEnds),
		spans:    newRecent[spanKey, flowEnd](maxFlowEnds),
		byCorr:   newRecent[correlated, []flowEnd](maxFlowEnds),
		byParent: newRecent[spanKey, []flowEnd](maxFlowEnds),
	}
}

// add takes a slice that was written and calls arrow for each pair that it completes.
func (f *flows) add(e *Event, pid, tid, start, end int64, arrow func(id int64, from, to flowEnd)) {
	here := flowEnd{pid: pid, tid: tid, start: start, end: end}
	pair := func(from, to flowEnd) {
		at := to.at
		if at == 0 {
			at = from.start
		}
		if at < from.start && from.start-at < placement { // a step that was trimmed
			at = from.start
		}
		if at >= from.end && at-from.end < placement && from.end > from.start {
			at = from.end - 1
		}
		// Viewers bind an arrow to the slice around it, and work cannot start before it was launched.
		if at < from.start || at > from.end || at >= from.end && from.end > from.start || at > to.start {
			return
		}
		from.at = at
		f.next++
		arrow(f.next, from, to)
	}
	if e.Track.Kind != Stream {
		key := spanKey{e.Trace, e.Span}
		f.spans.put(key, here)
		if waiting, ok := f.byParent.take(key); ok {
			for _, to := range waiting {
				pair(here, to)
			}
		}
		if e.Correlation != 0 {
			key := correlated{pid, e.Trace, e.Correlation}
			f.launches.put(key, here)
			if waiting, ok := f.byCorr.take(key); ok {
				for _, to := range waiting {
					pair(here, to)
				}
			}
		}
		return
	}
	switch {
	case e.Correlation != 0:
		key := correlated{pid, e.Trace, e.Correlation}
		if from, ok := f.launches.get(key); ok {
			pair(from, here)
			return
		}
		wait(f.byCorr, key, here)
	case e.Launched != 0 && e.Parent != [8]byte{}:
		here.at = e.Launched
		key := spanKey{e.Trace, e.Parent}
		if from, ok := f.spans.get(key); ok {
			pair(from, here)
			return
		}
		wait(f.byParent, key, here)
	}
}

// wait keeps an end until its launch arrives; a graph launch has hundreds.
func wait[K comparable](r *recent[K, []flowEnd], key K, e flowEnd) {
	ends, _ := r.get(key)
	if len(ends) < 4096 {
		r.put(key, append(ends, e))
	}
}

// recent is a map that forgets its oldest keys beyond a limit.
type recent[K comparable, V any] struct {
	m     map[K]V
	order []K // ring of keys in order of arrival
	at    int
	limit int
}

func newRecent[K comparable, V any](limit int) *recent[K, V] {
	return &recent[K, V]{m: map[K]V{}, limit: limit}
}

func (r *recent[K, V]) get(k K) (V, bool) {
	v, ok := r.m[k]
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if _, ok := r.m[k]; !ok {
		if len(r.order) < r.limit {
			r.order = append(r.order, k)
		} else {
			delete(r.m, r.order[r.at])
			r.order[r.at] = k
			r.at = (r.at + 1) % r.limit
		}
	}
	r.m[k] = v
}

// take removes a key. Its place in the ring stays until it is overwritten, when deleting it again does nothing.
func (r *recent[K, V]) take(k K) (V, bool) {
	v, ok := r.m[k]
	delete(r.m, k)
	return v, ok
}
