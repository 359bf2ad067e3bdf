// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// lost requires that a step states nothing that depends on a phase of unknown time, and how many
// sections it lost.
func lost(t *testing.T, a map[string]attribute.Value, phase string, untimed int64) {
	t.Helper()
	for _, key := range []string{
		"gpu.step.phase.duration." + phase, "gpu.step.overlap.duration", "gpu.step.other.duration",
		"gpu.step.covered.duration",
	} {
		require.NotContains(t, slices.Collect(maps.Keys(a)), key)
	}
	require.Equal(t, untimed, a["gpu.step.untimed.count"].AsInt64())
	require.Contains(t, a, "gpu.step.duration")
}

// steps returns the attributes of the steps, in their order.
func (r *rig) steps() (out []map[string]attribute.Value) {
	for _, span := range r.named("train") {
		out = append(out, attrs(span))
	}
	slices.SortFunc(out, func(a, b map[string]attribute.Value) int {
		return int(a["gpu.step.index"].AsInt64() - b["gpu.step.index"].AsInt64())
	})
	return out
}

// With 8 slots the step has one, forward one, and six of its 20 layers one each. The 14 others, and
// backward, are lost. In the second step the slots are free again.
func TestPhaseWithoutASlotIsUnknown(t *testing.T) {
	r := newRig(t, slots(8))
	s, h := r.stream()
	layer := gpuspan.NewOperation("layer")
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(2)).Steps(context.Background()) {
		fwd := step.Phase(train.Forward)
		for range []int{20, 4}[step.Index()-1] {
			x := fwd.Start(layer)
			r.busy(h, time.Millisecond)
			x.EndWith(gpuspan.Work{FLOPs: 1e9})
		}
		fwd.End()
		bwd := step.Phase(train.Backward)
		r.busy(h, 3*time.Millisecond)
		bwd.End()
		r.gpu.Wait(h)
		r.flush()
	}
	r.flush()
	first, second := r.steps()[0], r.steps()[1]
	lost(t, first, "backward", 15)
	require.InDelta(t, 20e-3, first["gpu.step.phase.duration.forward"].AsFloat64(), 0.1e-3)
	require.NotContains(t, first, "gpu.flop.count", "the FLOPs of lost sections are in no sum")
	require.InDelta(t, 3e-3, second["gpu.step.phase.duration.backward"].AsFloat64(), 0.1e-3)
	require.NotContains(t, second, "gpu.step.untimed.count")
	require.InDelta(t, 4e9, second["gpu.flop.count"].AsFloat64(), 0)
	identity(t, second)
	require.Contains(t, fmt.Sprint(r.errs), "raise `slots`")

	l := r.p.Snapshot().Loops[0]
	require.EqualValues(t, 2, l.Steps)
	require.EqualValues(t, 1, l.Partial)
	require.EqualValues(t, 1, l.Phases[1].Unknown)
	require.Equal(t, 3*time.Millisecond, l.Phases[1].Duration.Mean.Round(100*time.Microsecond), "of the step that has it")
	var text, jsonText strings.Builder
	require.NoError(t, r.p.Snapshot().WriteText(&text))
	require.Contains(t, text.String(), "1 of 2 steps have a phase of unknown time")
	require.NoError(t, r.p.Snapshot().WriteJSON(&jsonText))
	require.Contains(t, jsonText.String(), `"partial_steps": 1`)
}

// A phase of which one section has a time on the host only has no time on the device: from launch
// to return is not when its work ran.
func TestPhaseWithHostTimesIsUnknown(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	unknown := r.p.Stream(999, "communication") // as of a library that keeps its stream to itself
	require.False(t, unknown.DeviceTimed())
	compile := gpuspan.NewOperation("compile", gpuspan.HostWork())
	for ctx, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(3)).Steps(context.Background()) {
		fwd := step.Phase(train.Forward)
		r.busy(h, time.Millisecond)
		fwd.End()
		switch step.Index() {
		case 1:
			bwd := step.Phase(train.Backward)
			r.busy(h, 2*time.Millisecond)
			bwd.End()
			comm := step.PhaseOn(train.Backward, unknown)
			comm.End()
		case 2:
			bwd := step.Phase(train.Backward)
			r.gpu.BeginCapture(h)
			r.busy(h, 2*time.Millisecond)
			bwd.End()
			g, _ := r.gpu.EndCapture(h)
			r.gpu.LaunchGraph(h, g)
		case 3:
			compile.Start(ctx, s).End() // no GPU work: nothing is unknown
			bwd := step.Phase(train.Backward)
			r.busy(h, 2*time.Millisecond)
			bwd.End()
		}
		r.gpu.Wait(h)
	}
	r.flush()
	steps := r.steps()
	lost(t, steps[0], "backward", 1)
	lost(t, steps[1], "backward", 1)
	require.InDelta(t, 2e-3, steps[2]["gpu.step.phase.duration.backward"].AsFloat64(), 0.1e-3)
	require.NotContains(t, steps[2], "gpu.step.untimed.count")
}

// A step that the host ends while the device of another stream still works waits for it, and gives
// up at `step_deadline`. A stated time replaces an unknown one.
func TestPhaseThatTheStepDoesNotWaitForIsUnknown(t *testing.T) {
	r := &rig{t: t, gpu: simgpu.New(nil, simgpu.WithDevices(simgpu.DefaultSpec(), simgpu.DefaultSpec())), spans: tracetest.NewSpanRecorder()}
	p, err := gpuspan.New(r.gpu, set(func(s *settings.Settings) { s.StepDeadline = time.Nanosecond }),
		gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans))))
	require.NoError(t, err)
	r.p = p
	s, h := r.stream()
	slow := r.gpu.Stream(1)
	other := r.p.Stream(slow, "other")
	for _, step := range train.NewLoop(r.p, "train", s, train.TotalSteps(2)).Steps(context.Background()) {
		fwd := step.Phase(train.Forward)
		r.busy(h, time.Millisecond)
		fwd.End()
		comm := step.PhaseOn(train.Comm, other)
		require.Equal(t, backend.StatusOK, r.gpu.Launch(slow, simgpu.Kernel{Duration: time.Hour}))
		comm.End()
		if step.Index() == 2 {
			step.SetPhase(train.Comm, 0)
		}
	}
	r.gpu.Wait(h)
	require.Eventually(t, func() bool { return len(r.named("train")) == 2 }, time.Minute, time.Millisecond)
	lost(t, r.steps()[0], "comm", 1)
	second := r.steps()[1]
	require.Contains(t, second, "gpu.step.phase.duration.comm")
	identity(t, second)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	require.Error(t, p.Shutdown(ctx), "the other stream hangs")
}

// A phase that the body leaves open, as by continue or a panic, ends with its step.
func TestPhaseEndsWithItsStep(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	func() {
		defer func() { _ = recover() }()
		for _, step := range train.NewLoop(r.p, "train", s, train.Items("image")).Steps(context.Background()) {
			fwd := step.Phase(train.Forward)
			r.busy(h, time.Millisecond)
			switch step.Index() {
			case 2:
				step.SetItems(1)
				continue
			case 3:
				gpuspan.NewOperation("layer").Start(context.Background(), s)
				step.SetItems(1)
				panic("the body")
			}
			fwd.End()
			step.SetItems(1)
		}
	}()
	r.gpu.Wait(h)
	r.flush() // not delayed by what is open
	require.EqualValues(t, 2, r.p.Misuse()["unended"])
	for _, span := range r.named("train") {
		require.InDelta(t, 1e-3, attrs(span)["gpu.step.phase.duration.forward"].AsFloat64(), 0.1e-3)
		identity(t, attrs(span))
	}
	require.NoError(t, r.p.Shutdown(context.Background()))
	require.Len(t, r.named("train"), 3)
	require.EqualValues(t, 3, r.p.Misuse()["unended"], "and the section")
}
