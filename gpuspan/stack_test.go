// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

// A loop is an iterator, so the library's frames are on the stack between the application's frames.
// They do not count toward the depth.
func TestStackDepthCountsFramesOfTheApplication(t *testing.T) {
	r := newRig(t, set(func(s *settings.Settings) { s.CodeLocation, s.StackDepth = true, 4 }))
	s, _ := r.stream()
	op := gpuspan.NewOperation("op")
	run := func() { //nolint:unparam // a frame
		for ctx := range train.NewLoop(r.p, "train", s, train.TotalSteps(1)).Steps(context.Background()) {
			func() { op.Start(ctx, s).End() }()
		}
	}
	func() { run() }()
	r.clock.Advance(time.Millisecond)
	r.flush()
	stack := attrs(r.named("op")[0])["code.stacktrace"].AsString()
	require.Equal(t, 4, strings.Count(stack, "stack_test.go:"), stack)
	require.NotContains(t, stack, "/train.")
}

func TestPrintReportOfCategories(t *testing.T) {
	r := newRig(t)
	s, _ := r.stream()
	var b bytes.Buffer
	outer := gpuspan.NewOperation("request", gpuspan.Category("runtime"), gpuspan.PrintReport(&b, "runtime"))
	inner := gpuspan.NewOperation("layer", gpuspan.Category("model"))
	x := outer.Start(context.Background(), s)
	x.Start(inner).End()
	x.End()
	r.clock.Advance(time.Millisecond)
	r.flush()
	require.NoError(t, r.p.Shutdown(context.Background()))
	require.Contains(t, b.String(), "request")
	require.NotContains(t, b.String(), "layer")
	require.NotContains(t, b.String(), "model")
}
