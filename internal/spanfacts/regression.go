// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/semconv"
)

// Regression is a finding of gpu_metrics: an operation that takes more than in the version before, or than yesterday.
type Regression struct {
	Operation, Quantity, Version, Baseline string
	Evidence                               string
	Ratio                                  float64
	Before                                 string // trace of an example of the baseline; empty: none
}

// Load reads a span; it returns false if the span does not describe a regression.
func (x *Regression) Load(s ptrace.Span) bool {
	ratio, ok := s.Attributes().Get(string(semconv.GPURegressionRatioKey))
	if !ok {
		return false
	}
	*x = Regression{Ratio: Positive(ratio)}
	for k, v := range s.Attributes().All() {
		switch k {
		case string(semconv.GPUOperationNameKey):
			x.Operation = v.Str()
		case string(semconv.GPURegressionQuantityKey):
			x.Quantity = v.Str()
		case string(semconv.GPURegressionVersionKey):
			x.Version = v.Str()
		case string(semconv.GPURegressionBaselineKey):
			x.Baseline = v.Str()
		case string(semconv.GPUFindingEvidenceKey):
			x.Evidence = v.Str()
		}
	}
	if s.Links().Len() > 0 {
		x.Before = s.Links().At(0).TraceID().String()
	}
	return true
}
