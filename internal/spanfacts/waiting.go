// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import "slices"

// Waiting has sums over the descendants of spans that have not arrived yet. Children end, and so arrive, before their
// parents: a sum waits under the parent's key until the parent arrives and takes it. Sums whose span does not arrive
// are evicted by age and number, the oldest first. The zero value has no limits and is ready for use; it is not safe
// for concurrent use.
type Waiting[T any] struct {
	Max     int     // sums; 0: no limit
	Dropped func(T) // called for an evicted sum; may be nil

	sums  map[Key]*waiting[T]
	made  uint64 // number of sums so far
	order []turn // oldest first; entries of taken sums stay until they reach the front or are swept
}

type waiting[T any] struct {
	value  T
	number uint64 // value of made
}

type turn struct {
	key    Key
	born   int64
	number uint64
}

// Len returns the number of sums.
func (w *Waiting[T]) Len() int { return len(w.sums) }

// Take removes and returns the sum of a span's descendants; ok is false if there is none.
func (w *Waiting[T]) Take(k Key) (sum T, ok bool) {
	x := w.sums[k]
	if x == nil {
		return sum, false
	}
	delete(w.sums, k)
	return x.value, true
}

// Get returns the sum of a span's descendants, nil if there is none.
func (w *Waiting[T]) Get(k Key) *T {
	if x := w.sums[k]; x != nil {
		return &x.value
	}
	return nil
}

// At returns the sum of a span's descendants, a new zero value if there is none, and the number of sums that were
// evicted for it. now is the time, in any unit that does not decrease.
func (w *Waiting[T]) At(k Key, now int64) (sum *T, dropped int) {
	if x := w.sums[k]; x != nil {
		return &x.value, 0
	}
	for w.Max > 0 && len(w.sums) >= w.Max {
		dropped += w.DropOldest()
	}
	if w.sums == nil {
		w.sums = make(map[Key]*waiting[T])
	}
	w.made++
	x := &waiting[T]{number: w.made}
	w.sums[k] = x
	if len(w.order) > 2*len(w.sums)+64 {
		w.order = slices.DeleteFunc(w.order, func(t turn) bool { return !w.waits(t) })
	}
	w.order = append(w.order, turn{k, now, w.made})
	return &x.value, dropped
}

// Expire evicts the sums that began to wait at or before a time and returns their number.
func (w *Waiting[T]) Expire(before int64) (dropped int) {
	for len(w.order) > 0 && w.order[0].born <= before {
		dropped += w.DropOldest()
	}
	return dropped
}

// DropOldest evicts the sum that has waited longest. It returns 1, or 0 if the oldest entry was taken or there is none.
func (w *Waiting[T]) DropOldest() int {
	if len(w.order) == 0 {
		return 0
	}
	t := w.order[0]
	w.order = w.order[1:]
	if !w.waits(t) {
		return 0
	}
	sum, _ := w.Take(t.key)
	if w.Dropped != nil {
		w.Dropped(sum)
	}
	return 1
}

func (w *Waiting[T]) waits(t turn) bool {
	x := w.sums[t.key]
	return x != nil && x.number == t.number
}
