// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package emit

import (
	"math"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// findingEvent is the name of the span events that findings are.
const findingEvent = "finding"

// chainMark separates the members of a chain.
const chainMark = " -> "

// PutFinding puts findings on a span, an event each.
func PutFinding(sp ptrace.Span, at pcommon.Timestamp, list ...finding.Finding) {
	for _, v := range list {
		e := sp.Events().AppendEmpty()
		e.SetName(findingEvent)
		e.SetTimestamp(at)
		m := e.Attributes()
		m.PutStr(string(semconv.GPUFindingKindKey), v.Kind)
		putText(m, semconv.GPUFindingChainKey, strings.Join(v.Chain, chainMark))
		if v.Gain > 0 {
			putSeconds(m, semconv.GPUFindingGainKey, int64(v.Gain))
		}
		m.PutDouble(string(semconv.GPUFindingShareKey), v.Share)
		m.PutDouble(string(semconv.GPUFindingThresholdKey), v.Threshold)
		putText(m, semconv.GPUFindingCertaintyKey, string(v.Certainty))
		putText(m, semconv.GPUFindingEvidenceKey, v.Evidence)
		putText(m, semconv.GPUFindingRemedyKey, v.Remedy)
	}
}

// FindingOf returns the finding that an event of the span of a subject states, and false if it states none.
func FindingOf(subject string, e ptrace.SpanEvent) (finding.Finding, bool) {
	m := e.Attributes()
	kind := textOf(m, semconv.GPUFindingKindKey)
	if e.Name() != findingEvent || kind == "" {
		return finding.Finding{}, false
	}
	v := finding.Finding{
		Kind: kind, Subject: spanfacts.ValidText(subject, maxText), Gain: lengthOf(m, semconv.GPUFindingGainKey),
		Share:     numberOf(m, semconv.GPUFindingShareKey),
		Threshold: numberOf(m, semconv.GPUFindingThresholdKey), Evidence: textOf(m, semconv.GPUFindingEvidenceKey),
		Certainty: finding.Certainty(textOf(m, semconv.GPUFindingCertaintyKey)),
		Remedy:    textOf(m, semconv.GPUFindingRemedyKey),
	}
	if chain := textOf(m, semconv.GPUFindingChainKey); chain != "" {
		v.Chain = strings.Split(chain, chainMark)
	}
	return v, true
}

// writeEfficiency writes the performance of operators with known work, beside their FLOPs.
func writeEfficiency(m pcommon.Map, e *facts.Efficiency) {
	if e.Time == 0 {
		return
	}
	putSeconds(m, semconv.GPUWindowWorkDurationKey, int64(e.Time))
	m.PutDouble(string(semconv.GPUWindowWorkCoverageKey), e.Coverage)
	if e.Bytes > 0 {
		m.PutDouble(string(semconv.GPUWindowWorkSizeKey), e.Bytes)
	}
	if e.PeakShare > 0 {
		m.PutDouble(string(semconv.GPUWindowWorkPeakRatioKey), e.PeakShare)
	}
}

// ReportOf returns the report on the span of a device's window, without findings, and false if the span is not such a
// span.
func ReportOf(s ptrace.Span) (facts.Report, bool) {
	m := s.Attributes()
	ordinal, ok := m.Get(string(semconv.GPUDeviceOrdinalKey))
	if !ok {
		return facts.Report{}, false
	}
	if _, ok := m.Get(string(semconv.GPUWindowBusyDurationKey)); !ok {
		return facts.Report{}, false
	}
	r := facts.Report{
		Ordinal: ordinal.Int(), Model: textOf(m, semconv.HWModelKey), Window: lengthOf(m, semconv.GPUWindowDurationKey),
		Parts: facts.Parts{
			Computing:   lengthOf(m, semconv.GPUWindowComputeDurationKey),
			CommExposed: lengthOf(m, semconv.GPUWindowCommExposedDurationKey),
			CommHidden:  lengthOf(m, semconv.GPUWindowOverlapDurationKey),
			CopyExposed: lengthOf(m, semconv.GPUWindowMemoryExposedDurationKey),
			Idle:        lengthOf(m, semconv.GPUWindowIdleDurationKey),
			NotRecorded: lengthOf(m, semconv.GPUWindowNotRecordedDurationKey),
		},
	}
	if all := lengthOf(m, semconv.GPUWindowMemoryDurationKey); all > 0 {
		r.Parts.CopyHidden = all - r.Parts.CopyExposed
	}
	for c := range timeline.Causes {
		if t := lengthOf(m, semconv.GPUWindowCauseDurationKey(c.String())); t > 0 {
			r.Idle = append(r.Idle, facts.CauseTime{Cause: c, Time: t})
		}
	}
	facts.SortIdle(r.Idle)
	peak := facts.PeakOf(r.Model)
	r.Efficiency = facts.Efficiency{
		FLOPs: numberOf(m, semconv.GPUFLOPCountKey), Bytes: numberOf(m, semconv.GPUWindowWorkSizeKey),
		Time:     lengthOf(m, semconv.GPUWindowWorkDurationKey),
		Coverage: numberOf(m, semconv.GPUWindowWorkCoverageKey), PeakShare: numberOf(m, semconv.GPUWindowWorkPeakRatioKey),
		Peak: peak.Name, NoPeak: peak.Reason,
	}
	return r, true
}

// textOf returns the text of an attribute; empty if there is none.
func textOf(m pcommon.Map, k attribute.Key) string {
	v, ok := m.Get(string(k))
	if !ok {
		return ""
	}
	return spanfacts.ValidText(v.AsString(), maxText)
}

// numberOf returns the number of an attribute; 0 if there is none.
func numberOf(m pcommon.Map, k attribute.Key) float64 {
	v, ok := m.Get(string(k))
	switch {
	case ok && v.Type() == pcommon.ValueTypeDouble:
		return v.Double()
	case ok && v.Type() == pcommon.ValueTypeInt:
		return float64(v.Int())
	}
	return 0
}

// lengthOf undoes putSeconds.
func lengthOf(m pcommon.Map, k attribute.Key) time.Duration {
	ns := math.Round(numberOf(m, k) * 1e9)
	if !(math.Abs(ns) < math.MaxInt64) {
		return 0
	}
	return time.Duration(ns)
}
