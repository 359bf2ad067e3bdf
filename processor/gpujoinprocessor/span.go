// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor/internal/fairshare"
	"github.com/otelgpu/otelgpu/semconv"
)

// fault is why a GPU span cannot be joined; the value of `reason` in the processor's own metrics.
type fault uint8

const (
	sound fault = iota
	noID
	endBeforeStart
	zeroLength
	epoch
	future
	faults
)

var faultNames = [faults]string{"", "no_id", "end_before_start", "zero_length", "epoch", "future"}

// gpuSpan is a span with a GPU operation.
type gpuSpan struct {
	span      ptrace.Span
	share     fairshare.Span
	at        fairshare.Place
	index     int32 // in its ScopeSpans
	place     int32 // of the batch's places
	step      bool
	fault     fault
	hasMemory bool // gpu.memory.usage is there already
	again     bool // so is something that the join writes
}

// read looks at a span: false when it has no GPU operation or was joined already. at becomes the place that it names; stream is
// -1 when it has none, and for a step, whose stream is the host's.
func (g *gpuSpan) read(s ptrace.Span, r *resourceInfo, at *placeName, now int64, maxWait time.Duration) (stream int64, ok bool) {
	gpu := false
	stream = -1
	*g = gpuSpan{span: s}
	*at = placeName{res: r, hwID: r.hwID, ordinal: -1}
	for k, v := range s.Attributes().All() {
		switch k {
		case string(semconv.GPUOperationTypeKey):
			gpu, g.step = v.Str() != "", v.Str() == semconv.GPUOperationTypeStep
		case string(semconv.GPUJoinCoverageKey):
			return -1, false
		case string(semconv.HWIDKey):
			at.hwID = v.Str()
			g.again = g.again || at.hwID == ""

		case string(semconv.GPUPCIBDFKey):
			at.bdf = v.Str()
		case string(semconv.GPUDeviceOrdinalKey):
			if v.Type() == pcommon.ValueTypeInt {
				at.ordinal = v.Int()
			}
		case string(semconv.GPUStreamIDKey):
			if v.Type() == pcommon.ValueTypeInt {
				stream = v.Int()
			}
		case string(semconv.GPUMemoryUsageKey):
			g.hasMemory = true
		case string(semconv.GPUUtilizationKey), string(semconv.GPUSMUtilizationKey), string(semconv.GPUSMOccupancyKey),
			string(semconv.GPUTensorUtilizationKey), string(semconv.GPUDRAMUtilizationKey), string(semconv.GPUClockSMFrequencyKey),
			string(semconv.GPUClockMemoryFrequencyKey), string(semconv.GPUPowerKey), string(semconv.GPUTemperatureMaxKey),
			string(semconv.GPUThrottleTimeKey), string(semconv.GPUThrottleReasonsKey), string(semconv.GPUEnergyKey), string(semconv.GPUSelfEnergyKey),
			string(semconv.GPUXIDKey), string(semconv.GPUECCErrorsKey), string(semconv.GPUJoinLateDurationKey), string(semconv.GPUJoinSamplesKey),
			string(semconv.GPUMeasurementSourceKey), string(semconv.GPUJoinMethodKey):
			g.again = true
		}
	}
	if !gpu {
		return -1, false
	}
	start, end := uint64(s.StartTimestamp()), uint64(s.EndTimestamp())
	g.share = fairshare.Span{
		Key:     fairshare.Key{Trace: s.TraceID(), Span: s.SpanID()},
		Parent:  s.ParentSpanID(),
		Process: r.process,
		Start:   int64(min(start, math.MaxInt64)),
		End:     int64(min(end, math.MaxInt64)),
	}
	if g.fault = g.check(now, maxWait); g.fault != sound || g.step {
		stream = -1
	}
	return stream, true
}

func (g *gpuSpan) check(now int64, maxWait time.Duration) fault {
	switch s := &g.share; {
	case s.Span == [8]byte{} || s.Trace == [16]byte{}:
		return noID
	case s.End < s.Start:
		return endBeforeStart
	case s.Start < spanfacts.Earliest:
		return epoch
	case s.End > now+int64(maxWait):
		return future
	case s.End == s.Start:
		return zeroLength
	}
	return sound
}
