// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spanfacts

import (
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// Straggler is a finding of gpu_metrics: a rank that was late in a step. Durations are seconds.
type Straggler struct {
	Loop    string
	Section string  // with the largest delay; empty: unknown
	Ranks   int64   // number of compared ranks
	Late    float64 // above the median of the ranks
	Delay   float64 // above the median in Section
}

// Load reads a span; it returns false if the span does not describe a late rank.
func (x *Straggler) Load(s ptrace.Span) bool {
	score, ok := s.Attributes().Get(string(semconv.GPUStragglerScoreKey))
	if !ok {
		return false
	}
	*x = Straggler{}
	for k, v := range s.Attributes().All() {
		switch attribute.Key(k) {
		case semconv.GPUOperationNameKey:
			x.Loop = Clip(v.Str())
		case semconv.GPUStragglerSectionKey:
			x.Section = Clip(v.Str())
		case semconv.GPUStragglerRankCountKey:
			x.Ranks = v.Int()
		case semconv.GPUStragglerDelayKey:
			x.Delay = Positive(v)
		case semconv.GPUStragglerMedianKey:
			x.Late = max(0, Positive(score)-1) * Positive(v)
		}
	}
	return true
}
