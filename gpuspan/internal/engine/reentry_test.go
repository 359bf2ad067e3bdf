// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/engine"
	"github.com/otelgpu/otelgpu/gpuspan/internal/engine/enginetest"
	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
)

// caller is application code that uses the profiler within callbacks from the profiler.
type caller struct {
	faultyCode
	use   func()
	calls atomic.Int64
}

func (c *caller) again() {
	if c.use != nil && c.calls.Add(1) < 100 {
		c.use()
	}
}

func (c *caller) OnStart(context.Context, sdktrace.ReadWriteSpan) { c.again() }

func (c *caller) OnEnd(sdktrace.ReadOnlySpan) { c.again() }

func (c *caller) RangeStart(*section.Operation, trace.SpanContext, int64) (id uint64) {
	c.again()
	return 1
}

func (c *caller) RangeEnd(uint64) { c.again() }

func (c *caller) Write(p []byte) (int, error) { c.again(); return len(p), nil }

// No mutex is locked while application code runs, so that it may use the profiler.
func TestTheApplicationsCodeMayUseTheProfiler(t *testing.T) {
	c := &caller{faultyCode: faultyCode{&fault{}}}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(c))
	b := enginetest.NewBackend()
	p, err := engine.New(b, enginetest.WithTracerProvider(tp), enginetest.WithAnnotator(c), enginetest.WithOutputLog(c),
		enginetest.WithErrorHandler(func(error) { c.again() }))
	require.NoError(t, err)
	s := p.Stream(3, "main")
	op, inside := section.NewOperation("op", enginetest.PrintReport(c)), section.NewOperation("inside")
	c.use = func() {
		x := inside.Start(context.Background(), s)
		x.Add(work.Work{Items: 1})
		_ = s.DeviceTimed()
		_ = p.Misuse()
		_ = p.Enabled()
		x.End()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 50 {
			x := op.Start(context.Background(), s)
			x.Checksum(1)
			x.Start(op).End()
			x.End()
			for range p.Loop("loop", s, enginetest.TotalSteps(1)).Steps(context.Background()) {
			}
			if i == 40 {
				b.QueryStatus.Store(700) // the stream is retired: the error handler is called
			}
			_ = p.Flush(context.Background())
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatal("deadlock")
	}
	require.GreaterOrEqual(t, c.calls.Load(), int64(100))
	c.use = nil
	require.NoError(t, p.Shutdown(context.Background()))
}
