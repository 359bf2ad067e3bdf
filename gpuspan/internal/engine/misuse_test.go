// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// hung is a logger that does not return.
type hung struct {
	slog.Handler
	in, out chan struct{}
	once    sync.Once
}

func (h *hung) Enabled(context.Context, slog.Level) bool { return true }

func (h *hung) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.in) })
	<-h.out
	return nil
}

func TestShutdownDoesNotWaitForALoggerThatHangs(t *testing.T) {
	b := enginetest.NewBackend()
	h := &hung{in: make(chan struct{}), out: make(chan struct{})}
	f := enginetest.New(t, b, enginetest.WithLogger(slog.New(h)), enginetest.Changed(func(s *settings.Settings) { s.HangLimit = time.Millisecond }))
	s := f.P.Stream(3, "x")
	b.QueryStatus.Store(int32(backend.StatusNotReady))
	section.NewOperation("op").Start(context.Background(), s).End()
	<-h.in
	b.QueryStatus.Store(0)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		_ = f.P.Shutdown(ctx)
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("Shutdown waits for the logger")
	}
	close(h.out)
	<-done
}

// A program that a signal ends often calls Shutdown with the canceled context.
func TestShutdownWithACancelledContextFreesEverything(t *testing.T) {
	b := enginetest.NewBackend()
	f := enginetest.New(t, b)
	s := f.P.Stream(3, "x")
	section.NewOperation("op").Start(context.Background(), s).End()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := fmt.Sprint(f.P.Shutdown(ctx))
	require.NotContains(t, err, "some spans are lost")
	require.NotContains(t, err, "abandoned")
	require.True(t, b.Closed.Load())
	require.Empty(t, b.Live)
	require.Len(t, f.Spans.Ended(), 1)
}

func TestASecondShutdownKeepsItsOwnDeadline(t *testing.T) {
	b := enginetest.NewBackend()
	b.Block = make(chan struct{})
	f := enginetest.New(t, b)
	s := f.P.Stream(3, "x")
	b.Blocks.Store(true)
	section.NewOperation("op").Start(context.Background(), s).End()
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		first <- f.P.Shutdown(ctx)
	}()
	require.Eventually(t, f.P.Stopped, time.Minute, time.Millisecond)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		second <- f.P.Shutdown(ctx)
	}()
	select {
	case err := <-second:
		require.ErrorContains(t, err, "another call")
	case <-time.After(20 * time.Second):
		t.Error("the second call waits for the first")
	}
	close(b.Block)
	require.NoError(t, <-first)
	require.NoError(t, f.P.Shutdown(context.Background()))
}

// Many goroutines use all methods concurrently: every started section becomes a span or is counted.
func TestMisuseFromManyGoroutinesLosesNothing(t *testing.T) {
	b := enginetest.NewBackend()
	f := enginetest.New(t, b, enginetest.Changed(func(s *settings.Settings) { s.Slots = 16 }))
	streams := []*section.Stream{f.P.Stream(3, "a"), f.P.Stream(4, "b"), f.P.Stream(4, "b"), f.P.Stream(5, "")}
	ops := []*section.Operation{section.NewOperation(""), section.NewOperation(strings.Repeat("n", 1<<20)), section.NewOperation("x", func(c *section.OperationConfig) { c.Batch = true })}
	var wg sync.WaitGroup
	shared := make(chan section.Section, 64)
	for g := range 8 {
		wg.Go(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			for i := range 200 {
				s := streams[(g+i)%len(streams)]
				x := ops[i%len(ops)].Start(ctx, s)
				select {
				case shared <- x:
				default:
				}
				x.Add(work.Work{Items: -1, FLOPs: math.NaN(), Read: math.MinInt64})
				for range i % 3 {
					x.Link(nil) //nolint:staticcheck // nil on purpose
				}
				y := x.Start(ops[(i+1)%len(ops)])
				x.End()
				y.EndWith(work.Work{Items: 1})
				y.End()
				select {
				case z := <-shared:
					z.End()
					z.Start(ops[0]).End()
					z.Chunk(-1, 3)
				default:
				}
				if i == 150 && g == 0 {
					streams[0].Close()
				}
				if i == 180 && g == 1 {
					_ = f.P.Shutdown(ctx)
				}
			}
		})
	}
	wg.Wait()
	require.NoError(t, f.P.Flush(context.Background()))
	_ = f.P.Shutdown(context.Background())
	require.True(t, b.Closed.Load())
	var statuses int64
	for _, n := range f.P.Statuses() {
		statuses += n
	}
	require.EqualValues(t, len(f.Spans.Ended())+int(f.P.Drops()["nest_limit"]), statuses)
}

// failing returns an error from the n-th call.
type failing struct {
	*enginetest.Backend
	n    int
	left int
	how  string
}

func (b *failing) fails() backend.Status {
	b.Mu.Lock()
	defer b.Mu.Unlock()
	b.n++
	if b.left--; b.left != 0 {
		return backend.StatusOK
	}
	if b.how == "panic" {
		panic("injected")
	}
	return backend.Status(700)
}

func either(a, b backend.Status) backend.Status {
	if a != backend.StatusOK {
		return a
	}
	return b
}

func (b *failing) Devices() ([]backend.Device, error) {
	if st := b.fails(); st != 0 {
		return nil, &backend.StatusError{Call: "x", Status: st}
	}
	return b.Backend.Devices()
}

func (b *failing) ThreadInit() error {
	if st := b.fails(); st != 0 {
		return &backend.StatusError{Call: "x", Status: st}
	}
	return nil
}

func (b *failing) Bind(d backend.Context) (func(), backend.Status) {
	if st := b.fails(); st != 0 {
		return nil, st
	}
	return b.Backend.Bind(d)
}

func (b *failing) Record(c *backend.Call) backend.Status {
	return either(b.fails(), b.Backend.Record(c))
}

func (b *failing) Query(e backend.Event) backend.Status {
	return either(b.fails(), b.Backend.Query(e))
}

func (b *failing) Synchronize(e backend.Event) backend.Status {
	return either(b.fails(), b.Backend.Synchronize(e))
}

func (b *failing) Elapsed(x, y backend.Event) (float64, backend.Status) {
	ms, st := b.Backend.Elapsed(x, y)
	return ms, either(b.fails(), st)
}

func (b *failing) StreamInfo(s backend.StreamHandle, c backend.Context) (backend.StreamInfo, error) {
	if st := b.fails(); st != 0 {
		return backend.StreamInfo{}, &backend.StatusError{Call: "x", Status: st}
	}
	return b.Backend.StreamInfo(s, c)
}

func (b *failing) NewStream(d backend.Context) (backend.StreamHandle, backend.Status) {
	h, st := b.Backend.NewStream(d)
	return h, either(b.fails(), st)
}

func (b *failing) NewEvents(d backend.Context, dst []backend.Event) backend.Status {
	if st := b.fails(); st != 0 {
		return st
	}
	return b.Backend.NewEvents(d, dst)
}

func (b *failing) Capturing(s backend.StreamHandle) (bool, backend.Status) {
	c, st := b.Backend.Capturing(s)
	return c, either(b.fails(), st)
}

func (b *failing) MemoryUsage(d backend.Context) (int64, backend.Status) {
	n, st := b.Backend.MemoryUsage(d)
	return n, either(b.fails(), st)
}

func (b *failing) Close() error {
	if st := b.fails(); st != 0 {
		return &backend.StatusError{Call: "x", Status: st}
	}
	return b.Backend.Close()
}

func TestAnyCallOfADriverMayFail(t *testing.T) {
	for _, how := range []string{"status", "panic"} {
		for n := 1; ; n++ {
			b := &failing{Backend: enginetest.NewBackend(), left: n, how: how}
			spans := tracetest.NewSpanRecorder()
			p, _ := engine.New(b, enginetest.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
				enginetest.WithErrorHandler(func(error) {}), enginetest.WithLogger(slog.New(slog.DiscardHandler)),
				enginetest.Changed(func(s *settings.Settings) { s.MemoryUsage = true; s.Slots = 16 }))
			s := p.Stream(3, "x")
			op := section.NewOperation("op")
			for range 3 {
				x := op.Start(context.Background(), s)
				x.Start(op).End()
				x.End()
			}
			for _, st := range p.Loop("l", s, enginetest.TotalSteps(2)).Steps(context.Background()) {
				st.Phase("a").End()
			}
			_ = p.Flush(context.Background())
			_ = p.Shutdown(context.Background())
			require.Len(t, spans.Ended(), 10, "%s at call %d", how, n)
			if how == "status" {
				require.Empty(t, b.Live, "events at call %d", n)
			}
			if b.n < n {
				break
			}
		}
	}
}
