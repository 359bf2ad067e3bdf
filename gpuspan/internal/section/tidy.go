// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"fmt"
	"reflect"
	"time"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
)

// grow gives a stream more slots if it needs them, and reports the first sections that found none.
func (t *Poller) grow(s *Stream) {
	more, lost := s.moreSlots()
	if more > 0 && !s.fixed && s.InFlight.Load() < MaxInFlight { // behind slow exports more would fill up, too
		t.addSlots(s, more)
	}
	if lost == 0 || s.saidFull {
		return
	}
	s.saidFull = true
	t.p.Errors.Report("slots", fmt.Errorf("stream %q: %d sections were counted and not timed, because all of its slots "+
		"were open or pending; phases that lost one are omitted (it has %d slots now and may have %d: raise `slots`)",
		s.label, lost, len(s.Slots), t.p.Cfg.MostSlots()))
}

func (t *Poller) addSlots(s *Stream, n int) {
	s.fixed = true // unless it works
	defer t.p.Guard("more events were created")
	var events []backend.Event
	if !s.Host && s.failedStatus() == backend.StatusOK {
		events = make([]backend.Event, 2*n)
		if st := s.backend.NewEvents(s.context, events); st != backend.StatusOK {
			t.p.Errors.Report("events", fmt.Errorf("stream %q keeps its %d slots: %w", s.label, len(s.Slots),
				&backend.StatusError{Call: fmt.Sprintf("cannot make %d more events", len(events)), Status: st}))
			return
		}
	}
	s.addSlots(n, events)
	s.fixed = false
}

// expire ends spans of sections that the device does not finish, so that a hang is visible in the
// trace. The slots stay pending.
func (t *Poller) expire(s *Stream, now int64) {
	var late []*Slot
	s.Mu.Lock()
	for i := range s.pending.size {
		if sl := s.pending.At(i); !sl.expired && TooOld(sl.Rec.HostEnd, now, t.p.Cfg.HangDeadline) {
			late = append(late, sl)
		}
	}
	s.Mu.Unlock()
	for _, sl := range late {
		sl.expired = true
		r := takeOut(sl)
		r.onHost(statusTimeout)
		t.hostTimes(r)
		switch root := r.root; {
		case r.Flags&flagStep != 0:
			n := t.newNestOf(s, r)
			n.Expiry = true
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

// reclaim abandons open sections that will not be ended: those older than OpenLimit and, on a
// stream without free slots, those whose outermost section ended NestDeadline ago. A forgotten End
// would otherwise occupy a slot forever.
func (t *Poller) reclaim(s *Stream) {
	now := t.p.Clock.Now()
	s.Mu.Lock()
	full := len(s.Free) == 0
	used := len(s.Free) < len(s.Slots)
	closed := s.closed
	s.Mu.Unlock()
	if !used {
		return
	}
	forgotten, oldest, since := 0, "", int64(0) // sections that are open, and the oldest of them
	for _, sl := range s.Slots {
		s.Mu.Lock()
		step := sl.Rec.Flags&flagStep != 0 // a loop ends its steps, however long they take
		give := sl.state == slotOpen && (closed || !step && TooOld(sl.Rec.HostStart, now, t.p.Cfg.OpenLimit) ||
			full && sl.Rec.root != sl && sl.Rec.root.nest != nil)
		if give {
			sl.state = SlotHeld // its End does nothing from now on
		} else if r := &sl.Rec; sl.state == slotOpen && !step {
			if forgotten++; forgotten == 1 || r.HostStart < since {
				oldest, since = r.Op.Cfg.Info.Name, r.HostStart
			}
		}
		s.Mu.Unlock()
		if give {
			t.giveUp(sl, now)
		}
	}
	if full && 2*forgotten > len(s.Slots) && TooOld(since, now, t.p.Cfg.NestDeadline) {
		t.p.Errors.Report("forgotten",
			fmt.Errorf("stream %q: %d of its %d slots are in use by sections that were started and not ended, "+
				"one of `%s` for %s (end them on error paths too, as by defer, or raise `slots`); other sections are only counted",
				s.label, forgotten, len(s.Slots), oldest, time.Duration(now-since).Round(time.Millisecond)))
	}
}

// giveUp settles a section that is no longer open and in no FIFO, with host times and status
// timeout.
func (t *Poller) giveUp(sl *Slot, now int64) {
	r := &sl.Rec
	r.onHost(statusTimeout)
	if r.HostEnd == 0 { // still open
		r.HostEnd = now
		t.p.rangeEnd(r.annotation)
		if r.Flags&flagStep == 0 {
			t.p.CountMisuse(Unended)
			if r.Step != nil {
				r.Step.Running.Add(-1)
			}
		}
	}
	t.hostTimes(r)
	t.settle(sl)
}

func freeEvents(p *Core, s *Stream) {
	defer p.Guard("events were freed")
	s.Mu.Lock()
	s.closed = true
	keep := s.Device == nil || s.Host || s.eventsFreed || s.syncing.Load() != 0
	s.eventsFreed = true
	s.Mu.Unlock()
	if keep {
		return // a caller of End still waits for one of them; a leak is better than a crash
	}
	events := make([]backend.Event, 0, 2*len(s.Slots))
	for _, sl := range s.Slots {
		if sl.start.Args[0] != 0 {
			events = append(events, backend.Event(sl.start.Args[0]), backend.Event(sl.end.Args[0]))
		}
	}
	s.backend.FreeEvents(s.context, events)
}

// GiveUpAll abandons everything that is not resolved and passes it on.
func (t *Poller) GiveUpAll() {
	now := t.p.Clock.Now()
	t.Pass()
	t.closing = true
	for _, s := range t.p.streamList.all() {
		s.Mu.Lock()
		s.closed = true
		var pending []*Slot
		for s.pending.size > 0 {
			pending = append(pending, s.pending.At(0))
			s.pending.pop()
		}
		for _, sl := range s.Slots {
			if sl.state == slotOpen {
				sl.state = SlotHeld
				pending = append(pending, sl)
			}
		}
		s.Mu.Unlock()
		for _, sl := range pending {
			t.giveUp(sl, now)
		}
	}
	t.CheckWaiting(now, true)
	t.AnchorNow()
	t.Place(true)
}

func (t *Poller) Close() {
	for _, s := range t.p.streamList.all() {
		freeEvents(t.p, s)
	}
	for _, d := range t.p.deviceList.all() {
		t.closeDevice(d)
	}
	if t.back != nil {
		closeBackend(t.p, t.back)
	}
}

func (t *Poller) closeDevice(d *Device) {
	defer t.p.Guard("a device's clock was closed")
	if d.Anchorer != nil {
		d.Anchorer.Close()
		d.Anchorer = nil
	}
}

func closeBackend(p *Core, b backend.Backend) {
	defer p.Guard("the backend was closed")
	if reflect.TypeOf(b).Comparable() {
		defer owned.Delete(b)
	}
	if err := b.Close(); err != nil {
		p.Errors.Report("close", fmt.Errorf("cannot close the backend: %w", err))
	}
}
