// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpurequestsconnector

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/semconv"
)

// queueName is the name of the span from the request's start to its first GPU work.
const queueName = "queue"

// spans returns the spans of closed requests, each below the request's own span. A request that is
// not sampled has none, because its trace does not exist; work that the request's trace shows
// itself has none either.
func spans(closed []*request, queueSpan bool, scope func(pcommon.InstrumentationScope)) ptrace.Traces {
	td := ptrace.NewTraces()
	of := make(map[string]ptrace.SpanSlice)
	to := func(s *source) ptrace.Span {
		list, ok := of[s.id]
		if !ok {
			rs := td.ResourceSpans().AppendEmpty()
			s.attrs.CopyTo(rs.Resource().Attributes())
			ss := rs.ScopeSpans().AppendEmpty()
			scope(ss.Scope())
			ss.SetSchemaUrl(semconv.SchemaURL)
			list = ss.Spans()
			of[s.id] = list
		}
		return list.AppendEmpty()
	}
	for _, r := range closed {
		if r.unsampled || !r.linked() {
			continue
		}
		if first := r.first(); queueSpan && first != nil && r.begun && !r.late && first.start > r.start {
			s := to(first.source)
			r.dress(s, queueName, r.spanID(queueName, example{}))
			s.SetStartTimestamp(pcommon.Timestamp(r.start))
			s.SetEndTimestamp(pcommon.Timestamp(first.start))
			number(s.Attributes(), semconv.GPURequestQueueDurationKey, r.queued(first))
		}
		item := r.toFirstItem()
		for i := range r.accounts {
			a := &r.accounts[i]
			if a.linked {
				r.write(to(a.source), a, item)
			}
		}
	}
	return td
}

// write fills the span of a usage record.
func (r *request) write(s ptrace.Span, a *account, item firstItem) {
	r.dress(s, a.op.name, a.id(r))
	s.SetStartTimestamp(pcommon.Timestamp(a.start))
	s.SetEndTimestamp(pcommon.Timestamp(max(a.start, a.end)))

	at := s.Attributes()
	at.EnsureCapacity(16)
	at.PutStr(string(semconv.GPUOperationTypeKey), semconv.GPUOperationTypeShare)
	number(at, semconv.GPURequestDurationKey, a.time)
	if a.measured {
		at.PutDouble(string(semconv.GPUEnergyKey), a.energy)
		if a.upper {
			at.PutStr(string(semconv.GPUEnergyBoundKey), semconv.GPUEnergyBoundUpper)
		}
	}
	if n := math.Round(a.items); n >= 1 && n < math.MaxInt64 {
		at.PutInt(string(semconv.GPUOperationItemsKey), int64(n))
	}
	if a.measured && a.items > 0 {
		number(at, semconv.GPURequestItemEnergyKey, a.energy/a.items)
	}
	at.PutInt(string(semconv.GPURequestBatchCountKey), a.batches)
	number(at, semconv.GPURequestBatchSizeKey, a.sizes/float64(a.batches))
	if item.of == a {
		number(at, semconv.GPURequestTimeToFirstItemKey, item.after)
	}
	sharedcomponent.PutText(at, semconv.GPUOperationNameKey, a.op.name)
	sharedcomponent.PutText(at, semconv.GPUOperationCategoryKey, a.op.category)
	sharedcomponent.PutText(at, semconv.GPUOperationItemTypeKey, a.op.itemType)
	sharedcomponent.PutText(at, semconv.GenAIRequestModelKey, r.modelOf(a))
	sharedcomponent.PutText(at, semconv.HWIDKey, a.device)
	if c := a.covered / a.time; a.measured && c < goodCoverage {
		at.PutDouble(string(semconv.GPUJoinCoverageKey), c)
	}
	link(s, a.first)
	if a.slowest.key != a.first.key {
		link(s, a.slowest)
	}
}

// goodCoverage is the coverage above which it is not stated.
const goodCoverage = 0.99

func link(s ptrace.Span, x example) {
	l := s.Links().AppendEmpty()
	l.SetTraceID(x.Trace)
	l.SetSpanID(x.Span)
}

// dress sets name, IDs and parent of a span in the request's trace.
func (r *request) dress(s ptrace.Span, name string, id pcommon.SpanID) {
	s.SetTraceID(r.Trace)
	s.SetSpanID(id)
	s.SetParentSpanID(r.Span)
	s.TraceState().FromRaw(r.state)
	s.SetFlags(r.flags&traceFlags | knownParent)
	s.SetKind(ptrace.SpanKindInternal)
	s.SetName(name)
}

// first returns the usage record whose GPU work started first.
func (r *request) first() *account {
	var first *account
	for i := range r.accounts {
		if a := &r.accounts[i]; a.start > 0 && (first == nil || a.start < first.start) {
			first = a
		}
	}
	return first
}

// queued returns how long the request waited, s; 0 if unknown.
func (r *request) queued(first *account) float64 {
	switch {
	case r.queue > 0:
		return r.queue
	case first == nil || !r.begun || !first.timed() || first.start <= r.start:
		return 0
	}
	return float64(first.start-r.start) * 1e-9
}

// timed reports whether the usage record's times are GPU times.
func (a *account) timed() bool { return a.time > 0 }

// firstItem is the time from the start of a request to its first item in seconds, and the usage
// record that it is known from.
type firstItem struct {
	after float64
	of    *account // nil: from the engine itself
}

// toFirstItem returns the time to the first item: the first token is produced by the last part of
// prefill; other work produces items when its first batch ends. A late request has only the rest.
func (r *request) toFirstItem() firstItem {
	if r.late {
		return firstItem{}
	}
	if r.firstItem > 0 {
		return firstItem{after: r.firstItem}
	}
	var of *account
	end := uint64(0)
	for i := range r.accounts {
		a := &r.accounts[i]
		if a.op.category == semconv.GPUOperationCategoryPrefill && a.timed() && a.end > end {
			of, end = a, a.end
		}
	}
	if of == nil {
		for i := range r.accounts {
			a := &r.accounts[i]
			if a.timed() && a.firstItems > 0 && (of == nil || a.firstItems < end) {
				of, end = a, a.firstItems
			}
		}
	}
	if of == nil || !r.begun || end <= r.start {
		return firstItem{}
	}
	return firstItem{float64(end-r.start) * 1e-9, of}
}

func (r *request) modelOf(a *account) string { return cmp.Or(a.op.model, r.model) }

// id returns the usage record's span ID, a hash of the request, the operation, and the first batch
// with its link to the request. A request that is closed and opened again, even within one batch,
// gets spans with other IDs.
func (a *account) id(r *request) pcommon.SpanID { return r.spanID(a.op.name, a.first) }

func (r *request) spanID(name string, first example) pcommon.SpanID {
	link := binary.LittleEndian.AppendUint32(nil, uint32(first.link))
	return sharedcomponent.SpanID(r.Trace[:], r.Span[:], []byte(name), first.Trace[:], first.Span[:], link)
}

func number(at pcommon.Map, k attribute.Key, v float64) {
	if v > 0 && v <= math.MaxFloat64 {
		at.PutDouble(string(k), v)
	}
}

// linked reports whether a batch linked to the request.
func (r *request) linked() bool {
	return slices.ContainsFunc(r.accounts, func(a account) bool { return a.linked })
}
