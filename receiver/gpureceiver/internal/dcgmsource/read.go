// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"time"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// readWatch reads what is new in one watch.
func (s *session) readWatch(b *gpudata.Batch, w *watch) error {
	if w.events {
		return s.readEvents(b, w)
	}
	next, err := s.readSince(b, w, w.mark)
	if err != nil {
		return s.skipBacklog(b, w, err)
	}
	w.mark = next
	return nil
}

// readSince appends what is newer than the mark. Only after the whole read it is known which of several fields of one
// quantity a device has, so the rank of each value is kept until then.
func (s *session) readSince(b *gpudata.Batch, w *watch, mark int64) (int64, error) {
	from := len(b.Values)
	s.ranks = s.ranks[:0]
	next, err := s.api.valuesSince(w.group, w.fields, mark, func(v *rawValue) { s.value(b, v) })
	if err != nil {
		return mark, err
	}
	stale := (next - s.set.MaxStaleness.Microseconds()) * 1000
	kept := b.Values[:from]
	for i, v := range b.Values[from:] {
		switch {
		case v.Time < stale:
			b.Dropped[gpudata.DropStale]++
		case s.ranks[i]+1 > s.state[v.Device].best[v.Quantity]:
			// The device has a better field of the same quantity.
		default:
			kept = append(kept, v)
		}
	}
	b.Values = kept
	return next, nil
}

// value takes one raw value.
func (s *session) value(b *gpudata.Batch, v *rawValue) {
	f := byID[v.field]
	devices := s.byPart[v.entity]
	switch {
	case v.status == statusNoData:
		return // nothing new: no loss
	case f == nil || len(devices) == 0:
		b.Dropped[gpudata.DropUnknownEntity]++
		return
	case v.status != statusOK:
		b.Dropped[gpudata.DropStatus]++
		return
	}
	raw, ok := v.number()
	if !ok || v.ts <= 0 {
		b.Dropped[gpudata.DropBlank]++
		return
	}
	for _, i := range devices {
		rank := 2 * f.rank
		if v.entity.kind == entityGPUInstance {
			rank++ // the compute instance's own value comes first
		}
		s.deviceValue(b, i, f, rank, v.ts, raw)
	}
}

func (s *session) deviceValue(b *gpudata.Batch, i int, f *field, rank uint8, ts int64, raw float64) {
	st := &s.state[i]
	best := &st.best[f.quantity]
	if *best == 0 || rank+1 < *best {
		*best = rank + 1
	}
	x := f.convert(raw)
	switch f.form {
	case formRate:
		if rank+1 > *best {
			return
		}
		x = st.sums[f.quantity].AddRate(ts*1000, x, s.set.Sampling)
	case formCounter:
		x = st.sums[f.quantity].AddCounter(ts*1000, 0, x)
	}
	switch f.quantity {
	case gpudata.RemapFailed:
		st.remapFailed = x > 0
	case gpudata.RetirePending:
		st.retirePending = x > 0
	case gpudata.RemapPending:
		st.remapPending = x > 0
	}
	n := len(b.Values)
	if b.Add(i, f.quantity, ts*1000, x); len(b.Values) > n {
		s.ranks = append(s.ranks, rank)
	}
}

// skipBacklog gives up the older half of what has gathered, again and again, until what is left can be read: after a
// long stall there can be more values than the library takes. A read that fails with nothing left to give up is an
// error.
func (s *session) skipBacklog(b *gpudata.Batch, w *watch, cause error) error {
	now := time.Now().UnixMicro() // a clock that is off only makes the steps larger or smaller
	for back := now - w.mark; w.mark != 0 && back > 2*s.set.Sampling.Microseconds() && back > minPace.Microseconds(); back /= 2 {
		if next, err := s.readSince(b, w, now-back/2); err == nil {
			b.Dropped[gpudata.DropOverrun]++
			w.mark = next
			return nil
		}
	}
	return cause
}

// xidOverlap: XIDs from the kernel log carry the kernel's time and can lie before the mark of the last read.
const xidOverlap = time.Minute

// readEvents reads XIDs. A sample is one event; the same sample read twice is not.
func (s *session) readEvents(b *gpudata.Batch, w *watch) error {
	first := w.mark == 0
	mark := max(0, w.mark-xidOverlap.Microseconds())
	next, err := s.api.valuesSince(w.group, w.fields, mark, func(v *rawValue) {
		code, ok := v.number()
		if v.field != fieldXID || v.status != statusOK || !ok || code <= 0 || v.ts <= 0 {
			return
		}
		for _, i := range s.byPart[v.entity] {
			isNew := s.seen.add(s.devices[i].ID, v.ts, int64(code))
			if !isNew || (first && !s.seen.primed) {
				continue // it happened before anybody counted
			}
			s.state[i].xids++
			b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: gpusamplesextension.Event{
				Time: v.ts * 1000, Kind: gpusamplesextension.EventXID, Code: int64(code), Count: 1,
			}})
		}
	})
	if err != nil {
		return err
	}
	w.mark = next
	if first {
		s.seen.primed = true
	}
	for _, e := range w.entities {
		for _, i := range s.byPart[e] {
			b.Add(i, gpudata.XIDs, next*1000, s.state[i].xids)
		}
	}
	return nil
}
