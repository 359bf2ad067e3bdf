// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Loop is a loop whose iterations are steps, such as a training loop. A nil Loop runs its body without measuring.
type Loop struct {
	p      *Profiler
	s      *Stream
	op     *Operation
	config loopConfig

	epoch   atomic.Pointer[int64] // nil: not stated
	running atomic.Int32          // steps that are not over

	mu    sync.Mutex
	index int64
	prev  link // to the step before, whose end event begins the next one
}

type loopConfig struct {
	itemType  string
	schedule  Schedule
	steps     int64
	first     int64
	newRoot   bool
	devices   int
	precision Precision
	attrs     []attribute.KeyValue
	phases    []Phase
}

// LoopOption configures [Profiler.Loop].
type LoopOption interface{ applyLoop(*loopConfig) }

type loopOption func(*loopConfig)

func (f loopOption) applyLoop(c *loopConfig) { f(c) }

func (t ItemTypeOption) applyLoop(c *loopConfig) { c.itemType = string(t) }

func (s Schedule) applyLoop(c *loopConfig) { c.schedule = s }

// TotalSteps ends each run of [Loop.Steps] after n iterations, also those that are no step ([Step.Cancel]), and lets [Profiler.Loop] find out that a
// schedule cannot be completed in them.
// 0, the default: the number is not known.
func TotalSteps(n int64) LoopOption { return loopOption(func(c *loopConfig) { c.steps = n }) }

// FirstStep sets gpu.step.index of the first step, as after a restart from a checkpoint; default 1. The schedule counts
// from the first step that runs.
func FirstStep(index int64) LoopOption { return loopOption(func(c *loopConfig) { c.first = index }) }

// StepTraces gives each step a trace of its own, linked to the span that the loop runs under. It is the default where there is no such span.
func StepTraces() LoopOption { return loopOption(func(c *loopConfig) { c.newRoot = true }) }

// ModelDevices says over how many devices a step's model FLOPs are spread (gpu.step.device.count), and at which precision; it makes
// model FLOP utilisation of many devices right. Default, and for n of 0 or less: 1.
func ModelDevices(n int, p Precision) LoopOption {
	return loopOption(func(c *loopConfig) {
		if c.devices = n; p <= INT8 {
			c.precision = p
		}
	})
}

// Phases declares phases beforehand, so that tables have their columns in this order, also when a phase stays empty.
func Phases(ph ...Phase) LoopOption {
	return loopOption(func(c *loopConfig) { c.phases = append(c.phases, ph...) })
}

// StepAttributes puts attributes of the application's own on each step span.
func StepAttributes(kv ...attribute.KeyValue) LoopOption {
	return loopOption(func(c *loopConfig) { c.attrs = append(c.attrs, kv...) })
}

// Loop makes a loop. name is the name of its steps' spans; s is the stream on which steps begin and end. A schedule that contradicts
// itself goes to the error handler, and then every step is recorded.
func (p *Profiler) Loop(name string, s *Stream, opts ...LoopOption) *Loop {
	if p == nil || s == nil {
		return nil
	}
	if name == "" {
		name = "step"
	}
	c := loopConfig{schedule: p.cfg.Schedule, first: 1}
	for _, o := range opts {
		if o != nil {
			o.applyLoop(&c)
		}
	}
	if err := c.schedule.Validate(c.steps); err != nil {
		p.errors.report("schedule "+name, fmt.Errorf("loop %q: %w", name, err))
		if c.schedule.Validate(0) != nil {
			c.schedule = Schedule{}
		}
	}
	return &Loop{p: p, s: s, op: p.steps.operation(name), config: c}
}

// newStepOperation makes the operation of the steps of all loops of a name, so that a loop may be made for each epoch or evaluation.
func newStepOperation(name string) *Operation {
	return NewOperation(name, operationOption(func(o *Operation) { o.info.Type = semconv.GPUOperationTypeStep }))
}

// SetEpoch sets gpu.step.epoch of the steps that begin from now on; epochs may be counted from 0.
func (l *Loop) SetEpoch(epoch int64) {
	if l != nil {
		l.epoch.Store(&epoch)
	}
}

// Steps runs the loop: each iteration is a step. The context carries the step's span, so that spans of the host and sections
// started with it are its children. A step ends where the next one begins: both share one event.
//
// The loop ends by break, when ctx is done before a step begins, or after [TotalSteps]. A step that is left by break
// counts, unless the loop has an item type and SetItems was not called: then nothing was processed, as when a data loader
// has run dry, and its span is not that of a step.
//
// Steps of one Loop must not run at the same time, which counts as misuse (each goroutine needs a Loop of its own); gpu.step.index goes on from one call of Steps to the next.
func (l *Loop) Steps(ctx context.Context) iter.Seq2[context.Context, *Step] {
	if ctx == nil {
		ctx = context.Background()
	}
	return func(yield func(context.Context, *Step) bool) {
		if l == nil {
			for ctx.Err() == nil && yield(ctx, nil) {
			}
			return
		}
		l.p.loops.Add(1)
		defer l.p.loops.Add(-1)
		defer l.releasePrev()
		for n := int64(1); ctx.Err() == nil && (l.config.steps <= 0 || n <= l.config.steps); n++ {
			if !l.run(ctx, yield) {
				return
			}
		}
	}
}

// run runs one step. The step ends also when the body panics.
func (l *Loop) run(ctx context.Context, yield func(context.Context, *Step) bool) (more bool) {
	if l.running.Add(1) > 1 {
		l.p.misuse.concurrentSteps.Add(1)
	}
	st, stepCtx := l.begin(ctx)
	left := true
	defer func() {
		st.seal(left)
		l.running.Add(-1)
	}()
	more = yield(stepCtx, st)
	left = !more
	return more
}

// begin makes the next step.
func (l *Loop) begin(ctx context.Context) (*Step, context.Context) {
	p := l.p
	l.mu.Lock()
	l.index++
	n := l.index
	l.mu.Unlock()
	st := &Step{loop: l, index: n - 1 + l.config.first, epoch: l.epoch.Load(), action: l.config.schedule.Action(n)}
	st.phases = st.phaseBuf[:0]
	for _, ph := range l.config.phases {
		st.phaseIndex(ph)
	}
	st.ctx = ctx
	if p.level.Load() < int32(VerbosityDefault) {
		st.action, st.off = StepSkip, true
	}
	st.hostStart = l.hostStart()
	st.timed = st.action != StepSkip
	if st.action.Recorded() {
		st.ctx, st.span = l.startSpan(ctx, st)
		if !p.timeAll && unsampled(st.span) {
			st.timed = false // the head said no: host spans below know by the context, sections by this
		}
	}
	if st.timed {
		st.slot = l.s.openStep(l, st)
	}
	if st.slot == nil {
		l.releasePrev()
	}
	l.s.setStep(st)
	return st, context.WithValue(st.ctx, stepKey{}, st)
}

// hostStart is when a step begins on the host: where the one before it ended, so that steps leave no gap there either, else now.
func (l *Loop) hostStart() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.prev.slot != nil {
		return l.prev.hostEnd
	}
	return l.p.clock.now()
}

// startSpan starts the step's span. A sampler or processor that panics costs the span, not the loop.
func (l *Loop) startSpan(ctx context.Context, st *Step) (out context.Context, span trace.Span) {
	defer func() {
		if r := recover(); r != nil {
			l.p.errors.report("panic", fmt.Errorf("recovered while a step's span was started: %v", r))
			out, span = ctx, spanOf(context.Background())
		}
	}()
	st.spanStart = l.p.clock.wall(st.hostStart)
	opts := []trace.SpanStartOption{trace.WithTimestamp(time.Unix(0, st.spanStart))}
	if parent := spanOf(ctx).SpanContext(); l.config.newRoot && parent.IsValid() {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.Link{SpanContext: parent}))
	}
	return l.p.tracer().Start(ctx, l.op.info.Name, opts...)
}

// releasePrev lets go of the last step's end event.
func (l *Loop) releasePrev() {
	l.mu.Lock()
	prev := l.prev
	l.prev = link{}
	l.mu.Unlock()
	prev.release()
}

type stepKey struct{}

// stepOf is the step that a section belongs to: that of its context, else the one that runs on its stream.
func (p *Profiler) stepOf(ctx context.Context, s *Stream) *Step {
	if ctx != nil {
		if st, ok := ctx.Value(stepKey{}).(*Step); ok && st.loop.p == p {
			return st
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.step
}
