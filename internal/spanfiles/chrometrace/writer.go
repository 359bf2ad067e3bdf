// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"
)

// ErrClosed is returned by writes after Close.
var ErrClosed = errors.New("chrome trace is closed")

// Stats holds the counters of a [Writer].
type Stats struct {
	Events    int64 // spans written
	Counters  int64 // counter points written
	Flows     int64 // arrows written
	NoTime    int64 // spans dropped: start is zero, over a week before the file's first, or over three months after it
	Backwards int64 // spans that ended before they began, written with duration 0
	Crowded   int64 // spans dropped: more than 1024 overlapping rows on one track
}

// Writer writes one trace to an io.Writer. It is not safe for concurrent use.
//
// Each batch is one Write of the underlying writer. If that fails, the Writer continues as if there
// had been no batch: the caller may remove the bytes and continue.
type Writer struct {
	w         io.Writer
	buf       []byte
	base      int64
	began     bool
	empty     bool // no event written yet
	closed    bool
	procs     map[Process]*process
	order     []*process
	tracks    int // of all processes
	pids      map[int64]bool
	freePID   int64              // below it, from 1 on, all pids are taken
	devices   map[string]*device // by hw.id
	latest    *process
	latestKey Process
	models    map[int64]string // by ordinal; empty if two processes disagree
	flows     flows
	loaded    map[loadKey]*load
	slots     int
	stats     Stats
	sequence  []int // order of the batch being written
}

// NewWriter returns a Writer. Nothing is written before the first batch.
func NewWriter(w io.Writer) *Writer {
	return &Writer{
		w: w, empty: true, procs: map[Process]*process{}, pids: map[int64]bool{}, devices: map[string]*device{},
		models: map[int64]string{}, loaded: map[loadKey]*load{},
	}
}

// Stats returns the counters so far.
func (w *Writer) Stats() Stats { return w.stats }

// Write writes a batch of spans, in any order. It does not retain events. It returns ErrClosed
// after Close, and errors of the underlying writer.
func (w *Writer) Write(events []Event) error {
	if w.closed {
		return ErrClosed
	}
	before := w.stats
	w.sequence = w.sequence[:0]
	for i := range events {
		w.sequence = append(w.sequence, i)
	}
	// Parents before children that start with them; see lane.insert.
	slices.SortStableFunc(w.sequence, func(a, b int) int {
		x, y := &events[a], &events[b]
		return cmp.Or(cmp.Compare(x.Start, y.Start), cmp.Compare(y.End, x.End), cmp.Compare(x.Track.Kind, y.Track.Kind))
	})
	if !w.began {
		if first := typicalStart(events); first > 0 {
			w.begin(first)
		}
	}
	for _, i := range w.sequence {
		w.event(&events[i])
	}
	if err := w.flush(before); err != nil {
		return err
	}
	w.loads(events)
	return nil
}

func (w *Writer) event(e *Event) {
	start, end := e.Start, e.End
	if start <= 0 || !w.began || !w.holds(start) {
		w.stats.NoTime++
		return
	}
	if end < start {
		w.stats.Backwards++
		end = start
	}
	p := w.process(e.Process)
	t := w.track(p, e.Track)
	if t.Kind == Steps && e.DeviceEnd > 0 {
		start, end = t.between(start, end)
	}
	l := w.lane(p, t, start, end, owner(e))
	if l == nil {
		w.stats.Crowded++
		return
	}
	if e.Model != "" && t.Kind == Stream {
		if m, ok := w.models[t.Device]; !ok {
			w.models[t.Device] = e.Model
		} else if m != e.Model {
			w.models[t.Device] = ""
		}
	}
	w.slice(e, p, l.tid, start, end)
	if e.DeviceEnd > e.DeviceStart {
		w.deviceStep(e, p)
	}
	for i := range e.Marks {
		w.mark(&e.Marks[i], e, p.pid, l.tid)
	}
	w.flows.add(e, p.pid, l.tid, start, end, w.arrow)
	w.stats.Events++
}

// deviceStep draws a step a second time, as the device ran it.
func (w *Writer) deviceStep(e *Event, p *process) {
	if e.DeviceStart < w.base {
		return
	}
	t := w.track(p, Track{Kind: DeviceSteps, Device: e.Track.Device, ID: -1, Name: e.Track.Name})
	start, end := t.between(e.DeviceStart, e.DeviceEnd)
	if l := w.lane(p, t, start, end, 0); l != nil {
		again := Event{
			Track: t.Track, Name: e.Name, Category: catGPUAnnotation, Trace: e.Trace, Span: e.Span,
			Parent: e.Parent,
		}
		w.head(&again, p.pid, l.tid, start, end)
		w.tail(&again)
	}
}

// placement is how far apart, in nanoseconds, two readings of one moment between two steps may be:
// the device's boundary is placed on the wall clock for each of them, on a busy machine with an
// error of tens of microseconds (gpu.timing.error).
const placement = 100_000

// between trims a step where it overlaps its neighbors within the error of placement.
func (t *track) between(start, end int64) (int64, int64) {
	if len(t.lanes) == 0 {
		return start, end
	}
	return t.lanes[0].root.between(start, end, min(placement, (end-start)/2))
}

// owner keeps host spans of different traces apart: two concurrent requests are not nested. On real
// threads and on streams time alone decides.
func owner(e *Event) uint64 {
	if e.Track.Kind != Host || e.Track.ID >= 0 {
		return 0
	}
	var h uint64
	for _, c := range e.Trace {
		h = h<<8 ^ uint64(c) ^ h>>56
	}
	return h | 1
}

// lane returns the first lane of a track that accepts the interval; nil if none does.
func (w *Writer) lane(p *process, t *track, start, end int64, owner uint64) *lane {
	for i, l := range t.lanes {
		if t.latest[i].crossed(start, end) {
			continue
		}
		taken := l.insert(start, end, owner)
		t.latest[i] = l.latest()
		if taken {
			w.count()
			return l
		}
	}
	if len(t.lanes) == maxLanes {
		return nil
	}
	l := &lane{tid: p.tid(t.Track, len(t.lanes))}
	l.insert(start, end, owner)
	t.lanes, t.latest = append(t.lanes, l), append(t.latest, l.latest())
	w.count()
	return l
}

// count drops old intervals if there are too many.
func (w *Writer) count() {
	if w.slots++; w.slots < maxSlots {
		return
	}
	w.slots = 0
	for _, p := range w.order {
		for _, t := range p.order {
			for _, l := range t.lanes {
				l.forget()
				w.slots += l.root.count()
			}
		}
	}
}

// flush writes the batch in one Write.
func (w *Writer) flush(before Stats) error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	w.buf = w.buf[:0]
	if err != nil {
		w.stats = before
		w.flows = flows{next: w.flows.next} // arrows need both slices in the file
		if before.Events+before.Counters == 0 {
			w.began, w.empty = false, true
		}
	}
	return err
}

// Close writes the names and the end of the trace. The trace is complete only if Close returns nil;
// after an error of the underlying writer the Writer is unchanged, and Close may be called again.
// It does not close the underlying writer. After a successful Close it does nothing.
func (w *Writer) Close() error {
	if w.closed {
		return nil
	}
	before, began, empty := w.stats, w.began, w.empty
	if !w.began {
		w.buf = append(w.buf, `{"schemaVersion":1,"traceEvents":[`...)
	}
	w.writeLoads()
	w.names()
	w.buf = append(w.buf, "\n]"...)
	err := w.top()
	if err == nil {
		_, err = w.w.Write(w.buf)
	}
	w.buf = w.buf[:0]
	if err != nil {
		w.stats, w.began, w.empty = before, began, empty
		return err
	}
	w.closed = true
	return nil
}

const (
	day = 24 * int64(time.Hour)
	// baseSlack puts the base a week before the first span, for spans that arrive late but started
	// earlier. Perfetto drops events with a negative time.
	baseSlack = 7 * day
	// window is the time after the base in which a double of microseconds resolves nanoseconds, 104
	// days.
	window = int64(1) << 53
	// fine is the time from the base on in which two such doubles differ by the nanoseconds between
	// them to within an eighth of one, 13 days: the step from one double to the next is 2^-13 µs at
	// most.
	fine = int64(1000) << 40
)

// typicalStart returns the earliest start that is not far from the median, because a single span
// with a wrong clock must not decide on the file's time; 0 if there is none.
func typicalStart(events []Event) int64 {
	starts := make([]int64, 0, len(events))
	for i := range events {
		if s := events[i].Start; s > 0 {
			starts = append(starts, s)
		}
	}
	if len(starts) == 0 {
		return 0
	}
	slices.Sort(starts)
	i, _ := slices.BinarySearch(starts, starts[len(starts)/2]-window/2)
	return starts[i]
}

// begin writes the head once the first time is known.
func (w *Writer) begin(first int64) {
	if w.began {
		return
	}
	w.began = true
	w.base = max(first-baseSlack, 0) / day * day
	w.buf = append(w.buf, `{"schemaVersion":1,"otelgpuFormat":1,"baseTimeNanoseconds":`...)
	w.buf = strconv.AppendInt(w.buf, w.base, 10)
	w.buf = append(w.buf, ",\"traceEvents\":[\n"...)
}

// holds reports whether a span with that start is written exactly to the nanosecond.
func (w *Writer) holds(start int64) bool { return !w.began || start >= w.base && start-w.base < window }

// length writes dur such that ts + dur, added as doubles, is the double of the end: speedscope adds
// them and compares ends with starts and with ends. With three decimals the sum is off by the last
// bit for many slices, so that one of two that touch, or end together, seems to overlap the other.
// It also takes a slice without length for one that ended before what began at the same moment, and
// never closes it, so that one is given a tenth of a nanosecond. What is written rounds to the same
// nanosecond.
func (w *Writer) length(start, end int64) {
	if start == end {
		w.buf = append(w.buf, `,"dur":0.0001`...)
		return
	}
	start, end = start-w.base, end-w.base
	if d := float64(end)/1000 - float64(start)/1000; end < fine && d != float64(end-start)/1000 {
		w.buf = appendFloat(append(w.buf, `,"dur":`...), d)
		return
	}
	w.micros("dur", end-start)
}
