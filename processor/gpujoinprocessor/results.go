// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"slices"
	"strings"
	"sync"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/sharedcomponent"
	"github.com/otelgpu/otelgpu/semconv"
)

// results are the values that the join found for a batch. They are found once, when the batch is
// released. Each attempt to send the batch writes them to spans that nobody else has seen, because
// the next component may share or change the data that it rejects.
type results struct {
	spans  []joinedSpan // in the order of the wire
	values []value
	events []devicesamples.Event

	withheld int64 // spans without energy because its error would exceed it
}

// joinedSpan is a span of the batch that was joined, or is omitted because it is in the request a
// second time.
type joinedSpan struct {
	wire     int32
	repeated bool
	derives  uint8 // attributes that gpu_derive may add
	values   int32 // where its values end
	events   int32 // where its events end
}

// value is an attribute of a span. It is copied to several spans, so that it must not be changed.
type value struct {
	key  string
	text string
	bits uint64 // of a double or an integer; throttle reasons
	kind valueKind
}

type valueKind uint8

const (
	double valueKind = iota
	integer
	textual
	reasonList
	eventList // of the span
)

func (r *results) putDouble(key string, x float64) {
	r.values = append(r.values, value{key: key, bits: math.Float64bits(x), kind: double})
}

func (r *results) putInt(key string, x int64) {
	r.values = append(r.values, value{key: key, bits: uint64(x), kind: integer})
}

func (r *results) putStr(key, x string) {
	r.values = append(r.values, value{key: key, text: x, kind: textual})
}

func (r *results) putReasons(mask devicesamples.ThrottleReason) {
	r.values = append(r.values, value{bits: uint64(mask), kind: reasonList})
}

// putEvents adds the events of the span's physical GPUs.
func (r *results) putEvents(events []devicesamples.Event) {
	if len(events) > 0 {
		r.events = append(r.events, events...)
		r.values = append(r.values, value{kind: eventList})
	}
}

// end ends a span.
func (r *results) end(g *gpuSpan, repeated bool) {
	r.spans = append(r.spans, joinedSpan{
		wire: g.wire, repeated: repeated, derives: g.derives,
		values: int32(len(r.values)), events: int32(len(r.events)),
	})
}

func (r *results) reset() {
	clear(r.values)
	r.spans, r.values, r.events = r.spans[:0], r.values[:0], r.events[:0]
}

// resultScratch holds results. Batches wait for seconds and have results for as long as the next
// component takes, so they are not part of them.
var resultScratch = sync.Pool{New: func() any { return new(results) }}

// write writes the values of a span.
func (a *attributes) writeTo(span ptrace.Span, values []value, events []devicesamples.Event) {
	to := span.Attributes()
	for i := range values {
		switch v := &values[i]; v.kind {
		case double:
			to.PutDouble(v.key, math.Float64frombits(v.bits))
		case integer:
			to.PutInt(v.key, int64(v.bits))
		case textual:
			to.PutStr(v.key, v.text)
		case reasonList:
			writeReasons(to, devicesamples.ThrottleReason(v.bits))
		case eventList:
			a.writeEvents(span, events)
		}
	}
}

func writeReasons(to pcommon.Map, mask devicesamples.ThrottleReason) {
	reasons := make([]string, 0, 8)
	mask.Each(func(r devicesamples.ThrottleReason) { reasons = append(reasons, r.String()) })
	slices.Sort(reasons)
	list := to.PutEmptySlice(string(semconv.GPUThrottleReasonsKey))
	list.EnsureCapacity(len(reasons))
	for _, r := range reasons {
		list.AppendEmpty().SetStr(r)
	}
}

// writeEvents writes the events that occurred during a span.
func (a *attributes) writeEvents(span ptrace.Span, events []devicesamples.Event) {
	to := span.Attributes()
	var xids, faults pcommon.Slice
	hasXID, hasFault := false, false
	errs := int64(0)
	for _, e := range events {
		switch e.Kind {
		case devicesamples.EventXID:
			if !hasXID {
				hasXID = true
				xids = to.PutEmptySlice(string(semconv.GPUXIDKey))
			}
			xids.AppendEmpty().SetInt(e.Code)
		case devicesamples.EventFault:
			if !hasFault {
				hasFault = true
				faults = to.PutEmptySlice(string(semconv.GPUFaultsKey))
			}
			faults.AppendEmpty().SetStr(strings.TrimSpace(e.Fault.Module + " " + e.Fault.CodeName()))
		case devicesamples.EventECCCorrected, devicesamples.EventECCUncorrected:
			errs += e.Count
		}
		if a.spanEvents {
			a.spanEvent(span, e)
		}
	}
	if errs > 0 {
		to.PutInt(string(semconv.GPUECCErrorsKey), errs)
	}
}

// spanEvent adds an event with the names that the gpu receiver uses in its log records.
func (a *attributes) spanEvent(span ptrace.Span, e devicesamples.Event) {
	ev := span.Events().AppendEmpty()
	ev.SetTimestamp(pcommon.Timestamp(e.Time - a.shift))
	switch e.Kind {
	case devicesamples.EventXID:
		ev.SetName(string(semconv.GPUXIDKey))
		ev.Attributes().PutInt(string(semconv.GPUEventCodeKey), e.Code)
	case devicesamples.EventFault:
		ev.SetName(semconv.GPUFaultEventName)
		sharedcomponent.PutText(ev.Attributes(), semconv.GPUFaultModuleKey, e.Fault.Module)
		ev.Attributes().PutStr(string(semconv.GPUFaultCategoryKey), e.Fault.CategoryName())
		ev.Attributes().PutStr(string(semconv.GPUFaultCodeKey), e.Fault.CodeName())
	case devicesamples.EventECCCorrected:
		ev.SetName("gpu.ecc")
		ev.Attributes().PutStr(string(semconv.ErrorTypeKey), semconv.ErrorTypeECCCorrected)
	case devicesamples.EventECCUncorrected:
		ev.SetName("gpu.ecc")
		ev.Attributes().PutStr(string(semconv.ErrorTypeKey), semconv.ErrorTypeECCUncorrected)
	case devicesamples.EventThrottleStart, devicesamples.EventThrottleEnd:
		ev.SetName("gpu.throttle")
		ev.Attributes().PutStr(string(semconv.GPUThrottleReasonKey), devicesamples.ThrottleReason(e.Code).String())
	}
}
