// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package train times the steps of loops, such as training loops: each step is a span with its
// phases, their overlap, and the time outside of phases. A schedule selects the steps to record.
package train

import (
	"context"
	"iter"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/access"
	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spans"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Loop is a loop whose iterations are steps, such as a training loop. Without a profiler or a
// stream it measures nothing and runs its body with the same indexes and the same end. A nil Loop
// has no options: it ends by break or when ctx is done.
type Loop struct{ loop *spans.Loop }

func (l *Loop) real() *spans.Loop {
	if l == nil {
		return nil
	}
	return l.loop
}

// LoopOption configures [NewLoop].
type LoopOption interface{ applyLoop(*spans.LoopConfig) }

type loopOption func(*spans.LoopConfig)

func (f loopOption) applyLoop(c *spans.LoopConfig) { f(c) }

// Schedule selects the steps to record, as [settings.Schedule] does. It is a [LoopOption]; default:
// the profiler's schedule.
type Schedule settings.Schedule

func (s Schedule) applyLoop(c *spans.LoopConfig) { c.Schedule = settings.Schedule(s) }

// Items sets the type of a step's items: `token`, `row`, `image`, `sample` (gpu.step.item.type).
// Default none.
func Items(itemType string) LoopOption {
	return loopOption(func(c *spans.LoopConfig) { c.ItemType = itemType })
}

// TotalSteps ends each run of [Loop.Steps] after n iterations, including canceled ones
// ([Step.Cancel]), and lets [NewLoop] detect a schedule that cannot be completed in them. Default
// 0: no limit.
func TotalSteps(n int64) LoopOption { return loopOption(func(c *spans.LoopConfig) { c.Steps = n }) }

// FirstStep sets gpu.step.index of the first step, for example after a restart from a checkpoint;
// default 1. The schedule counts from the first step that runs.
func FirstStep(index int64) LoopOption {
	return loopOption(func(c *spans.LoopConfig) { c.First = index })
}

// StepTraces starts a new trace for each step, linked to the span of the loop's context. It is the
// default if there is no such span; otherwise steps are children of that span.
func StepTraces() LoopOption { return loopOption(func(c *spans.LoopConfig) { c.NewRoot = true }) }

// ModelDevices sets the number of devices that share a step's model FLOPs (gpu.step.device.count)
// and the precision, for model FLOP utilization of several devices. Default, and for n of 0 or
// less: 1.
func ModelDevices(n int, p gpuspan.Precision) LoopOption {
	return loopOption(func(c *spans.LoopConfig) {
		if c.Devices = n; p <= gpuspan.INT8 {
			c.Precision = p
		}
	})
}

// Phases declares phases, so that tables have their columns in this order, even for phases that
// never run.
func Phases(ph ...Phase) LoopOption {
	return loopOption(func(c *spans.LoopConfig) {
		for _, name := range ph {
			c.Phases = append(c.Phases, spans.Phase(name))
		}
	})
}

// Attributes adds attributes of the application to each step span.
func Attributes(kv ...attribute.KeyValue) LoopOption {
	return loopOption(func(c *spans.LoopConfig) { c.Attributes = append(c.Attributes, kv...) })
}

// NewLoop returns a loop. name is the name of its steps' spans; s is the stream on which steps
// begin and end. An invalid schedule is reported to the error handler, and every step is recorded.
func NewLoop(p *gpuspan.Profiler, name string, s *gpuspan.Stream, opts ...LoopOption) *Loop {
	return &Loop{access.Engine(p).Loop(name, access.Stream(s), options.All(opts, LoopOption.applyLoop))}
}

// Steps runs the loop: each iteration is a step. The context carries the step's span, so that host
// spans and sections started with it are its children. A step ends where the next one begins: both
// share one event.
//
// The loop ends by break, if ctx is done before a step begins, or after [TotalSteps]. A step that
// is left by break counts, unless the loop has an item type and SetItems was not called: then
// nothing was processed, for example because the data loader is exhausted, and its span is not a
// step's.
//
// Steps of one Loop must not run concurrently, which counts as misuse: use a separate Loop for each
// goroutine. gpu.step.index continues from one call of Steps to the next.
func (l *Loop) Steps(ctx context.Context) iter.Seq2[context.Context, *Step] {
	return func(yield func(context.Context, *Step) bool) {
		l.real().Steps(ctx)(func(ctx context.Context, st *spans.Step) bool { return yield(ctx, &Step{st}) })
	}
}

// SetEpoch sets gpu.step.epoch of the steps that begin from now on; epochs may be counted from 0.
func (l *Loop) SetEpoch(epoch int64) { l.real().SetEpoch(epoch) }

// Step is one iteration of a [Loop]. Nil and zero Steps do nothing. Its methods may be called by
// any goroutine until the iteration ends; later calls do nothing. Negative durations and items, and
// FLOPs that are not finite, are ignored and count as misuse.
type Step struct{ step *spans.Step }

func (st *Step) real() *spans.Step {
	if st == nil {
		return nil
	}
	return st.step
}

// Index returns gpu.step.index.
func (st *Step) Index() int64 { return st.real().Index() }

// Recording reports whether the step becomes a span, as decided by the schedule and the sampler.
// Use it to guard expensive computations.
func (st *Step) Recording() bool { return st.real().Recording() }

// Span returns the open span of the step, which ends after the device has finished. If the step is
// not recorded, the span does nothing.
func (st *Step) Span() trace.Span { return st.real().Span() }

// Phase starts a section of the step on the loop's stream and adds its time to a phase. A phase may
// have many sections; its time is the union of their intervals. The section's span is a child of
// the step's.
func (st *Step) Phase(ph Phase) gpuspan.Section {
	return access.Section(st.real().Phase(spans.Phase(ph))).(gpuspan.Section)
}

// PhaseOn is like Phase for another stream of the profiler, such as the communication stream. nil
// means the loop's stream, and so does a stream of another profiler, which counts as misuse.
func (st *Step) PhaseOn(ph Phase, s *gpuspan.Stream) gpuspan.Section {
	return access.Section(st.real().PhaseOn(spans.Phase(ph), access.Stream(s))).(gpuspan.Section)
}

// AddPhase adds time to a phase that was measured elsewhere, for example by a communication logger,
// and whose position in the step is unknown. It fills the time that no measured phase covers, and
// only the rest counts as overlap, which is therefore a lower bound. A phase is never longer than
// its step: the excess, such as of a sum over concurrent channels, is dropped. If the position is
// known, use [Step.AddPhaseAt], which is exact.
func (st *Step) AddPhase(ph Phase, d time.Duration) { st.real().AddPhase(spans.Phase(ph), d) }

// SetPhase sets the time of a phase that was measured elsewhere. It replaces all earlier and later
// time of the phase. Overlap and limits are as for [Step.AddPhase].
func (st *Step) SetPhase(ph Phase, d time.Duration) { st.real().SetPhase(spans.Phase(ph), d) }

// AddPhaseAt adds an interval of a phase that was measured elsewhere; start is on the wall clock.
func (st *Step) AddPhaseAt(ph Phase, start time.Time, d time.Duration) {
	st.real().AddPhaseAt(spans.Phase(ph), start, d)
}

// Elapsed requests the step's measured time, as [gpuspan.Section.Elapsed] does; call it before the
// iteration ends.
func (st *Step) Elapsed() *gpuspan.Elapsed {
	return (*gpuspan.Elapsed)(st.real().Elapsed())
}

// SetItems sets the number of items that the step processed on this rank (gpu.step.items).
func (st *Step) SetItems(n int64) { st.real().SetItems(n) }

// AddItems adds to the items of the step.
func (st *Step) AddItems(n int64) { st.real().AddItems(n) }

// SetModelFLOPs sets the FLOPs that the model mathematically needs for the step, without
// recomputation, over all devices of the loop (gpu.step.model.flop.count). MFU is computed from
// them, HFU from the FLOPs of the step's sections.
func (st *Step) SetModelFLOPs(f float64) { st.real().SetModelFLOPs(f) }

// SetAttributes adds attributes of the application to the step's span.
func (st *Step) SetAttributes(kv ...attribute.KeyValue) { st.real().SetAttributes(kv...) }

// Cancel marks the iteration as not being a step, for example because there is no more data: its
// span is not a step's, and nothing is counted.
func (st *Step) Cancel() { st.real().Cancel() }

// Phase is the name of a part of a step, such as `forward`. Names become attribute names
// (gpu.step.phase.duration.<phase>), so use a small set of lower-case words. Characters other than
// letters, digits and underscores become underscores.
type Phase string

// Phases that most training loops have.
const (
	Data      Phase = semconv.GPUStepPhaseNameData      // waiting for inputs, host-to-device copies
	Forward   Phase = semconv.GPUStepPhaseNameForward   // forward pass
	Backward  Phase = semconv.GPUStepPhaseNameBackward  // backward pass
	Optimizer Phase = semconv.GPUStepPhaseNameOptimizer // weight update
	Comm      Phase = semconv.GPUStepPhaseNameComm      // communication between ranks
)
