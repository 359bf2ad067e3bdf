// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/config/configoptional"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor"
	"github.com/otelgpu/otelgpu/semconv"
)

// lens returns the recorded spans of a trainer as the preset nemo_lens maps them, repeated with later
// times and step numbers: a few steps are too few to judge.
func lens(t *testing.T, name string, rounds int) (out []ptrace.Traces) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(recorded.Path(t, "nemo-lens", name), "traces.jsonl"))
	require.NoError(t, err)
	f := gpuderiveprocessor.NewFactory()
	cfg := f.CreateDefaultConfig().(*gpuderiveprocessor.Config)
	cfg.Presets = []string{"nemo_lens"}
	cfg.AssembleSteps = configoptional.Some(*cfg.AssembleSteps.GetOrInsertDefault())
	for round := range rounds {
		sink := new(consumertest.TracesSink)
		p, err := f.CreateTraces(t.Context(), processortest.NewNopSettings(f.Type()), cfg, sink)
		require.NoError(t, err)
		require.NoError(t, p.Start(t.Context(), componenttest.NewNopHost()))
		for line := range bytes.Lines(text) {
			td, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(line)
			require.NoError(t, err)
			for s := range spansOf(td) {
				later := pcommon.Timestamp(round) * pcommon.Timestamp(time.Minute)
				s.SetStartTimestamp(s.StartTimestamp() + later)
				s.SetEndTimestamp(s.EndTimestamp() + later)
				for _, key := range []string{"megatron.iteration", "nv.dl.training.step"} {
					if v, ok := s.Attributes().Get(key); ok {
						v.SetInt(v.Int() + int64(1000*round))
					}
				}
				id := s.TraceID()
				id[0] ^= byte(round)
				s.SetTraceID(id)
			}
			require.NoError(t, p.ConsumeTraces(t.Context(), td))
		}
		require.NoError(t, p.Shutdown(t.Context()))
		out = append(out, sink.AllTraces()...)
	}
	return out
}

func spansOf(td ptrace.Traces) func(func(ptrace.Span) bool) {
	return func(yield func(ptrace.Span) bool) {
		for _, rs := range td.ResourceSpans().All() {
			for _, ss := range rs.ScopeSpans().All() {
				for _, s := range ss.Spans().All() {
					if !yield(s) {
						return
					}
				}
			}
		}
	}
}

// The late rank is planted in the programs that wrote the files. Equal IDs on all ranks lose no
// step. With one exporting rank, nothing is said about the others.
func TestTrainersThroughNeMoLens(t *testing.T) {
	for name, want := range map[string]struct {
		late  int64 // -1: none
		steps int   // of all ranks
	}{
		"b-perstep-late": {2, 32}, "c-perstep-late": {3, 32}, "b-pypi-idcollision": {2, 20},
		"b-restart/attempt0": {-1, 14}, "c-restart/attempt0": {-1, 14},
	} {
		t.Run(name, func(t *testing.T) {
			a := newTest(t, func(c *Config) { c.Stragglers.Get().everySteps = 0 })
			a.jobs.spans = true
			const rounds = 8
			steps := 0
			named := map[int64]int{}
			var now int64
			for _, td := range lens(t, name, rounds) {
				require.NoError(t, conformance.Traces(td))
				for s := range spansOf(td) {
					now = max(now, int64(s.EndTimestamp()))
					if v, _ := s.Attributes().Get(string(semconv.GPUOperationTypeKey)); v != (pcommon.Value{}) && v.Str() == "step" {
						_, ok := s.Attributes().Get(string(semconv.GPUStepIndexKey))
						require.True(t, ok)
						steps++
					}
				}
				for _, rs := range td.ResourceSpans().All() {
					for _, key := range []string{string(semconv.GPUJobIDKey), string(semconv.HWIDKey), string(semconv.GPUJobWorldSizeKey)} {
						_, ok := rs.Resource().Attributes().Get(key)
						assert.True(t, ok, key)
					}
				}
				a.take(td, now)
				a.output(now, false)
				for _, f := range a.findings() {
					named[f.Rank]++
					assert.Contains(t, f.Evidence, "times are the host's")
				}
			}
			a.output(now+int64(time.Minute), true)
			assert.Equal(t, want.steps*rounds, steps)
			if want.late >= 0 {
				assert.NotZero(t, named[want.late])
				delete(named, want.late)
			}
			assert.Empty(t, named)
		})
	}
}
