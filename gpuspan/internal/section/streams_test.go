// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestStreamsThatCannotBeTimedGetHostTimes(t *testing.T) {
	for _, tt := range []struct {
		name  string
		setup func(*enginetest.Backend)
		opts  []enginetest.StreamOption
		timed bool
		want  string
	}{
		{"per thread", func(b *enginetest.Backend) { b.Kind = backend.StreamPerThread }, nil, false, "per-thread default stream"},
		{
			"per thread, legacy allowed", func(b *enginetest.Backend) { b.Kind = backend.StreamPerThread },
			[]enginetest.StreamOption{enginetest.AllowLegacy()},
			false, "per-thread default stream",
		},
		{"legacy", func(b *enginetest.Backend) { b.Kind = backend.StreamLegacy }, nil, false, "AllowLegacy"},
		{"legacy, allowed", func(b *enginetest.Backend) { b.Kind = backend.StreamLegacy }, []enginetest.StreamOption{enginetest.AllowLegacy()}, true, ""},
		{
			"unknown handle", func(b *enginetest.Backend) { b.InfoErr = errors.New("no such stream") }, nil, false,
			"handle 0x3: no such stream",
		},
		{
			"no clock", func(b *enginetest.Backend) { b.BindStatus.Store(700) }, nil, false, "cannot anchor the device's clock",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := enginetest.NewBackend()
			tt.setup(b)
			f := enginetest.New(t, b)
			s := f.P.Stream(3, "main", tt.opts...)
			require.NotNil(t, s)
			require.Equal(t, tt.timed, s.DeviceTimed())
			require.Equal(t, (*s.Bound()), b.Kind == backend.StreamLegacy && tt.timed)
			enginetest.Op.Start(context.Background(), s).End()
			f.Flush(t)
			_, source := f.Status(0)
			if tt.timed {
				require.Equal(t, "cuda_event", source)
				require.Empty(t, f.Errors())
			} else {
				require.Equal(t, "host", source)
				require.Contains(t, f.Errors(), tt.want)
			}
			require.NoError(t, f.P.Shutdown(context.Background()))
			require.Empty(t, b.Live)
		})
	}
}

func TestAFailedSelfTestChoosesTheBoundPath(t *testing.T) {
	b := enginetest.NewBackend()
	b.Threads = true // records need a current context
	f := enginetest.New(t, b)
	s := f.P.Stream(3, "main")
	require.True(t, (*s.Bound()))
	for range 5 {
		enginetest.Op.Start(context.Background(), s).End()
	}
	f.Flush(t)
	for i := range 5 {
		status, _ := f.Status(i)
		require.Equal(t, "ok", status)
	}
	require.Eventually(t, func() bool { return b.BoundNow.Load() == 0 }, time.Minute, time.Millisecond,
		"every Bind is undone")
}

func TestAStreamMayRequestTheBoundPath(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	require.False(t, (*f.P.Stream(3, "plain").Bound()), "a thread without a context can record")
	s := f.P.Stream(4, "asked", enginetest.Bound())
	require.True(t, (*s.Bound()))
	enginetest.Op.Start(context.Background(), s).End()
	f.Flush(t)
	status, _ := f.Status(0)
	require.Equal(t, "ok", status)
	require.Eventually(t, func() bool { return f.B.BoundNow.Load() == 0 }, time.Minute, time.Millisecond,
		"every Bind is undone")
}

func TestAStreamUnderCaptureIsNotSelfTested(t *testing.T) {
	b := enginetest.NewBackend()
	b.InCapture.Store(true)
	f := enginetest.New(t, b)
	s := f.P.Stream(3, "main")
	require.True(t, (*s.Bound()))
	require.Zero(t, b.Records.Load(), "a record would end up in the application's graph")
}

func TestTheSameHandleGivesTheSameStreamUntilClosed(t *testing.T) {
	f := enginetest.New(t, enginetest.NewBackend())
	a := f.P.Stream(3, "a")
	require.Same(t, a, f.P.Stream(3, "b"))
	x := enginetest.Op.Start(context.Background(), a)
	enginetest.Op.Start(context.Background(), a).End()
	live := len(f.B.Live)
	a.Close()
	f.Flush(t)
	c := f.P.Stream(3, "c")
	require.NotSame(t, a, c)
	require.False(t, enginetest.Op.Start(context.Background(), a).Timed())
	require.True(t, enginetest.Op.Start(context.Background(), c).Timed())
	require.Eventually(t, func() bool {
		f.B.Mu.Lock()
		defer f.B.Mu.Unlock()
		return len(f.B.Live) <= live
	}, time.Minute, 5*time.Millisecond, "the closed stream's events are destroyed though a section was left open")
	x.End()
}

func TestTooManyStreamsOnlyCount(t *testing.T) {
	set := settings.Default()
	set.Streams = 2
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	f.P.Stream(3, "a")
	f.P.Stream(4, "b")
	s := f.P.Stream(5, "c")
	require.NotNil(t, s)
	x := enginetest.Op.Start(context.Background(), s)
	require.False(t, x.Timed())
	x.EndWith(work.Work{Items: 1})
	require.Contains(t, f.Errors(), `stream "c": too many streams`)
}

// A program that requests the stream for each request must not exhaust the limit, without a device
// or if the stream is rejected.
func TestTheSameStreamOfHostTimesIsRegisteredOnce(t *testing.T) {
	legacy := enginetest.NewBackend()
	legacy.Kind = backend.StreamLegacy
	none, err := engine.New(nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, none.Shutdown(context.Background())) }()
	f := enginetest.New(t, legacy)
	for _, p := range []*engine.Profiler{none, f.P} {
		a, b, c := p.Stream(3, "a"), p.Stream(3, "b"), p.Stream(4, "")
		require.NotSame(t, a, b)
		for range 300 {
			require.Same(t, a, p.Stream(3, "a"))
			require.Same(t, c, p.Stream(4, ""))
		}
		require.Len(t, p.Streams(), 3)
		a.Close()
		enginetest.Flush(t, p)
		d := p.Stream(3, "a")
		require.NotSame(t, a, d)
		x := enginetest.Op.Start(context.Background(), d)
		require.True(t, x.Timed())
		x.End()
	}
	require.True(t, f.P.Stream(3, "a", enginetest.AllowLegacy()).DeviceTimed(), "a refused stream may be requested in another way")
}
