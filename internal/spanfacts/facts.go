// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"encoding/binary"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Facts are the values that a span states. Amounts and durations that are absent, not finite or not
// above 0 are 0; values that may be 0 or negative have a Has field. Absent texts are "", absent
// indexes -1. Texts are valid UTF-8 of at most MaxText bytes, see Clip; they may share the span's
// memory.
type Facts struct {
	Kind     Kind
	Type     string // gpu.operation.type, unchanged
	Name     string // gpu.operation.name, otherwise the span's name
	Category string // gpu.operation.category
	Device   Identity
	Stream   int64 // gpu.stream.id

	Key        Key
	Parent     pcommon.SpanID
	Start, End uint64  // unix ns
	Elapsed    float64 // end minus start, s; 0 if they are not Sound

	Time          float64 // on the device, s; 0 if it was not timed, and for steps and spans that are not GPU work
	Duration      float64 // gpu.duration, s
	Status        string  // gpu.timing.status; "ok" if absent
	Source        string  // gpu.timing.source
	TimingError   float64 // gpu.timing.error, s
	StartDelay    float64 // gpu.start.delay, s
	EndDelay      float64 // gpu.end.delay, s
	Floor         float64 // gpu.floor.duration, s: of an empty section
	HasStartDelay bool
	HasEndDelay   bool
	HasFloor      bool

	Size       float64 // gpu.io.size, otherwise the sum of the next two, bytes
	Read       float64 // gpu.io.read.size, bytes
	Write      float64 // gpu.io.write.size, bytes
	FLOPs      float64 // gpu.flop.count
	Precision  string  // gpu.flop.precision
	Items      float64 // gpu.operation.items
	ItemType   string  // gpu.operation.item.type
	Direction  string  // gpu.copy.direction
	HostMemory string  // gpu.copy.host_memory
	Collective string  // gpu.collective.name
	GroupSize  float64 // gpu.collective.group.size, ranks
	GroupID    string  // gpu.collective.group.id
	Sequence   int64   // gpu.collective.sequence; where HasSequence
	Peer       int64   // gpu.collective.peer.rank; -1 where it is absent
	L2Hit      float64 // gpu.cache.l2.hit_ratio, 0 to 1

	BatchSize       float64 // gpu.batch.size
	RequestModel    string  // gen_ai.request.model
	Queue           float64 // gpu.request.queue.duration, s
	TimeToFirstItem float64 // gpu.request.time_to_first_item, s
	Prefill         float64 // gpu.request.prefill.duration, s
	Decode          float64 // gpu.request.decode.duration, s

	Energy        float64 // gpu.energy, J: of the span with its descendants
	SelfEnergy    float64 // gpu.self_energy, otherwise Energy, J: of the span alone
	HasEnergy     bool
	HasSelfEnergy bool
	UpperBound    bool    // gpu.energy_bound is upper
	Coverage      float64 // gpu.join.coverage, 0 to 1; 1 if absent
	HasMemory     bool    // gpu.memory.usage is stated
	Throttle      string  // the first of gpu.throttle.reasons
	Joined        bool    // has device samples: gpu.join.coverage is stated, or gpu.measurement.source on the scope
	InWindow      bool    // found by a capture window or profile below a span of a live trace; repeats other spans

	StepIndex    int64   // gpu.step.index; valid if HasStepIndex
	StepDuration float64 // gpu.step.duration, s
	StepItems    float64 // gpu.step.items
	StepItemType string  // gpu.step.item.type
	StepOverlap  float64 // gpu.step.overlap.duration, s
	StepOther    float64 // gpu.step.other.duration, s
	StepExposed  float64 // gpu.step.comm.exposed.duration, s; valid if HasExposed
	ModelFLOPs   float64 // gpu.step.model.flop.count
	Devices      float64 // gpu.step.device.count
	HasStepIndex bool
	HasSequence  bool
	HasExposed   bool
	HasCovered   bool // gpu.step.covered.duration is stated
	HasPhases    bool // a phase, the overlap or the rest is stated

	Bound      string  // gpu.roofline.bound
	Roofline   float64 // gpu.roofline.utilization, otherwise the larger of the two utilizations; valid if HasRoofline
	MFU        float64 // gpu.step.mfu
	BelowFloor bool    // gpu.rate.status is below_floor

	HasRoofline bool

	ioUse, flopUse float64 // gpu.io.utilization, gpu.flop.utilization; -1 if absent

	full   string  // the name as stated, which may be long and invalid
	phases []Phase // its memory is reused for the next span
}

// Key is a span's identity.
type Key struct {
	Trace pcommon.TraceID
	Span  pcommon.SpanID
}

// In returns a key of the span within a process. Processes whose random generators are seeded
// alike, as trainers do on all ranks, draw the same IDs.
func (k Key) In(process uint64) Key {
	first := k.Trace[:8]
	binary.LittleEndian.PutUint64(first, binary.LittleEndian.Uint64(first)^process)
	return k
}

// Phase is one gpu.step.phase.duration.<name>.
type Phase struct {
	Name     string
	Duration float64 // s
}

// maxPhases limits how many phases of one step are read; their names are set by the sender.
const maxPhases = 16

// Phases returns the phases that a step states, at most 16. The slice is valid until the next Load.
func (f *Facts) Phases() []Phase { return f.phases }

// FullName returns the name as the span states it, for readers of symbols, which truncation would
// break. It is of any length and may be invalid UTF-8.
func (f *Facts) FullName() string { return f.full }

// Recorded reports whether the span's times are records of a profiler that sees every activity of
// the device, as opposed to pairs of events around sections.
func (f *Facts) Recorded() bool {
	return f.Source == semconv.GPUTimingSourceCupti || f.Source == semconv.GPUTimingSourceRoctracer
}

// HostTimed reports whether the host measured the span's times.
func (f *Facts) HostTimed() bool {
	return f.Kind == Request || f.Kind == Host || f.Duration == 0 && f.Source == semconv.GPUTimingSourceHost
}

// StepTime returns the length of a step in seconds: gpu.step.duration, otherwise the span's own
// length.
func (f *Facts) StepTime() float64 {
	if f.StepDuration > 0 {
		return f.StepDuration
	}
	return f.Elapsed
}

// Exposed returns the time of a step in seconds in which it communicated and no computation
// overlapped: as stated, otherwise the part of the phase comm that overlaps with no other phase.
// The latter is valid only for phases timed on the device; profiler files, whose phases are ranges
// of the host, state it.
func (f *Facts) Exposed() float64 {
	if f.HasExposed {
		return f.StepExposed
	}
	for _, p := range f.phases {
		if p.Name == semconv.GPUStepPhaseNameComm {
			return max(0, p.Duration-f.StepOverlap)
		}
	}
	return 0
}

// Load reads a span of a scope (nil: none). It reports whether it is a GPU span. For other spans it
// sets only Key, Parent, Start and End.
func (f *Facts) Load(s ptrace.Span, scope *Scope) bool {
	phases := f.phases[:0]
	*f = Facts{} // cleared in place: a literal with phases would be copied
	f.phases = phases
	f.Key.Trace, f.Key.Span, f.Parent = s.TraceID(), s.SpanID(), s.ParentSpanID()
	f.Start, f.End = uint64(s.StartTimestamp()), uint64(s.EndTimestamp())
	f.Device.Ordinal, f.Stream, f.Coverage, f.ioUse, f.flopUse = -1, -1, 1, -1, -1
	f.Peer = -1
	for k, v := range s.Attributes().All() {
		if len(k) > 4 && (k[0] == 'g' || k[0] == 'h') { // gpu., hw. and gen_ai.
			f.read(k, v)
		}
	}
	if f.Kind = KindOf(f.Type); f.Kind == None {
		return false
	}
	if !f.HasRoofline && max(f.ioUse, f.flopUse) >= 0 {
		f.Roofline, f.HasRoofline = max(f.ioUse, f.flopUse), true
	}
	f.complete(s, scope)
	switch f.Kind {
	case Kernel, Copy, Memset, Collective, Graph:
		f.InWindow = inWindow(s)
	}
	return true
}

func (f *Facts) loadPhase(k string, v pcommon.Value) {
	name, ok := semconv.GPUStepPhaseDurationOf(k)
	if !ok {
		return
	}
	f.HasPhases = true
	if d, ok := Number(v); ok && d >= 0 && len(f.phases) < maxPhases {
		f.phases = append(f.phases, Phase{Clip(name), d})
	}
}

// complete sets the fields that follow from the scope or from absent attributes.
func (f *Facts) complete(s ptrace.Span, scope *Scope) {
	if scope != nil {
		if same := f.Device.inherit(&scope.Device); same {
			if f.Stream < 0 {
				f.Stream = scope.Stream
			}
			if !f.HasFloor {
				f.Floor, f.HasFloor = scope.Floor, scope.HasFloor
			}
			def(&f.TimingError, scope.TimingError)
		}
		def(&f.Source, scope.Source)
		f.Joined = f.Joined || scope.Measured != ""
	}
	def(&f.full, s.Name())
	f.Name = Clip(f.full)
	def(&f.Status, semconv.GPUTimingStatusOk)
	def(&f.Size, f.Read+f.Write)
	if f.L2Hit > 1 {
		f.L2Hit = 0 // not a valid ratio
	}
	if !f.HasSelfEnergy {
		f.SelfEnergy = f.Energy
	}
	f.Elapsed = Elapsed(f.Start, f.End)
	if f.Kind != Step && f.Kind.Work() {
		f.Time = deviceTime(f.Status, f.Source, f.Duration, f.Elapsed)
	}
}

// def sets an absent value to a default. cmp.Or takes three times as long.
func def[T string | float64](x *T, d T) {
	var absent T
	if *x == absent {
		*x = d
	}
}
