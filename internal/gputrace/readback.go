// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import (
	"math"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// DeviceStatsOf are the numbers on the span of a device's window, and false where the span is none.
func DeviceStatsOf(s ptrace.Span) (DeviceStats, bool) {
	m := s.Attributes()
	ordinal, ok := m.Get(string(semconv.GPUDeviceOrdinalKey))
	if !ok {
		return DeviceStats{}, false
	}
	if _, ok := m.Get(string(semconv.GPUWindowBusyDurationKey)); !ok {
		return DeviceStats{}, false
	}
	d := DeviceStats{
		Ordinal: ordinal.Int(), Window: lengthOf(m, semconv.GPUWindowDurationKey), Busy: lengthOf(m, semconv.GPUWindowBusyDurationKey),
		Compute: lengthOf(m, semconv.GPUWindowComputeDurationKey), Comm: lengthOf(m, semconv.GPUWindowCommDurationKey),
		Exposed: lengthOf(m, semconv.GPUWindowCommExposedDurationKey),
		FLOPs:   numberOf(m, semconv.GPUFLOPCountKey), Coverage: numberOf(m, semconv.GPUFLOPCoverageKey),
	}
	if model, ok := m.Get(string(semconv.HWModelKey)); ok {
		d.Model = clip(model.AsString(), maxText)
	}
	return d, true
}

// FindingOf is the finding that an event of the span of a subject states, and false where it states none.
func FindingOf(subject string, e ptrace.SpanEvent) (Finding, bool) {
	m := e.Attributes()
	kind, ok := m.Get(string(semconv.GPUFindingKindKey))
	if e.Name() != findingEvent || !ok {
		return Finding{}, false
	}
	f := Finding{
		Kind: clip(kind.AsString(), maxText), Subject: clip(subject, maxText), Cost: lengthOf(m, semconv.GPUFindingCostKey),
		Value: numberOf(m, semconv.GPUFindingValueKey), Threshold: numberOf(m, semconv.GPUFindingThresholdKey),
	}
	if text, ok := m.Get(string(semconv.GPUFindingEvidenceKey)); ok {
		f.Evidence = clip(text.AsString(), maxText)
	}
	return f, true
}

// numberOf is 0 where there is no number.
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
