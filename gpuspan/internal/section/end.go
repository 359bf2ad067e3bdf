// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// finish ends a section with work, or with nil. It is a single function, because calls are a
// significant part of its time.
func (x Section) finish(w *work.Work) {
	if w != nil && w.Wrong() {
		x.p.CountMisuse(InvalidWork)
		w.Sanitize()
	}
	sl := x.Slot
	if sl == nil {
		x.endUntimed(w)
		return
	}
	s := sl.stream
	p := s.Core
	var memory int64
	var hasMemory bool
	if p.Cfg.MemoryUsage && x.Timed() { // otherwise there may be no context for the query
		memory, hasMemory = s.memoryUsage()
	}
	now := p.Clock.Now()
	s.Mu.Lock()
	if !x.live() {
		s.Mu.Unlock()
		return
	}
	r := &sl.Rec
	if w != nil {
		r.Work.Add(w)
	}
	if r.Flags&FlagMemory != 0 {
		if hasMemory {
			r.MemoryEnd = memory
		} else {
			r.Flags &^= FlagMemory
		}
	}
	r.HostEnd = now
	if r.Step != nil {
		r.Step.Running.Add(-1)
	}
	if r.Flags&FlagHost == 0 {
		s.recordEnd(sl)
	}
	wait := r.Flags&(FlagWait|FlagHost) == FlagWait
	if wait {
		s.syncing.Add(1)
	}
	end := backend.Event(sl.end.Args[0])
	s.enqueue(sl, now)
	if wait {
		s.wait(end)
	}
}

func (x Section) End() {
	if x.Slot != nil {
		x.finish(nil)
	}
}

func (x Section) EndWith(w work.Work) {
	if x.at != nil {
		x.finish(&w)
	}
}

// EndWork is like EndWith, with arguments that all fit in registers.
func (x Section) EndWork(read, written, bytes, items int64, flops float64, p work.Precision) {
	if x.at != nil {
		w := work.Work{Read: read, Written: written, Bytes: bytes, Items: items, FLOPs: flops, Precision: p}
		x.finish(&w)
	}
}

// endUntimed counts the work of a section that is not timed, once.
func (x Section) endUntimed(w *work.Work) {
	if x.at.ended[x.id%ticketRing].Swap(int64(x.id)) != int64(x.id) {
		x.at.countWork(w)
	}
}

func (x Section) Recorded(w work.Work) {
	x.change(func(r *Record) {
		if r.Flags&flagLent != 0 {
			r.Flags |= flagRecorded
		}
	})
	x.EndWith(w)
}
