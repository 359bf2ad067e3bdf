// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package sink

import (
	"math"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Sink receives the spans of sections instead of a tracer. Calls are made by one goroutine of each
// profiler. Arguments may be reused by the caller when the call returns, except Scope and Constant,
// which never change.
type Sink interface {
	Section(*Span)
}

// Span is the span of a section. Its attributes are Facts, Constant's, and Attributes; no key is in
// two of them.
type Span struct {
	Context    trace.SpanContext
	Parent     trace.SpanContext
	Name       string
	Start, End int64 // unix ns
	Error      string
	Links      []trace.Link

	DroppedLinks int // of a batch of more requests than there are Links

	Scope      *Scope
	Constant   *Constant // of the operation on the stream; nil: none
	Facts      Facts
	Attributes []attribute.KeyValue
}

// Scope is an instrumentation scope.
type Scope struct {
	Name, Version, Schema string
	Attributes            []attribute.KeyValue
}

// Constant holds what is equal in all spans of an operation on a stream.
type Constant struct {
	Attributes []attribute.KeyValue
	Encoded    []byte // for the sink to keep
}

// Fact is an attribute of a section whose number differs from run to run. Those before [FactRead]
// are float64, the others int64.
type Fact uint8

// Facts in the order of a span's attributes: measured values, then what the application states.
const (
	FactDuration Fact = iota
	FactTimingError
	FactStartDelay
	FactEndDelay
	FactFLOPs
	FactRead
	FactWritten
	FactIO
	FactItems
	FactOccurrence
	NumFacts

	FirstStated = FactFLOPs
)

// FactKeys are their attributes.
var FactKeys = [NumFacts]attribute.Key{
	semconv.GPUDurationKey, semconv.GPUTimingErrorKey, semconv.GPUStartDelayKey, semconv.GPUEndDelayKey,
	semconv.GPUFLOPCountKey, semconv.GPUIOReadSizeKey, semconv.GPUIOWriteSizeKey, semconv.GPUIOSizeKey,
	semconv.GPUOperationItemsKey,
	semconv.GPUOperationOccurrenceKey,
}

// Facts are the facts of one section, so that a sink need not go through attributes for what every
// section has.
type Facts struct {
	Known uint16           // bit 1<<f: Fact f is set
	Bits  [NumFacts]uint64 // of a float64, or an int64
}

func (f *Facts) Float(x Fact, v float64) {
	f.Known |= 1 << x
	f.Bits[x] = math.Float64bits(v)
}

// Stated sets an integer unless it is 0.
func (f *Facts) Stated(x Fact, v int64) {
	if v != 0 {
		f.Known |= 1 << x
		f.Bits[x] = uint64(v)
	}
}

// Attributes appends the facts from one up to another.
func (f *Facts) Attributes(kv []attribute.KeyValue, from, to Fact) []attribute.KeyValue {
	for x := from; x < to; x++ {
		switch {
		case f.Known&(1<<x) == 0:
		case x < FactRead:
			kv = append(kv, FactKeys[x].Float64(math.Float64frombits(f.Bits[x])))
		default:
			kv = append(kv, FactKeys[x].Int64(int64(f.Bits[x])))
		}
	}
	return kv
}
