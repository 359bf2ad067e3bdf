// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"context"
	"math"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/internal/straggler"
	"github.com/otelgpu/otelgpu/semconv"
)

// findingName begins the names of spans of findings; after it stands the section, where one is known.
const findingName = "straggler"

// traceFlags are the bits of a span's flags that are those of its trace.
const traceFlags = 0xff

// finding is a rank that stood out in a step. Nothing in it changes any more, so it is read without a lock.
type finding struct {
	straggler.Result
	step        stepSpan
	loop        string
	index       int64
	ranks       int
	typicalStep spanfacts.Key // of the rank nearest to the median
	typicalRank int64
}

// findingSpans makes the spans that say in the slow ranks' traces what was found. A step without ids has no trace to
// say it in.
func findingSpans(found []*finding, scope func(pcommon.InstrumentationScope)) ptrace.Traces {
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

// write makes the finding's span: a child of the step, with the step's sampling. It has no gpu.operation.type, for it
// is no work of the device and must not be counted as such.
func (f *finding) write(s ptrace.Span) {
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
	a.EnsureCapacity(8)
	number := func(key attribute.Key, v float64) {
		if v <= math.MaxFloat64 { // from times that are no times, a quotient or a sum can be infinite
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

// maxFindings bounds those that wait for the next component, maxBatch the spans of one request: about half a
// megabyte, well below the 4 MiB that OTLP receivers take.
const maxFindings, maxBatch = 10_000, 1000

// findingQueue hands findings on, apart from the flush of metrics, so that a component which is slow to take spans
// holds up neither metrics nor comparisons.
type findingQueue struct {
	send   func(context.Context, []*finding)
	queue  chan *finding
	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup
}

func newFindingQueue(send func(context.Context, []*finding)) *findingQueue {
	o := &findingQueue{send: send, queue: make(chan *finding, maxFindings)}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	return o
}

func (o *findingQueue) start() {
	o.done.Go(func() {
		for first := range o.queue {
			batch := append(make([]*finding, 0, 1+min(len(o.queue), maxBatch-1)), first)
			for len(batch) < maxBatch && len(o.queue) > 0 { // the only reader
				batch = append(batch, <-o.queue)
			}
			o.send(o.ctx, batch)
		}
	})
}

// put takes what there is room for; the result is the number of those that were left out.
func (o *findingQueue) put(found []*finding) (left int64) {
	for _, f := range found {
		select {
		case o.queue <- f:
		default:
			left++
		}
	}
	return left
}

// close returns when all that was put is handed on. When ctx ends before, what waits is given up by cancelling the
// request.
func (o *findingQueue) close(ctx context.Context) {
	close(o.queue)
	stop := context.AfterFunc(ctx, o.cancel)
	o.done.Wait()
	stop()
	o.cancel()
}
