// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package train times loops whose iterations are steps, such as training loops: each step is a span with its phases,
// their overlap, and the time that no phase covers. A schedule selects the steps to record.
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
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Loop is a loop whose iterations are steps, such as a training loop. Without a profiler or a stream it measures
// nothing and runs its body as it would otherwise: the same indexes and the same end. A nil Loop does so without
// options: it ends by break or with ctx.
type Loop struct{ loop *tree.Loop }

func (l *Loop) real() *tree.Loop {
	if l == nil {
		return nil
	}
	return l.loop
}

// LoopOption configures [NewLoop].
type LoopOption interface{ applyLoop(*tree.LoopConfig) }

type loopOption func(*tree.LoopConfig)

func (f loopOption) applyLoop(c *tree.LoopConfig) { f(c) }

// Schedule selects the recorded steps, as in [settings.Schedule]. It is a [LoopOption].
type Schedule settings.Schedule

func (s Schedule) applyLoop(c *tree.LoopConfig) { c.Schedule = settings.Schedule(s) }

// Items sets what the items of a step are: `token`, `row`, `image`, `sample` (gpu.step.item.type).
func Items(itemType string) LoopOption {
	return loopOption(func(c *tree.LoopConfig) { c.ItemType = itemType })
}

// TotalSteps ends each run of [Loop.Steps] after n iterations, including cancelled ones ([Step.Cancel]), and lets
// [NewLoop] detect a schedule that cannot be completed in them. Default 0: unknown.
func TotalSteps(n int64) LoopOption { return loopOption(func(c *tree.LoopConfig) { c.Steps = n }) }

// FirstStep sets gpu.step.index of the first step, as after a restart from a checkpoint; default 1. The schedule counts
// from the first step that runs.
func FirstStep(index int64) LoopOption {
	return loopOption(func(c *tree.LoopConfig) { c.First = index })
}

// StepTraces starts a new trace for each step, linked to the span of the loop's context. It is the default if there is
// no such span.
func StepTraces() LoopOption { return loopOption(func(c *tree.LoopConfig) { c.NewRoot = true }) }

// ModelDevices sets the number of devices that share a step's model FLOPs (gpu.step.device.count) and the precision,
// for model FLOP utilization of several devices. Default, and for n of 0 or less: 1.
func ModelDevices(n int, p gpuspan.Precision) LoopOption {
	return loopOption(func(c *tree.LoopConfig) {
		if c.Devices = n; p <= gpuspan.INT8 {
			c.Precision = work.Precision(p)
		}
	})
}

// Phases declares phases beforehand, so that tables have their columns in this order, also when a phase stays empty.
func Phases(ph ...Phase) LoopOption {
	return loopOption(func(c *tree.LoopConfig) {
		for _, name := range ph {
			c.Phases = append(c.Phases, tree.Phase(name))
		}
	})
}

// Attributes adds attributes of the application to each step span.
func Attributes(kv ...attribute.KeyValue) LoopOption {
	return loopOption(func(c *tree.LoopConfig) { c.Attributes = append(c.Attributes, kv...) })
}

// NewLoop makes a loop. name is the name of its steps' spans; s is the stream on which steps begin and end. A schedule
// that contradicts itself goes to the error handler, and then every step is recorded.
func NewLoop(p *gpuspan.Profiler, name string, s *gpuspan.Stream, opts ...LoopOption) *Loop {
	return &Loop{access.Engine(p).Loop(name, access.Stream(s), options.All(opts, LoopOption.applyLoop))}
}

// Steps runs the loop: each iteration is a step. The context carries the step's span, so that spans of the host and
// sections started with it are its children. A step ends where the next one begins: both share one event.
//
// The loop ends by break, when ctx is done before a step begins, or after [TotalSteps]. A step that is left by break
// counts, unless the loop has an item type and SetItems was not called: then nothing was processed, as when a data
// loader has run dry, and its span is not a step's.
//
// Steps of one Loop must not run at the same time, which counts as misuse (each goroutine needs a Loop of its own);
// gpu.step.index continues from one call of Steps to the next.
func (l *Loop) Steps(ctx context.Context) iter.Seq2[context.Context, *Step] {
	return func(yield func(context.Context, *Step) bool) {
		l.real().Steps(ctx)(func(ctx context.Context, st *tree.Step) bool { return yield(ctx, &Step{st}) })
	}
}

// SetEpoch sets gpu.step.epoch of the steps that begin from now on; epochs may be counted from 0.
func (l *Loop) SetEpoch(epoch int64) { l.real().SetEpoch(epoch) }

// Step is one iteration of a [Loop]. A nil Step does nothing, nor does a zero one. Its methods may be called by any
// goroutine until the iteration ends; later calls do nothing. Negative durations and items, and FLOPs that are no
// finite number, count as not stated and as misuse.
type Step struct{ step *tree.Step }

func (st *Step) real() *tree.Step {
	if st == nil {
		return nil
	}
	return st.step
}

// Index returns gpu.step.index.
func (st *Step) Index() int64 { return st.real().Index() }

// Recording reports whether the step becomes a span, which the schedule and the sampler decide. Use it to guard costly
// computations.
func (st *Step) Recording() bool { return st.real().Recording() }

// Span returns the step's live span, which ends after the device has finished. It is a span that does nothing while
// the step is not recorded.
func (st *Step) Span() trace.Span { return st.real().Span() }

// Phase starts a section of the step, on the loop's stream, whose time counts for a phase. A phase may have many
// sections; the step uses the union of their intervals. The section's span is a child of the step's.
func (st *Step) Phase(ph Phase) gpuspan.Section {
	return access.Section(st.real().Phase(tree.Phase(ph))).(gpuspan.Section)
}

// PhaseOn is like Phase for another stream of the profiler, such as the communication stream. nil means the loop's
// stream, and so does a stream of another profiler, which counts as misuse.
func (st *Step) PhaseOn(ph Phase, s *gpuspan.Stream) gpuspan.Section {
	return access.Section(st.real().PhaseOn(tree.Phase(ph), access.Stream(s))).(gpuspan.Section)
}

// AddPhase adds time of a phase that was measured elsewhere, as communication loggers do, with no position in the step.
// Its overlap is unknown: it uses the time that no measured phase covers, and only the rest counts as overlap, which is
// therefore a lower bound. A phase is never longer than its step: the excess (as of a sum over channels that run
// concurrently) is dropped. If the position is known, [Step.AddPhaseAt] is exact.
func (st *Step) AddPhase(ph Phase, d time.Duration) { st.real().AddPhase(tree.Phase(ph), d) }

// SetPhase sets the time of a phase that was measured elsewhere, replacing all measured or added time, before or after.
// Overlap and limits are as for [Step.AddPhase].
func (st *Step) SetPhase(ph Phase, d time.Duration) { st.real().SetPhase(tree.Phase(ph), d) }

// AddPhaseAt adds an interval of a phase that was measured elsewhere, on the wall clock.
func (st *Step) AddPhaseAt(ph Phase, start time.Time, d time.Duration) {
	st.real().AddPhaseAt(tree.Phase(ph), start, d)
}

// Elapsed requests the step's measured time, as [gpuspan.Section.Elapsed] does; call it before the iteration ends.
func (st *Step) Elapsed() *gpuspan.Elapsed {
	return access.Elapsed(st.real().Elapsed()).(*gpuspan.Elapsed)
}

// SetItems states how many items the step processed on this rank (gpu.step.items).
func (st *Step) SetItems(n int64) { st.real().SetItems(n) }

// AddItems adds to the items of the step.
func (st *Step) AddItems(n int64) { st.real().AddItems(n) }

// SetModelFLOPs states the FLOPs that the model needs for the step by its mathematics, recomputation not counted, over
// all devices of the loop (gpu.step.model.flop.count). It gives MFU; the FLOPs of the step's sections give HFU.
func (st *Step) SetModelFLOPs(f float64) { st.real().SetModelFLOPs(f) }

// SetAttributes adds attributes of the application to the step's span.
func (st *Step) SetAttributes(kv ...attribute.KeyValue) { st.real().SetAttributes(kv...) }

// Cancel marks the iteration as not a step, as when there is no more data: its span is not a step's, and nothing is
// counted.
func (st *Step) Cancel() { st.real().Cancel() }

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
