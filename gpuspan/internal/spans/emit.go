// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/spanid"
	"github.com/otelgpu/otelgpu/gpuspan/internal/statistics"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/outputs"
	"github.com/otelgpu/otelgpu/semconv"
)

// emit ends the span of a resolved section, below parent if that is valid, and updates metrics and
// statistics.
func (t *Exporter) emit(r *section.Record, s *section.Stream, parent trace.SpanContext, parentNode int32) {
	if e := r.Extra; e != nil {
		e.Elapsed.Set(time.Duration(r.GPU), r.Timed || r.Flags&section.FlagGiven != 0)
	}
	r.Span = parent // unless it has its own
	if r.Quiet() {
		t.tally(context.Background(), r, s, parentNode)
		return
	}
	if r.Step != nil && r.Parent == 0 {
		stepOf(r).addFLOPs(r)
	}
	ctx := cmp.Or(r.Ctx, context.Background())
	if t.p.Cfg.Sink != nil && !r.Op.Cfg.NoSpan {
		t.sinkSpan(r, s, parent)
		t.tally(ctx, r, s, parentNode)
		return
	}
	if parent.IsValid() {
		ctx = trace.ContextWithSpanContext(ctx, parent)
	}
	if !r.Op.Cfg.NoSpan {
		ctx = t.makeSpan(ctx, r, s)
	}
	t.tally(ctx, r, s, parentNode)
}

// makeSpan starts and ends a section's span and returns ctx with it. A sampler or processor that
// panics costs the span, not the statistics.
func (t *Exporter) makeSpan(ctx context.Context, r *section.Record, s *section.Stream) (out context.Context) {
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
	out, span := s.Scope(r.Timed && r.Flags&section.FlagGiven == 0).Tracer().Start(ctx, r.Op.Cfg.Info.Name, t.start...)
	r.Span = span.SpanContext()
	if reserved {
		t.p.CheckIDs(e.IDs, r.Span)
	}
	if span.IsRecording() {
		if e != nil && e.Batch > 0 {
			t.checkLinks(e, span)
		}
		factsOf(&t.facts, r, t.p.Clock)
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

// describe appends the attributes of a section, measured values first, because an attribute limit
// truncates the rest. The device's identity is on the scope.
func (t *Exporter) describe(
	kv []attribute.KeyValue, f *sink.Facts, r *section.Record, s *section.Stream,
) []attribute.KeyValue {
	kv = f.Attributes(kv, 0, sink.FirstStated)
	kv = append(kv, r.Op.Attrs...)
	kv = append(kv, s.Attrs...)
	kv = f.Attributes(kv, sink.FirstStated, sink.NumFacts)
	kv = append(kv, PrecisionOf(&r.Work)...)
	return t.describeRest(kv, r)
}

// describeRest appends attributes that few sections have. The status is only stated if it is not
// ok.
func (t *Exporter) describeRest(kv []attribute.KeyValue, r *section.Record) []attribute.KeyValue {
	if r.Status != section.StatusTimed {
		kv = append(kv, semconv.GPUTimingStatusKey.String(r.Status.String()))
	}
	if !r.Timed {
		kv = append(kv, semconv.GPUTimingSourceKey.String(section.SourceHost))
	}
	kv = append(kv, t.p.Cfg.Attributes...)
	if r.Flags&section.FlagChunk != 0 {
		kv = append(kv, semconv.GPUChunkIndexKey.Int64(int64(r.Chunk)))
		if r.Chunks > 0 {
			kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.Chunks)))
		}
	} else if r.ChildChunks > 0 {
		kv = append(kv, semconv.GPUChunkCountKey.Int64(int64(r.ChildChunks)))
	}
	if r.Flags&section.FlagMemory != 0 {
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

// tally updates metrics and statistics with a resolved section. ctx has its span, for exemplars.
func (t *Exporter) tally(ctx context.Context, r *section.Record, s *section.Stream, parentNode int32) {
	defer t.p.Guard("a section was counted")
	if !r.Quiet() {
		t.metrics.duration(ctx, r, s)
	}
	rec := t.p.Recorder
	if rec == nil {
		return
	}
	node := rec.Node(statistics.Node(parentNode), r.Op.Cfg.Info)
	r.Node = int32(node)
	rec.Section(node, t.sample(r, s))
}

// sample returns a section in the form of reports.
func (t *Exporter) sample(r *section.Record, s *section.Stream) statistics.Sample {
	w := r.Work
	out := statistics.Sample{
		Timed:      !r.Quiet() && (r.Timed || r.Status == section.StatusTimed),
		Start:      r.StartNs,
		Duration:   time.Duration(r.EndNs - r.StartNs),
		Host:       time.Duration(r.HostEnd - r.HostStart),
		Occurrence: r.Occurrence,
		Stream:     s.ID,
		Items:      w.Items,
		FLOPs:      w.FLOPs,
		Precision:  w.Precision.String(),
	}
	out.OnHost = out.Timed && !r.Timed && r.Flags&section.FlagGiven == 0
	var copied *[work.Directions]int64
	if r.Extra != nil && r.Extra.Moved {
		copied = &r.Extra.Copied
	}
	out.Memory, out.PCIe = w.Io(r.Op.Cfg.Direction, copied)
	if d := s.Device; d != nil {
		out.Device = d.Info.Ordinal
		out.Floor = time.Duration(d.Floor())
	}
	if r.Timed && r.Flags&section.FlagGiven == 0 {
		out.EndDelay, out.HasDelay = time.Duration(r.EndNs-t.p.Clock.At(r.HostEnd, r.Offset)), true
	}
	if r.Flags&section.FlagMemory != 0 {
		out.MemoryUsed, out.MemoryDelta = r.MemoryEnd, r.MemoryEnd-r.MemoryStart
	}
	// Values of the operation apply unless the run states its own.
	declared(&out, r.Op.Cfg.Attributes)
	if r.Extra != nil {
		declared(&out, r.Extra.Attrs)
	}
	return out
}

// declared reads the attributes that reports need.
func declared(out *statistics.Sample, attrs []attribute.KeyValue) {
	for _, kv := range attrs {
		switch kv.Key {
		case semconv.GPUKernelNameKey:
			out.Kernel = kv.Value.AsString()
		case semconv.GPUKernelModuleKey:
			out.Module = kv.Value.AsString()
		case semconv.GPUZeroCopyKey:
			out.ZeroCopy, out.HasZeroCopy = kv.Value.AsBool(), true
		case semconv.GPUIOAccessPatternKey:
			out.AccessPattern = kv.Value.AsString()
		case semconv.GPUCacheL2HitRatioKey:
			if v := kv.Value.AsFloat64(); v >= 0 && v <= 1 {
				out.L2HitRatio, out.HasL2HitRatio = v, true
			}
		}
	}
}

// plain ends the span of a plain section. All share one record.
func (t *Exporter) plain(s *section.Stream, q *section.Stamped) {
	r := &t.one
	r.Times, r.Ctx, r.Op, r.Work, r.HostStart, r.HostEnd = q.Times, q.Ctx, q.Op, q.Work, q.HostStart, q.HostEnd
	r.Occurrence, r.Device, r.Timed = q.Occurrence, s.Device, true
	r.GPU = float64(q.EndNs - q.StartNs)
	q.Ctx, q.Op = nil, nil
	t.emit(r, s, trace.SpanContext{}, 0)
	if r.Op.Cfg.Print != nil {
		t.print(&r.Op.Cfg)
	}
	r.Ctx = nil
}

// shareLinks adds to the links of a batch what each request received of it, in one array of
// attributes, and returns the links of the span: at most limit if that is not 0, sampled ones
// first. items are the items of the section. Equal parts need no attribute, and shares follow from
// items, unless there may be requests without a link: then the number of links that stay is known
// as kept.
func shareLinks(e *section.Extra, attrs []attribute.KeyValue, items int64, kept, limit int) []trace.Link {
	links := e.Links
	if e.Kept = len(links); limit > 0 {
		e.Kept = min(e.Kept, limit)
	}
	all := e.Batch == e.Kept
	if all && items == e.Items && equalParts(e.Shares) {
		return links
	}
	for i, n := range e.Shares {
		if n == 0 {
			continue
		}
		from := len(attrs)
		attrs = append(attrs, semconv.GPUOperationItemsKey.Int64(n))
		if !all || len(links) > kept {
			attrs = append(attrs, semconv.GPUBatchShareKey.Float64(float64(n)/float64(e.Items)))
		}
		links[i].Attributes = attrs[from:len(attrs):len(attrs)]
	}
	if e.Kept < len(links) {
		slices.SortStableFunc(links, func(a, b trace.Link) int {
			return int(b.SpanContext.TraceFlags()&trace.FlagsSampled) - int(a.SpanContext.TraceFlags()&trace.FlagsSampled)
		})
	}
	return links[:e.Kept]
}

func equalParts(shares []int64) bool {
	return !slices.ContainsFunc(shares, func(n int64) bool { return n != shares[0] })
}

// checkLinks counts the links that a batch's span lacks, and learns the SDK's limit: an SDK drops
// the first links when more are added, moves all others each time, and does not consider which of
// them are sampled.
func (t *Exporter) checkLinks(e *section.Extra, span trace.Span) {
	given := e.Kept
	if s, ok := span.(interface{ DroppedLinks() int }); ok {
		e.Kept -= min(max(s.DroppedLinks(), 0), given)
	}
	if e.Kept < given {
		t.linkLimit = max(e.Kept, 1)
	} else {
		t.linksKept = max(t.linksKept, given)
	}
	lost := e.Batch - e.Kept
	if lost == 0 {
		return
	}
	t.p.AddLostLinks(lost)
	remedy := "gpuspan keeps at most 1,024"
	if t.linkLimit > 0 {
		remedy = "the tracer provider keeps as many; set OTEL_SPAN_LINK_COUNT_LIMIT or SpanLimits.LinkCountLimit to 1024"
	}
	t.p.Errors.Report("links", fmt.Errorf(
		"the span of a batch of %d requests links to %d of them, usage records of the others lack it (%s)",
		e.Batch, e.Kept, remedy))
}
