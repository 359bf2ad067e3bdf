// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/semconv"
)

// maxText is how many bytes of a text are written: Tempo's default limit.
const maxText = 2048

// Put writes the attributes that all records of findings have, on spans, their events, and logs.
// What is unknown is omitted; the threshold is one of the share.
func (f *Finding) Put(m pcommon.Map) {
	text := func(key attribute.Key, v string) {
		if v != "" {
			m.PutStr(string(key), spanfacts.ValidText(v, maxText))
		}
	}
	number := func(key attribute.Key, v float64) {
		if v > 0 {
			m.PutDouble(string(key), v)
		}
	}
	text(semconv.GPUFindingKindKey, f.Kind)
	text(semconv.GPUFindingCertaintyKey, string(f.Certainty))
	text(semconv.GPUFindingEvidenceKey, f.Evidence)
	text(semconv.GPUFindingRemedyKey, f.Remedy)
	number(semconv.GPUFindingGainKey, f.Gain.Seconds())
	if f.Share > 0 {
		number(semconv.GPUFindingShareKey, spanfacts.Round12(f.Share))
		number(semconv.GPUFindingThresholdKey, f.Threshold)
	}
}
