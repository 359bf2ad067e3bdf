// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

type attrs map[string]any

var nan, inf = math.NaN(), math.Inf(1)

func with(base attrs, more attrs) attrs {
	out := maps.Clone(base)
	maps.Copy(out, more)
	return out
}

// oneSpan returns a batch with one span of 2 ms.
func oneSpan(t testing.TB, a attrs) (ptrace.Traces, ptrace.Span) {
	t.Helper()
	td := ptrace.NewTraces()
	s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("x")
	s.SetStartTimestamp(1_700_000_000_000_000_000)
	s.SetEndTimestamp(1_700_000_000_002_000_000)
	require.NoError(t, s.Attributes().FromRaw(a))
	return td, s
}

func newTestDeriver(t testing.TB, edit func(*Config)) *deriver {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	cfg.Attributes = spanfacts.Full // tests of level lean set it
	if edit != nil {
		edit(cfg)
	}
	require.NoError(t, cfg.Validate())
	d, err := newDeriver(cfg, componenttest.NewNopTelemetrySettings())
	require.NoError(t, err)
	return d
}

func process(t testing.TB, d *deriver, td ptrace.Traces) {
	t.Helper()
	_, err := d.process(context.Background(), td)
	require.NoError(t, err)
}

// gained returns the attributes that the processor added.
func gained(s ptrace.Span, before attrs) attrs {
	out := attrs{}
	for k, v := range s.Attributes().All() {
		if _, had := before[k]; !had {
			out[k] = v.AsRaw()
		}
	}
	return out
}

func assertGained(t *testing.T, want, got attrs) {
	t.Helper()
	assert.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for k, w := range want {
		if f, ok := w.(float64); ok && f != 0 {
			assert.InEpsilon(t, f, got[k], 1e-9, k)
		} else {
			assert.Equal(t, w, got[k], k)
		}
	}
}

// An H100 SXM: 3.35e12 By/s of memory, 989.5e12 FLOP/s bf16, 67e12 fp32, 450e9 By/s NVLink in one
// direction, PCIe 5 ×16 of 32e9 × 16 / 8 × 128/130 = 63.0153846e9 By/s. The ridge of bf16 is 295.37
// FLOP/By. The expected values are computed by hand.
var h100 = attrs{"gpu.operation.type": "section", "hw.model": "NVIDIA H100 80GB HBM3", "gpu.duration": 0.002}
