// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/otelgpu/otelgpu/internal/boundedmap"
	"github.com/otelgpu/otelgpu/internal/occupancy"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
)

// Device is a file's description of a device.
type Device struct {
	Ordinal int64
	Model   string // empty: not stated
	ID      string // value of hw.id, if the file states one
	Limits  occupancy.Device
}

// Meta is a file's description of itself. Fields that the file does not state are zero.
type Meta struct {
	Base         int64 // unix ns of Event.Start 0
	Devices      []Device
	Rank         int64
	HasRank      bool
	WorldSize    int64
	LocalRank    int64
	HasLocalRank bool
	JobID        string
	Host         string
	Windows      bool // the file states that the host runs Windows
	Service      string
	TraceParent  string            // W3C traceparent under which the window hangs
	Resource     map[string]string // resource attributes that the application left in the file
	TimingSource string            // value of gpu.timing.source of device activities; empty if it has no name
	Partial      string            // why only the beginning of the file could be read; empty: all of it was
}

// Profile collects the events of one file. It is not safe for concurrent use.
type Profile struct {
	Names *Names
	Meta  Meta
	Unused

	opts      Options
	source    Source
	sorter    *sorter
	scratch   []byte
	seq       uint32
	tracks    map[track]uint32
	trackList []track
	lastTrack uint32
	processes map[int64]*processCount
	process   *processCount // the last
	main      int64         // mainProcess, once all events are there
	seed      [2]uint64
	first     int64 // earliest start
	last      int64 // latest end
	earliest  int64 // the same of all events, memory and the profiler's own included
	latest    int64
	outliers  Outliers
	firstStep int64
	bounds    stepBounds
	clocks    map[int64][]facts.Sample // by device
	captures  Captures                 // of other profiles

	windowFirst, windowLast int64 // as stated by the file
	hasWindow               bool
	hasStep                 bool
	streams, queues         bool // there are streams that the file states; queues that represent some
	counts                  [kindCount]int64
	offers                  [kindCount]offered
	comm                    []kernelIs // by name
	streamWaits             []StreamWait
	named                   int64 // annotations that mark the application's own work
}

// track is a row of the profile: a thread of the host or a stream of a device.
type track struct {
	device bool
	outer  int64 // process or device
	inner  int64 // thread or stream
	owned  bool  // a device's: the process is known
	owner  int64
}

type processCount struct{ pid, calls, steps int64 }

// New starts a profile. Close must be called.
func New(o Options, s Source) *Profile {
	if o.BatchSpans <= 0 {
		o.BatchSpans = defaultBatch
	}
	o.ServiceName = cmp.Or(o.ServiceName, s.Service)
	return &Profile{
		Names: newNames(namesLimit), opts: o, source: s, sorter: newSorter(o.TempDir, o.MemoryLimit()),
		tracks: map[track]uint32{}, processes: map[int64]*processCount{}, clocks: map[int64][]facts.Sample{},
		seed: [2]uint64{0x9e3779b97f4a7c15, 0xc2b2ae3d27d4eb4f}, first: math.MaxInt64, last: math.MinInt64,
		earliest: math.MaxInt64, latest: math.MinInt64,
		bounds: newStepBounds(), Unused: Unused{Skipped: map[string]int64{}},
	}
}

// SetSource replaces the source where the file's first bytes tell the profiler. A service name that was set stays.
func (p *Profile) SetSource(s Source) {
	if p.opts.ServiceName == p.source.Service {
		p.opts.ServiceName = s.Service
	}
	p.source = s
}

// Close frees memory and removes the spill file. It may be called twice.
func (p *Profile) Close() error { return p.sorter.close() }

// ErrTimeRange means that sums of times would exceed int64.
var ErrTimeRange = errors.New("time out of range")

// maxTime keeps sums of times within int64: 2^62 ns are 146 years.
const maxTime = int64(1) << 62

// Add adds one event. An event that cannot be added is skipped; an error ends the profile.
func (p *Profile) Add(e *Event) error {
	switch {
	case e.Duration < 0:
		p.Skip("negative duration")
		return nil
	case e.Start < -maxTime || e.Start > maxTime || e.Duration > maxTime || e.Start+e.Duration > maxTime:
		p.Skip(ErrTimeRange.Error())
		return nil
	case p.opts.MaxEvents > 0 && int64(p.seq) >= int64(p.opts.MaxEvents):
		return fmt.Errorf("more than %d events (set `max_events` higher, or to -1 for no limit)", p.opts.MaxEvents)
	case p.seq == math.MaxUint32:
		return errors.New("more than 2^32-1 events")
	}
	p.seq++
	t := track{outer: e.Process, inner: e.Thread}
	if e.Kind.Device() {
		e.Detail.bounded()
		t = track{device: true, outer: e.Device, inner: e.Stream}
		if e.HasProcess {
			t.owned, t.owner = true, e.Process
		}
	}
	id := p.trackID(t)
	p.count(e)
	if p.scratch = p.scratch[:0]; e.Kind != KindFrame {
		p.scratch = e.Detail.appendTo(p.scratch)
	}
	r := record{
		key: recordKey(e.Kind, e.Start), duration: e.Duration, correlation: e.Correlation, seq: p.seq,
		name: e.Name, track: id, kind: e.Kind, detail: p.scratch,
	}
	if e.Kind == KindOperator {
		r.correlation = e.Gradient
	}
	if err := p.sorter.add(&r); err != nil {
		return fmt.Errorf("cannot keep event %d: %w", p.seq, err)
	}
	return nil
}

// Clock adds a reading of a device's clock, in any unit that is the same for all, at ns since the file's base.
func (p *Profile) Clock(device, at int64, value float64) {
	const devices = 256
	if at < -maxTime || at > maxTime || !(value > 0) || len(p.clocks) == devices && p.clocks[device] == nil {
		return
	}
	p.clocks[device] = append(facts.LimitClocks(p.clocks[device]), facts.Sample{Time: at, Clock: value})
}

// trackID numbers rows. Most files write the events of a row one after the other, so the last one is tried first.
func (p *Profile) trackID(t track) uint32 {
	if len(p.trackList) > 0 && p.trackList[p.lastTrack] == t {
		return p.lastTrack
	}
	id, ok := p.tracks[t]
	if !ok {
		id = uint32(len(p.trackList))
		p.tracks[t] = id
		p.trackList = append(p.trackList, t)
	}
	p.lastTrack = id
	return id
}

// Stream returns the stream of an activity for Event, for files that also state the hardware queue, with stream 0 if it
// is unknown. Then the queue is used as the stream, unless the file has other streams: these are numbered apart, and
// stream 0 is the default one.
func (p *Profile) Stream(stream, queue int64) int64 {
	if stream != 0 || queue <= 0 {
		p.streams = p.streams || stream != 0
		return stream
	}
	p.queues = true
	return -queue
}

// settleQueues gives activities on queues their streams, once all are there.
func (p *Profile) settleQueues() {
	for i := range p.trackList {
		if t := &p.trackList[i]; p.queues && t.device && t.inner < 0 {
			if t.inner = -t.inner; p.streams {
				t.inner = 0
			}
		}
	}
}

// devices returns how many devices have activities.
func (p *Profile) devices() int {
	seen := map[int64]bool{}
	for _, t := range p.trackList {
		if t.device {
			seen[t.outer] = true
		}
	}
	return len(seen)
}

// Window states that the profile was recorded over at least this time, in ns since the file's base. Otherwise the
// window is from the first start to the last end of the events.
func (p *Profile) Window(start, end int64) {
	if start > end || start < -maxTime || end > maxTime {
		return
	}
	if p.hasWindow {
		start, end = min(start, p.windowFirst), max(end, p.windowLast)
	}
	p.windowFirst, p.windowLast, p.hasWindow = start, end, true
}

func (p *Profile) count(e *Event) {
	p.counts[e.Kind]++
	p.offer(e)
	p.earliest, p.latest = min(p.earliest, e.Start), max(p.latest, e.End())
	if e.Kind != KindMemory && e.Process != ProfilerProcess {
		p.first, p.last = min(p.first, e.Start), max(p.last, e.End())
	}
	p.seed[0] = mix(p.seed[0] ^ uint64(e.Start))
	p.seed[1] = mix(p.seed[1] ^ uint64(e.Duration) ^ uint64(e.Correlation)<<20 ^ uint64(e.Name)<<40)
	switch e.Kind {
	case KindOperator, KindRuntime, KindAnnotation, KindStep:
		if p.process == nil || p.process.pid != e.Process {
			p.process = boundedmap.Of(p.processes, e.Process)
			p.process.pid = e.Process
		}
		p.process.calls++
	}
	if e.Kind == KindStep {
		p.process.steps++
		p.bounds.add(e)
	}
	if e.Kind == KindStep && e.Detail.HasStep && (!p.hasStep || e.Detail.Step < p.firstStep) {
		p.firstStep, p.hasStep = e.Detail.Step, true
	}
	if e.Kind == KindModule || e.Kind == KindAnnotation && !automatic(p.Names.Name(e.Name)) {
		p.named++
	}
}

// kernelIs is whether a kernel communicates; the zero value means not looked up yet.
type kernelIs uint8

const (
	computing kernelIs = iota + 1
	communicating
)

// communicates reports whether kernels of the name are communication, found once for each.
func (p *Profile) communicates(name uint32) bool {
	if int(name) >= len(p.comm) {
		p.comm = append(p.comm, make([]kernelIs, p.Names.Len()-len(p.comm))...)
	}
	is := &p.comm[name]
	if *is == 0 {
		if *is = computing; isCommunication(p.Names.Name(name)) {
			*is = communicating
		}
	}
	return *is == communicating
}

// mainProcess returns the process with most calls; device activities without a launch and ranges of processes that the
// file only mentions (0 for Python frames, -1 for the profiler's own overhead) are its.
func (p *Profile) mainProcess() (pid int64, known bool) {
	calls := map[int64]int64{}
	for id, c := range p.processes {
		calls[id] = c.calls
	}
	return boundedmap.Largest(calls), len(calls) > 0
}

// mix returns the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return bits.RotateLeft64(x^x>>31, 17)
}
