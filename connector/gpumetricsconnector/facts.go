// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/sampling"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
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
	recorded             bool    // by a profiler that sees every activity
	start, end           uint64  // unix ns
	time                 float64 // on the device, s; 0 where it was not timed
	size, flops, items   float64
	energy, selfEnergy   float64 // of the span with its descendants, and its own part
	startDelay           float64
	hasStartDelay        bool
	ordinal, stream      int64 // -1: none
	collective           bool
	request              bool // no GPU work: only its energy counts
	stepIndex            int64
	hasStepIndex         bool
	stepDuration         float64
	stepItems            float64
	stepItemType         string
	overlap, other       float64
	exposed              float64 // communication of a step that nothing hides, s
	hasExposed           bool
	phases               [maxPhases]spanfacts.Phase
	phaseCount           int
	state                string // of steps only, as are flags
	flags                uint32
	traceID              pcommon.TraceID
	spanID, parentSpanID pcommon.SpanID
}

// maxPhases bounds what is read of one step; names come from the wire.
const maxPhases = 16

// load fills f from a span of a scope; it reports whether the span is GPU work, or a request that may have energy.
func (f *facts) load(s ptrace.Span, scope *spanfacts.Scope) bool {
	var x spanfacts.Facts
	if !x.Load(s, scope) || !x.Kind.Work() && x.Kind != spanfacts.Request {
		*f = facts{traceID: x.Key.Trace, spanID: x.Key.Span, parentSpanID: x.Parent}
		return false
	}
	*f = facts{
		dims: dims{
			name: x.Name, kind: x.Type, category: x.Category, id: x.Device.ID, status: x.Status,
			direction: x.Direction, precision: x.Precision, itemType: x.ItemType,
		},
		recorded: x.Recorded(), start: x.Start, end: x.End, time: x.Time,
		size: x.Size, flops: x.FLOPs, items: x.Items, energy: x.Energy, selfEnergy: x.SelfEnergy,
		startDelay: x.StartDelay, hasStartDelay: x.HasStartDelay,
		ordinal: x.Device.Ordinal, stream: x.Stream,
		collective: x.Kind == spanfacts.Collective || x.Category == semconv.GPUOperationCategoryComm,
		request:    x.Kind == spanfacts.Request,
		traceID:    x.Key.Trace, spanID: x.Key.Span, parentSpanID: x.Parent,
	}
	if x.Kind == spanfacts.Step {
		f.state, f.flags = s.TraceState().AsRaw(), s.Flags()
		f.stepIndex, f.hasStepIndex, f.stepDuration = x.StepIndex, x.HasStepIndex, x.StepTime()
		f.stepItems, f.stepItemType, f.overlap, f.other = x.StepItems, x.StepItemType, x.StepOverlap, x.StepOther
		f.exposed, f.hasExposed = x.StepExposed, x.HasExposed
		f.phaseCount = copy(f.phases[:], x.Phases())
	}
	return true
}

// adjustedCount is how many spans one sampled span stands for, by the rejection threshold of its trace state (`ot=th:c` means that 12/16
// were not sampled, so it stands for 4). 1 without one, and where it cannot be read.
func adjustedCount(traceState string) float64 {
	if !strings.Contains(traceState, "ot=") {
		return 1
	}
	w3c, err := sampling.NewW3CTraceState(traceState)
	if err != nil {
		return 1
	}
	if n := w3c.OTelValue().AdjustedCount(); n >= 1 {
		return n
	}
	return 1 // 0: no threshold
}
