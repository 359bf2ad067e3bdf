// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/semconv"
)

// addToStep adds a section's interval to its step: on the device's clock if both are timed on it,
// which is more exact than the difference of their wall-clock times. A section without GPU time in
// a step that the device times adds nothing: from launch to return is not when its work ran.
func (t *Exporter) addToStep(r *section.Record) {
	st := stepOf(r)
	defer st.Open.Add(-1)
	if st.ended || st.slot == nil {
		return
	}
	known := r.Timed || st.Device == nil
	if r.Phase != 0 {
		st.mu.Lock()
		ph := &st.phases[r.Phase-1]
		ph.pending--
		ph.untimed = ph.untimed || !known
		st.mu.Unlock()
	}
	if !known {
		if r.Op.Cfg.Info.Type != semconv.GPUOperationTypeHost {
			st.untimed++
		}
		return
	}
	hostFrom := float64(r.StartNs - t.p.Clock.At(st.hostStart, r.Offset))
	hostTo := hostFrom + float64(r.EndNs-r.StartNs)
	from, to := hostFrom, hostTo
	onDevice := r.Timed && r.Flags&section.FlagGiven == 0 && st.Device != nil && r.Device == st.Device
	if onDevice {
		if !st.clocked {
			st.clocked, st.clock = true, r.Stamps
			st.first, _ = r.Stamps.Interval()
			st.firstHost = hostFrom
		}
		if onDevice = st.clock.SameClock(&r.Stamps); onDevice {
			from, to = r.Stamps.Interval()
		}
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	st.covered.add(onDevice, from, to)
	if r.Phase != 0 {
		st.phases[r.Phase-1].spans.add(onDevice, from, to)
	}
}

// fromStart converts intervals of the device's clock to ns of the host's clock since the step's
// start. If the step was not timed, it starts at its first section.
func (st *Step) fromStart(r *section.Record) {
	origin, rate := st.first-st.firstHost, 1.0
	if r.Timed && st.clocked && st.clock.SameClock(&r.Stamps) {
		origin, _ = r.Stamps.Interval()
		rate = r.Rate
	}
	st.covered.device.shift(origin, rate)
	for i := range st.phases {
		st.phases[i].spans.device.shift(origin, rate)
	}
}

// boundary ends a step, when its sections are complete.
func (t *Exporter) boundary(n *section.Nest, read int64) {
	if n.Expiry {
		t.settleStep(stepOf(n.Root), n.Root, n.Stream)
		return
	}
	r := &n.Step.Rec
	st := stepOf(r)
	st.resolvedAt = read
	st.endError = r.ErrorNs
	if before := n.Step.StepBefore(); before != nil {
		follow(r, before)
	}
	if st.Open.Load() == 0 || st.ended {
		t.finishStep(st)
		return
	}
	t.sealed = append(t.sealed, st)
}

// follow makes a step start where the previous one ended, to the nanosecond. Both are one event,
// but each step is placed with the anchors of its time, which would leave gaps and overlaps of a
// few µs. The step keeps its length, the difference of two stamps, until its end differs from its
// own position by more than that position's error: then the end moves there, and the step's length
// absorbs the accumulated difference.
func follow(r, before *section.Record) {
	if !r.Timed || !before.Timed {
		return
	}
	start := before.EndNs - before.Offset + r.Offset // the wall clock may have been set in between
	end := start + r.EndNs - r.StartNs
	off := max(end-r.EndNs, r.EndNs-end)
	if off > r.ErrorNs {
		end = max(r.EndNs, start)
		off = end - r.EndNs
	}
	step := stepOf(r)
	step.endError = r.ErrorNs + off
	r.StartNs, r.EndNs = start, end
	r.ErrorNs = max(stepOf(before).endError, step.endError)
	r.GPU = float64(end - r.StartNs)
}

// checkSealed ends steps whose sections are all resolved, and steps that waited too long for them.
func (t *Exporter) checkSealed(now int64, all bool) {
	for i := 0; i < len(t.sealed); {
		st := t.sealed[i]
		if st.Open.Load() > 0 && !all && !section.TooOld(st.resolvedAt, now, t.p.Cfg.StepDeadline) {
			i++
			continue
		}
		t.sealed = slices.Delete(t.sealed, i, i+1) // before the application's code, which may end the goroutine
		t.finishStep(st)
	}
}

// finishStep ends the step's span and frees its slot.
func (t *Exporter) finishStep(st *Step) {
	defer st.slot.ReleaseStep() // even if the application's code ends the goroutine
	t.settleStep(st, &st.slot.Rec, st.loop.s)
}

// settleStep computes the step and ends its span, once.
func (t *Exporter) settleStep(st *Step, r *section.Record, s *section.Stream) {
	if st.ended {
		return
	}
	st.ended = true
	p := t.p
	defer p.Guard("a step was reported")
	st.mu.Lock()
	st.elapsed.Set(time.Duration(r.GPU), r.Timed)
	st.mu.Unlock()
	if !st.action.Recorded() {
		return
	}
	st.mu.Lock()
	cancelled := st.Cancelled.Load()
	var sample statistics.StepSample
	if !cancelled {
		st.fromStart(r)
		times := st.times(float64(r.EndNs-r.StartNs), float64(r.StartNs-p.Clock.At(st.hostStart, r.Offset)))
		t.attrs = describe(st, t.attrs[:0], r, s, times)
		sample = sampleOf(st, r, s, times)
	}
	st.mu.Unlock()
	// Not under the mutex, because what follows is the application's code.
	if cancelled {
		st.endSpan(r.EndNs, nil, true)
		return
	}
	st.endSpan(max(r.EndNs, p.Clock.At(r.HostEnd, r.Offset)), t.attrs, false)
	t.metrics.duration(st.Ctx, r, s)
	if p.Recorder != nil {
		p.Recorder.Step(st.loop.op.Cfg.Info.Name, sample)
	}
}

// endSpan ends the step's span. A canceled step states that the iteration was not a step. A
// processor that panics costs only the span.
func (st *Step) endSpan(endNs int64, kv []attribute.KeyValue, cancelled bool) {
	if st.span == nil {
		return
	}
	defer st.loop.p.Guard("a step's span was ended")
	if cancelled {
		st.span.SetName(st.loop.op.Cfg.Info.Name + " (no step)")
	}
	st.span.SetAttributes(kv...)
	st.span.End(trace.WithTimestamp(time.Unix(0, endNs)))
}

// endUntimed ends the span of a step that had no slot, on the caller's goroutine.
func (st *Step) endUntimed(now int64) {
	st.mu.Lock()
	cancelled := st.Cancelled.Load()
	var kv []attribute.KeyValue
	if !cancelled && st.Recording() {
		kv = describeDeclared(st, nil)
		kv = append(kv, st.loop.s.Attrs...)
		kv = append(kv, semconv.GPUTimingSourceKey.String(section.SourceHost),
			semconv.GPUTimingStatusKey.String(semconv.GPUTimingStatusDropped),
			semconv.GPUStepHostDurationKey.Float64(spanattr.Seconds(now-st.hostStart)))
	}
	st.mu.Unlock()
	st.endSpan(st.loop.p.Clock.Wall(now), kv, cancelled)
}

// stepTimes is the composition of a step's time, in ns: total = sum of phases − overlap + other,
// all of them at least 0, and no phase longer than the step. If the time of a phase is unknown, so
// are overlap and other.
//
// It is unknown what a phase without a position (AddPhase, SetPhase) overlapped with. It is assumed
// to have overlapped as little as possible: it fills what no other interval covers, and only the
// rest overlaps. So overlap is a lower bound.
type stepTimes struct {
	total, overlap, other, covered int64
	phases                         []int64 // unknown ones are negative
	split                          bool    // all phases are known
}

// times sums up a step of that length, whose start on the device was shift ns after its start on
// the host.
func (st *Step) times(total, shift float64) stepTimes {
	out := stepTimes{total: int64(math.Round(total)), phases: make([]int64, len(st.phases)), split: true}
	var all union
	var sum, loose int64
	for i := range st.phases {
		ph := &st.phases[i]
		if !ph.known() {
			out.phases[i], out.split = -1, false
			continue
		}
		spans := ph.spans.join(shift)
		d, unplaced := int64(0), int64(ph.set)
		if !ph.hasSet {
			d, unplaced = int64(math.Round(spans.Within(0, total))), int64(ph.added)
			for _, iv := range spans.List {
				all.add(max(iv.From, 0), min(iv.To, total))
			}
		}
		unplaced = min(unplaced, out.total-d)
		out.phases[i] = d + unplaced
		sum += d + unplaced
		loose += unplaced
	}
	placed := min(int64(math.Round(all.Within(0, total))), sum-loose)
	explained := min(placed+loose, out.total)
	out.overlap = sum - explained
	out.other = out.total - explained
	out.covered = min(int64(math.Round(st.covered.join(shift).Within(0, total))), out.total)
	return out
}

// describeDeclared appends what the application states about the step.
func describeDeclared(st *Step, kv []attribute.KeyValue) []attribute.KeyValue {
	l := st.loop
	kv = append(kv, l.op.Attrs...)
	kv = append(kv, semconv.GPUStepIndexKey.Int64(st.index))
	kv = append(kv, l.p.Cfg.Attributes...)
	kv = append(kv, l.config.Attributes...)
	if st.epoch != nil {
		kv = append(kv, semconv.GPUStepEpochKey.Int64(*st.epoch))
	}
	if st.itemsSet {
		kv = append(kv, semconv.GPUStepItemsKey.Int64(st.items))
		if l.config.ItemType != "" {
			kv = append(kv, semconv.GPUStepItemTypeKey.String(l.config.ItemType))
		}
	}
	if st.modelFLOPs > 0 {
		kv = append(kv, semconv.GPUStepModelFLOPCountKey.Float64(st.modelFLOPs))
	}
	if l.config.Devices > 0 {
		kv = append(kv, semconv.GPUStepDeviceCountKey.Int(l.config.Devices))
	}
	return spanattr.AppendValid(kv, st.attrs)
}

// describe appends the attributes of a timed step, measured values first.
func describe(st *Step,
	kv []attribute.KeyValue, r *section.Record, s *section.Stream, times stepTimes,
) []attribute.KeyValue {
	kv = append(kv,
		semconv.GPUStepDurationKey.Float64(spanattr.Seconds(times.total)),
		semconv.GPUStepHostDurationKey.Float64(spanattr.Seconds(r.HostEnd-r.HostStart)),
	)
	if times.split {
		kv = append(kv, semconv.GPUStepOverlapDurationKey.Float64(spanattr.Seconds(times.overlap)),
			semconv.GPUStepOtherDurationKey.Float64(spanattr.Seconds(times.other)))
	}
	if n := st.unknown(); n > 0 {
		kv = append(kv, semconv.GPUStepUntimedCountKey.Int(n))
	} else {
		kv = append(kv, semconv.GPUStepCoveredDurationKey.Float64(spanattr.Seconds(times.covered)))
	}
	for i, ns := range times.phases {
		if ns >= 0 {
			key := semconv.GPUStepPhaseDurationKey(string(st.phases[i].phase))
			kv = append(kv, key.Float64(spanattr.Seconds(ns)))
		}
	}
	if r.Timed {
		var f sink.Facts
		placeFacts(&f, r, st.loop.p.Clock)
		kv = f.Attributes(kv, 0, sink.NumFacts)
	} else {
		kv = append(kv, semconv.GPUTimingSourceKey.String(section.SourceHost))
	}
	kv = append(kv, s.Attrs...)
	if st.flops > 0 && st.Lost.Load() == 0 {
		kv = append(kv, semconv.GPUFLOPCountKey.Float64(st.flops))
	}
	kv = append(kv, precisionAttrs[st.precisionOf(st.loop.config.Precision)]...)
	if r.Status != section.StatusTimed {
		kv = append(kv, semconv.GPUTimingStatusKey.String(r.Status.String()))
	}
	return describeDeclared(st, kv)
}

// precisionOf returns the loop's stated precision, otherwise the one that all sections share.
func (st *Step) precisionOf(stated work.Precision) work.Precision {
	if stated != work.PrecisionUnset || st.mixed {
		return stated
	}
	return st.precision
}

// unknown returns how many sections of the step have no time on its clock: without a slot, not
// timed by the device, or not resolved by now.
func (st *Step) unknown() int { return st.untimed + int(st.Lost.Load()+max(st.Open.Load(), 0)) }

// sample is a step in the form of reports.
func sampleOf(st *Step, r *section.Record, s *section.Stream, times stepTimes) statistics.StepSample {
	out := statistics.StepSample{
		Index:      st.index,
		Duration:   time.Duration(times.total),
		Host:       time.Duration(r.HostEnd - r.HostStart),
		Untimed:    st.unknown(),
		Covered:    time.Duration(times.covered),
		Items:      st.items,
		ItemType:   st.loop.config.ItemType,
		ModelFLOPs: st.modelFLOPs,
		Precision:  st.precisionOf(st.loop.config.Precision).String(),
		Devices:    st.loop.config.Devices,
	}
	if d := s.Device; d != nil {
		out.Device = d.Info.Ordinal
	}
	for i, ns := range times.phases {
		out.Phases = append(out.Phases, statistics.PhaseSample{
			Name:     string(st.phases[i].phase),
			Duration: time.Duration(max(ns, 0)),
			Unknown:  ns < 0,
		})
	}
	if out.Partial = !times.split; out.Partial {
		return out
	}
	out.Overlap, out.Other = time.Duration(times.overlap), time.Duration(times.other)
	out.Exposed = st.exposed(Comm, float64(times.total))
	for i, ns := range times.phases {
		if st.phases[i].phase == Data {
			out.Waiting = time.Duration(ns) - st.hidden(i, float64(times.total))
		}
	}
	return out
}

// hidden returns the time of phase i that other phases hide. Times without a position, as a loader
// may state them, are not hidden.
func (st *Step) hidden(i int, total float64) time.Duration {
	ph := &st.phases[i]
	if ph.hasSet {
		return 0
	}
	return time.Duration(math.Round(ph.spans.device.Within(0, total))) - st.exposed(ph.phase, total)
}

// exposed returns the measured time of a phase that no other one hides: the union of all phases
// minus the union of the others.
func (st *Step) exposed(of Phase, total float64) time.Duration {
	var all, others union
	for i := range st.phases {
		if st.phases[i].hasSet {
			continue // instead of measured values
		}
		for _, iv := range st.phases[i].spans.device.List {
			all.add(iv.From, iv.To)
			if st.phases[i].phase != of {
				others.add(iv.From, iv.To)
			}
		}
	}
	return time.Duration(math.Round(all.Within(0, total) - others.Within(0, total)))
}
