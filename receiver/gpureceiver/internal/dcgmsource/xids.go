// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dcgmsource

import (
	"cmp"
	"slices"
	"time"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
)

// seenXIDs remembers XIDs across sessions. A host engine that starts reads the kernel's log from
// its oldest record again and computes the times again, a little differently each time.
type seenXIDs struct {
	list    []seenXID
	session int   // counts sessions
	since   int64 // events from before the first read (µs, the host engine's clock) are not counted
}

type seenXID struct {
	device   string
	ts, code int64
	session  int // in which it was seen last
}

const (
	// maxSeen bounds the memory; the oldest half is dropped first.
	maxSeen = 4096
	// xidJitter is by how much the time of one event differs between two starts of the host engine.
	xidJitter = 2 * time.Second
	// xidOverlap: XIDs from the kernel log carry the kernel's time and can lie before the mark of
	// the last read.
	xidOverlap = time.Minute
)

// begin starts a session.
func (s *seenXIDs) begin(now int64) {
	s.session++
	s.since = cmp.Or(s.since, now)
}

// add reports whether an event is new. One with exactly the time of another is the same; one with a
// time near an earlier session's event is that event, each being met once in a session.
func (s *seenXIDs) add(device string, ts, code int64) bool {
	near := -1
	for i := range s.list {
		x := &s.list[i]
		if x.device != device || x.code != code {
			continue
		}
		if x.ts == ts {
			x.session = s.session
			return false
		}
		if x.session < s.session && distance(x.ts, ts) <= xidJitter.Microseconds() &&
			(near < 0 || distance(x.ts, ts) < distance(s.list[near].ts, ts)) {
			near = i
		}
	}
	if near >= 0 {
		s.list[near].ts, s.list[near].session = ts, s.session
		return false
	}
	if len(s.list) == maxSeen {
		s.list = append(s.list[:0], s.list[maxSeen/2:]...)
	}
	s.list = append(s.list, seenXID{device, ts, code, s.session})
	return ts > s.since
}

func distance(a, b int64) int64 { return max(a-b, b-a) }

// readEvents reads XIDs. A sample is one event; the same sample read twice is not. The newest of
// each board costs one round trip; the history is read when that has changed, and from time to
// time.
func (s *session) readEvents(b *gpudata.Batch, w *watch) error {
	newest, err := s.fetch(w)
	if err != nil {
		return err
	}
	now := s.started
	if newest != w.newest || s.now().Sub(w.history) >= xidsEvery {
		from := max(0, w.mark-xidOverlap.Microseconds())
		if w.history.IsZero() {
			from = 0 // few, and they must be known
		}
		if err := s.xidsSince(b, w, from); err != nil {
			return err
		}
		w.newest, w.history = newest, s.now()
	}
	for _, e := range w.entities {
		for _, i := range s.byPart[e] {
			now = max(now, slices.Max(s.state[i].last[0][:]))
		}
	}
	for _, e := range w.entities {
		for _, i := range s.byPart[e] {
			b.Add(i, gpuquantity.XIDs, now*1000, s.state[i].xids)
		}
	}
	return nil
}

func (s *session) xidsSince(b *gpudata.Batch, w *watch, mark int64) error {
	var next int64
	err := again(func() (err error) {
		next, err = s.api.valuesSince(w.group, w.fields, mark, func(v *rawValue) {
			code, ok := v.number()
			if v.field != fieldXID || v.status != statusOK || !ok || code <= 0 || v.ts <= 0 {
				return
			}
			for _, i := range s.byPart[v.entity] {
				if !s.kept.xids.add(s.devices[i].ID, v.ts, int64(code)) {
					continue
				}
				s.state[i].xids++
				b.Events = append(b.Events, gpudata.Event{Device: uint16(i), Event: devicesamples.Event{
					Time: v.ts * 1000, Kind: devicesamples.EventXID, Code: int64(code), Count: 1,
				}})
			}
		})
		return err
	})
	if err == nil {
		w.mark = next
	}
	return err
}
