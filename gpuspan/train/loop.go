// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package train times loops whose iterations are steps, as those of a training run: each step is a span with its
// phases, what they overlap and what no phase explains. A schedule says which steps are recorded.
package train

import (
	"context"
	"iter"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Loop is a loop whose iterations are steps, such as a training loop. Without a profiler or a stream it measures
// nothing and runs its body as it would otherwise: the same indexes and the same end. A nil Loop does so without
// options: it ends by break or with ctx.
type Loop engine.Loop

// LoopOption configures [NewLoop].
type LoopOption interface{ applyLoop(*engine.LoopConfig) }

type loopOption func(*engine.LoopConfig)

func (f loopOption) applyLoop(c *engine.LoopConfig) { f(c) }

// Schedule says which steps are recorded, as [settings.Schedule] explains. It is a [LoopOption].
type Schedule settings.Schedule

func (s Schedule) applyLoop(c *engine.LoopConfig) { c.Schedule = settings.Schedule(s) }

// Items says what the items of a step are: `token`, `row`, `image`, `sample` (gpu.step.item_type).
func Items(itemType string) LoopOption {
	return loopOption(func(c *engine.LoopConfig) { c.ItemType = itemType })
}

// TotalSteps ends each run of [Loop.Steps] after n iterations, also those that are no step ([Step.Cancel]), and lets
// [NewLoop] find out that a schedule cannot be completed in them. 0, the default: the number is not known.
func TotalSteps(n int64) LoopOption { return loopOption(func(c *engine.LoopConfig) { c.Steps = n }) }

// FirstStep sets gpu.step.index of the first step, as after a restart from a checkpoint; default 1. The schedule counts
// from the first step that runs.
func FirstStep(index int64) LoopOption {
	return loopOption(func(c *engine.LoopConfig) { c.First = index })
}

// StepTraces gives each step a trace of its own, linked to the span that the loop runs under. It is the default where
// there is no such span.
func StepTraces() LoopOption { return loopOption(func(c *engine.LoopConfig) { c.NewRoot = true }) }

// ModelDevices says over how many devices a step's model FLOPs are spread (gpu.step.device.count), and at which
// precision; it makes model FLOP utilisation of many devices right. Default, and for n of 0 or less: 1.
func ModelDevices(n int, p gpuspan.Precision) LoopOption {
	return loopOption(func(c *engine.LoopConfig) {
		if c.Devices = n; p <= gpuspan.INT8 {
			c.Precision = p
		}
	})
}

// Phases declares phases beforehand, so that tables have their columns in this order, also when a phase stays empty.
func Phases(ph ...Phase) LoopOption {
	return loopOption(func(c *engine.LoopConfig) {
		for _, name := range ph {
			c.Phases = append(c.Phases, engine.Phase(name))
		}
	})
}

// Attributes puts attributes of the application's own on each step span.
func Attributes(kv ...attribute.KeyValue) LoopOption {
	return loopOption(func(c *engine.LoopConfig) { c.Attributes = append(c.Attributes, kv...) })
}

// NewLoop makes a loop. name is the name of its steps' spans; s is the stream on which steps begin and end. A schedule
// that contradicts itself goes to the error handler, and then every step is recorded.
func NewLoop(p *gpuspan.Profiler, name string, s *gpuspan.Stream, opts ...LoopOption) *Loop {
	return (*Loop)((*engine.Profiler)(p).Real().Loop(name, (*engine.Stream)(s).Real(), func(c *engine.LoopConfig) {
		for _, o := range opts {
			if o != nil {
				o.applyLoop(c)
			}
		}
	}))
}

// Steps runs the loop: each iteration is a step. The context carries the step's span, so that spans of the host and
// sections started with it are its children. A step ends where the next one begins: both share one event.
//
// The loop ends by break, when ctx is done before a step begins, or after [TotalSteps]. A step that is left by break
// counts, unless the loop has an item type and SetItems was not called: then nothing was processed, as when a data
// loader has run dry, and its span is not that of a step.
//
// Steps of one Loop must not run at the same time, which counts as misuse (each goroutine needs a Loop of its own);
// gpu.step.index goes on from one call of Steps to the next.
func (l *Loop) Steps(ctx context.Context) iter.Seq2[context.Context, *Step] {
	return func(yield func(context.Context, *Step) bool) {
		(*engine.Loop)(l).Steps(ctx)(func(ctx context.Context, st *engine.Step) bool { return yield(ctx, (*Step)(st)) })
	}
}

// SetEpoch sets gpu.step.epoch of the steps that begin from now on; epochs may be counted from 0.
func (l *Loop) SetEpoch(epoch int64) { (*engine.Loop)(l).SetEpoch(epoch) }
