// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/gputime"
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
	index     int32 // in its ScopeSpans
	share     fairshare.Span
	res       *resourceInfo
	hwID      string
	bdf       string
	ordinal   int64 // -1: none
	stream    int64 // -1: none, and that of a step, which is the host's
	step      bool
	fault     fault
	hasMemory bool // gpu.memory.usage is there already

	outcome outcome
	at      fairshare.Place
	seen    int64 // when it arrived first, unix ns
}

// read looks at a span: false when it has no GPU operation or was joined already.
func (g *gpuSpan) read(s ptrace.Span, r *resourceInfo, now int64, maxWait time.Duration) bool {
	gpu := false
	*g = gpuSpan{span: s, res: r, hwID: r.hwID, ordinal: -1, stream: -1}
	for k, v := range s.Attributes().All() {
		switch k {
		case string(semconv.GPUOperationTypeKey):
			gpu, g.step = v.Str() != "", v.Str() == semconv.GPUOperationTypeStep
		case string(semconv.GPUJoinCoverageKey):
			return false
		case string(semconv.HWIDKey):
			g.hwID = v.Str()
		case string(semconv.GPUPCIBDFKey):
			g.bdf = v.Str()
		case string(semconv.GPUDeviceOrdinalKey):
			if v.Type() == pcommon.ValueTypeInt {
				g.ordinal = v.Int()
			}
		case string(semconv.GPUStreamIDKey):
			if v.Type() == pcommon.ValueTypeInt {
				g.stream = v.Int()
			}
		case string(semconv.GPUMemoryUsageKey):
			g.hasMemory = true
		}
	}
	if !gpu {
		return false
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
		g.stream = -1
	}
	return true
}

func (g *gpuSpan) check(now int64, maxWait time.Duration) fault {
	switch s := &g.share; {
	case s.Span == [8]byte{} || s.Trace == [16]byte{}:
		return noID
	case s.End < s.Start:
		return endBeforeStart
	case s.Start < gputime.Earliest:
		return epoch
	case s.End > now+int64(maxWait):
		return future
	case s.End == s.Start:
		return zeroLength
	}
	return sound
}
