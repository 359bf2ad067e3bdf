// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

const sourceHost = semconv.GPUTimingSourceHost

var statusNames = [timingStatuses]string{
	statusTimed:       semconv.GPUTimingStatusOk,
	statusCaptured:    semconv.GPUTimingStatusCaptured,
	statusDropped:     semconv.GPUTimingStatusDropped,
	statusDeviceError: semconv.GPUTimingStatusDeviceError,
	statusTimeout:     semconv.GPUTimingStatusTimeout,
}

// spanOf is the span of a context that may be nil.
func spanOf(ctx context.Context) trace.Span { return trace.SpanFromContext(ctx) }

// quiet reports whether the section only kept events warm: it counts, but its times are thrown away.
func (r *record) quiet() bool { return r.step != nil && !r.step.action.Recorded() }

// emit makes the span of a resolved section, below parent if that is valid, and feeds metrics and statistics.
func (t *emitter) emit(r *record, s *Stream, parent trace.SpanContext, parentNode int32) {
	if e := r.extra; e != nil {
		e.elapsed.set(time.Duration(r.gpu), r.timed || r.flags&flagGiven != 0)
	}
	r.span = parent // unless it gets one of its own
	if r.quiet() {
		t.count(context.Background(), r, s, parentNode)
		return
	}
	if r.step != nil && r.parent == 0 {
		r.step.addFLOPs(r)
	}
	ctx := cmp.Or(r.ctx, context.Background())
	if t.p.cfg.Sink != nil && !r.op.op.cfg.NoSpan {
		t.sinkSpan(r, s, parent)
		t.count(ctx, r, s, parentNode)
		return
	}
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	if !r.op.op.cfg.NoSpan {
		ctx = t.makeSpan(ctx, r, s)
	}
	t.count(ctx, r, s, parentNode)
}

// makeSpan makes a section's span and returns ctx with it. A sampler or processor that panics costs the span, not the
// statistics.
func (t *emitter) makeSpan(ctx context.Context, r *record, s *Stream) (out context.Context) {
	out = ctx
	defer t.p.guard("a section's span was made")
	t.start = append(t.start[:0], trace.WithTimestamp(time.Unix(0, r.startNs)))
	e := r.extra
	if e != nil && e.batch > 0 {
		attrs := make([]attribute.KeyValue, 0, 2*len(e.links))
		t.start = append(t.start, trace.WithLinks(e.shareLinks(attrs, r.work.Items, t.linksKept, t.linkLimit)...))
	}
	reserved := e != nil && e.ids.fit(trace.SpanContextFromContext(ctx))
	if reserved {
		ctx = context.WithValue(ctx, reservationKey{}, &reservation{ids: e.ids})
	}
	out, span := s.scope(r.timed && r.flags&flagGiven == 0).tracer().Start(ctx, r.op.op.cfg.Info.Name, t.start...)
	r.span = span.SpanContext()
	if reserved {
		t.p.checkIDs(e.ids, r.span)
	}
	if span.IsRecording() {
		if e != nil && e.batch > 0 {
			t.checkLinks(e, span)
		}
		t.facts.of(r, t.p.clock)
		t.attrs = t.p.describe(t.attrs[:0], &t.facts, r, s)
		span.SetAttributes(t.attrs...)
		if r.status == statusDeviceError {
			span.SetStatus(codes.Error, deviceFailed)
		}
	}
	t.end = append(t.end[:0], trace.WithTimestamp(time.Unix(0, r.endNs)))
	span.End(t.end...)
	return out
}

// describe appends the attributes of a section, what was measured first: an attribute limit cuts the rest. Who the
// device is stands on the scope.
func (p *Profiler) describe(kv []attribute.KeyValue, f *Facts, r *record, s *Stream) []attribute.KeyValue {
	kv = f.attributes(kv, 0, firstStated)
	kv = append(kv, r.op.op.attrs...)
	kv = append(kv, s.attrs...)
	kv = f.attributes(kv, firstStated, NumFacts)
	kv = append(kv, precisionOf(&r.work)...)
	return p.describeRest(kv, r)
}

// precisionAttrs is gpu.flop.precision for each Precision.
var precisionAttrs = func() (list [precisions][]attribute.KeyValue) {
	for i := 1; i < precisions; i++ {
		list[i] = []attribute.KeyValue{semconv.GPUFLOPPrecisionKey.String(Precision(i).String())}
	}
	return list
}()

// precisionOf is empty where no FLOPs are stated.
func precisionOf(w *Work) []attribute.KeyValue {
	if w.FLOPs == 0 || int(w.Precision) >= precisions {
		return nil
	}
	return precisionAttrs[w.Precision]
}

// describeRest appends what most sections have nothing of. The status is there only where it is not ok.
func (p *Profiler) describeRest(kv []attribute.KeyValue, r *record) []attribute.KeyValue {
	if r.status != statusTimed {
		kv = append(kv, semconv.GPUTimingStatusKey.String(statusNames[r.status]))
	}
	if !r.timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(sourceHost))
	}
	kv = append(kv, p.cfg.Attributes...)
	if r.flags&flagChunk != 0 {
		kv = append(kv, semconv.GPUChunkIndexKey.Int64(int64(r.chunk)))
		if r.chunks > 0 {
			kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.chunks)))
		}
	} else if r.childChunks > 0 {
		kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.childChunks)))
	}
	if r.flags&flagMemory != 0 {
		kv = append(kv, semconv.GPUMemoryUsageKey.Int64(r.memoryEnd),
			semconv.GPUMemoryDeltaKey.Int64(r.memoryEnd-r.memoryStart))
	}
	if e := r.extra; e != nil {
		kv = AppendValid(kv, e.attrs)
		if e.summed {
			kv = append(kv, semconv.GPUOutputChecksumKey.String(outputs.Format(e.checksum)))
		}
		if e.batch > e.kept {
			kv = append(kv, semconv.GPUBatchSizeKey.Int(e.batch))
		}
		for d := range e.copied {
			if n := e.copied[d]; n != 0 {
				kv = append(kv, semconv.GPUCopySizeKey(Direction(d).String()).Int64(n))
			}
		}
	}
	return p.describeCode(kv, r)
}

// AppendValid appends attributes of the application's. A string that is no UTF-8, as a mangled name may be, would cost
// the whole batch of spans in the exporter.
func AppendValid(kv, own []attribute.KeyValue) []attribute.KeyValue {
	for _, a := range own {
		a.Key = attribute.Key(ValidText(string(a.Key)))
		switch a.Value.Type() {
		case attribute.STRING:
			a.Value = attribute.StringValue(ValidText(a.Value.AsString()))
		case attribute.STRINGSLICE:
			list := a.Value.AsStringSlice()
			for i, s := range list {
				list[i] = ValidText(s)
			}
			a.Value = attribute.StringSliceValue(list)
		}
		kv = append(kv, a)
	}
	return kv
}

func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// count feeds metrics and statistics with a resolved section. ctx has its span, for exemplars.
func (t *emitter) count(ctx context.Context, r *record, s *Stream, parentNode int32) {
	defer t.p.guard("a section was counted")
	if !r.quiet() {
		t.p.metrics.duration(ctx, r, s)
	}
	rec := t.p.recorder
	if rec == nil {
		return
	}
	node := rec.Node(report.Node(parentNode), r.op.op.cfg.Info)
	r.node = int32(node)
	rec.Section(node, t.p.sample(r, s))
}

// sample is a section as reports want it.
func (p *Profiler) sample(r *record, s *Stream) report.Sample {
	w := r.work
	out := report.Sample{
		Timed:      !r.quiet() && (r.timed || r.status == statusTimed),
		Start:      r.startNs,
		Duration:   time.Duration(r.endNs - r.startNs),
		Host:       time.Duration(r.hostEnd - r.hostStart),
		Occurrence: r.occurrence,
		Stream:     s.id,
		Items:      w.Items,
		FLOPs:      w.FLOPs,
		Precision:  w.Precision.String(),
	}
	out.OnHost = out.Timed && !r.timed && r.flags&flagGiven == 0
	var copied *[directions]int64
	if r.extra != nil && r.extra.moved {
		copied = &r.extra.copied
	}
	out.Memory, out.PCIe = w.io(r.op.op.cfg.Direction, copied)
	if d := s.device; d != nil {
		out.Device = d.info.Ordinal
		out.Floor = time.Duration(d.floor.Load())
	}
	if r.timed && r.flags&flagGiven == 0 {
		out.EndDelay, out.HasDelay = time.Duration(r.endNs-p.clock.at(r.hostEnd, r.offset)), true
	}
	if r.flags&flagMemory != 0 {
		out.MemoryUsed, out.MemoryDelta = r.memoryEnd, r.memoryEnd-r.memoryStart
	}
	// What the operation states holds where the run does not state it.
	declared(&out, r.op.op.cfg.Attributes)
	if r.extra != nil {
		declared(&out, r.extra.attrs)
	}
	return out
}

// declared takes what reports want of attributes.
func declared(out *report.Sample, attrs []attribute.KeyValue) {
	for _, kv := range attrs {
		switch kv.Key {
		case semconv.GPUKernelNameKey:
			out.Kernel = kv.Value.AsString()
		case semconv.GPUKernelModuleKey:
			out.Module = kv.Value.AsString()
		case semconv.GPUIOAccessPatternKey:
			out.AccessPattern = kv.Value.AsString()
		case semconv.GPUCacheL2HitRatioKey:
			if v := kv.Value.AsFloat64(); v >= 0 && v <= 1 {
				out.L2HitRatio, out.HasL2HitRatio = v, true
			}
		}
	}
}
