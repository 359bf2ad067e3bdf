// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/train"
)

func TestElapsedReturnsTheMeasuredTime(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("op")
	x := op.Start(context.Background(), s)
	e := x.Elapsed()
	require.Same(t, e, x.Elapsed())
	r.busy(h, 3*time.Millisecond)
	x.End()
	_, ok := e.Get()
	require.False(t, ok, "not read back yet")
	r.clock.Advance(5 * time.Millisecond)
	r.flush()
	<-e.Done()
	d, ok := e.Get()
	require.True(t, ok)
	require.InDelta(t, 3e6, float64(d), 1e4)
	require.Nil(t, x.Elapsed(), "over")

	var of []*gpuspan.Elapsed
	for ctx, st := range train.NewLoop(r.p, "train", s, train.TotalSteps(2)).Steps(context.Background()) {
		of = append(of, st.Elapsed())
		y := op.Start(ctx, s)
		r.busy(h, 2*time.Millisecond)
		y.End()
		r.clock.Advance(4 * time.Millisecond)
	}
	r.flush()
	for _, e := range of {
		<-e.Done()
		d, ok := e.Get()
		require.True(t, ok)
		require.InDelta(t, 4e6, float64(d), 3e6)
	}

	open := op.Start(context.Background(), s)
	never := open.Elapsed()
	require.NoError(t, r.p.Shutdown(context.Background()))
	<-never.Done()
	_, ok = never.Get()
	require.False(t, ok, "abandoned")
	untimed := op.Start(context.Background(), s).Elapsed()
	<-untimed.Done()
	_, ok = untimed.Get()
	require.False(t, ok)
}
