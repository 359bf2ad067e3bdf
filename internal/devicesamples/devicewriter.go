// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package devicesamples

import (
	"cmp"
	"fmt"
	"math/bits"
	"time"

	"github.com/otelgpu/otelgpu/internal/plausibility"
)

// memorySlack is by what factor the memory in use can exceed the size, because sources round it and
// reserve a part.
const memorySlack = 1.02

// deviceWriter writes to one device of a store.
type deviceWriter struct {
	st  *Store
	d   *device
	gen int
}

func (w *deviceWriter) valid() bool { return w.d.open && w.d.gen == w.gen }

func (w *deviceWriter) Write(samples []Sample) {
	if len(samples) == 0 {
		return
	}
	st := w.st
	now := st.now()
	st.mu.Lock()
	if !w.valid() {
		st.mu.Unlock()
		for i := range samples {
			st.Stats.NotRegistered.Add(int64(bits.OnesCount32(samples[i].Known)))
		}
		return
	}
	for i := range samples {
		st.write(w.d, &samples[i], now)
	}
	w.d.refresh(now.UnixNano())
	if now.Sub(st.swept) > sweepEvery {
		st.swept = now
		st.sweep(now)
		st.trimRings()
	}
	st.mu.Unlock()
	st.wake()
}

func (w *deviceWriter) WriteEvents(events []Event) {
	w.st.mu.Lock()
	if w.valid() {
		for _, e := range events {
			w.d.addEvent(e)
		}
	}
	w.st.mu.Unlock()
}

func (w *deviceWriter) Close() {
	w.st.mu.Lock()
	if w.valid() {
		w.d.open = false
	}
	w.st.mu.Unlock()
}

// write stores the known fields of one sample in the rings of a device; mu is held.
func (st *Store) write(d *device, sample *Sample, now time.Time) {
	if sample.Time > now.Add(maxFuture).UnixNano() {
		st.Stats.Future.Add(int64(bits.OnesCount32(sample.Known)))
		return
	}
	if v := sample.Values[MemoryUsed]; d.desc.Limits.Memory > 0 && sample.Known&(1<<MemoryUsed) != 0 &&
		v > memorySlack*float64(d.desc.Limits.Memory) {
		sample.Known &^= 1 << MemoryUsed
		st.Contradict(plausibility.Contradiction{
			Source: d.desc.Source, Device: d.desc.ID, Reason: plausibility.MemoryRange,
			Found: fmt.Sprintf("%.4g GiB in use", v/(1<<30)),
			Other: fmt.Sprintf("%.4g GiB of memory", float64(d.desc.Limits.Memory)/(1<<30)),
		})
	}
	for f := range d.series {
		if sample.Known&(1<<f) == 0 {
			continue
		}
		s := d.series[f]
		if s == nil {
			info := Field(f).Info()
			s = &series{kind: info.Kind, fastest: info.Domain.PerSecond, nominal: int64(max(d.desc.Interval, 0))}
			s.still = Field(f) != Energy // a GPU always draws power
			d.series[f] = s
		}
		if s.len() > 0 && sample.Time <= s.read {
			if ahead := now.Add(clockSlack).UnixNano(); s.read <= ahead || sample.Time > ahead {
				if sample.Time == s.read {
					st.Stats.Duplicate.Add(1)
				} else {
					st.Stats.OutOfOrder.Add(1)
				}
				continue
			}
			// The newest point is in the future and this one does not: the clock was set back.
			st.Stats.EvictedAge.Add(int64(s.len()))
			s.clear()
			d.settled = 0
		}
		if !st.room(s, sample.Time) {
			continue
		}
		s.push(sample.Time, sample.Values[f])
		st.Stats.Written.Add(1)
	}
}

// room frees space for one point at time t: points that are too old are removed first, then the
// ring grows within the budget, also at the expense of a ring four times as large, then the oldest
// point is removed. So each series has at least half of an equal part.
func (st *Store) room(s *series, t int64) bool {
	for s.len() > 0 && s.first().t < t-st.maxAge {
		s.head++
		st.Stats.EvictedAge.Add(1)
	}
	if s.len() < len(s.pts) || st.grow(s, cmp.Or(2*len(s.pts), minPoints)) {
		return true
	}
	for size := minPoints / 2; len(s.pts) == 0 && size >= fewestPoints; size /= 2 {
		if st.grow(s, size) {
			return true
		}
	}
	st.Stats.EvictedBytes.Add(1)
	if len(s.pts) == 0 {
		return false
	}
	s.head++
	return true
}

// grow gives a series a ring of n points, which is larger than the current one; false: there is no
// room.
func (st *Store) grow(s *series, n int) bool {
	more := int64(n-len(s.pts)) * s.pointSize()
	for st.bytes+more > st.maxBytes && st.shrinkOther(2*n) {
	}
	if st.bytes+more > st.maxBytes {
		return false
	}
	st.resize(s, n)
	return true
}

// resize gives a series a ring of n points, 0 for none.
func (st *Store) resize(s *series, n int) {
	if old := len(s.pts); old > 0 {
		st.rings[bits.Len(uint(old))]--
	}
	if n > 0 {
		st.rings[bits.Len(uint(n))]++
	}
	st.bytes += int64(n-len(s.pts)) * s.pointSize()
	st.Stats.EvictedBytes.Add(int64(s.resize(n)))
}

// shrinkOther halves a ring of at least n points, the one with the oldest point; it returns false
// if there is none.
func (st *Store) shrinkOther(n int) bool {
	large := false
	for _, rings := range st.rings[bits.Len(uint(n)):] {
		large = large || rings > 0
	}
	if !large { // the usual case when the budget is used up
		return false
	}
	var oldest *series
	for _, d := range st.devices {
		for _, s := range d.series {
			if s != nil && len(s.pts) >= n && (oldest == nil || s.len() == 0 || s.first().t < oldest.first().t) {
				oldest = s
				if s.len() == 0 {
					break
				}
			}
		}
	}
	st.resize(oldest, len(oldest.pts)/2)
	return true
}

// trimRings frees the memory of rings that are mostly empty.
func (st *Store) trimRings() {
	for _, d := range st.devices {
		for _, s := range d.series {
			if s == nil {
				continue
			}
			n := len(s.pts)
			for n > minPoints && 4*s.len() <= n {
				n /= 2
			}
			if n < len(s.pts) {
				st.resize(s, n)
			}
		}
	}
}
