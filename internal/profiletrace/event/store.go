// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/bits"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
)

// Unused is what is in a file but not in its spans.
type Unused struct {
	Skipped map[string]int64 // skipped or lost events, by reason
	Faults  []string         // contradictions in the file's own statements
}

// Skip counts an event that is omitted.
func (u *Unused) Skip(why string) { u.Skipped[why]++ }

// Limits of a store.
type Limits struct {
	Events int    // a file with more is rejected; 0 or negative: no limit
	Memory int    // bytes of events in memory; further ones go to a temporary file
	Dir    string // the folder of that file; empty: the operating system's
}

// Store keeps the events of one file, and returns them in the order of time as often as needed. It
// is not safe for concurrent use.
type Store struct {
	Names *Names
	Meta  Meta
	Unused

	limits     Limits
	sorter     *sorter
	scratch    []byte
	seq        uint32
	tracks     map[Track]uint32
	trackList  []Track
	lastTrack  uint32
	processes  map[int64]*ProcessCount
	process    *ProcessCount // the last
	seed       [2]uint64
	content    uint64 // of what seed lacks
	counted    extent // of all events
	extent            // set by Bound
	wrong      WrongTimes
	firstShown int64                 // start of the first event that is no outlier, once outliers were found
	lastShown  int64                 // end of the last one
	shortened  map[uint32]int64      // ends of overlong kernels by their position in the file
	rows       map[uint32]*kernelRow // by track, of kernels
	// correlations of calls, of activities with a time, and of those whose time is not usable
	called, worked, lost *numbers
	calls                map[uint32]*callSample // by name

	firstCall, firstLaunched, firstCorrelation int64 // starts of calls and activities with a correlation
	firstStep                                  int64
	clocks                                     map[int64][]ClockReading // by device

	windowFirst, windowLast int64 // as stated by the file
	hasWindow               bool
	hasStep                 bool
	streams, queues         bool // there are streams that the file states; queues that represent some
	counts                  [KindCount]int64
	waits                   []StreamWait
}

// Track is a row of the profile: a thread of the host or a stream of a device.
type Track struct {
	Device bool
	Outer  int64 // process or device
	Inner  int64 // thread or stream
	Owned  bool  // a device's: the process is known
	Owner  int64
}

// ProcessCount counts the calls, ranges and steps of a process.
type ProcessCount struct{ PID, Calls, Steps int64 }

// NewStore returns an empty store. Close must be called.
func NewStore(l Limits) *Store {
	return &Store{
		Names: newNames(namesLimit), limits: l, sorter: newSorter(l.Dir, l.Memory),
		rows: map[uint32]*kernelRow{}, tracks: map[Track]uint32{}, processes: map[int64]*ProcessCount{},
		clocks: map[int64][]ClockReading{},
		seed:   [2]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f}, counted: newExtent(),
		calls: map[uint32]*callSample{}, called: &numbers{}, worked: &numbers{}, lost: &numbers{},
		firstCall: math.MaxInt64, firstLaunched: math.MaxInt64, Unused: Unused{Skipped: map[string]int64{}},
	}
}

// namesLimit bounds the memory of names in bytes.
const namesLimit = 48 << 20

// Close frees memory and removes the spill file. It may be called twice.
func (s *Store) Close() error { return s.sorter.close() }

// ErrTimeRange means that sums of times would exceed int64.
var ErrTimeRange = errors.New("time out of range")

// MaxTime keeps sums of times within int64: 2^62 ns are 146 years.
const MaxTime = int64(1) << 62

// Add adds one event. An event that cannot be added is skipped; an error ends the profile.
func (s *Store) Add(e *Event) error {
	switch {
	case e.Duration < 0:
		s.Skip("negative duration")
		return nil
	case e.Start < -MaxTime || e.Start > MaxTime || e.Duration > MaxTime || e.Start+e.Duration > MaxTime:
		s.Skip(ErrTimeRange.Error())
		return nil
	case e.Kind.Device() && e.Start == 0 && e.Duration == 0:
		s.Skip(noTime)
		return nil
	case s.limits.Events > 0 && int64(s.seq) >= int64(s.limits.Events):
		return fmt.Errorf("more than %d events (set `max_events` higher, or to -1 for no limit)", s.limits.Events)
	case s.seq == math.MaxUint32:
		return errors.New("more than 2^32-1 events")
	}
	s.seq++
	t := Track{Outer: e.Process, Inner: e.Thread}
	if e.Kind.Device() {
		e.Detail.bounded()
		t = Track{Device: true, Outer: e.Device, Inner: e.Stream}
		if e.HasProcess {
			t.Owned, t.Owner = true, e.Process
		}
	}
	id := s.trackID(t)
	s.count(e, id)
	if s.scratch = s.scratch[:0]; e.Kind != KindFrame {
		s.scratch = e.Detail.AppendTo(s.scratch)
	}
	r := Record{
		Key: recordKey(e.Kind, e.Start), Duration: e.Duration, Correlation: e.Correlation, Seq: s.seq,
		Name: e.Name, Track: id, Kind: e.Kind, Detail: s.scratch,
	}
	if e.Kind == KindOperator {
		r.Correlation = e.Gradient
	}
	s.content = Mix(s.content ^ uint64(r.Correlation) ^ uint64(id)<<32 ^ uint64(e.Kind)<<24)
	if len(r.Detail) > 0 {
		s.content = Mix(s.content ^ maphash.Bytes(identitySeed, r.Detail))
	}
	if err := s.sorter.add(&r); err != nil {
		return fmt.Errorf("cannot keep event %d: %w", s.seq, err)
	}
	return nil
}

// noTime is the reason for which an activity is omitted that the profiler never gave a time. Its
// call has no record.
const noTime = "activity of a device without a time (start and duration are 0)"

// trackID numbers rows. Most files write the events of a row one after the other, so the last one
// is tried first.
func (s *Store) trackID(t Track) uint32 {
	if len(s.trackList) > 0 && s.trackList[s.lastTrack] == t {
		return s.lastTrack
	}
	id, ok := s.tracks[t]
	if !ok {
		id = uint32(len(s.trackList))
		s.tracks[t] = id
		s.trackList = append(s.trackList, t)
	}
	s.lastTrack = id
	return id
}

// Tracks returns the rows by their numbers, with the streams of queues settled. No event may be
// added afterwards.
func (s *Store) Tracks() []Track {
	s.settleQueues()
	return s.trackList
}

// TrackID returns the number of a row.
func (s *Store) TrackID(t Track) (id uint32, ok bool) {
	id, ok = s.tracks[t]
	return id, ok
}

// Stream returns the stream of an activity for Event, for files that also state the hardware queue,
// with stream 0 if it is unknown. Then the queue is used as the stream, unless the file has other
// streams: these are numbered apart, and stream 0 is the default one.
func (s *Store) Stream(stream, queue int64) int64 {
	if stream != 0 || queue <= 0 {
		s.streams = s.streams || stream != 0
		return stream
	}
	s.queues = true
	return -queue
}

// settleQueues gives activities on queues their streams, once all are there.
func (s *Store) settleQueues() {
	for i := range s.trackList {
		if t := &s.trackList[i]; s.queues && t.Device && t.Inner < 0 {
			if t.Inner = -t.Inner; s.streams {
				t.Inner = 0
			}
		}
	}
}

// Rename gives processes and devices other numbers, of which no two may be equal.
func (s *Store) Rename(process, device func(int64) int64) {
	for i := range s.trackList {
		t := &s.trackList[i]
		delete(s.tracks, *t)
		if t.Device {
			t.Outer, t.Owner = device(t.Outer), process(t.Owner)
		} else {
			t.Outer = process(t.Outer)
		}
	}
	for i, t := range s.trackList {
		s.tracks[t] = uint32(i)
	}
	processes := map[int64]*ProcessCount{}
	for id, c := range s.processes {
		c.PID = process(id)
		processes[c.PID] = c
	}
	s.processes, s.process = processes, nil
	for i := range s.waits {
		s.waits[i].Device = device(s.waits[i].Device)
	}
}

// Devices returns how many devices have activities.
func (s *Store) Devices() int {
	seen := map[int64]bool{}
	for _, t := range s.trackList {
		if t.Device {
			seen[t.Outer] = true
		}
	}
	return len(seen)
}

// Window states that the profile was recorded over at least this time, in ns since the file's base.
// Otherwise the window is from the first start to the last end of the events.
func (s *Store) Window(start, end int64) {
	if start > end || start < -MaxTime || end > MaxTime {
		return
	}
	if s.hasWindow {
		start, end = min(start, s.windowFirst), max(end, s.windowLast)
	}
	s.windowFirst, s.windowLast, s.hasWindow = start, end, true
}

func (s *Store) count(e *Event, id uint32) {
	s.counts[e.Kind]++
	s.counted.add(e.Kind, !e.Kind.Device() && e.Process == ProfilerProcess, e.Start, e.End(), e.Name)
	s.seed[0] = Mix(s.seed[0] ^ uint64(e.Start))
	s.seed[1] = Mix(s.seed[1] ^ uint64(e.Duration) ^ uint64(e.Correlation)<<20 ^ uint64(e.Name)<<40)
	switch {
	case e.Correlation == 0:
	case e.Kind == KindRuntime:
		s.called.add(e.Correlation)
		s.sampleCall(e)
		if s.firstCall = min(s.firstCall, e.Start); s.firstCorrelation == 0 {
			s.firstCorrelation = e.Correlation
		}
	case e.Kind.Device():
		s.worked.add(e.Correlation)
		s.firstLaunched = min(s.firstLaunched, e.Start)
	}
	if e.Kind == KindKernel {
		boundedmap.Of(s.rows, id).add(e)
	}
	switch e.Kind {
	case KindOperator, KindRuntime, KindAnnotation, KindStep:
		if s.process == nil || s.process.PID != e.Process {
			s.process = boundedmap.Of(s.processes, e.Process)
			s.process.PID = e.Process
		}
		s.process.Calls++
	}
	if e.Kind != KindStep {
		return
	}
	s.process.Steps++
	if e.Detail.HasStep && (!s.hasStep || e.Detail.Step < s.firstStep) {
		s.firstStep, s.hasStep = e.Detail.Step, true
	}
}

// Len returns the number of events that were added.
func (s *Store) Len() int64 { return int64(s.seq) }

// Spilled returns the bytes that were written to the temporary file.
func (s *Store) Spilled() int64 { return s.sorter.at }

// Count returns how many events of a kind there are, without outliers once Bound was called.
func (s *Store) Count(k Kind) int64 {
	return s.counts[k] - s.wrong.Outliers.kinds[k] - s.wrong.Untimed.kinds[k]
}

// Period returns the start and end of the profile, in ns since the file's base. Call Bound first.
func (s *Store) Period() (first, last int64) { return s.first, s.last }

// WrongTimes returns what Bound found.
func (s *Store) WrongTimes() WrongTimes { return s.wrong }

// FirstStep returns the lowest number of a step; 0 if there is none.
func (s *Store) FirstStep() int64 { return s.firstStep }

// StepBounds returns the bounds of the last step.
func (s *Store) StepBounds() *stepBounds { return &s.steps }

// Seed returns numbers that are functions of the events' content.
func (s *Store) Seed() (times, names uint64) {
	return s.seed[0] ^ uint64(s.Meta.Base) ^ uint64(s.seq), s.seed[1]
}

// Identity is the same for files with the same content, within this process.
type Identity [4]uint64

var identitySeed = maphash.MakeSeed()

// Identity returns the identity of the file: of its events, names and description. The description
// includes the rank, which may be a part of the file's name.
func (s *Store) Identity() Identity {
	var h maphash.Hash
	h.SetSeed(identitySeed)
	for _, n := range s.Names.list {
		h.WriteString(n)
		h.WriteByte(0)
	}
	fmt.Fprint(&h, s.trackList, s.Meta)
	return Identity{s.seed[0], s.seed[1], s.content, h.Sum64()}
}

// Processes returns the processes that made calls, by number.
func (s *Store) Processes() map[int64]*ProcessCount { return s.processes }

// MainProcess returns the process with most calls. Device activities without a launch, and ranges
// of processes without calls (0 for Python frames, -1 for the profiler's own overhead), belong to
// it.
func (s *Store) MainProcess() (pid int64, known bool) {
	calls := map[int64]int64{}
	for id, c := range s.processes {
		calls[id] = c.Calls
	}
	return boundedmap.Largest(calls), len(calls) > 0
}

// stepBounds is what extents need to know of all steps.
type stepBounds struct {
	LastStart, LastEnd int64
	Several            bool   // there are steps of different names
	first              uint32 // name
}

// extent is statistics over the times of all events.
type extent struct {
	first, last      int64 // earliest start and latest end, without memory and the profiler's own work
	earliest, latest int64 // the same of all events
	steps            stepBounds
}

func newExtent() extent {
	return extent{
		first: math.MaxInt64, last: math.MinInt64, earliest: math.MaxInt64, latest: math.MinInt64,
		steps: stepBounds{LastStart: math.MinInt64, LastEnd: math.MinInt64},
	}
}

func (x *extent) add(k Kind, ofProfiler bool, start, end int64, name uint32) {
	x.earliest, x.latest = min(x.earliest, start), max(x.latest, end)
	if k != KindMemory && !ofProfiler {
		x.first, x.last = min(x.first, start), max(x.last, end)
	}
	if b := &x.steps; k == KindStep {
		b.Several = b.Several || b.LastStart != math.MinInt64 && name != b.first
		b.first = name
		b.LastStart, b.LastEnd = max(b.LastStart, start), max(b.LastEnd, end)
	}
}

// measure computes the extent again, without events and ends that cannot be true.
func (s *Store) measure() error {
	x := newExtent()
	err := s.Each(func(r *Record) error {
		t := s.trackList[r.Track]
		x.add(r.Kind, !t.Device && t.Outer == ProfilerProcess, r.Start(), r.Start()+r.Duration, r.Name)
		return nil
	})
	s.extent = x
	return err
}

// StreamWait is a wait of a stream for an event, which another stream reaches with the work that it
// had been given before the event was recorded.
type StreamWait struct {
	Device, Stream, On int64
	Call, Record       int64 // correlations of the calls that requested the wait, and that recorded the event
}

// maxStreamWaits bounds the waits that are kept for critical paths; further ones are inferred from
// times.
const maxStreamWaits = 1 << 15

// StreamWait adds a wait.
func (s *Store) StreamWait(w StreamWait) {
	if len(s.waits) < maxStreamWaits && w.Call != 0 && w.Record != 0 {
		s.waits = append(s.waits, w)
	}
}

// StreamWaits returns the waits.
func (s *Store) StreamWaits() []StreamWait { return s.waits }

// ProfilerFrame begins the names of frames for the profiler's own work. They have no process and no
// thread of the program: readers put them in ProfilerProcess.
const (
	ProfilerFrame         = "profiler: "
	ProfilerProcess int64 = -1 << 40
)

// Mix returns the finaliser of splitmix64.
func Mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return bits.RotateLeft64(x^x>>31, 17)
}
