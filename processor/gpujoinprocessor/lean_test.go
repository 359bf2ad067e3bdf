// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// lean joins spans at level lean with samples of one device, and returns the output.
func lean(t *testing.T, put func(td *traces, zero, end time.Time)) ptrace.Traces {
	t.Helper()
	zero := time.Now()
	r := newRig(t).join(func(c *Config) { c.Attributes = spanfacts.Lean })
	defer r.close()
	r.run(r.device(nominal), steady(zero, 300.123456))
	time.Sleep(time.Second)
	td := newTraces("a")
	put(td, zero, time.Now())
	r.consume(td.Traces)
	time.Sleep(r.maxWait() + time.Second)
	out := ptrace.NewTraces()
	for _, x := range r.sink.AllTraces() {
		x.ResourceSpans().MoveAndAppendTo(out.ResourceSpans())
	}
	assert.NoError(t, conformance.Traces(out))
	return out
}

func TestLeanSpanHasOnlyTheStateOfTheDevice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := lean(t, func(td *traces, zero, end time.Time) { td.gpu(1, 0, zero, end) })
		ss := out.ResourceSpans().At(0).ScopeSpans().At(0)
		a := ss.Spans().At(0).Attributes().AsRaw()
		assert.InDelta(t, 300.123456, a["gpu.energy"], 1e-6, "what is summed is not rounded")
		assert.Equal(t, 300.12, a["gpu.power"])
		for _, absent := range []string{
			"gpu.join.coverage", "gpu.join.method", "gpu.join.samples", "gpu.join.late.duration", "gpu.measurement.source",
			"gpu.throttle.time", "gpu.memory.usage", "gpu.temperature.max", "gpu.sm.occupancy", "gpu.clock.memory.frequency",
		} {
			assert.NotContains(t, a, absent)
		}
		assert.Equal(t, map[string]any{"gpu.measurement.source": "simulated"}, ss.Scope().Attributes().AsRaw())
	})
}

func TestUnusualQualityIsStated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := lean(t, func(td *traces, zero, end time.Time) {
			td.gpu(1, 0, end.Add(-time.Millisecond), end)                          // shorter than a sample
			td.gpu(2, 0, zero.Add(-3*time.Second), zero.Add(500*time.Millisecond)) // begins before the first sample
		})
		spans := out.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
		short, early := spans.At(0).Attributes().AsRaw(), spans.At(1).Attributes().AsRaw()
		assert.Equal(t, "cell", short["gpu.join.method"])
		assert.NotContains(t, short, "gpu.tensor.utilization")
		assert.Contains(t, short, "gpu.power")
		assert.NotContains(t, early, "gpu.join.method")
		assert.InDelta(t, 0.14, early["gpu.join.coverage"], 0.05)
	})
}

// The scope states the method of most of its spans; the others state their own.
func TestTheUsualMethodIsOnTheScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, short := range []int{1, 3} {
			out := lean(t, func(td *traces, zero, end time.Time) {
				for i := range 4 {
					start := zero
					if i < short {
						start = end.Add(-time.Millisecond)
					}
					td.gpu(uint64(i+1), 0, start, end)
				}
			})
			ss := out.ResourceSpans().At(0).ScopeSpans().At(0)
			usual, ok := ss.Scope().Attributes().Get("gpu.join.method")
			assert.Equal(t, short == 3, ok)
			stated := map[any]int{}
			for _, s := range ss.Spans().All() {
				stated[s.Attributes().AsRaw()["gpu.join.method"]]++
			}
			if ok {
				assert.Equal(t, "cell", usual.Str())
				assert.Equal(t, map[any]int{nil: 3, "interval": 1}, stated)
			} else {
				assert.Equal(t, map[any]int{nil: 3, "cell": 1}, stated)
			}
		}
	})
}

// If not all spans of a scope can be joined, each joined span states it.
func TestSpansOfAMixedScopeAreMarkedOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := lean(t, func(td *traces, zero, end time.Time) {
			td.gpu(1, 0, zero, end)
			td.gpu(2, 0, zero, end).Attributes().PutStr("hw.id", "GPU-nobody")
		})
		ss := out.ResourceSpans().At(0).ScopeSpans().At(0)
		assert.Zero(t, ss.Scope().Attributes().Len())
		first, second := ss.Spans().At(0).Attributes().AsRaw(), ss.Spans().At(1).Attributes().AsRaw()
		assert.Equal(t, 1.0, first["gpu.join.coverage"])
		assert.Equal(t, "simulated", first["gpu.measurement.source"])
		assert.NotContains(t, second, "gpu.join.coverage")
	})
}

// Output of one gpu_join passes the next one unchanged.
func TestLeanSpansAreJoinedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := lean(t, func(td *traces, zero, end time.Time) { td.gpu(1, 0, zero, end) })
		again := ptrace.NewTraces()
		first.CopyTo(again)
		r := newRig(t).join(func(c *Config) { c.Attributes = spanfacts.Lean })
		defer r.close()
		r.run(r.device(nominal), steady(time.Now(), 700))
		time.Sleep(time.Second)
		r.consume(again)
		settle()
		s := first.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
		assert.Equal(t, s.Attributes().AsRaw(), r.spans()[1].Attributes().AsRaw())
	})
}
