// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesextension

import "time"

// deviceWriter writes into one device of a store.
type deviceWriter struct {
	st  *Store
	d   *device
	gen int
}

func (w *deviceWriter) valid() bool { return w.d.open && w.d.gen == w.gen }

// Write implements DeviceWriter.
func (w *deviceWriter) Write(samples []Sample) {
	if len(samples) == 0 {
		return
	}
	st := w.st
	now := st.now()
	st.mu.Lock()
	if !w.valid() {
		st.mu.Unlock()
		st.stats.closed.Add(int64(len(samples)))
		return
	}
	for i := range samples {
		st.write(w.d, &samples[i], now)
	}
	w.d.refresh()
	if now.Sub(st.swept) > sweepEvery {
		st.sweep(now)
	}
	st.mu.Unlock()
	st.subs.wake()
}

// WriteEvents implements DeviceWriter.
func (w *deviceWriter) WriteEvents(events []Event) {
	w.st.mu.Lock()
	if w.valid() {
		for _, e := range events {
			w.d.addEvent(e)
		}
	}
	w.st.mu.Unlock()
}

// Close implements DeviceWriter.
func (w *deviceWriter) Close() {
	w.st.mu.Lock()
	if w.valid() {
		w.d.open = false
	}
	w.st.mu.Unlock()
}

// write stores the known fields of one sample; mu is held.
func (st *Store) write(d *device, sample *Sample, now time.Time) {
	if sample.Time > now.Add(maxFuture).UnixNano() {
		st.stats.future.Add(1)
		return
	}
	for f := range d.series {
		if sample.Known&(1<<f) == 0 {
			continue
		}
		s := d.series[f]
		if s == nil {
			s = &series{kind: Field(f).Kind(), fastest: fields[f].highest, nominal: int64(max(d.desc.Interval, 0))}
			d.series[f] = s
		}
		if s.len() > 0 && sample.Time <= s.last().t {
			if ahead := now.Add(clockSlack).UnixNano(); s.last().t <= ahead || sample.Time > ahead {
				if sample.Time == s.last().t {
					st.stats.duplicate.Add(1)
				} else {
					st.stats.outOfOrder.Add(1)
				}
				continue
			}
			// The newest point lies in the future and this one does not: the clock was set back.
			st.stats.evictedAge.Add(int64(s.len()))
			s.clear()
			d.settled = 0
		}
		if !st.room(s, sample.Time) {
			continue
		}
		s.push(sample.Time, sample.Values[f])
		st.stats.written.Add(1)
	}
}

// room makes place for one point at time t: what is too old leaves first, then the ring grows while the budget lasts,
// then the oldest point leaves.
func (st *Store) room(s *series, t int64) bool {
	for s.len() > 0 && s.first().t < t-st.maxAge {
		s.head++
		st.stats.evictedAge.Add(1)
	}
	if s.len() < len(s.pts) {
		return true
	}
	more := int64(max(minPoints, len(s.pts))) * pointSize
	if st.bytes+more <= st.maxBytes {
		s.grow()
		st.bytes += more
		return true
	}
	if len(s.pts) == 0 {
		st.stats.evictedBytes.Add(1)
		return false
	}
	s.head++
	st.stats.evictedBytes.Add(1)
	return true
}
