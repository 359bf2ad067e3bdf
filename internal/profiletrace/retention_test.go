// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"cmp"
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// Launches are remembered for late activities, spread over the whole profile if their correlations
// are. They must not keep data of written spans.
func TestWrittenSpansAreFreedWhileTheirLaunchesAreRemembered(t *testing.T) {
	p := New(Options{Detail: emit.LevelKernels, MemoryMiB: 1, TempDir: t.TempDir()}, Source{Scope: "s", Root: "r"})
	defer p.Close()
	const launches, apart = 120_000, 10_000 // ns
	operator, call, kernel := p.Names.ID("aten::addmm"), p.Names.ID("cudaLaunchKernel"), p.Names.ID("gemm")
	for i := range int64(launches) {
		at := i * apart
		for depth := range int64(4) {
			require.NoError(t, p.Add(&event.Event{
				Kind: event.KindOperator, Name: operator, Start: at + depth, Duration: 8_000 - 2*depth, Process: 1, Thread: 1,
			}))
		}
		correlation := i*37 + 1
		require.NoError(t, p.Add(&event.Event{
			Kind: event.KindRuntime, Name: call, Start: at + 100, Duration: 2_000, Correlation: correlation, Process: 1, Thread: 1,
		}))
		require.NoError(t, p.Add(&event.Event{
			Kind: event.KindKernel, Name: kernel, Start: at + 5_000, Duration: 4_000, Correlation: correlation, Stream: 7,
		}))
	}
	before, spans, most, next := live(), 0, uint64(0), launches
	st, err := p.Emit(t.Context(), func(_ context.Context, td ptrace.Traces) error {
		if spans += td.SpanCount(); spans > next {
			most, next = max(most, live()), next+launches
		}
		return nil
	})
	require.NoError(t, err)
	assert.EqualValues(t, 6*launches+2, st.Spans)
	assert.Less(t, (most-before)>>20, uint64(60), "MiB live, of at most 20,000 nodes and 65,536 launches")
}

func live() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// A server's file has hundreds of threads, each of which works for a while. One that ended must not
// keep what it did.
func TestEndedThreadsKeepNothing(t *testing.T) {
	p := New(Options{Detail: emit.LevelKernels, Paths: true, TempDir: t.TempDir()}, Source{Scope: "s", Root: "r"})
	defer p.Close()
	const threads, ranges, apart = 20, 4_000, 10_000 // ns
	names := [2]uint32{p.Names.ID("read"), p.Names.ID("parse")}
	call, kernel := p.Names.ID("cudaLaunchKernel"), p.Names.ID("gemm")
	for i := range int64(threads * ranges) {
		at, thread := i*apart, i/ranges+1
		require.NoError(t, p.Add(&event.Event{
			Kind: event.KindOther, Name: names[i%2], Start: at, Duration: 2_000, Process: 1, Thread: thread,
		}))
		if i%100 == 0 {
			require.NoError(t, p.Add(&event.Event{
				Kind: event.KindRuntime, Name: call, Start: at + 3_000, Duration: 2_000, Correlation: i + 1, Process: 1, Thread: thread,
			}))
			require.NoError(t, p.Add(&event.Event{
				Kind: event.KindKernel, Name: kernel, Start: at + 5_000, Duration: 4_000, Correlation: i + 1, Stream: thread,
			}))
		}
	}
	var first, last uint64
	calls := 0
	_, err := p.Emit(t.Context(), func(context.Context, ptrace.Traces) error {
		if calls++; calls%16 == 1 {
			last = live()
			first = cmp.Or(first, last)
		}
		return nil
	})
	require.NoError(t, err)
	assert.Less(t, int64(last-first)>>10, int64(16_000), "KiB; 17,700 if threads keep what they did")
}
