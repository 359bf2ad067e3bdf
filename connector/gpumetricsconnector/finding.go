// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"math"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/resend"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// findingName is the prefix of the names of finding spans; the section follows if it is known.
const findingName = "straggler"

// traceFlags are the bits of a span's flags that belong to its trace.
const traceFlags = 0xff

// reported is a finding on a rank that stood out in a step. It is immutable, so it is read without
// a lock.
type reported struct {
	finding.Finding
	straggler.Result
	step        stepSpan
	loop        string
	index       int64
	ranks       int
	typicalStep spanfacts.Key // of the rank nearest to the median
	typicalRank int64
}

// findingSpans returns the spans that report findings in the late ranks' traces. Steps without IDs
// are skipped, because they have no trace.
func findingSpans(found []*reported, scope func(pcommon.InstrumentationScope)) ptrace.Traces {
	td := ptrace.NewTraces()
	of := make(map[pcommon.Map]ptrace.SpanSlice)
	for _, f := range found {
		if f.step.Trace.IsEmpty() || f.step.Span.IsEmpty() {
			continue
		}
		spans, ok := of[f.step.resource]
		if !ok {
			rs := td.ResourceSpans().AppendEmpty()
			f.step.resource.CopyTo(rs.Resource().Attributes())
			ss := rs.ScopeSpans().AppendEmpty()
			scope(ss.Scope())
			ss.SetSchemaUrl(semconv.SchemaURL)
			spans = ss.Spans()
			of[f.step.resource] = spans
		}
		f.write(spans.AppendEmpty())
	}
	return td
}

// write makes the finding's span: a child of the step, with the step's sampling. It has no
// gpu.operation.type, because it is not work of the device and must not be counted as such.
func (f *reported) write(s ptrace.Span) {
	s.SetTraceID(f.step.Trace)
	s.SetSpanID(sharedcomponent.SpanID(f.step.Trace[:], f.step.Span[:], []byte(findingName)))
	s.SetParentSpanID(f.step.Span)
	s.TraceState().FromRaw(f.step.state)
	s.SetFlags(f.step.flags & traceFlags)
	s.SetKind(ptrace.SpanKindInternal)
	s.SetName(findingName)
	start, end := f.At.Start, f.At.End
	if start == 0 {
		start, end = f.step.start, f.step.end
	}
	s.SetStartTimestamp(pcommon.Timestamp(start))
	s.SetEndTimestamp(pcommon.Timestamp(max(start, end)))

	if f.Section != "" {
		s.SetName(findingName + " " + f.Section)
	}

	a := s.Attributes()
	a.EnsureCapacity(16)
	f.Put(a)
	number := func(key attribute.Key, v float64) {
		if v <= math.MaxFloat64 { // a quotient or sum of invalid times can be infinite
			a.PutDouble(string(key), v)
		}
	}
	number(semconv.GPUStragglerScoreKey, f.Score)
	number(semconv.GPUStragglerDelayKey, f.Delay)
	number(semconv.GPUStragglerMedianKey, f.Median)
	a.PutInt(string(semconv.GPUStragglerRankCountKey), int64(f.ranks))
	sharedcomponent.PutText(a, semconv.GPUStragglerSectionKey, f.Section)
	sharedcomponent.PutText(a, semconv.GPUStragglerPhaseKey, f.Phase)
	a.PutInt(string(semconv.GPUStepIndexKey), f.index)
	sharedcomponent.PutText(a, semconv.GPUOperationNameKey, f.loop)
	if !f.typicalStep.Trace.IsEmpty() && !f.typicalStep.Span.IsEmpty() {
		l := s.Links().AppendEmpty()
		l.SetTraceID(f.typicalStep.Trace)
		l.SetSpanID(f.typicalStep.Span)
		l.Attributes().PutInt(string(semconv.GPUJobRankKey), f.typicalRank)
	}
}

// lateRank returns the finding on a late rank among several. The step is in seconds; 0: unknown.
func lateRank(v *straggler.Result, ranks int, step float64, host bool) finding.Finding {
	late := (v.Score - 1) * v.Median
	seconds := func(s float64) time.Duration { return time.Duration(math.Round(1e9 * min(s, math.MaxInt64/1e10))) }
	f := finding.LateRank(&finding.Late{
		Rank: v.Rank, Ranks: int64(ranks), By: seconds(late), Section: v.Section, In: seconds(v.Delay),
	}, semconv.FindingLateRankLiveThreshold, finding.Medium)
	f.Evidence = f.Chain[0]
	if host {
		f.Evidence += "; times are the host's, in which a slow GPU is not visible"
	}
	if share := late / step; step > 0 && share <= math.MaxFloat64 {
		f.Gain, f.Share = seconds(late), share
	}
	return f
}

// maxFindings limits the findings that wait for the next component, maxBatch the spans of one
// request: about half a megabyte, well below the 4 MiB that OTLP receivers accept.
const maxFindings, maxBatch = 10_000, 1000

// findingQueue sends findings separately from the flush of metrics, so that a component that is
// slow to accept spans delays neither metrics nor comparisons.
type findingQueue struct {
	send   func(context.Context, []*reported)
	queue  chan *reported
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newFindingQueue(send func(context.Context, []*reported)) *findingQueue {
	o := &findingQueue{send: send, queue: make(chan *reported, maxFindings)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

func (o *findingQueue) start() {
	o.done.Go(func() {
		for first := range o.queue {
			batch := append(make([]*reported, 0, 1+min(len(o.queue), maxBatch-1)), first)
			for len(batch) < maxBatch && len(o.queue) > 0 { // the only reader
				batch = append(batch, <-o.queue)
			}
			o.send(o.ctx, batch)
		}
	})
}

// put adds the findings that there is room for and returns the number of dropped ones.
func (o *findingQueue) put(found []*reported) (left int64) {
	for _, f := range found {
		select {
		case o.queue <- f:
		default:
			left++
		}
	}
	return left
}

// close waits until all findings are sent, for up to resend.DrainTimeout. If ctx ends earlier, it
// cancels the request and drops the rest. It does not wait for a component that does not respect
// that.
func (o *findingQueue) close(ctx context.Context) {
	close(o.queue)
	ctx, cancel := context.WithTimeout(ctx, resend.DrainTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, o.cancel)
	_ = sharedcomponent.Wait(ctx, &o.done)
	stop()
	o.cancel()
}
