// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

// prepared returns a backend with a stream and two recorded events.
func prepared(t testing.TB) (*cuda.Backend, *backend.Call, *backend.Call) {
	stub := ctest.CUDA(t)
	b := open(t, stub)
	s := appStream(t, b, 0)
	info, err := b.StreamInfo(s, 0)
	require.NoError(t, err)
	events := make([]backend.Event, 2)
	require.Zero(t, b.NewEvents(0, events))
	start := &backend.Call{Args: [2]uintptr{uintptr(events[0]), s}}
	end := &backend.Call{Args: [2]uintptr{uintptr(events[1]), s}}
	runtime.LockOSThread()
	unbind, st := b.Bind(info.Context)
	require.Zero(t, st)
	t.Cleanup(func() {
		unbind()
		runtime.UnlockOSThread()
	})
	require.Zero(t, b.Record(start))
	require.Zero(t, b.Record(end))
	require.Zero(t, b.Synchronize(backend.Event(end.Args[0])))
	return b, start, end
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes pools forget")
	}
	b, start, end := prepared(t)
	for name, f := range map[string]func(){
		"Record":      func() { b.Record(start) },
		"Query":       func() { b.Query(backend.Event(end.Args[0])) },
		"Capturing":   func() { b.Capturing(end.Args[1]) },
		"Elapsed":     func() { b.Elapsed(backend.Event(start.Args[0]), backend.Event(end.Args[0])) },
		"Synchronize": func() { b.Synchronize(backend.Event(end.Args[0])) },
		"Bind": func() {
			unbind, _ := b.Bind(0)
			unbind()
		},
	} {
		require.Zero(t, testing.AllocsPerRun(200, f), name)
	}
}

func BenchmarkRecord(b *testing.B) {
	back, start, _ := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		if back.Record(start) != backend.StatusOK {
			b.Fatal("not recorded")
		}
	}
}

func BenchmarkQuery(b *testing.B) {
	back, _, end := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		if back.Query(backend.Event(end.Args[0])) != backend.StatusOK {
			b.Fatal("not done")
		}
	}
}

func BenchmarkCapturing(b *testing.B) {
	back, start, _ := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		if on, st := back.Capturing(start.Args[1]); on || st != backend.StatusOK {
			b.Fatal("capturing")
		}
	}
}

func BenchmarkElapsed(b *testing.B) {
	back, start, end := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, st := back.Elapsed(backend.Event(start.Args[0]), backend.Event(end.Args[0])); st != backend.StatusOK {
			b.Fatal("no time")
		}
	}
}

func BenchmarkBind(b *testing.B) {
	back, _, _ := prepared(b)
	b.ReportAllocs()
	for b.Loop() {
		unbind, st := back.Bind(0)
		if st != backend.StatusOK {
			b.Fatal("not bound")
		}
		unbind()
	}
}
