// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletracetest

import (
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/semconv"
)

// FindingOf returns the finding that an event of the span of a subject states, and false if it
// states none.
func FindingOf(subject string, e ptrace.SpanEvent) (v finding.Finding, ok bool) {
	m := e.Attributes().AsRaw()
	text := func(k string) string { s, _ := m[k].(string); return s }
	number := func(k string) float64 { n, _ := m[k].(float64); return n }
	v = finding.Finding{
		Kind: text(string(semconv.GPUFindingKindKey)), Subject: subject,
		Gain:      time.Duration(number(string(semconv.GPUFindingGainKey))*1e9 + 0.5),
		Share:     number(string(semconv.GPUFindingShareKey)),
		Threshold: number(string(semconv.GPUFindingThresholdKey)),
		Evidence:  text(string(semconv.GPUFindingEvidenceKey)),
		Certainty: finding.Certainty(text(string(semconv.GPUFindingCertaintyKey))),
		Remedy:    text(string(semconv.GPUFindingRemedyKey)),
	}
	if chain := text(string(semconv.GPUFindingChainKey)); chain != "" {
		v.Chain = strings.Split(chain, emit.ChainMark)
	}
	return v, e.Name() == emit.FindingEvent && v.Kind != ""
}
