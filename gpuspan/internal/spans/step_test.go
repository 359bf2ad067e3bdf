// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans_test

import (
	"context"
	"math"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestInvalidPhaseTimesAreMisuse(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	s := f.P.Stream(3, "x")
	for _, st := range f.P.Loop("loop", s, enginetest.TotalSteps(1)).Steps(context.Background()) {
		st.AddPhase("a", math.MaxInt64)
		st.AddPhase("a", math.MaxInt64)
		st.SetPhase("b", math.MaxInt64)
		st.AddPhaseAt("c", time.Time{}, 1)
		st.AddPhaseAt("c", time.Now(), math.MaxInt64)
	}
	f.Flush(t)
	spans := f.Spans.Ended()
	require.Len(t, spans, 1)
	for _, a := range spans[0].Attributes() {
		if a.Value.Type() == attribute.FLOAT64 {
			require.GreaterOrEqual(t, a.Value.AsFloat64(), 0.0, a.Key)
		}
		require.NotContains(t, string(a.Key), "phase")
	}
	require.EqualValues(t, 5, f.P.Misuse()["invalid_work"])
}

// A step that waits for its sections is finished once, even if ending its span ends the goroutine.
func TestGoexitAtTheEndOfAStepFreesItsSlotOnce(t *testing.T) {
	var n atomic.Int64
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(enginetest.Processor{Ended: func(s sdktrace.ReadOnlySpan) {
		if s.Name() == "train" && n.Add(1) == 1 {
			runtime.Goexit()
		}
	}}))
	set := settings.Default()
	set.StepDeadline = time.Millisecond
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set), enginetest.WithTracerProvider(tp))
	s, other := f.P.Stream(3, "main"), f.P.Stream(4, "other")
	var open section.Section
	for ctx := range f.P.Loop("train", s, enginetest.TotalSteps(1)).Steps(context.Background()) {
		open = enginetest.Op.Start(ctx, other)
	}
	require.Eventually(t, func() bool {
		f.P.Snapshot()
		_, used, _ := s.Filled()
		return n.Load() == 1 && used <= 0
	}, time.Minute, time.Millisecond)
	time.Sleep(10 * time.Millisecond)
	open.End()
	f.Flush(t)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	require.ElementsMatch(t, s.Free, s.Slots, "each slot is free once")
}

// If logging of a hang fails, the step's span must still be exported.
func TestStepOnAHungDeviceEndsItsSpan(t *testing.T) {
	set := settings.Default()
	set.HangLimit, set.HangDeadline = 0, 10*time.Millisecond
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s := f.P.Stream(3, "main")
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	for _, step := range f.P.Loop("train", s, enginetest.TotalSteps(1)).Steps(context.Background()) {
		step.SetItems(7)
	}
	time.Sleep(20 * time.Millisecond)
	f.Tidy(t)
	require.Len(t, f.Spans.Ended(), 1)
	status, source := f.Status(0)
	require.Equal(t, "timeout", status)
	require.Equal(t, "host", source)
	f.Tidy(t)
	require.Len(t, f.Spans.Ended(), 1, "once")

	f.B.QueryStatus.Store(int32(backend.StatusOK)) // the device recovers
	f.Flush(t)
	require.Len(t, f.Spans.Ended(), 1)
}
