// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// An H100 has 3.35 TB/s and 989 TFLOP/s of bf16: 3.35 GB in 2 ms are half of the former, 4e11 FLOPs
// a fifth of the latter.
func TestALeanSpanHasRatesRoofAndBound(t *testing.T) {
	d := newTestDeriver(t, func(c *Config) { c.Attributes = spanfacts.Lean })
	td, s := oneSpan(t, with(full, attrs{"gpu.operation.items": 2049}))
	process(t, d, td)
	require.NoError(t, conformance.Traces(td))
	assert.Equal(t, attrs{
		"gpu.io.rate": 1.675e12, "gpu.operation.item.rate": 1.0245e6,
		"gpu.roofline.utilization": 0.5, "gpu.roofline.bound": "memory",
	}, gained(s, full))
	assert.Equal(t, map[string]any{"gpu.peak.source": "table"},
		td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().AsRaw())
}

func TestALeanSpanStatesUnusualQuality(t *testing.T) {
	for name, tt := range map[string]struct{ in, want attrs }{
		"too much declared": {with(full, attrs{"gpu.io.size": 33_500_000_000}), attrs{
			"gpu.io.rate": 1.675e13, "gpu.operation.item.rate": 1.024e6,
			"gpu.roofline.utilization": 5.0, "gpu.roofline.bound": "memory", "gpu.declaration.status": "exceeds_peak",
		}},
		"too short": {with(full, attrs{"gpu.duration": 1e-6}), attrs{"gpu.rate.status": "below_floor"}},
		"more arithmetic": {with(full, attrs{"gpu.io.size": 335_000_000}), attrs{
			"gpu.flop.rate": 2e14, "gpu.operation.item.rate": 1.024e6, "gpu.roofline.utilization": 0.20212,
			"gpu.roofline.bound": "compute",
		}},
		"half of the declaration": {
			with(h100, attrs{"gpu.io.size": 3_350_000_000}),
			attrs{"gpu.io.rate": 1.675e12, "gpu.io.utilization": 0.5},
		},
	} {
		d := newTestDeriver(t, func(c *Config) { c.Attributes = spanfacts.Lean })
		td, s := oneSpan(t, tt.in)
		process(t, d, td)
		assert.Equal(t, tt.want, gained(s, tt.in), name)
	}
}

// One scope may have spans of several devices, with peaks from several sources.
func TestASpanStatesPeaksOfAnotherSource(t *testing.T) {
	d := newTestDeriver(t, func(c *Config) {
		c.Attributes = spanfacts.Lean
		c.Peaks = []PeakConfig{{Model: "mine", MemoryBandwidth: 1e12}}
	})
	td, _ := oneSpan(t, full)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	second, third := spans.AppendEmpty(), spans.AppendEmpty()
	first := spans.At(0)
	first.CopyTo(second)
	second.Attributes().PutStr("hw.model", "mine")
	first.CopyTo(third)
	process(t, d, td)
	_, stated := spans.At(0).Attributes().Get("gpu.peak.source")
	assert.False(t, stated)
	assert.Equal(t, "config", spans.At(1).Attributes().AsRaw()["gpu.peak.source"])
	_, stated = spans.At(2).Attributes().Get("gpu.peak.source")
	assert.False(t, stated)
}

func TestRepeatCopiesScopeAttributes(t *testing.T) {
	d := newTestDeriver(t, func(c *Config) {
		c.Attributes, c.Repeat = spanfacts.Lean,
			[]string{"hw.model", "hw.driver_version"}
	})
	spans := func(inScope string) (scope, own attrs) {
		td, s := oneSpan(t, full)
		if inScope != "" {
			td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().PutStr("hw.driver_version", inScope)
		}
		process(t, d, td)
		require.NoError(t, conformance.Traces(td))
		return td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().AsRaw(), s.Attributes().AsRaw()
	}
	scope, own := spans("580.95")
	assert.Equal(t, "580.95", scope["hw.driver_version"])
	assert.Equal(t, "580.95", own["hw.driver_version"])
	assert.Equal(t, full["hw.model"], own["hw.model"], "the span's own stays")
	_, own = spans("")
	assert.NotContains(t, own, "hw.driver_version")
}
