// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/clockmap"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

type Step struct {
	loop   *Loop
	index  int64
	epoch  *int64 // nil: not stated
	action settings.StepAction
	timed  bool
	span   trace.Span // nil unless the step is recorded
	ctx    context.Context
	slot   *slot // of the boundaries; nil when the step is not timed
	around *Step // that the loop's stream goes back to; under the stream's mutex
	off    bool  // profiling was off when the step began

	device    *device // that the boundaries are timed on
	hostStart int64   // hostClock
	open      atomic.Int32

	mu         sync.Mutex
	sealed     bool
	cancelled  bool
	items      int64
	itemsSet   bool
	modelFLOPs float64
	attrs      []attribute.KeyValue
	phases     []phaseTime
	phaseBuf   [6]phaseTime
	elapsed    *Elapsed

	// goroutine of the emitter
	clocked    bool            // clock, first and firstHost are set
	clock      clockmap.Stamps // of the first section on the step's device
	first      float64         // where that began on the device's clock
	firstHost  float64         // and in ns from hostStart
	covered    stretches
	flops      float64
	precision  Precision
	mixed      bool // sections of several precisions
	resolvedAt int64
	endError   int64 // ns, of the place of the second boundary
	ended      bool
}

// phaseTime is what is known of one phase of a step.
type phaseTime struct {
	phase  Phase
	spans  stretches     // measured
	added  time.Duration // measured elsewhere, at an unknown place in the step
	set    time.Duration // instead of all that is measured
	hasSet bool
}

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

// measured reports whether the step belongs to a loop with a profiler.
func (st *Step) measured() bool { return st != nil && st.loop != nil && st.loop.p != nil }

func (st *Step) Phase(ph Phase) Section { return st.PhaseOn(ph, nil) }

func (st *Step) PhaseOn(ph Phase, s *Stream) Section {
	if !st.measured() {
		return Section{}
	}
	p := st.loop.p
	if s != nil && s.p != p {
		p.misuse.foreignStream.Add(1)
		s = nil
	}
	if s == nil {
		s = st.loop.s
	}
	ph, o := p.phase(ph)
	if p.level.Load() < int32(o.cfg.Verbosity) {
		return Section{}
	}
	if !st.timed {
		return p.untimed(o)
	}
	st.mu.Lock()
	if st.sealed {
		st.mu.Unlock()
		return Section{}
	}
	i := st.indexOf(ph)
	st.mu.Unlock()
	return s.openOuter(o, &nesting{ctx: st.ctx, step: st, phase: int8(i + 1)}, flagNone)
}

// phaseIndex finds or adds a phase by the name that the application gave it. The mutex must be held.
func (st *Step) phaseIndex(ph Phase) int {
	ph, _ = st.loop.p.phase(ph)
	return st.indexOf(ph)
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
	st.change(possibleRun(d), func() {
		if d > 0 && st.measured() {
			st.phases[st.phaseIndex(ph)].added += d
		}
	})
}

func (st *Step) SetPhase(ph Phase, d time.Duration) {
	st.change(possibleRun(d), func() {
		if !st.measured() {
			return
		}
		t := &st.phases[st.phaseIndex(ph)]
		t.set, t.hasSet = d, true
	})
}

func (st *Step) AddPhaseAt(ph Phase, start time.Time, d time.Duration) {
	st.change(possibleRun(d) && (d == 0 || possibleTime(start)), func() {
		if d == 0 || !st.measured() {
			return
		}
		from := start.UnixNano() - st.loop.p.clock.wall(st.hostStart)
		st.phases[st.phaseIndex(ph)].spans.add(false, float64(from), float64(from+int64(d)))
	})
}

func (st *Step) SetItems(n int64) {
	st.change(!impossible(n), func() { st.items, st.itemsSet = n, true })
}

func (st *Step) AddItems(n int64) {
	st.change(!impossible(n), func() { st.items += n; st.itemsSet = true })
}

func (st *Step) SetModelFLOPs(f float64) {
	st.change(!impossibleFLOPs(f), func() { st.modelFLOPs = f })
}

func (st *Step) SetAttributes(kv ...attribute.KeyValue) {
	st.change(true, func() { st.attrs = append(st.attrs, kv...) })
}

func (st *Step) Cancel() { st.change(true, func() { st.cancelled = true }) }

// change does f unless the step has ended. What cannot be is not stated, and counts as misuse.
func (st *Step) change(can bool, f func()) {
	if st == nil || st.loop == nil {
		return
	}
	if !can {
		if st.measured() {
			st.loop.p.misuse.invalidWork.Add(1)
		}
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if !st.sealed {
		f()
	}
}

// seal ends the step on the host. left: the loop was left in it.
func (st *Step) seal(left bool) {
	l := st.loop
	p := l.p
	cancelled := st.close(left)
	l.s.clearStep(st)
	if st.slot != nil {
		l.s.sealStep(l, st, !left)
		return
	}
	st.elapsed.set(0, false)
	if !cancelled && !st.off {
		p.state(l.op).timed.count.Add(1)
	}
	if st.span != nil { // nothing was timed: not sampled, or no free slot
		st.endUntimed(p.clock.now())
	}
}

// close ends the step's changes. One that was cancelled is not counted.
func (st *Step) close(left bool) (cancelled bool) {
	l := st.loop
	st.mu.Lock()
	st.sealed = true
	if left && !st.itemsSet && l.config.ItemType != "" {
		st.cancelled = true
	}
	cancelled = st.cancelled
	st.mu.Unlock()
	if cancelled {
		l.mu.Lock()
		l.index--
		l.mu.Unlock()
	}
	return cancelled
}

// isCancelled reports whether the iteration was no step.
func (st *Step) isCancelled() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.cancelled
}

// addFLOPs adds what an outermost section computed. Polling thread.
func (st *Step) addFLOPs(r *record) {
	f := r.flops()
	if f == 0 {
		return
	}
	st.flops += f
	switch p := r.work.Precision; {
	case p == PrecisionUnset || p == st.precision:
	case st.precision == PrecisionUnset:
		st.precision = p
	default:
		st.mixed = true
	}
}

type Phase string

// Phases that the report tells apart.
const (
	Data Phase = semconv.GPUStepPhaseNameData
	Comm Phase = semconv.GPUStepPhaseNameComm
)

// maxPhases bounds the phases of a profiler, for each is an attribute name.
const maxPhases = 64

// overflowPhase is what further ones are timed as.
const overflowPhase Phase = "overflow"

// phase finds a phase's operation, and the phase under which its time counts.
func (p *Profiler) phase(ph Phase) (Phase, *Operation) {
	o := p.phases.operation(phaseName(string(ph)))
	if o == p.phases.overflow {
		return overflowPhase, o
	}
	return Phase(o.cfg.Info.Name), o
}

// newPhaseOperation makes what times a phase's sections: named and categorised as the phase.
func newPhaseOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Category = name })
}

// phaseName makes a part of an attribute name: lower case, digits and underscores.
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
