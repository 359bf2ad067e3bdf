// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"errors"
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// watch is one field group on one group, read on its own.
type watch struct {
	kind          watchKind
	group, fields uintptr
	ids           []uint16 // the fields
	entities      []entity
	every         time.Duration // between two samples
	mark          int64         // histories are read from here, µs
	read          time.Time
	newest        int64      // of latest and events: the newest sample, µs
	history       time.Time  // of events: when their history was read
	raw           []rawValue // of latest and events: the newest values
	fetched       bool       // raw is of the present read
}

// watchKind is how a watch is read.
type watchKind uint8

const (
	histories watchKind = iota // every sample since the last read
	latest                     // the newest sample of each field, all in one round trip
	events                     // XIDs
	processes                  // which processes run on a device
)

const (
	// coarse: from this sampling interval on the newest values are read twice as often as there are
	// samples, instead of histories: one round trip in all, instead of one for each field of each
	// device. After a stall the history is read.
	coarse = 500 * time.Millisecond
	// processesEvery is the minimum time between two readings of the processes.
	processesEvery = 10 * time.Second
	// checkEvery is the minimum time between two readings of the list of devices.
	checkEvery = 2 * time.Second
	// xidsEvery is how often the history of XIDs is read without a new one: one from the kernel log
	// can carry a time before the newest.
	xidsEvery = 30 * time.Second
)

// sampledAs returns how watches at the sampling interval are read.
func (s *session) sampledAs() watchKind {
	if s.set.Sampling >= coarse {
		return latest
	}
	return histories
}

// due reports whether it is time to read a watch.
func (w *watch) due(now time.Time, pace time.Duration) bool {
	if w.kind == histories || w.every <= pace {
		return true
	}
	// Half an interval early rather than a whole one late.
	return now.Sub(w.read) >= w.every-pace/2
}

// read reads every watch that is due, and from time to time the list of devices.
func (s *session) read(b *gpudata.Batch, pace time.Duration) error {
	now := s.now()
	if now.Sub(s.checked) >= max(s.set.Slow, checkEvery) || len(s.devices) == 0 {
		var changed bool
		err := again(func() (err error) {
			changed, err = s.check()
			return err
		})
		b.Changed = b.Changed || changed
		if err != nil {
			return s.failed(err)
		}
	}
	for _, st := range s.state {
		st.measured, st.blank = false, false
	}
	var errs []error
	if err := s.fetchTogether(now, pace); err != nil {
		s.dead = true
		return err
	}
	for _, w := range s.watches {
		if w.due(now, pace) {
			w.read = now
		} else if !w.fetched {
			continue
		}
		if err := s.readWatch(b, w, now); err != nil {
			if disconnected(err) || timedOut(err) {
				s.dead = true
				return err
			}
			errs = append(errs, err)
		}
	}
	s.remember()
	s.judge(b)
	if s.set.Profiling {
		b.Refused += s.watchProfiling(s.sampledAs())
		s.trim()
	}
	b.Notices = append(b.Notices, s.notices()...)
	if len(errs) == 0 {
		s.fails = 0
		return nil
	}
	return s.failed(errors.Join(errs...))
}

// failed decides what an error of a read means: nothing, while the connection works and the errors
// are few (a driver that is being detached refuses calls for a moment).
func (s *session) failed(err error) error {
	s.fails++
	s.dead = s.dead || disconnected(err) || timedOut(err)
	if s.dead || s.fails >= maxFails {
		return err
	}
	return nil
}

// again calls fn until it does not time out: a host engine that was stopped responds to the next
// call, and has kept the samples.
func again(fn func() error) (err error) {
	for range maxFails {
		if err = fn(); !timedOut(err) {
			return err
		}
	}
	return err
}

func (s *session) readWatch(b *gpudata.Batch, w *watch, now time.Time) error {
	switch w.kind {
	case events:
		w.read = now
		return s.readEvents(b, w)
	case processes:
		return s.readProcesses(b, w)
	case latest:
		return s.readLatest(b, w, now)
	default:
		return s.readHistory(b, w)
	}
}

// run counts the values of one field of one entity within a read of histories.
type run struct {
	entity entity
	field  uint16
	n      int
	last   int64
	resume int64 // the earliest end of an interrupted run; 0: none
}

// fullRun: the library returns at most 4 MiB for a field of an entity, the oldest first, and does
// not report that there are more: 130,816 values of 32 bytes.
const fullRun = 100_000

func (r *run) count(v *rawValue) {
	if v.entity != r.entity || v.field != r.field {
		r.end()
		r.entity, r.field, r.n = v.entity, v.field, 0
	}
	r.n, r.last = r.n+1, v.ts
}

func (r *run) end() {
	if r.n >= fullRun && (r.resume == 0 || r.last < r.resume) {
		r.resume = r.last
	}
	r.n = 0
}

// readHistory appends all that is new since the mark.
func (s *session) readHistory(b *gpudata.Batch, w *watch) error {
	for {
		s.run = run{}
		next, err := s.readSince(b, w, w.mark)
		if tooMany(err) {
			return s.skipBacklog(b, w, err)
		}
		if err != nil {
			return err
		}
		s.run.end()
		if s.run.resume == 0 || s.run.resume <= w.mark {
			w.mark = next
			return nil
		}
		w.mark = s.run.resume // values that are read again are not newer than the last of their field
	}
}

// readSince appends values that are newer than the mark.
func (s *session) readSince(b *gpudata.Batch, w *watch, mark int64) (next int64, err error) {
	from := s.begin(b)
	err = again(func() error {
		next, err = s.api.valuesSince(w.group, w.fields, mark, func(v *rawValue) {
			s.run.count(v)
			s.value(b, v)
		})
		return err
	})
	s.finish(b, from)
	return next, err
}

// readLatest appends the newest sample of each field if it is new. If samples are further apart
// than they should be, those between are read as history.
func (s *session) readLatest(b *gpudata.Batch, w *watch, now time.Time) error {
	from := s.begin(b)
	newest, err := s.fetch(w)
	if err != nil {
		return err
	}
	before := w.newest
	w.newest = max(newest, before)
	switch {
	case newest > before:
		w.read = now
	case w.read.Equal(now):
		// It was due, just before a sample. Reading again at the next pace moves later reads away
		// from the times of samples: otherwise every second read misses one and fetches the
		// history.
		w.read = time.Time{}
	}
	if w.every == s.set.Sampling && before > 0 && newest-before > 3*w.every.Microseconds()/2 {
		w.mark = before + 1
		return s.readHistory(b, w)
	}
	stale := newest - s.set.MaxStaleness.Microseconds()
	for i := range w.raw {
		if v := &w.raw[i]; v.status == statusOK && v.ts > 0 && v.ts < stale {
			b.Dropped[gpudata.DropStale]++ // this field is no longer sampled
		} else {
			s.value(b, v)
		}
	}
	s.finish(b, from)
	return nil
}

// begin starts a read. Only after the whole read it is known which of several fields of one
// quantity a device has, so the rank of each value is kept until finish.
func (s *session) begin(b *gpudata.Batch) int {
	s.ranks = s.ranks[:0]
	return len(b.Values)
}

// finish removes the values of fields to which the device has a better one.
func (s *session) finish(b *gpudata.Batch, from int) {
	kept := b.Values[:from]
	for i, v := range b.Values[from:] {
		if s.ranks[i]+1 <= s.state[v.Device].best[v.Quantity] {
			kept = append(kept, v)
		}
	}
	b.Values = kept
}

// value adds one raw value.
func (s *session) value(b *gpudata.Batch, v *rawValue) {
	f := byID[v.field]
	devices := s.byPart[v.entity]
	switch {
	case v.status == statusNoData:
		return // nothing new: no loss
	case f == nil || len(devices) == 0:
		b.Dropped[gpudata.DropUnknownEntity]++
		return
	}
	kind := 0
	if v.entity.kind == entityGPUInstance {
		kind = 1 // a compute instance's own value has precedence
	}
	raw, ok := f.number(v)
	ok = ok && v.ts > 0 && (!f.Positive || raw > 0)
	own := v.entity.kind == entityGPU && f.Pace != gpuquantity.Profiling
	for _, i := range devices {
		st := s.state[i]
		last := &st.last[kind][f.index]
		if v.ts > 0 && v.ts <= *last {
			continue // read before
		}
		*last = max(*last, v.ts)
		switch {
		case v.status != statusOK:
			b.Dropped[gpudata.DropStatus]++
		case !ok:
			st.blank = st.blank || own
			if f.Pace == gpuquantity.Profiling && st.unprofiled.IsZero() {
				st.unprofiled = s.now()
			}
			b.Dropped[gpudata.DropBlank]++
		default:
			st.measured = st.measured || own
			if f.Pace == gpuquantity.Profiling {
				st.unprofiled = time.Time{}
			}
			s.deviceValue(b, i, f, 2*f.Rank+uint8(kind), v.ts, raw)
		}
	}
}

func (s *session) deviceValue(b *gpudata.Batch, i int, f *field, rank uint8, ts int64, raw float64) {
	st := s.state[i]
	best := &st.best[f.quantity]
	if *best == 0 || rank+1 < *best {
		*best = rank + 1
	}
	x := f.convert(raw)
	switch f.Form {
	case gpuquantity.Rate:
		if rank+1 > *best {
			return
		}
		x = st.sums[0][f.quantity].AddRate(ts*1000, x, s.set.Sampling)
	case gpuquantity.Totals:
		x = st.sums[1][f.quantity].AddCounter(ts*1000, 0, x)
	}
	st.condition.Take(f.quantity, x)
	n := len(b.Values)
	if b.Add(i, f.quantity, ts*1000, x); len(b.Values) > n {
		s.ranks = append(s.ranks, rank)
	}
}

// skipBacklog drops the older half of the backlog, repeatedly, until the rest can be read: after a
// long stall there can be more values than one read returns. A read that fails with nothing left to
// drop is an error.
func (s *session) skipBacklog(b *gpudata.Batch, w *watch, cause error) error {
	now := s.now().UnixMicro() // a clock that is off only makes the steps larger or smaller
	for back := now - w.mark; back > 2*s.set.Sampling.Microseconds(); back /= 2 {
		next, err := s.readSince(b, w, now-back/2)
		if err == nil {
			b.Dropped[gpudata.DropOverrun]++
			w.mark = next
			return nil
		}
		if !tooMany(err) {
			return err
		}
	}
	return fmt.Errorf("cannot read buffered samples: %w", cause)
}
