// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestStreamsThatCannotBeTimedGetHostTimes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(*scripted)
		opts  []StreamOption
		timed bool
		want  string
	}{
		{"per thread", func(b *scripted) { b.kind = backend.StreamPerThread }, nil, false, "per-thread default stream"},
		{
			"per thread, legacy allowed", func(b *scripted) { b.kind = backend.StreamPerThread },
			[]StreamOption{AllowLegacy()},
			false, "per-thread default stream",
		},
		{"legacy", func(b *scripted) { b.kind = backend.StreamLegacy }, nil, false, "AllowLegacy"},
		{"legacy, allowed", func(b *scripted) { b.kind = backend.StreamLegacy }, []StreamOption{AllowLegacy()}, true, ""},
		{
			"unknown handle", func(b *scripted) { b.infoErr = errors.New("no such stream") }, nil, false,
			"handle 0x3: no such stream",
		},
		{
			"no clock", func(b *scripted) { b.bind.Store(700) }, nil, false, "cannot anchor the device's clock",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newScripted()
			tt.setup(b)
			f := newBench(t, b)
			s := f.p.Stream(3, "main", tt.opts...)
			require.NotNil(t, s)
			require.Equal(t, tt.timed, s.DeviceTimed())
			require.Equal(t, s.Bound, b.kind == backend.StreamLegacy && tt.timed)
			testOp.Start(context.Background(), s).End()
			f.flush(t)
			_, source := f.status(0)
			if tt.timed {
				require.Equal(t, "cuda_event", source)
				require.Empty(t, f.errors())
			} else {
				require.Equal(t, "host", source)
				require.Contains(t, f.errors(), tt.want)
			}
			require.NoError(t, f.p.Shutdown(context.Background()))
			require.Empty(t, b.live)
		})
	}
}

func TestAFailedSelfTestChoosesTheBoundPath(t *testing.T) {
	b := newScripted()
	b.threads = true // records need a current context
	f := newBench(t, b)
	s := f.p.Stream(3, "main")
	require.True(t, s.Bound)
	for range 5 {
		testOp.Start(context.Background(), s).End()
	}
	f.flush(t)
	for i := range 5 {
		status, _ := f.status(i)
		require.Equal(t, "ok", status)
	}
	require.Eventually(t, func() bool { return b.bound.Load() == 0 }, time.Minute, time.Millisecond,
		"every Bind is undone")
}

func TestAStreamMayAskForTheBoundPath(t *testing.T) {
	f := newBench(t, newScripted())
	require.False(t, f.p.Stream(3, "plain").Bound, "a thread without a context can record")
	s := f.p.Stream(4, "asked", Bound())
	require.True(t, s.Bound)
	testOp.Start(context.Background(), s).End()
	f.flush(t)
	status, _ := f.status(0)
	require.Equal(t, "ok", status)
	require.Eventually(t, func() bool { return f.b.bound.Load() == 0 }, time.Minute, time.Millisecond,
		"every Bind is undone")
}

func TestAStreamUnderCaptureIsNotSelfTested(t *testing.T) {
	b := newScripted()
	b.capturing.Store(true)
	f := newBench(t, b)
	s := f.p.Stream(3, "main")
	require.True(t, s.Bound)
	require.Zero(t, b.records.Load(), "a record would end up in the application's graph")
}

func TestTheSameHandleGivesTheSameStreamUntilClosed(t *testing.T) {
	f := newBench(t, newScripted())
	a := f.p.Stream(3, "a")
	require.Same(t, a, f.p.Stream(3, "b"))
	x := testOp.Start(context.Background(), a)
	testOp.Start(context.Background(), a).End()
	live := len(f.b.live)
	a.Close()
	f.flush(t)
	c := f.p.Stream(3, "c")
	require.NotSame(t, a, c)
	require.False(t, testOp.Start(context.Background(), a).Timed())
	require.True(t, testOp.Start(context.Background(), c).Timed())
	require.Eventually(t, func() bool {
		f.b.mu.Lock()
		defer f.b.mu.Unlock()
		return len(f.b.live) <= live
	}, time.Minute, 5*time.Millisecond, "the closed stream's events are destroyed though a section was left open")
	x.End()
}

func TestTooManyStreamsOnlyCount(t *testing.T) {
	set := settings.Default()
	set.Streams = 2
	f := newBench(t, newScripted(), WithSettings(set))
	f.p.Stream(3, "a")
	f.p.Stream(4, "b")
	s := f.p.Stream(5, "c")
	require.NotNil(t, s)
	x := testOp.Start(context.Background(), s)
	require.False(t, x.Timed())
	x.EndWith(work.Work{Items: 1})
	require.Contains(t, f.errors(), `stream "c": too many streams`)
}

// Who asks for the stream with each request must not run out of streams without a device, or where the stream
// is refused.
func TestTheSameStreamOfHostTimesIsRegisteredOnce(t *testing.T) {
	legacy := newScripted()
	legacy.kind = backend.StreamLegacy
	none, err := New(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, none.Shutdown(context.Background())) }()
	f := newBench(t, legacy)
	for _, p := range []*Profiler{none, f.p} {
		a, b, c := p.Stream(3, "a"), p.Stream(3, "b"), p.Stream(4, "")
		require.NotSame(t, a, b)
		for range 300 {
			require.Same(t, a, p.Stream(3, "a"))
			require.Same(t, c, p.Stream(4, ""))
		}
		require.Len(t, p.StreamList.All(), 3)
		a.Close()
		flush(t, p)
		d := p.Stream(3, "a")
		require.NotSame(t, a, d)
		x := testOp.Start(context.Background(), d)
		require.True(t, x.Timed())
		x.End()
	}
	require.True(t, f.p.Stream(3, "a", AllowLegacy()).DeviceTimed(), "a refused stream may be requested in another way")
}
