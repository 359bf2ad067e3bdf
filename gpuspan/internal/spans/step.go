// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/internal/elapsed"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Loop implements train.Loop. Without a profiler or a stream it still runs its body, counts and
// ends: the program's behavior must not depend on whether it is measured.
type Loop struct {
	p      *section.Core // nil: nothing is measured
	s      *section.Stream
	op     *section.Operation
	config LoopConfig

	epoch   atomic.Pointer[int64] // nil: not stated
	running atomic.Int32          // steps that have not ended

	mu    sync.Mutex
	index int64
	prev  section.Boundary // end of the previous step
}

// LoopConfig configures a loop.
type LoopConfig struct {
	ItemType   string
	Schedule   settings.Schedule
	Steps      int64
	First      int64
	NewRoot    bool
	Devices    int
	Precision  work.Precision
	Attributes []attribute.KeyValue
	Phases     []Phase
}

type Step struct {
	section.StepState
	loop   *Loop
	index  int64
	epoch  *int64 // nil: not stated
	action settings.StepAction
	span   trace.Span    // nil unless the step is recorded
	slot   *section.Slot // of the boundaries; nil when the step is not timed
	off    bool          // profiling was off when the step began

	hostStart int64 // hostClock

	mu         sync.Mutex
	sealed     bool
	items      int64
	itemsSet   bool
	modelFLOPs float64
	attrs      []attribute.KeyValue
	elapsed    *elapsed.Value
	phases     []phaseTime
	phaseBuf   [6]phaseTime
	open       []section.Section // sections of phases, some of which have ended

	// goroutine of the exporter
	untimed    int             // sections without a time on the step's clock
	clocked    bool            // clock, first and firstHost are set
	clock      clockmap.Stamps // of the first section on the step's device
	first      float64         // its start on the device's clock
	firstHost  float64         // and in ns from hostStart
	covered    stretches
	flops      float64 // of outermost sections
	precision  work.Precision
	mixed      bool // sections of several precisions
	resolvedAt int64
	endError   int64 // ns, of the second boundary
	ended      bool
}

// stepOf returns the step that a record belongs to; nil: none.
func stepOf(r *section.Record) *Step {
	if r.Step == nil {
		return nil
	}
	return r.Step.Owner.(*Step)
}

// phaseTime is the time of one phase of a step.
type phaseTime struct {
	phase   Phase
	spans   stretches     // measured
	added   time.Duration // measured by others, at an unknown time within the step
	set     time.Duration // instead of all measured time
	hasSet  bool
	pending int32 // sections that are not resolved
	untimed bool  // a section has no time on the step's clock
}

// known reports whether the time of the phase is complete.
func (ph *phaseTime) known() bool { return ph.hasSet || !ph.untimed && ph.pending == 0 }

func (st *Step) Index() int64 {
	if st == nil {
		return 0
	}
	return st.index
}

func (st *Step) Recording() bool { return st != nil && st.span != nil && st.span.IsRecording() }

func (st *Step) Span() trace.Span {
	if st == nil || st.span == nil {
		return trace.SpanFromContext(nil) //nolint:staticcheck // documented to give a no-op span
	}
	return st.span
}

func (st *Step) Cancel() { st.change(true, func() { st.Cancelled.Store(true) }) }

// change runs f unless the step has ended. Impossible values are ignored and counted as misuse.
func (st *Step) change(can bool, f func()) {
	if st == nil || st.loop == nil {
		return
	}
	if !can {
		if st.measured() {
			st.loop.p.CountMisuse(section.InvalidWork)
		}
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.sealed {
		f()
	}
}

// addFLOPs adds the FLOPs of an outermost section.
func (st *Step) addFLOPs(r *section.Record) {
	f := flopsOf(r)
	if f == 0 {
		return
	}
	st.flops += f
	switch p := r.Work.Precision; {
	case p == work.PrecisionUnset || p == st.precision:
	case st.precision == work.PrecisionUnset:
		st.precision = p
	default:
		st.mixed = true
	}
}

type Phase string

// Phases with a meaning in reports.
const (
	Data Phase = semconv.GPUStepPhaseNameData
	Comm Phase = semconv.GPUStepPhaseNameComm
)

// overflowPhase is the phase of further ones.
const overflowPhase Phase = "overflow"

// measured reports whether the step belongs to a loop with a profiler.
func (st *Step) measured() bool { return st != nil && st.loop != nil && st.loop.p != nil }

func (st *Step) Phase(ph Phase) section.Section { return st.PhaseOn(ph, nil) }

func (st *Step) PhaseOn(ph Phase, s *section.Stream) section.Section {
	if !st.measured() {
		return section.Section{}
	}
	p := st.loop.p
	if s != nil && s.Core != p {
		p.CountMisuse(section.ForeignStream)
		s = nil
	}
	if s == nil {
		s = st.loop.s
	}
	ph, o := st.loop.phase(ph)
	if !p.At(o.Cfg.Verbosity) {
		return section.Section{}
	}
	if !st.Timed {
		return p.Untimed(o)
	}
	st.mu.Lock()
	if st.sealed {
		st.mu.Unlock()
		return section.Section{}
	}
	i := st.indexOf(ph)
	st.phases[i].pending++ // now, because the section may resolve before it is known here
	st.mu.Unlock()
	x := s.Open(o, &section.Nesting{Ctx: st.Ctx, Step: &st.StepState, Phase: int8(i + 1)}, section.FlagNone)
	st.mu.Lock()
	defer st.mu.Unlock()
	if x.Slot == nil {
		st.phases[i].pending--
		st.phases[i].untimed = true
		return x
	}
	if len(st.open) == cap(st.open) { // before it grows
		st.open = slices.DeleteFunc(st.open, func(x section.Section) bool { return !x.Timed() })
	}
	st.open = append(st.open, x)
	return x
}

// indexOf finds or adds a phase of Profiler.phase. The mutex must be held.
func (st *Step) indexOf(ph Phase) int {
	for i := range st.phases {
		if st.phases[i].phase == ph {
			return i
		}
	}
	st.phases = append(st.phases, phaseTime{phase: ph})
	return len(st.phases) - 1
}

func (st *Step) AddPhase(ph Phase, d time.Duration) {
	st.change(section.PossibleRun(d), func() {
		if d > 0 && st.measured() {
			st.phases[st.indexOf(st.loop.phaseOf(ph))].added += d
		}
	})
}

func (st *Step) SetPhase(ph Phase, d time.Duration) {
	st.change(section.PossibleRun(d), func() {
		if !st.measured() {
			return
		}
		t := &st.phases[st.indexOf(st.loop.phaseOf(ph))]
		t.set, t.hasSet = d, true
	})
}

func (st *Step) AddPhaseAt(ph Phase, start time.Time, d time.Duration) {
	st.change(section.PossibleRun(d) && (d == 0 || section.PossibleTime(start)), func() {
		if d == 0 || !st.measured() {
			return
		}
		from := start.UnixNano() - st.loop.p.Clock.Wall(st.hostStart)
		st.phases[st.indexOf(st.loop.phaseOf(ph))].spans.add(false, float64(from), float64(from+int64(d)))
	})
}

func (st *Step) SetItems(n int64) {
	st.change(!work.Impossible(n), func() { st.items, st.itemsSet = n, true })
}

func (st *Step) AddItems(n int64) {
	st.change(!work.Impossible(n), func() { st.items += n; st.itemsSet = true })
}

func (st *Step) SetModelFLOPs(f float64) {
	st.change(!work.ImpossibleFLOPs(f), func() { st.modelFLOPs = f })
}

func (st *Step) SetAttributes(kv ...attribute.KeyValue) {
	st.change(true, func() { st.attrs = append(st.attrs, kv...) })
}

// phase finds a phase's operation, and the phase under which its time counts.
func (l *Loop) phase(ph Phase) (Phase, *section.Operation) {
	o, other := l.p.PhaseOperation(phaseName(string(ph)))
	if other {
		return overflowPhase, o
	}
	return Phase(o.Cfg.Info.Name), o
}

// phaseOf returns the phase that the time of a phase named by the application counts for.
func (l *Loop) phaseOf(ph Phase) Phase {
	ph, _ = l.phase(ph)
	return ph
}

// phaseName converts a name to a part of an attribute name: lower case, digits and underscores.
func phaseName(name string) string {
	if name == "" {
		return "unnamed"
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '_'
	}, name)
}

func (st *Step) Elapsed() (e *elapsed.Value) {
	st.change(true, func() {
		if st.Timed {
			e = elapsed.Ask(&st.elapsed)
		}
	})
	return e
}
