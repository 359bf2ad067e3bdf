// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
)

// Stream is a device stream that sections run on. Any goroutine may use it; sections of one stream contend for its
// mutex, sections of different streams share nothing. A nil Stream does nothing.
type Stream struct {
	p       *Profiler
	id      int // gpu.stream.id
	name    string
	handle  StreamHandle
	device  *device // nil: host times only
	backend Backend
	attrs   []attribute.KeyValue // identity and stream, on each span
	sync    SyncMode
	capture bool // ask before each record
	bound   bool // records need the device's context made current
	host    bool // no events: there is no device, or the stream was refused

	syncing atomic.Int32 // callers of End that wait for the device

	mu      sync.Mutex
	slots   []slot
	free    []int32 // indexes of free slots, last in first out: a warm slot is in the cache
	pending ring    // indexes of ended slots, in the order of their end events, which is the order of completion
	nextID  uint64
	failed  Status // not StatusOK: the stream is retired
	closed  bool
	step    *Step       // that sections without a step in their context belong to
	named   []namedOpen // open sections of StartNamed

	// polling thread
	saidFailed  bool
	saidHang    uint64 // section that the watchdog spoke of
	eventsFreed bool
}

// ring is a FIFO of slot indexes; a stream has never more pending than slots.
type ring struct {
	buf        []int32
	head, size int
}

func (r *ring) push(i int32) {
	r.buf[(r.head+r.size)%len(r.buf)] = i
	r.size++
}

func (r *ring) pop() {
	r.head = (r.head + 1) % len(r.buf)
	r.size--
}

func (r *ring) at(i int) int32 { return r.buf[(r.head+i)%len(r.buf)] }

// ID is gpu.stream.id: a small number, unique in the process.
func (s *Stream) ID() int {
	if s == nil {
		return 0
	}
	return s.id
}

// Name is the name that the stream was registered with.
func (s *Stream) Name() string {
	if s == nil {
		return ""
	}
	return s.name
}

// DeviceTimed reports whether sections of the stream get GPU times. It is false without a device, for streams that
// were refused, and after the device failed.
func (s *Stream) DeviceTimed() bool {
	if s == nil || s.host {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed == StatusOK && !s.closed
}

// Close gives the stream back: call it before the device stream is destroyed. Pending sections are still read, open ones
// are given up. Sections that are started later only count.
func (s *Stream) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.p.wake()
}

// nesting is where a section hangs.
type nesting struct {
	ctx    context.Context
	parent uint64
	root   *slot // nil: the section is outermost
	depth  int32
	step   *Step
	phase  int16
}

// begin starts a section below the span, section or step of ctx.
func (s *Stream) begin(ctx context.Context, o *Operation, flags recordFlags) Section {
	if o == nil || s.p.level.Load() < int32(o.verbosity) {
		return Section{}
	}
	p := s.p
	parent := spanOf(ctx)
	if in, ok := parent.(*sectionSpan); ok && in.section.p == p {
		if x, ok := s.beginIn(in.section, o, flags); ok {
			return x
		}
		// The section of the context has ended; the span around it is a parent too.
	}
	sc := parent.SpanContext()
	if !sc.IsSampled() && sc.IsValid() && !p.timeAll {
		return p.untimed(o)
	}
	n := nesting{ctx: ctx}
	if p.loops.Load() != 0 {
		if n.step = p.stepOf(ctx, s); n.step != nil {
			if !n.step.timed {
				return p.untimed(o)
			}
			if !sc.IsValid() {
				n.ctx = n.step.ctx
			}
		}
	}
	return s.open(o, &n, flags)
}

// beginIn starts a section within another, which may be on another stream; false when that one has ended.
func (s *Stream) beginIn(x Section, o *Operation, flags recordFlags) (Section, bool) {
	from := x.slot.stream
	from.mu.Lock()
	if !x.live() {
		from.mu.Unlock()
		return Section{}, false
	}
	r := &x.slot.rec
	n := nesting{ctx: r.ctx, parent: r.id, root: r.root, depth: r.depth + 1, step: r.step}
	n.root.refs.Add(1) // the outermost slot cannot go while x is open, and now not while the new section is
	from.mu.Unlock()
	y := s.open(o, &n, flags)
	if y.slot == nil {
		n.root.refs.Add(-1)
	}
	return y, true
}

// open takes a slot and records the start event.
func (s *Stream) open(o *Operation, n *nesting, flags recordFlags) Section {
	p := s.p
	st := p.state(o)
	mode := o.sync
	if mode == syncUnset {
		mode = s.sync
	}
	if mode == SyncNone || s.host {
		flags |= flagHost
	}
	var memory int64
	var hasMemory bool
	if p.cfg.MemoryUsage {
		memory, hasMemory = s.memoryUsage()
	}
	now := p.clock.now()
	s.mu.Lock()
	last := len(s.free) - 1
	if last < 0 || s.closed {
		reason := dropPoolFull
		if s.closed {
			reason = dropShutdown
		}
		s.mu.Unlock()
		p.drop(reason)
		return p.untimed(o)
	}
	sl := &s.slots[s.free[last]]
	s.free = s.free[:last]
	s.nextID++
	r := &sl.rec
	r.id = uint64(s.id)<<40 | s.nextID
	r.op, r.ctx = st, n.ctx
	r.parent, r.depth, r.root = n.parent, n.depth, n.root
	if n.root == nil {
		r.root = sl
	}
	r.phase = n.phase
	if n.step != nil {
		r.step = n.step
		n.step.open.Add(1)
	}
	r.hostStart = now
	r.flags = flags
	if hasMemory {
		r.flags |= flagMemory
		r.memoryStart = memory
	}
	sl.refs.Store(1)
	sl.state = slotOpen
	id := r.id
	if flags&flagHost == 0 {
		s.recordStart(sl)
	}
	if p.decorate {
		s.decorate(sl)
	}
	s.mu.Unlock()
	return Section{slot: sl, op: st, id: id, p: p}
}

// decorate does what is off by default.
func (s *Stream) decorate(sl *slot) {
	if s.p.cfg.CodeLocation {
		s.p.locate(&sl.rec)
	}
	if a := s.p.cfg.annotator; a != nil {
		sl.rec.annotation = a.RangeStart(sl.rec.op.op, spanOf(sl.rec.ctx).SpanContext())
	}
}

// recordStart records the start event of an open slot. The stream's mutex is held around every record, so that the order
// of the pending FIFO is the order on the stream.
func (s *Stream) recordStart(sl *slot) {
	r := &sl.rec
	if s.failed != StatusOK {
		r.flags |= flagHost
		r.status = statusDeviceError
		return
	}
	if s.capturing(r) {
		return
	}
	st := s.record(&sl.start)
	if st != StatusOK {
		s.refused(r, st)
		return
	}
	r.flags |= flagStarted
	r.startEvent = Event(sl.start.Args[0])
}

// recordEnd records the end event.
func (s *Stream) recordEnd(sl *slot) {
	r := &sl.rec
	if s.failed != StatusOK {
		r.flags |= flagHost
		r.status = statusDeviceError
		return
	}
	if s.capturing(r) {
		return
	}
	if st := s.record(&sl.end); st != StatusOK {
		s.refused(r, st)
	}
}

// capturing marks the record when the stream captures a graph: nothing runs then, and a recorded event would have no time.
func (s *Stream) capturing(r *record) bool {
	if !s.capture {
		return false
	}
	c, st := s.backend.Capturing(s.handle)
	if !c && !st.capture() {
		return false // an error shows again at the record
	}
	r.flags |= flagHost
	r.status = statusCaptured
	return true
}

// refused handles a record that the driver refused.
func (s *Stream) refused(r *record, st Status) {
	r.flags |= flagHost
	if st.capture() {
		r.status = statusCaptured
		return
	}
	r.status = statusDeviceError
	if s.failed == StatusOK {
		s.failed = st // retired; the polling thread says so
	}
}

// record enqueues an event. A panicking backend counts as a refusal.
func (s *Stream) record(c *Call) (st Status) {
	defer func() {
		if r := recover(); r != nil {
			st = statusPanic
		}
	}()
	if !s.bound {
		return s.backend.Record(c)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.device.info.Ordinal)
	if st != StatusOK {
		return st
	}
	defer unbind()
	return s.backend.Record(c)
}

// statusPanic stands for a backend that panicked.
const statusPanic Status = -1

// memoryUsage is the device memory in use now.
func (s *Stream) memoryUsage() (int64, bool) {
	if s.host || s.device == nil {
		return 0, false
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	unbind, st := s.backend.Bind(s.device.info.Ordinal)
	if st != StatusOK {
		return 0, false
	}
	defer unbind()
	used, st := s.backend.MemoryUsage(s.device.info.Ordinal)
	return used, st == StatusOK
}

// finish ends an open section.
func (x Section) finish(w *Work) {
	sl := x.slot
	s := sl.stream
	p := s.p
	var memory int64
	var hasMemory bool
	if p.cfg.MemoryUsage {
		memory, hasMemory = s.memoryUsage()
	}
	now := p.clock.now()
	s.mu.Lock()
	if !x.live() {
		s.mu.Unlock()
		return
	}
	r := &sl.rec
	if w != nil {
		r.work.add(*w)
	}
	if r.flags&flagMemory != 0 {
		if hasMemory {
			r.memoryEnd = memory
		} else {
			r.flags &^= flagMemory
		}
	}
	r.hostEnd = now
	if r.flags&flagHost == 0 {
		s.recordEnd(sl)
	}
	if r.annotation != 0 {
		p.cfg.annotator.RangeEnd(r.annotation)
	}
	wait := s.waits(r)
	if wait {
		s.syncing.Add(1)
	}
	sl.state = slotPending
	s.pending.push(sl.index)
	end := Event(sl.end.Args[0])
	s.mu.Unlock()
	if p.idle.Load() {
		p.wake()
	}
	if wait {
		s.backend.Synchronize(end)
		s.syncing.Add(-1)
	}
}

// waits reports whether End of the section waits for the device.
func (s *Stream) waits(r *record) bool {
	if r.flags&flagHost != 0 {
		return false
	}
	mode := r.op.op.sync
	if mode == syncUnset {
		mode = s.sync
	}
	return mode == SyncImmediate || mode == SyncGroup && r.parent == 0
}

// release gives a slot back. The stream's mutex must be held.
func (s *Stream) release(sl *slot) {
	e := sl.rec.extra
	if e != nil {
		e.reset()
	}
	sl.rec = record{extra: e}
	sl.state = slotFree
	s.free = append(s.free, sl.index)
}
