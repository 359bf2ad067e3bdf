// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func TestInvalidSettingsAreNamedAndKeepDefaults(t *testing.T) {
	t.Setenv("GPUSPAN_SLOTS", "many")
	t.Setenv("GPUSPAN_NVTX_ENABLED", "true")
	t.Setenv("GPUSPAN_CUDA_LIBRRY", "x")
	t.Setenv("GPUSPAN_HIP_LIBRARY", "x") // package hip's
	t.Setenv("GPUSPAN_VERBOSTY", "debug")
	t.Setenv("GPUSPAN_METRICS", "some")
	t.Setenv("GPUSPAN_ENABLED", "maybe")
	t.Setenv("GPUSPAN_HANG_LIMIT", "30")
	p, err := gpuspan.New(nil)
	require.EqualError(t, err, strings.Join([]string{
		"environment: unknown key `GPUSPAN_CUDA_LIBRRY` (did you mean `GPUSPAN_CUDA_LIBRARY`?)",
		"environment: `GPUSPAN_ENABLED` must be true or false, found \"maybe\"",
		"environment: `GPUSPAN_HANG_LIMIT` must be a duration such as 30s, found \"30\"",
		"environment: `GPUSPAN_METRICS` must be one of timed, all, off, found \"some\"",
		"environment: unknown key `GPUSPAN_NVTX_ENABLED`",
		"environment: `GPUSPAN_SLOTS` must be a whole number, found \"many\"",
		"environment: unknown key `GPUSPAN_VERBOSTY` (did you mean `GPUSPAN_VERBOSITY`?)",
	}, "\n"))
	require.True(t, p.Enabled(), "the profiler works all the same")
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestAWrongValueLeavesTheOthersAlone(t *testing.T) {
	s := settings.Default()
	s.Enabled, s.Verbosity, s.Metrics, s.Slots = false, settings.VerbosityDebug, 9, 1
	s.StackDepth, s.Report, s.PrintReport = 3, false, true
	s.Schedule = settings.Schedule{Repeat: 2, Every: 3}
	p, err := gpuspan.New(nil, gpuspan.WithSettings(func(x *settings.Settings) { *x = s }), gpuspan.WithTracerProvider(sdktrace.NewTracerProvider()))
	require.ErrorContains(t, err, "`slots` must be between 2 and 32768, found 1")
	require.False(t, p.Enabled(), "what was switched off stays off")
	p.SetEnabled(true)
	loop := train.NewLoop(p, "train", p.Stream(0, "s"), train.TotalSteps(9))
	var recorded []int64
	for _, step := range loop.Steps(context.Background()) {
		if step.Recording() {
			recorded = append(recorded, step.Index())
		}
	}
	require.Equal(t, []int64{3, 6}, recorded)
	deep := gpuspan.NewOperation("deep", gpuspan.AtVerbosity(settings.VerbosityDebug))
	require.True(t, deep.Start(context.Background(), p.Stream(0, "s")).Timed())
	require.Empty(t, p.Snapshot().Operations, "report is off")
	require.NoError(t, p.Shutdown(context.Background()))
}

func TestOptionsOverrideTheEnvironment(t *testing.T) {
	t.Setenv("GPUSPAN_ENABLED", "false")
	t.Setenv("GPUSPAN_VERBOSITY", "debug")
	for _, tt := range []struct {
		opts    []gpuspan.Option
		enabled bool
	}{
		{nil, false},
		{[]gpuspan.Option{set(func(s *settings.Settings) { *s = settings.Default() })}, true},
		{[]gpuspan.Option{nil, set(func(s *settings.Settings) { s.Verbosity = settings.VerbosityVerbose })}, false},
	} {
		p, err := gpuspan.New(nil, tt.opts...)
		require.NoError(t, err)
		require.Equal(t, tt.enabled, p.Enabled())
		require.NoError(t, p.Shutdown(context.Background()))
	}
}

func TestAScheduleThatCannotBeCompletedIsReported(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	loop := train.NewLoop(r.p, "train", s, train.Schedule{SkipFirst: 5, Active: 1}, train.TotalSteps(3))
	n := 0
	for range loop.Steps(context.Background()) {
		n++
	}
	require.Equal(t, 3, n)
	require.Len(t, r.errs, 1)
	require.EqualError(t, r.errs[0],
		"gpuspan: loop \"train\": `schedule` cannot be completed in 3 steps (it needs at least 6)")
}
