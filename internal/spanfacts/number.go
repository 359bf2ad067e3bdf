// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"math"
	"strconv"

	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/semconv"
)

// Number returns an int or a finite double. ok is false for anything else: NaN and infinite values
// count as absent.
func Number(v pcommon.Value) (x float64, ok bool) {
	if x = v.Double(); x != 0 { // 0 for other types
		return x, math.Abs(x) <= math.MaxFloat64
	}
	switch v.Type() {
	case pcommon.ValueTypeDouble:
		return 0, true
	case pcommon.ValueTypeInt:
		return float64(v.Int()), true
	}
	return 0, false
}

// Positive returns a Number above 0, otherwise 0.
func Positive(v pcommon.Value) float64 {
	x := v.Double() // 0 for other types, as Int
	if x == 0 {
		x = float64(v.Int())
	}
	if x > 0 && x <= math.MaxFloat64 {
		return x
	}
	return 0
}

// Whole returns a whole number of a resource, otherwise -1. Texts count, because
// OTEL_RESOURCE_ATTRIBUTES has no other type.
func Whole(v pcommon.Value) int64 {
	switch v.Type() {
	case pcommon.ValueTypeInt:
		return v.Int()
	case pcommon.ValueTypeStr:
		if n, err := strconv.ParseInt(v.Str(), 10, 64); err == nil {
			return n
		}
	}
	return -1
}

// index returns an int of 0 or more, otherwise -1.
func index(v pcommon.Value) int64 {
	if v.Type() != pcommon.ValueTypeInt {
		return -1
	}
	return max(v.Int(), -1)
}

// Earliest is the earliest time, in unix ns, that a set clock shows: 1990-01-01. An earlier time is
// from a clock that was never set or that counts from the start of the machine, or is zero.
const Earliest = 631152000_000_000_000

// Sound reports whether a span's start and end, in unix ns, are of one clock and in order. They are
// of different clocks if only one of them is before Earliest.
func Sound(start, end uint64) bool {
	return end > start && (start >= Earliest || end < Earliest)
}

// Elapsed returns a span's end minus its start in seconds; 0 if they are not Sound.
func Elapsed(start, end uint64) float64 {
	if !Sound(start, end) {
		return 0
	}
	return float64(end-start) * 1e-9
}

// deviceTime returns the time on the device in seconds, 0 if it was not timed. status and source
// are the values of gpu.timing.status and gpu.timing.source, duration is gpu.duration and elapsed
// the span's end minus start in seconds; "" and 0 if absent.
//
// A stated gpu.duration is used regardless of its source. Without it the span's own times are used,
// unless the host measured them.
func deviceTime(status, source string, duration, elapsed float64) float64 {
	switch {
	case status != "" && status != semconv.GPUTimingStatusOk:
		return 0
	case duration > 0:
		return duration
	case source == semconv.GPUTimingSourceHost:
		return 0
	}
	return elapsed
}
