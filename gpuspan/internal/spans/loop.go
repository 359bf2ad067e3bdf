// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

func NewLoop(p *section.Core, name string, s *section.Stream, opts ...func(*LoopConfig)) *Loop {
	name = cmp.Or(name, "step")
	c := LoopConfig{First: 1}
	if p != nil {
		c.Schedule = p.Cfg.Schedule
	}
	for _, o := range opts {
		o(&c)
	}
	c.ItemType, c.Attributes = spanattr.ValidText(c.ItemType), spanattr.AppendValid(nil, c.Attributes)
	if p == nil || s == nil {
		return &Loop{config: c}
	}
	if err := c.Schedule.Validate(c.Steps); err != nil {
		p.Errors.Report("schedule "+name, fmt.Errorf("loop %q: %w", name, err))
		if c.Schedule.Validate(0) != nil {
			c.Schedule = settings.Schedule{}
		}
	}
	if c.Schedule != (settings.Schedule{}) {
		p.Log(slog.LevelInfo, "gpuspan: the schedule of a loop", slog.String("loop", name),
			slog.String("recorded", c.Schedule.String()), slog.Int64("steps_needed", c.Schedule.Minimum()))
	}
	return &Loop{p: p, s: s, op: p.StepOperation(name), config: c}
}

func (l *Loop) SetEpoch(epoch int64) {
	if l != nil {
		l.epoch.Store(&epoch)
	}
}

func (l *Loop) Steps(ctx context.Context) iter.Seq2[context.Context, *Step] {
	ctx = cmp.Or(ctx, context.Background())
	if l == nil {
		l = &Loop{config: LoopConfig{First: 1}}
	}
	return func(yield func(context.Context, *Step) bool) {
		if l.p != nil {
			l.p.EnterLoop()
			defer l.p.LeaveLoop()
			defer func() { l.takePrev().Release() }()
		}
		for n := int64(1); ctx.Err() == nil && (l.config.Steps <= 0 || n <= l.config.Steps); n++ {
			if !l.run(ctx, yield) {
				return
			}
		}
	}
}

// run runs one step. The step ends even if the body panics, which leaves the loop.
func (l *Loop) run(ctx context.Context, yield func(context.Context, *Step) bool) (more bool) {
	if l.p == nil {
		st := l.next()
		defer func() { st.close(!more) }()
		return yield(ctx, st)
	}
	if l.running.Add(1) > 1 {
		l.p.CountMisuse(section.ConcurrentSteps)
	}
	st, ctx := l.begin(ctx)
	defer func() {
		st.seal(!more)
		l.running.Add(-1)
	}()
	return yield(ctx, st)
}

// next counts a step.
func (l *Loop) next() *Step {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	st := &Step{loop: l, index: l.index - 1 + l.config.First, epoch: l.epoch.Load()}
	st.Owner = st
	return st
}

func (l *Loop) begin(ctx context.Context) (*Step, context.Context) {
	p := l.p
	st := l.next()
	st.action = l.config.Schedule.Action(st.index - l.config.First + 1)
	st.phases = st.phaseBuf[:0]
	for _, ph := range l.config.Phases {
		st.indexOf(l.phaseOf(ph))
	}
	st.Ctx = ctx
	if !p.At(settings.VerbosityDefault) {
		st.action, st.off = settings.StepSkip, true
	}
	st.hostStart = l.startsAt()
	st.Timed, st.Recorded = st.action != settings.StepSkip, st.action.Recorded()
	if st.action.Recorded() {
		st.Ctx, st.span = l.startSpan(ctx, st)
		if !p.Samples(st.span) {
			st.Timed = false // not sampled: host spans below know it by the context, sections by this
		}
	}
	if st.Timed {
		st.slot = l.s.OpenStep(&st.StepState, l.op, st.index, st.hostStart, l.takePrev())
	}
	if st.slot == nil {
		l.takePrev().Release()
	}
	l.s.SetStep(&st.StepState)
	return st, p.WithStep(st.Ctx, &st.StepState)
}

// startsAt returns when a step starts on the host: where the previous one ended, so that steps
// leave no gap there either, otherwise now.
func (l *Loop) startsAt() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if end, ok := l.prev.EndedAt(); ok {
		return end
	}
	return l.p.Clock.Now()
}

// startSpan starts the step's span. A sampler or processor that panics costs the span, not the
// loop.
func (l *Loop) startSpan(ctx context.Context, st *Step) (out context.Context, span trace.Span) {
	out, span = ctx, section.SpanOf(context.Background())
	defer l.p.Guard("a step's span was started")
	opts := []trace.SpanStartOption{trace.WithTimestamp(time.Unix(0, l.p.Clock.Wall(st.hostStart)))}
	if parent := section.SpanOf(ctx).SpanContext(); l.config.NewRoot && parent.IsValid() {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(trace.Link{
			SpanContext: parent, Attributes: []attribute.KeyValue{semconv.GPULinkTypeKey.String(semconv.GPULinkTypeLoop)},
		}))
	}
	return l.s.Scope(!l.s.Host).Tracer().Start(ctx, l.op.Cfg.Info.Name, opts...)
}

// takePrev takes the end of the last step, which the caller must release.
func (l *Loop) takePrev() section.Boundary {
	l.mu.Lock()
	defer l.mu.Unlock()
	prev := l.prev
	l.prev = section.Boundary{}
	return prev
}

// seal ends the step on the host. left: the loop was left in it.
func (st *Step) seal(left bool) {
	l := st.loop
	p := l.p
	cancelled := st.close(left)
	st.endPhases()
	l.s.ClearStep(&st.StepState)
	if st.slot != nil {
		end := l.s.EndStep(st.slot, &st.StepState, !left)
		l.mu.Lock()
		l.prev = end
		l.mu.Unlock()
		return
	}
	st.elapsed.Set(0, false)
	if !cancelled && !st.off {
		p.State(l.op).Timed.Count.Add(1)
	}
	if st.span != nil { // nothing was timed: not sampled, or no free slot
		st.endUntimed(p.Clock.Now())
	}
}

// endPhases ends the sections of phases that are still open: a phase cannot outlive its step.
func (st *Step) endPhases() {
	st.mu.Lock()
	open := st.open
	st.open = nil
	st.mu.Unlock()
	for _, x := range open {
		if x.Timed() {
			st.loop.p.CountMisuse(section.Unended)
			x.End()
		}
	}
}

// close ends the step's changes. A canceled one is not counted.
func (st *Step) close(left bool) (cancelled bool) {
	l := st.loop
	st.mu.Lock()
	st.sealed = true
	if left && !st.itemsSet && l.config.ItemType != "" {
		st.Cancelled.Store(true)
	}
	cancelled = st.Cancelled.Load()
	st.mu.Unlock()
	if cancelled {
		l.mu.Lock()
		l.index--
		l.mu.Unlock()
	}
	return cancelled
}
