// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

// flowEnd is a position on a track at which an arrow may start or end.
type flowEnd struct {
	pid, tid   int64
	start, end int64 // of the slice
	at         int64 // time at which the host launched; 0: the slice's start
}

// correlated is a launch by its correlation number, which is unique only within one trace of one
// process.
type correlated struct {
	pid         int64
	trace       [16]byte
	correlation int64
}

type spanKey struct {
	trace [16]byte
	span  [8]byte
}

// flows pairs launches with work. An arrow is written when both of its ends are in the file, since
// viewers report an end without a start as an error.
type flows struct {
	launches pairs[correlated]
	spans    pairs[spanKey]
	next     int64
}

// pairs are the launches of a kind of key, and the work whose launch has not been seen.
type pairs[K comparable] struct {
	launched recent[K, flowEnd]
	waiting  recent[K, []flowEnd]
}

// launch adds a launch, whose work may have arrived already.
func (p *pairs[K]) launch(key K, from flowEnd, pair func(from, to flowEnd)) {
	p.launched.put(key, from)
	ends, _ := p.waiting.get(key)
	for _, to := range ends {
		pair(from, to)
	}
	p.waiting.remove(key)
}

// work adds work, which waits until its launch arrives; the launch of a graph has hundreds.
func (p *pairs[K]) work(key K, to flowEnd, pair func(from, to flowEnd)) {
	if from, ok := p.launched.get(key); ok {
		pair(from, to)
	} else if ends, _ := p.waiting.get(key); len(ends) < 4096 {
		p.waiting.put(key, append(ends, to))
	}
}

// add adds a slice that was written and calls arrow for each pair that it completes.
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
		// Viewers bind an arrow to the slice around it, and work cannot start before it was
		// launched.
		if at < from.start || at > from.end || at >= from.end && from.end > from.start || at > to.start {
			return
		}
		from.at = at
		f.next++
		arrow(f.next, from, to)
	}
	number := correlated{pid, e.Trace, e.Correlation}
	switch {
	case e.Track.Kind != Stream:
		f.spans.launch(spanKey{e.Trace, e.Span}, here, pair)
		if e.Correlation != 0 {
			f.launches.launch(number, here, pair)
		}
	case e.Correlation != 0:
		f.launches.work(number, here, pair)
	case e.Launched != 0 && e.Parent != [8]byte{}:
		here.at = e.Launched
		f.spans.work(spanKey{e.Trace, e.Parent}, here, pair)
	}
}

// maxFlowEnds bounds the launches and the work that wait for their other end.
const maxFlowEnds = 1 << 15

// recent is a map that evicts its oldest keys beyond maxFlowEnds. A ring holds the entries, so that
// the map, of which more than half is empty while keys are added and removed, has nothing but their
// positions.
type recent[K comparable, V any] struct {
	at   map[K]int32
	ring []entry[K, V]
	next int // position that is overwritten next when the ring is full
}

type entry[K comparable, V any] struct {
	key   K
	value V
}

func (r *recent[K, V]) get(k K) (v V, ok bool) {
	i, ok := r.at[k]
	if ok {
		v = r.ring[i].value
	}
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) {
	if i, ok := r.at[k]; ok {
		r.ring[i].value = v
		return
	}
	if r.at == nil {
		r.at = map[K]int32{}
	}
	i := len(r.ring)
	if i < maxFlowEnds {
		r.ring = append(r.ring, entry[K, V]{k, v})
	} else {
		i = r.next
		r.next = (i + 1) % maxFlowEnds
		if old := r.ring[i].key; r.at[old] == int32(i) { // not removed and added again since
			delete(r.at, old)
		}
		r.ring[i] = entry[K, V]{k, v}
	}
	r.at[k] = int32(i)
}

// remove removes a key; its entry stays in the ring, without a value, until it is overwritten.
func (r *recent[K, V]) remove(k K) {
	if i, ok := r.at[k]; ok {
		var none V
		r.ring[i].value = none
		delete(r.at, k)
	}
}
