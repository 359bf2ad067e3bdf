// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finite"
	"github.com/otelgpu/otelgpu/internal/gputime"
	"github.com/otelgpu/otelgpu/semconv"
)

// dims are the dimensions of an operation's metrics, the key of its bundle.
type dims struct {
	name, kind, category                  string
	id, status                            string
	direction, precision, itemType, extra string
}

// facts are what a span says, read in one pass. Numbers that are not stated, not finite or not above 0 are 0.
type facts struct {
	dims
	source               string
	start, end           uint64  // unix ns
	time                 float64 // on the device, s; 0 where it was not timed
	duration             float64
	size, flops, items   float64
	energy, selfEnergy   float64 // of the span with its descendants, and its own part
	hasSelfEnergy        bool
	startDelay           float64
	hasStartDelay        bool
	ordinal, stream      int64 // -1: none
	collective           bool
	stepIndex            int64
	hasStepIndex         bool
	stepDuration         float64
	stepItems            float64
	stepItemType         string
	overlap, other       float64
	exposed              float64 // communication of a step that nothing hides, s
	hasExposed           bool
	phases               [maxPhases]phase
	phaseCount           int
	state                string // of steps only, as are flags
	flags                uint32
	traceID              pcommon.TraceID
	spanID, parentSpanID pcommon.SpanID
}

// phase is one gpu.step.phase.duration.<name>.
type phase struct {
	name     string
	duration float64
}

// maxPhases bounds what is read of one step; names come from the wire.
const maxPhases = 16

// load fills f; it reports whether the span is a GPU span.
func (f *facts) load(s ptrace.Span) bool {
	*f = facts{
		start: uint64(s.StartTimestamp()), end: uint64(s.EndTimestamp()), ordinal: -1, stream: -1,
		traceID: s.TraceID(), spanID: s.SpanID(), parentSpanID: s.ParentSpanID(),
	}
	for k, v := range s.Attributes().All() {
		if len(k) < 5 || (k[0] != 'g' && k[0] != 'h') { // gpu. and hw.
			continue
		}
		switch k {
		case string(semconv.GPUOperationTypeKey):
			f.kind = v.Str()
		case string(semconv.GPUOperationNameKey):
			f.name = v.Str()
		case string(semconv.GPUOperationCategoryKey):
			f.category = v.Str()
		case string(semconv.GPUTimingStatusKey):
			f.status = v.Str()
		case string(semconv.GPUTimingSourceKey):
			f.source = v.Str()
		case string(semconv.HWIDKey):
			f.id = v.Str()
		case string(semconv.GPUDeviceOrdinalKey):
			f.ordinal = index(v)
		case string(semconv.GPUStreamIDKey):
			f.stream = index(v)
		case string(semconv.GPUDurationKey):
			f.duration = finite.Positive(v)
		case string(semconv.GPUIOSizeKey):
			f.size = finite.Positive(v)
		case string(semconv.GPUCopyDirectionKey):
			f.direction = v.Str()
		case string(semconv.GPUFLOPCountKey):
			f.flops = finite.Positive(v)
		case string(semconv.GPUFLOPPrecisionKey):
			f.precision = v.Str()
		case string(semconv.GPUOperationItemsKey):
			f.items = finite.Positive(v)
		case string(semconv.GPUOperationItemTypeKey):
			f.itemType = v.Str()
		case string(semconv.GPUEnergyKey):
			f.energy = finite.Positive(v)
		case string(semconv.GPUSelfEnergyKey):
			f.selfEnergy, f.hasSelfEnergy = finite.Positive(v), true
		case string(semconv.GPUStartDelayKey):
			f.startDelay, f.hasStartDelay = finite.Number(v)
		case string(semconv.GPUStepIndexKey):
			f.stepIndex, f.hasStepIndex = v.Int(), v.Type() == pcommon.ValueTypeInt
		case string(semconv.GPUStepDurationKey):
			f.stepDuration = finite.Positive(v)
		case string(semconv.GPUStepItemsKey):
			f.stepItems = finite.Positive(v)
		case string(semconv.GPUStepItemTypeKey):
			f.stepItemType = v.Str()
		case string(semconv.GPUStepOverlapDurationKey):
			f.overlap = finite.Positive(v)
		case string(semconv.GPUStepCommExposedDurationKey):
			f.exposed, f.hasExposed = finite.Number(v)
		case string(semconv.GPUStepOtherDurationKey):
			f.other = finite.Positive(v)
		default:
			if k[4] == 's' { // gpu.step: spares most names the call
				f.loadPhase(k, v)
			}
		}
	}
	if f.kind == "" {
		return false
	}
	if !f.hasSelfEnergy {
		f.selfEnergy = f.energy
	}
	if f.name == "" {
		f.name = s.Name()
	}
	elapsed := gputime.Elapsed(f.start, f.end)
	if f.kind == semconv.GPUOperationTypeStep {
		f.state, f.flags = s.TraceState().AsRaw(), s.Flags()
		if f.stepDuration == 0 {
			f.stepDuration = elapsed
		}
		return true
	}
	f.collective = f.kind == semconv.GPUOperationTypeCollective || f.category == semconv.GPUOperationCategoryComm
	f.time = gputime.Of(f.status, f.source, f.duration, elapsed)
	return true
}

func (f *facts) loadPhase(k string, v pcommon.Value) {
	name, ok := semconv.GPUStepPhaseDurationOf(k)
	if !ok || f.phaseCount == maxPhases {
		return
	}
	if d, ok := finite.Number(v); ok && d >= 0 {
		f.phases[f.phaseCount] = phase{name, d}
		f.phaseCount++
	}
}

// index is a whole number of 0 and more, else -1.
func index(v pcommon.Value) int64 {
	if v.Type() != pcommon.ValueTypeInt {
		return -1
	}
	return max(v.Int(), -1)
}
