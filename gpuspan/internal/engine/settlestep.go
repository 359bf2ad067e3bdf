// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// addToStep adds a section's interval to its step: on the clock of the device where both have it, which is more exact
// than the difference of their places on the wall clock.
func (t *emitter) addToStep(r *record) {
	st := r.step
	defer st.open.Add(-1)
	if st.ended || st.slot == nil {
		return
	}
	hostFrom := float64(r.startNs - t.p.clock.at(st.hostStart, r.offset))
	hostTo := hostFrom + float64(r.endNs-r.startNs)
	from, to := hostFrom, hostTo
	onDevice := r.timed && r.flags&flagGiven == 0 && st.device != nil && r.device == st.device
	if onDevice {
		if !st.clocked {
			st.clocked, st.clock = true, r.stamps
			st.first, _ = r.stamps.Interval()
			st.firstHost = hostFrom
		}
		if onDevice = st.clock.SameClock(&r.stamps); onDevice {
			from, to = r.stamps.Interval()
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if onDevice {
		st.covered.add(from, to)
	} else {
		st.coveredHost.add(from, to)
	}
	if r.phase == 0 {
		return
	}
	ph := &st.phases[r.phase-1]
	if onDevice {
		ph.spans.add(from, to)
	} else {
		ph.host.add(from, to)
	}
}

// fromStart makes intervals of the device's clock count from the step's start, in ns of the host's clock. Where the
// step was not timed its start is where the first section's place says.
func (st *Step) fromStart(r *record) {
	origin, rate := st.first-st.firstHost, 1.0
	if r.timed && st.clocked && st.clock.SameClock(&r.stamps) {
		origin, _ = r.stamps.Interval()
		rate = r.rate
	}
	st.covered.shift(origin, rate)
	for i := range st.phases {
		st.phases[i].spans.shift(origin, rate)
	}
}

// settleBoundary passes on the resolved boundaries of a step.
func (t *poller) settleBoundary(sl *slot) {
	sl.stream.mu.Lock()
	sl.state = slotHeld
	sl.stream.mu.Unlock()
	n := t.newNest(sl.stream)
	n.step = sl
	t.queue(sl.stream, n)
}

// boundary ends a step, once its sections are there.
func (t *emitter) boundary(n *nest, read int64) {
	if n.expiry {
		if st := n.root.step; !st.ended {
			st.ended = true
			t.endStep(st, n.root, n.stream)
		}
		return
	}
	r := &n.step.rec
	st := r.step
	st.resolvedAt = read
	st.endError = r.errorNs
	if r.borrowed != nil {
		r.follow(&r.borrowed.rec)
	}
	if st.open.Load() == 0 || st.ended {
		t.finishStep(st)
		return
	}
	t.sealed = append(t.sealed, st)
}

// checkSealed ends steps whose sections are all resolved, and those that waited too long for them.
func (t *emitter) checkSealed(now int64, all bool) {
	t.sealed = slices.DeleteFunc(t.sealed, func(st *Step) bool {
		if st.open.Load() > 0 && !all && !tooOld(st.resolvedAt, now, t.p.cfg.StepDeadline) {
			return false
		}
		t.finishStep(st)
		return true
	})
}

// finishStep ends the step's span and frees its slot.
func (t *emitter) finishStep(st *Step) {
	sl := st.slot
	defer func() { // also when the application's code ends the goroutine
		if b := sl.rec.borrowed; b != nil {
			sl.rec.borrowed = nil
			b.unchain()
		}
		sl.unchain()
	}()
	if !st.ended {
		st.ended = true
		t.endStep(st, &sl.rec, sl.stream)
	}
}

// endStep computes the step and ends its span.
func (t *emitter) endStep(st *Step, r *record, s *Stream) {
	p := t.p
	defer p.guard("a step was reported")
	st.mu.Lock()
	st.elapsed.set(time.Duration(r.gpu), r.timed)
	st.mu.Unlock()
	if !st.action.Recorded() {
		return
	}
	st.mu.Lock()
	cancelled := st.cancelled
	var sample report.StepSample
	if !cancelled {
		st.fromStart(r)
		times := st.times(float64(r.endNs-r.startNs), float64(r.startNs-p.clock.at(st.hostStart, r.offset)))
		t.attrs = st.describe(t.attrs[:0], r, s, times)
		sample = st.sample(r, s, times)
	}
	st.mu.Unlock()
	// Not under the mutex: what follows is the application's code.
	if cancelled {
		st.endSpan(r.endNs, nil, true)
		return
	}
	st.endSpan(max(r.endNs, p.clock.at(r.hostEnd, r.offset)), t.attrs, false)
	p.metrics.duration(st.ctx, r, s)
	if p.recorder != nil {
		p.recorder.Step(st.loop.op.cfg.Info.Name, sample)
	}
}

// endSpan ends the step's span. One that was cancelled says that the iteration was no step. A processor that panics
// costs the span.
func (st *Step) endSpan(endNs int64, kv []attribute.KeyValue, cancelled bool) {
	if st.span == nil {
		return
	}
	defer st.loop.p.guard("a step's span was ended")
	if cancelled {
		st.span.SetName(st.loop.op.cfg.Info.Name + " (no step)")
	}
	st.span.SetAttributes(kv...)
	st.span.End(trace.WithTimestamp(time.Unix(0, endNs)))
}

// endUntimed ends the span of a step that had no slot, on the caller's goroutine.
func (st *Step) endUntimed(now int64) {
	st.mu.Lock()
	cancelled := st.cancelled
	var kv []attribute.KeyValue
	if !cancelled && st.Recording() {
		kv = st.describeDeclared(nil)
		kv = append(kv, st.loop.s.attrs...)
		kv = append(kv, semconv.GPUTimingSourceKey.String(sourceHost),
			semconv.GPUTimingStatusKey.String(semconv.GPUTimingStatusDropped),
			semconv.GPUStepHostDurationKey.Float64(seconds(now-st.hostStart)))
	}
	st.mu.Unlock()
	st.endSpan(st.loop.p.clock.wall(now), kv, cancelled)
}
