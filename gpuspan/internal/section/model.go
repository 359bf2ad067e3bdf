// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/cpu"
	"github.com/otelgpu/otelgpu/gpuspan/internal/errreport"
	"github.com/otelgpu/otelgpu/gpuspan/internal/hostclock"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Statistics are the statistics of sections for reports.
type Statistics = statistics.Collector[report.Info, report.Device, report.Summary]

// Annotator is gpuspan.Annotator. step is the number of a step, or NoStep.
type Annotator interface {
	RangeStart(o *Operation, sc trace.SpanContext, step int64) uint64
	RangeEnd(id uint64)
	Enabled() bool
}

// Config configures a profiler.
type Config struct {
	settings.Settings
	Tracers       trace.TracerProvider
	Meters        metric.MeterProvider
	OnError       func(error)
	Logger        *slog.Logger
	ReportOptions []report.Option
	Annotator     Annotator
	IDs           *spanid.Generator
	Outputs       io.Writer
	Attributes    []attribute.KeyValue
	Named         func(name string) []func(*OperationConfig) // options of the operations of StartNamed; may be nil
	Sink          sink.Sink                                  // instead of Tracers, for sections

	OpenTimeout time.Duration // for the driver to list its devices; default 30 s
}

// Core is the state shared by a profiler's goroutines: its settings, its clock, its lists, and its
// counts. Lists are read by any goroutine and grow under the mutex; counts are atomic. The exported
// fields do not change once the profiler's goroutines run.
type Core struct {
	Cfg      Config
	backend  backend.Backend // nil: host times only
	Clock    *hostclock.Clock
	Errors   errreport.Reporter
	Recorder Statistics // nil: no statistics

	// MetricsEmitted reports whether the metrics of sections leave the process at present.
	MetricsEmitted func() bool

	source  string      // gpu.timing.source
	scope   *Scope      // of spans without a device
	timeAll bool        // sections of unsampled parents are timed too
	refused atomic.Bool // the provider does not use cfg.ids

	level      atomic.Int32 // verbosity in force; VerbosityOff while disabled
	stopped    atomic.Bool
	switchMu   sync.Mutex
	switchedOn bool               // the last call of SetEnabled,
	verbosity  settings.Verbosity // and SetVerbosity

	loops atomic.Int32 // running loops: sections search for their step only while there are any

	ops operations

	mu         sync.Mutex // of the lists
	streamList shared[*Stream]
	deviceList shared[*Device]
	names      names // of StartNamed
	phases     names
	steps      names // of loops

	drops     [dropReasons]atomic.Int64
	statuses  [timingStatuses]atomic.Int64
	misuses   [misuses]atomic.Int64
	lostLinks atomic.Int64 // requests to which their batches' spans do not link

	idle               atomic.Bool   // the polling thread sleeps until woken
	passed             atomic.Int64  // hostClock when its last pass started
	cpuNs              atomic.Int64  // processor time of the thread as of the last second
	untimed            atomic.Bool   // untimed sections are pending for the report
	since              atomic.Int64  // hostClock when the exporter started to work on a nest; 0: idle
	polling, exporting chan struct{} // each holds one wake-up
}

// Stream is gpuspan.Stream. Sections of one stream contend for its mutex; sections of different
// streams share nothing. The mutex guards all that changes and is held around every record, so that
// the order of the queue is the order on the device. It is in one cache line with what it guards.
type Stream struct {
	ID      int // gpu.stream.id
	label   string
	asked   string               // name as registered; may be empty
	legacy  bool                 // the legacy stream of context
	foreign bool                 // the handle stays with foreign code, which records events of context
	Attrs   []attribute.KeyValue // identity and stream, on each span
	sync    settings.SyncMode

	openNamed atomic.Int32 // len(named)

	Core    *Core
	backend backend.Backend
	handle  backend.StreamHandle
	Device  *Device // nil: host times only
	context backend.Context
	capture bool // query before each record
	bound   bool // records need the device's context made current
	Host    bool // no events: there is no device, or the stream was refused

	syncing atomic.Int32 // callers of End that wait for the device

	Mu      sync.Mutex
	failed  backend.Status // not StatusOK: the stream is retired
	closed  bool
	Slots   []*Slot     // all; they do not move, because sections refer to them
	Free    []*Slot     // last in first out: a warm slot is in the cache
	pending ring        // ended slots, in the order of their end events, which is the order of completion
	lastID  uint64      // of a section; begins at the stream's number in its upper 24 bits
	crowd   int         // number of pending slots at which the polling thread is woken, even if it has just read
	read    uint64      // sections that ended and were read back
	back    []*Slot     // open slots that were taken back
	lost    int64       // sections that found no free slot
	step    *StepState  // that sections without a step in their context belong to
	named   []namedOpen // open sections of StartNamed

	saidHang uint64 // section already reported by the watchdog

	Public public // of package gpuspan

	// polling thread
	saidFailed  bool
	saidFull    bool
	fixed       bool // the driver refused more events
	eventsFreed bool
	Unplaced    []Stamped         // read, waiting for the anchor that places them
	Stamps      []clockmap.Stamps // of each of unplaced, where it is plain

	InFlight atomic.Int32 // records in unplaced, emits and emitting
	emitMu   sync.Mutex
	Emits    []Stamped // placed, waiting to become spans

	// goroutine of the exporter
	Emitting []Stamped // was emits; emitting[emitted:] are still to become spans
	emitted  int
}

// ring is a FIFO of slots; a stream has never more pending than slots.
type ring struct {
	buf        []*Slot
	head, size int
}

// Section is gpuspan.Section. Once it has ended, or another one has its slot, all methods do
// nothing.
type Section struct {
	Slot *Slot     // nil: not timed
	id   uint64    // timed: of the section; else the ticket of an untimed run, and why it was dropped
	at   *Position // nil: nothing at all
	p    *Core
}

type namedOpen struct {
	name    string
	section Section
}

// slotState is who owns a slot.
//
//	free ──begin──► open ──end──► pending ──polling thread──► free
//	                                 └──► retained (outermost section whose inner ones are not all resolved) ──► free
//
// Free and open slots belong to the holder of the stream's mutex; pending and retained ones to the
// polling thread.
type slotState uint8

const (
	slotFree slotState = iota
	slotOpen
	SlotPending
	SlotHeld
)

// Slot holds one section of a stream. It owns two events permanently. The fields that Start and End
// access are first and adjacent, in three cache lines, because each line that has to be fetched
// from the polling thread's processor adds to their time.
type Slot struct {
	memory cpu.Start
	stream *Stream
	state  slotState

	// refs keeps the slot from being reused: 1 for itself, also while it is free, 1 for each
	// unresolved section below an outermost one, 1 for a following step that starts at this slot's
	// end event.
	refs atomic.Int32

	start backend.Call // arguments of the two records; the slot lives on the heap, so backends need no allocation
	end   backend.Call

	Rec Record

	// polling thread
	held     []*Record // resolved sections below this one
	nest     *Nest     // the nest of the section, if it was created before all sections in it were resolved; nil: not yet
	resolved int64     // host time at which the section resolved
	expired  bool      // reported, although the device has not finished it

	_ uint64 // pads to whole cache lines
}

// Record is one section: the caller's statements and the result. It is copied out of the slot when
// the section resolves, and then belongs to whom it was passed on to. In the slot of a plain
// section that was read the caller's part stays unchanged, except for ctx, until the slot is taken
// again: the next caller has to fetch every cache line that the polling thread writes.
type Record struct {
	// written by callers
	Ctx    context.Context
	ID     uint64 // of the section: unique in the process while it is needed; 0: none
	Parent uint64 // of the section around it; 0: none
	root   *Slot  // the outermost section's slot
	Depth  int32
	Flags  Flags
	Status TimingStatus
	Phase  int8 // index of the step's phase plus 1; 0: none

	Op   *OpState
	Step *StepState

	startEvent         backend.Event // own, or the end event of the step before
	HostStart, HostEnd int64         // hostClock
	annotation         uint64
	Work               work.Work
	Extra              *Extra

	Chunk, Chunks int32
	MemoryStart   int64
	MemoryEnd     int64
	borrowed      *Slot // whose event startEvent is

	// written by the polling thread, later by the exporter; in a slot it stays empty if the record
	// is copied out as soon as it is read
	Times
	Stamps      clockmap.Stamps // of the device; placed when the next anchor exists
	Occurrence  int64
	GPU         float64 // GPU duration in ns; valid when timed
	Timed       bool    // gpu is known
	Rate        float64 // host ns per GPU ns
	Device      *Device // that timed it
	Span        trace.SpanContext
	ChildFLOPs  float64
	ChildWork   work.Work
	ChildCopied *[work.Directions]int64 // bytes that chunks moved in another direction than the section; nil: none
	ChildChunks int32
	Summed      bool // work is the sum of chunks
	Node        int32
	done        bool    // resolved
	HeldOn      *Stream // of a record that was taken out of its slot
}

// StepState is the part of a step that its sections need.
type StepState struct {
	Owner     any             // the step; of package tree
	Ctx       context.Context // of the step: the parent of its outermost sections
	Timed     bool            // otherwise its sections only count
	Recorded  bool            // otherwise its sections only keep events warm, and nothing is reported of them
	Device    *Device         // on which the boundaries are timed
	around    *StepState      // to which the loop's stream returns; under the stream's mutex
	Open      atomic.Int32    // sections that are not resolved
	Running   atomic.Int32    // unresolved sections that have not ended
	Lost      atomic.Int32    // sections without a slot
	Cancelled atomic.Bool     // the iteration is not a step
}

// Nest is an outermost section with all sections in it, copied out of their slots: the unit of
// export.
type Nest struct {
	Stream *Stream
	Root   *Record // mostly own
	own    Record
	Held   []*Record // sections in it, in the order in which they were read
	Step   *Slot     // instead of root: the boundaries of a step
	Late   *Nest     // parent of root's span: a nest that was not waited for any longer
	Around *OpState  // of the outermost section of a root that gets no span; else nil
	Expiry bool      // of a step that the device does not finish
	Kept   bool      // late nests refer to this one

	// goroutine of the exporter, where kept
	Span trace.SpanContext
	Node int32
}

// plain is an outermost timed section with none in it, in no step, that states nothing except its
// work, as most do. It is passed by value: three processors pass it on, and fetching memory from
// another processor is most of a section's additional cost of reading clocks. A nest takes three
// times as many cache lines.
type plain struct {
	Times
	Ctx                context.Context
	Op                 *OpState
	Work               work.Work
	HostStart, HostEnd int64 // hostClock
	Occurrence         int64
}

// Stamped waits for the anchor that places it, then for its span. The stamps of a plain section
// stay with the polling thread, in Stream.stamps.
type Stamped struct {
	Nest *Nest // nil: it is plain
	Read int64 // hostClock
	plain
}

// SpareNests are returned from the exporter to the polling thread in batches: sync.Pool would take
// one at a time from another processor.
type SpareNests struct {
	mu   sync.Mutex
	list []*Nest
}

// Poller owns one goroutine, locked to its OS thread, on which all driver calls run except
// recording. Code of the application never runs on it, except its error handler. It registers
// streams, reads their events, keeps outermost sections until those inside them are resolved, and
// places them on the wall clock.
type Poller struct {
	worker.Worker
	p      *Core
	back   backend.Backend // nil: host times only
	given  []*Device       // named by the application, without a backend
	locked bool            // to its thread

	tidied  time.Time
	sleep   time.Duration
	longest time.Duration // its sleep, unless it is idle
	passes  int           // since sections were placed
	busy    bool          // since the last upkeep a pass, also one of Flush, found an ended section
	pressed bool          // the last pass found a quarter of a stream's slots done
	more    bool          // the last pass left a stream with sections that are done
	closing bool          // sections dropped from now on count as dropped by Shutdown

	batch   [batchSize]*Slot           // the oldest pending slots of a stream
	stamps  [batchSize]clockmap.Stamps // stamps of plain records
	plain   [batchSize]bool
	counted Counted

	spare   *SpareNests
	nests   []*Nest // empty ones
	waiting []*Slot // outermost sections that wait for sections in them
	heldNow int     // records retained by waiting nests

	crowdedAt int64 // hostClock when a crowded stream last took a separate anchor
}

// batchSize is how many sections of a stream one pass reads, at most.
const batchSize = 256

// Counted is a batch of plain sections of one operation that were numbered and are still to be
// added to its tally.
type Counted struct {
	op   *OpState
	n    int64
	last int64 // occurrence
	work work.Work
}
