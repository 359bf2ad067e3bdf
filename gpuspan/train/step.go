// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package train

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/semconv"
)

// Step is one iteration of a [Loop]. A nil Step does nothing, nor does a zero one. Its methods may be called by any
// goroutine until the iteration ends; later calls do nothing. Negative durations and items, and FLOPs that are no
// finite number, count as not stated and as misuse.
type Step engine.Step

// Index is gpu.step.index.
func (st *Step) Index() int64 { return (*engine.Step)(st).Index() }

// Recording reports whether the step becomes a span: its schedule and the sampler say so. Use it to guard what is
// costly to compute.
func (st *Step) Recording() bool { return (*engine.Step)(st).Recording() }

// Span is the step's live span, which ends after the device has finished. It is a span that does nothing while the step
// is not recorded.
func (st *Step) Span() trace.Span { return (*engine.Step)(st).Span() }

// Phase begins a section of the step, on the loop's stream, whose time counts for a phase. A phase may have many
// sections; the step takes the union of their intervals. The section's span is a child of the step's.
func (st *Step) Phase(ph Phase) gpuspan.Section {
	return gpuspan.Section((*engine.Step)(st).Phase(engine.Phase(ph)))
}

// PhaseOn is Phase on another stream of the profiler, such as that of communication. nil means the loop's stream, and
// so does a stream of another profiler, which counts as misuse.
func (st *Step) PhaseOn(ph Phase, s *gpuspan.Stream) gpuspan.Section {
	return gpuspan.Section((*engine.Step)(st).PhaseOn(engine.Phase(ph), (*engine.Stream)(s).Real()))
}

// AddPhase adds time of a phase that was measured elsewhere, as communication loggers do, with no place in the step.
// What it overlapped with is not known: it takes as much as there is of the time that no measured phase covers, and
// only the rest counts as overlap, which is therefore a lower bound. A phase is never longer than its step: what is
// beyond (as the sum over channels that run side by side) is cut off. Where the place is known, [Step.AddPhaseAt] is
// exact.
func (st *Step) AddPhase(ph Phase, d time.Duration) { (*engine.Step)(st).AddPhase(engine.Phase(ph), d) }

// SetPhase sets the time of a phase that was measured elsewhere, instead of all that is measured or added, before or
// after. Overlap and limits are those of [Step.AddPhase].
func (st *Step) SetPhase(ph Phase, d time.Duration) { (*engine.Step)(st).SetPhase(engine.Phase(ph), d) }

// AddPhaseAt adds an interval of a phase that was measured elsewhere, on the wall clock.
func (st *Step) AddPhaseAt(ph Phase, start time.Time, d time.Duration) {
	(*engine.Step)(st).AddPhaseAt(engine.Phase(ph), start, d)
}

// Elapsed asks for the step's measured time, as [gpuspan.Section.Elapsed] does; call it before the iteration ends.
func (st *Step) Elapsed() *gpuspan.Elapsed { return (*gpuspan.Elapsed)((*engine.Step)(st).Elapsed()) }

// SetItems states how many items the step processed on this rank (gpu.step.items).
func (st *Step) SetItems(n int64) { (*engine.Step)(st).SetItems(n) }

// AddItems adds to the items of the step.
func (st *Step) AddItems(n int64) { (*engine.Step)(st).AddItems(n) }

// SetModelFLOPs states the FLOPs that the model needs for the step by its mathematics, recomputation not counted, over
// all devices of the loop (gpu.step.model.flop.count). It gives MFU; the FLOPs of the step's sections give HFU.
func (st *Step) SetModelFLOPs(f float64) { (*engine.Step)(st).SetModelFLOPs(f) }

// SetAttributes puts attributes of the application's own on the step's span.
func (st *Step) SetAttributes(kv ...attribute.KeyValue) { (*engine.Step)(st).SetAttributes(kv...) }

// Cancel says that the iteration is no step, as when there is no more data: its span is not that of a step, and nothing
// is counted.
func (st *Step) Cancel() { (*engine.Step)(st).Cancel() }

// Phase is a part of a step, by name: `forward`. Names become attribute names (gpu.step.phase.duration.<phase>), so
// they come from a small set of lower-case words. Other characters than letters, digits and underscores become
// underscores.
type Phase string

// Phases that most training loops have.
const (
	Data      Phase = semconv.GPUStepPhaseNameData      // waiting for inputs, host-to-device copies
	Forward   Phase = semconv.GPUStepPhaseNameForward   // forward pass
	Backward  Phase = semconv.GPUStepPhaseNameBackward  // backward pass
	Optimizer Phase = semconv.GPUStepPhaseNameOptimizer // weight update
	Comm      Phase = semconv.GPUStepPhaseNameComm      // communication between ranks
)
