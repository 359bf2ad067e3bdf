// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

func TestTextsAreWholeAtAnyStackDepth(t *testing.T) {
	tool := newRecorder(t)
	a, marked := open(t, tool, nvtx.WithIDs(nvtx.IDsInMessage)), open(t, tool)
	op := gpuspan.NewOperation("op")
	tool.Clear()
	ctest.AtEachDepth(func(int) { marked.RangeStart(op, spanContext(true)) },
		func(int) { a.RangeStart(op, spanContext(true)) },
		func(int) { marked.RangeStart(gpuspan.NewOperation("text"), spanContext(false)) })
	want := map[string]int{
		"string text": ctest.Depths, "start text": ctest.Depths, "string op": 2, "start op": ctest.Depths,
		"mark traceparent=00-0102030405060708090a0b0c0d0e0f10-a1a2a3a4a5a6a7a8-01":    ctest.Depths,
		"start op trace_id=0102030405060708090a0b0c0d0e0f10 span_id=a1a2a3a4a5a6a7a8": ctest.Depths,
	}
	got := map[string]int{}
	for _, e := range tool.Events() {
		got[e.Kind+" "+e.Text]++
	}
	require.Equal(t, want, got)
	require.True(t, tool.WellFormed())
}
