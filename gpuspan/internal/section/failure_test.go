// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

func TestADeviceErrorRetiresTheStreamAndLosesNoSection(t *testing.T) {
	for _, tt := range []struct {
		name    string
		disturb func(*enginetest.Backend)
		want    string
	}{
		{
			"at query", func(b *enginetest.Backend) { b.QueryStatus.Store(700) },
			`stream "main" is retired, its sections get host times only: event: status 700 (illegal address)`,
		},
		{
			"at record", func(b *enginetest.Backend) { b.RecordStatus.Store(int32(backend.StatusContextDestroyed)) },
			`status 709 (context destroyed)`,
		},
		{"device lost", func(b *enginetest.Backend) { b.QueryStatus.Store(46) }, `status 46 (device unavailable)`},
		{"memory error", func(b *enginetest.Backend) { b.QueryStatus.Store(214) }, `status 214 (uncorrectable ECC error)`},
		{"restart of the MPS server", func(b *enginetest.Backend) { b.RecordStatus.Store(806) }, `status 806 (MPS server failed)`},
		{"MPS client ended", func(b *enginetest.Backend) { b.QueryStatus.Store(810) }, `status 810 (MPS client terminated)`},
		{"shutdown of the driver reports nothing", func(b *enginetest.Backend) { b.QueryStatus.Store(int32(backend.StatusDeinitialized)) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := enginetest.New(t, enginetest.NewBackend())
			s := f.P.Stream(3, "main")
			require.True(t, s.DeviceTimed())
			tt.disturb(f.B)
			for range 3 {
				enginetest.Op.Start(context.Background(), s).End()
			}
			f.Flush(t)
			require.False(t, s.DeviceTimed())
			require.Len(t, f.Spans.Ended(), 3)
			for i := range 3 {
				status, source := f.Status(i)
				require.Equal(t, "device_error", status)
				require.Equal(t, "host", source)
			}
			n := f.B.Records.Load()
			enginetest.Op.Start(context.Background(), s).End()
			f.Flush(t)
			require.Equal(t, n, f.B.Records.Load(), "no call to the driver after retirement")
			if tt.want == "" {
				require.Empty(t, f.Errors())
			} else {
				require.Contains(t, f.Errors(), tt.want)
				require.Equal(t, 1, strings.Count(f.Errors(), "retired"), "said once")
			}
		})
	}
}

func TestAHangIsLoggedOnceAndSeenInTheGauge(t *testing.T) {
	var lines logLines
	set := settings.Default()
	set.HangLimit = 20 * time.Millisecond
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set), enginetest.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	s := f.P.Stream(3, "main")
	enginetest.Op.Start(context.Background(), s).End()
	time.Sleep(40 * time.Millisecond)
	for range 3 {
		f.P.Watchdog.Look()
	}
	require.Equal(t, 1, strings.Count(lines.String(), "the device has not finished a section"))
	require.Contains(t, lines.String(), "operation=op stream=main")
	name, age, _, ok := s.Oldest(f.P.Clock.Now())
	require.True(t, ok)
	require.Equal(t, "op", name)
	require.Greater(t, age, 30*time.Millisecond)
	f.B.QueryStatus.Store(int32(backend.StatusOK))
}

// logLines collects log output; the watchdog also writes once a second.
type logLines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func TestForgottenSectionsGiveTheirSlotsBack(t *testing.T) {
	set := settings.Default()
	set.OpenLimit, set.Slots = 10*time.Millisecond, 4
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s := f.P.Stream(3, "main")
	// on the polling thread, so that it does not clean up in between
	require.NoError(t, f.P.Poller.Call(context.Background(), func() {
		for range 4 {
			enginetest.Op.Start(context.Background(), s)
		}
		require.False(t, enginetest.Op.Start(context.Background(), s).Timed())
		time.Sleep(20 * time.Millisecond)
		f.P.Poller.Tidy()
		x := enginetest.Op.Start(context.Background(), s)
		require.True(t, x.Timed())
		x.End()
	}))
	f.Flush(t)
	status, _ := f.Status(0)
	require.Equal(t, "timeout", status)
}

func TestADriverThatHangsDelaysNothing(t *testing.T) {
	b := enginetest.NewBackend()
	b.Block = make(chan struct{})
	set := settings.Default()
	set.Slots, set.HangLimit = 8, 10*time.Millisecond
	var lines logLines
	f := enginetest.New(t, b, enginetest.WithSettings(set), enginetest.WithLogger(slog.New(slog.NewTextHandler(&lines, nil))))
	s := f.P.Stream(3, "main")
	b.Blocks.Store(true)
	for range 100 {
		enginetest.Op.Start(context.Background(), s).EndWith(work.Work{Items: 1})
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	require.ErrorContains(t, f.P.Flush(ctx), "the polling thread did not respond")
	f.P.Snapshot()
	f.P.Reset()
	f.P.SetEnabled(false)
	name, age, _, ok := s.Oldest(f.P.Clock.Now())
	require.True(t, ok)
	require.Equal(t, "op", name)
	require.Positive(t, age)
	said := func() int {
		f.P.Watchdog.Look()
		return strings.Count(lines.String(), "the polling thread does not come back")
	}
	require.Eventually(t, func() bool { // logged once, unless the thread was also slow before it hung
		before := said()
		time.Sleep(2 * set.HangLimit)
		return before > 0 && said() == before
	}, time.Minute, time.Millisecond)
	err := f.P.Shutdown(ctx)
	require.ErrorContains(t, err, "the polling thread is blocked in the driver and was abandoned")
	close(b.Block) // the driver returns and the thread ends, as the goroutine leak check requires
	<-f.P.Poller.Done
}

// If sections that never end use up a stream's slots, later sections are only counted, and a
// warning is logged.
func TestMissingEndsThatExhaustAStreamAreReported(t *testing.T) {
	set := settings.Default()
	set.NestDeadline, set.Slots = 10*time.Millisecond, 4
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s, hung := f.P.Stream(3, "main"), f.P.Stream(4, "hung")
	require.NoError(t, f.P.Poller.Call(context.Background(), func() {
		f.B.QueryStatus.Store(int32(backend.StatusNotReady))
		for range 4 {
			enginetest.Op.Start(context.Background(), hung).End() // caused by the device, not by missing ends
		}
		for range 3 {
			enginetest.Op.Start(context.Background(), s)
		}
		time.Sleep(20 * time.Millisecond)
		f.P.Poller.Tidy()
		require.Empty(t, f.Errors(), "one is free")
		enginetest.Op.Start(context.Background(), s)
		f.P.Poller.Tidy()
		f.P.Poller.Tidy()
	}))
	require.Regexp(t,
		"^gpuspan: stream \"main\": 4 of its 4 slots are in use by sections that were started and not ended, one of `op` for [0-9.]+m?s "+
			"\\(end them on error paths too, as by defer, or raise `slots`\\); other sections are only counted$", f.Errors())
	f.B.QueryStatus.Store(int32(backend.StatusOK))
}

// A section on a hung device still becomes a span, late and with host times, as does a step.
func TestASectionThatTheDeviceDoesNotFinishHasASpanAllTheSame(t *testing.T) {
	set := settings.Default()
	set.HangLimit, set.HangDeadline, set.NestDeadline = 0, 10*time.Millisecond, time.Millisecond
	f := enginetest.New(t, enginetest.NewBackend(), enginetest.WithSettings(set))
	s, hung := f.P.Stream(3, "main"), f.P.Stream(4, "hung")
	f.B.QueryStatus.Store(int32(backend.StatusNotReady))
	enginetest.Op.Start(context.Background(), s).End()
	x := enginetest.Op.Start(context.Background(), s)
	x.StartOn(enginetest.Op, hung).End()
	x.End()
	time.Sleep(20 * time.Millisecond)
	f.Tidy(t)
	f.Tidy(t)
	require.Len(t, f.Spans.Ended(), 3)
	for i := range 3 {
		status, source := f.Status(i)
		require.Equal(t, "timeout", status)
		require.Equal(t, "host", source)
	}
	f.B.QueryStatus.Store(int32(backend.StatusOK)) // the device recovers
	f.Flush(t)
	f.Tidy(t)
	require.Len(t, f.Spans.Ended(), 3, "once")
	for _, s := range []*section.Stream{s, hung} {
		s.Mu.Lock()
		require.Len(t, s.Free, len(s.Slots))
		s.Mu.Unlock()
	}
}
