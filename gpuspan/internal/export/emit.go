// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package export

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/record"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/tree"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// emit ends the span of a resolved section, below parent if that is valid, and updates metrics and statistics.
func (t *spanMaker) emit(r *record.Record, s *record.Stream, parent trace.SpanContext, parentNode int32) {
	if e := r.Extra; e != nil {
		e.Elapsed.Set(time.Duration(r.GPU), r.Timed || r.Flags&record.FlagGiven != 0)
	}
	r.Span = parent // unless it has its own
	if r.Quiet() {
		t.count(context.Background(), r, s, parentNode)
		return
	}
	if r.Step != nil && r.Parent == 0 {
		tree.StepOf(r).AddFLOPs(r)
	}
	ctx := cmp.Or(r.Ctx, context.Background())
	if t.p.Cfg.Sink != nil && !r.Op.Op.Cfg.NoSpan {
		t.sinkSpan(r, s, parent)
		t.count(ctx, r, s, parentNode)
		return
	}
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	if !r.Op.Op.Cfg.NoSpan {
		ctx = t.makeSpan(ctx, r, s)
	}
	t.count(ctx, r, s, parentNode)
}

// makeSpan starts and ends a section's span and returns ctx with it. A sampler or processor that panics costs the span,
// not the statistics.
func (t *spanMaker) makeSpan(ctx context.Context, r *record.Record, s *record.Stream) (out context.Context) {
	out = ctx
	defer t.p.Guard("a section's span was made")
	t.start = append(t.start[:0], trace.WithTimestamp(time.Unix(0, r.StartNs)))
	e := r.Extra
	if e != nil && e.Batch > 0 {
		attrs := make([]attribute.KeyValue, 0, 2*len(e.Links))
		t.start = append(t.start, trace.WithLinks(shareLinks(e, attrs, r.Work.Items, t.linksKept, t.linkLimit)...))
	}
	reserved := e != nil && e.IDs.Fit(trace.SpanContextFromContext(ctx))
	if reserved {
		ctx = context.WithValue(ctx, spanid.ReservationKey{}, &spanid.Reservation{IDs: e.IDs})
	}
	out, span := s.Scope(r.Timed && r.Flags&record.FlagGiven == 0).Tracer().Start(ctx, r.Op.Op.Cfg.Info.Name, t.start...)
	r.Span = span.SpanContext()
	if reserved {
		t.p.CheckIDs(e.IDs, r.Span)
	}
	if span.IsRecording() {
		if e != nil && e.Batch > 0 {
			t.checkLinks(e, span)
		}
		tree.FactsOf(&t.facts, r, t.p.Clock)
		t.attrs = t.describe(t.attrs[:0], &t.facts, r, s)
		span.SetAttributes(t.attrs...)
		if text := failure(r); text != "" {
			span.SetStatus(codes.Error, text)
		}
	}
	t.end = append(t.end[:0], trace.WithTimestamp(time.Unix(0, r.EndNs)))
	span.End(t.end...)
	return out
}

// describe appends the attributes of a section, measured values first, because an attribute limit truncates the rest.
// The device's identity is on the scope.
func (t *spanMaker) describe(
	kv []attribute.KeyValue, f *sink.Facts, r *record.Record, s *record.Stream,
) []attribute.KeyValue {
	kv = f.Attributes(kv, 0, sink.FirstStated)
	kv = append(kv, r.Op.Op.Attrs...)
	kv = append(kv, s.Attrs...)
	kv = f.Attributes(kv, sink.FirstStated, sink.NumFacts)
	kv = append(kv, tree.PrecisionOf(&r.Work)...)
	return t.describeRest(kv, r)
}

// describeRest appends attributes that few sections have. The status is only stated if it is not ok.
func (t *spanMaker) describeRest(kv []attribute.KeyValue, r *record.Record) []attribute.KeyValue {
	if r.Status != record.StatusTimed {
		kv = append(kv, semconv.GPUTimingStatusKey.String(record.StatusNames[r.Status]))
	}
	if !r.Timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(record.SourceHost))
	}
	kv = append(kv, t.p.Cfg.Attributes...)
	if r.Flags&record.FlagChunk != 0 {
		kv = append(kv, semconv.GPUChunkIndexKey.Int64(int64(r.Chunk)))
		if r.Chunks > 0 {
			kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.Chunks)))
		}
	} else if r.ChildChunks > 0 {
		kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.ChildChunks)))
	}
	if r.Flags&record.FlagMemory != 0 {
		kv = append(kv, semconv.GPUMemoryUsageKey.Int64(r.MemoryEnd),
			semconv.GPUMemoryDeltaKey.Int64(r.MemoryEnd-r.MemoryStart))
	}
	if e := r.Extra; e != nil {
		kv = spanattr.AppendValid(kv, e.Attrs)
		if e.Summed {
			kv = append(kv, semconv.GPUOutputChecksumKey.String(outputs.Format(e.Checksum)))
		}
		if e.Batch > e.Kept {
			kv = append(kv, semconv.GPUBatchSizeKey.Int(e.Batch))
		}
		for d := range e.Copied {
			if n := e.Copied[d]; n != 0 {
				kv = append(kv, semconv.GPUCopySizeKey(work.Direction(d).String()).Int64(n))
			}
		}
	}
	return describeCode(kv, r, t.p.Cfg.StackDepth)
}

// count updates metrics and statistics with a resolved section. ctx has its span, for exemplars.
func (t *spanMaker) count(ctx context.Context, r *record.Record, s *record.Stream, parentNode int32) {
	defer t.p.Guard("a section was counted")
	if !r.Quiet() {
		t.metrics.duration(ctx, r, s)
	}
	rec := t.p.Recorder
	if rec == nil {
		return
	}
	node := rec.Node(report.Node(parentNode), r.Op.Op.Cfg.Info)
	r.Node = int32(node)
	rec.Section(node, t.sample(r, s))
}

// sample returns a section in the form of reports.
func (t *spanMaker) sample(r *record.Record, s *record.Stream) report.Sample {
	w := r.Work
	out := report.Sample{
		Timed:      !r.Quiet() && (r.Timed || r.Status == record.StatusTimed),
		Start:      r.StartNs,
		Duration:   time.Duration(r.EndNs - r.StartNs),
		Host:       time.Duration(r.HostEnd - r.HostStart),
		Occurrence: r.Occurrence,
		Stream:     s.ID,
		Items:      w.Items,
		FLOPs:      w.FLOPs,
		Precision:  w.Precision.String(),
	}
	out.OnHost = out.Timed && !r.Timed && r.Flags&record.FlagGiven == 0
	var copied *[work.Directions]int64
	if r.Extra != nil && r.Extra.Moved {
		copied = &r.Extra.Copied
	}
	out.Memory, out.PCIe = w.Io(r.Op.Op.Cfg.Direction, copied)
	if d := s.Device; d != nil {
		out.Device = d.Info.Ordinal
		out.Floor = time.Duration(d.Floor.Load())
	}
	if r.Timed && r.Flags&record.FlagGiven == 0 {
		out.EndDelay, out.HasDelay = time.Duration(r.EndNs-t.p.Clock.At(r.HostEnd, r.Offset)), true
	}
	if r.Flags&record.FlagMemory != 0 {
		out.MemoryUsed, out.MemoryDelta = r.MemoryEnd, r.MemoryEnd-r.MemoryStart
	}
	// Values of the operation apply unless the run states its own.
	declared(&out, r.Op.Op.Cfg.Attributes)
	if r.Extra != nil {
		declared(&out, r.Extra.Attrs)
	}
	return out
}

// declared reads the attributes that reports need.
func declared(out *report.Sample, attrs []attribute.KeyValue) {
	for _, kv := range attrs {
		switch kv.Key {
		case semconv.GPUKernelNameKey:
			out.Kernel = kv.Value.AsString()
		case semconv.GPUKernelModuleKey:
			out.Module = kv.Value.AsString()
		case semconv.GPUZeroCopyKey:
			out.ZeroCopy = report.NoZeroCopy
			if kv.Value.AsBool() {
				out.ZeroCopy = report.UsesZeroCopy
			}
		case semconv.GPUIOAccessPatternKey:
			out.AccessPattern = kv.Value.AsString()
		case semconv.GPUCacheL2HitRatioKey:
			if v := kv.Value.AsFloat64(); v >= 0 && v <= 1 {
				out.L2HitRatio, out.HasL2HitRatio = v, true
			}
		}
	}
}
