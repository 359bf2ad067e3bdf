// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"fmt"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// expire makes spans of what the device does not finish, so that a hang can be seen in the trace. The slots stay
// pending.
func (t *poller) expire(s *Stream, now int64) {
	var late []*slot
	s.mu.Lock()
	for i := range s.pending.size {
		if sl := &s.slots[s.pending.at(i)]; !sl.expired && tooOld(sl.rec.hostEnd, now, t.p.cfg.HangDeadline) {
			late = append(late, sl)
		}
	}
	s.mu.Unlock()
	for _, sl := range late {
		sl.expired = true
		r := t.takeOut(sl)
		r.onHost(statusTimeout)
		t.hostTimes(r)
		switch root := r.root; {
		case r.flags&flagStep != 0:
			n := t.newNestOf(s, r)
			n.expiry = true
			t.queue(s, n)
		case root != sl:
			t.count(sl, r)
			t.settleInner(r, s, root)
			t.unref(root)
		default:
			t.count(sl, r)
			t.part(sl, r)
		}
	}
}

// reclaim gives up open sections that nobody will end: those older than OpenLimit, and on a stream without free slots
// those whose outermost section has ended NestDeadline ago. A forgotten End would otherwise cost a slot for ever.
func (t *poller) reclaim(s *Stream) {
	now := t.p.clock.now()
	s.mu.Lock()
	full := len(s.free) == 0
	used := len(s.free) < len(s.slots)
	closed := s.closed
	s.mu.Unlock()
	if !used {
		return
	}
	forgotten, oldest, since := 0, "", int64(0) // sections that are open, and the oldest of them
	for i := range s.slots {
		sl := &s.slots[i]
		s.mu.Lock()
		step := sl.rec.flags&flagStep != 0 // a loop ends its steps, however long they take
		give := sl.state == slotOpen && (closed || !step && tooOld(sl.rec.hostStart, now, t.p.cfg.OpenLimit) ||
			full && sl.rec.root != sl && sl.rec.root.nest != nil)
		if give {
			sl.state = slotHeld // End of it does nothing from now on
		} else if r := &sl.rec; sl.state == slotOpen && !step {
			if forgotten++; forgotten == 1 || r.hostStart < since {
				oldest, since = r.op.op.cfg.Info.Name, r.hostStart
			}
		}
		s.mu.Unlock()
		if give {
			t.giveUp(sl, now)
		}
	}
	if full && 2*forgotten > len(s.slots) && tooOld(since, now, t.p.cfg.NestDeadline) {
		t.p.errors.report("forgotten",
			fmt.Errorf("stream %q: %d of its %d slots are held by sections that were started and not ended, one of `%s` for %s "+
				"(end them on error paths too, as by defer, or raise `slots`); until then sections only count",
				s.name, forgotten, len(s.slots), oldest, time.Duration(now-since).Round(time.Millisecond)))
	}
}

// giveUp settles a section that is not open any more and in no FIFO, with host times and status timeout.
func (t *poller) giveUp(sl *slot, now int64) {
	r := &sl.rec
	r.onHost(statusTimeout)
	if r.hostEnd == 0 { // still open
		r.hostEnd = now
		t.p.rangeEnd(r.annotation)
	}
	t.hostTimes(r)
	t.settle(sl)
}

func (t *poller) freeEvents(s *Stream) {
	defer t.p.guard("events were freed")
	s.mu.Lock()
	s.closed = true
	keep := s.device == nil || s.host || s.eventsFreed || s.syncing.Load() != 0
	s.eventsFreed = true
	s.mu.Unlock()
	if keep {
		return // a caller of End still waits for one of them; a leak is better than a crash
	}
	events := make([]backend.Event, 0, 2*len(s.slots))
	for i := range s.slots {
		events = append(events, backend.Event(s.slots[i].start.Args[0]), backend.Event(s.slots[i].end.Args[0]))
	}
	s.backend.FreeEvents(s.context, events)
}

// giveUpAll gives up everything that is not resolved and passes on what there is.
func (t *poller) giveUpAll() {
	now := t.p.clock.now()
	t.pass()
	t.closing = true
	for _, s := range t.p.streamList.all() {
		s.mu.Lock()
		s.closed = true
		var pending []int32
		for s.pending.size > 0 {
			pending = append(pending, s.pending.at(0))
			s.pending.pop()
		}
		for i := range s.slots {
			if s.slots[i].state == slotOpen {
				s.slots[i].state = slotHeld
				pending = append(pending, int32(i))
			}
		}
		s.mu.Unlock()
		for _, i := range pending {
			t.giveUp(&s.slots[i], now)
		}
	}
	t.checkWaiting(now, true)
	t.anchorNow()
	t.place(true)
}

func (t *poller) close() {
	for _, s := range t.p.streamList.all() {
		t.freeEvents(s)
	}
	for _, d := range t.p.devices.all() {
		t.closeDevice(d)
	}
	t.closeBackend()
}

func (t *poller) closeDevice(d *device) {
	defer t.p.guard("a device's clock was closed")
	if d.anchorer != nil {
		d.anchorer.Close()
		d.anchorer = nil
	}
}

func (t *poller) closeBackend() {
	defer t.p.guard("the backend was closed")
	if t.back == nil || t.closed {
		return
	}
	t.closed = true
	if err := t.back.Close(); err != nil {
		t.p.errors.report("close", fmt.Errorf("cannot close the backend: %w", err))
	}
}

// oldest is the oldest section of the stream that has ended and is not read back.
func (s *Stream) oldest(now int64) (name string, age time.Duration, id uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending.size == 0 {
		return "", 0, 0, false
	}
	r := &s.slots[s.pending.at(0)].rec
	return r.op.op.cfg.Info.Name, time.Duration(now - r.hostEnd), r.id, true
}
