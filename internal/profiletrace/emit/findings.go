// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"strings"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// FindingEvent is the name of the span events that findings are.
const FindingEvent = "finding"

// ChainMark separates the members of a chain in an attribute.
const ChainMark = " -> "

// PutFinding puts findings on a span, an event at its end each.
func PutFinding(sp ptrace.Span, list ...finding.Finding) {
	for _, v := range list {
		e := sp.Events().AppendEmpty()
		e.SetName(FindingEvent)
		e.SetTimestamp(sp.EndTimestamp())
		v.Put(e.Attributes())
		putText(e.Attributes(), semconv.GPUFindingChainKey, strings.Join(v.Chain, ChainMark))
	}
}

// writeEfficiency writes the performance of operators with known work, beside their FLOPs.
func writeEfficiency(m pcommon.Map, e *facts.Efficiency) {
	if e.Time == 0 {
		return
	}
	putSeconds(m, semconv.GPUWindowWorkDurationKey, e.Time)
	putNumber(m, semconv.GPUWindowWorkCoverageKey, e.Coverage)
	if e.Bytes > 0 {
		putNumber(m, semconv.GPUWindowWorkSizeKey, e.Bytes)
	}
	if e.PeakShare > 0 {
		putNumber(m, semconv.GPUWindowWorkPeakRatioKey, e.PeakShare)
	}
}
