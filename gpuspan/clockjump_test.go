// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// jumping is a device whose clock jumps once.
type jumping struct {
	*simgpu.GPU
	jump   time.Duration
	jumped atomic.Bool

	mu    sync.Mutex
	after map[uintptr]bool // events that were recorded after the jump
}

func (j *jumping) Record(c *backend.Call) backend.Status {
	j.mu.Lock()
	j.after[c.Args[0]] = j.jumped.Load()
	j.mu.Unlock()
	return j.GPU.Record(c)
}

func (j *jumping) Elapsed(a, b backend.Event) (float64, backend.Status) {
	d, st := j.GPU.Elapsed(a, b)
	j.mu.Lock()
	defer j.mu.Unlock()
	switch from, to := j.after[uintptr(a)], j.after[uintptr(b)]; {
	case to && !from:
		d += float64(j.jump)
	case from && !to:
		d -= float64(j.jump)
	}
	return d, st
}

// No span leaves the time between the call of its Start and the return of Wait, whatever the
// device's clock says, and sections long after a jump are placed as before it.
func TestSpansStayWithinWhatTheHostDid(t *testing.T) {
	for _, jump := range []time.Duration{
		3 * time.Millisecond, -3 * time.Millisecond, -100 * time.Millisecond, -time.Second, -4295 * time.Millisecond,
		10 * time.Minute, -10 * time.Minute,
	} {
		t.Run(jump.String(), func(t *testing.T) {
			t.Parallel()
			device := &jumping{GPU: simgpu.New(nil, simgpu.WithJitter(0)), jump: jump, after: map[uintptr]bool{}}
			spans := tracetest.NewSpanRecorder()
			var mu sync.Mutex
			var errs []string
			p, err := gpuspan.New(device,
				gpuspan.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
				gpuspan.WithErrorHandler(func(err error) { mu.Lock(); defer mu.Unlock(); errs = append(errs, err.Error()) }))
			require.NoError(t, err)
			h := device.Stream(0)
			s := p.Stream(h, "main")
			op := gpuspan.NewOperation("op")
			type history struct{ from, to time.Time }
			var list []history
			for i := range 300 {
				x := history{from: time.Now().Round(0)}
				section := op.Start(context.Background(), s)
				section.SetAttributes(attribute.Int("i", i))
				device.Launch(h, simgpu.Kernel{Duration: 400 * time.Microsecond})
				if i == 150 {
					device.jumped.Store(true)
				}
				section.End()
				device.Wait(h)
				x.to = time.Now().Round(0)
				list = append(list, x)
				time.Sleep(2 * time.Millisecond) // spreads the sections over anchors
			}
			flush(t, p)
			require.NoError(t, p.Shutdown(context.Background()))
			require.Len(t, spans.Ended(), len(list))
			const slack = 100 * time.Microsecond // of two readings of the wall clock, which this test does not share
			for _, span := range spans.Ended() {
				a := attrs(span)
				x, bound := list[a["i"].AsInt64()], time.Duration(a["gpu.timing.error"].AsFloat64()*1e9)
				require.False(t, span.StartTime().Before(x.from.Add(-slack)), "section %d starts %s before its Start",
					a["i"].AsInt64(), x.from.Sub(span.StartTime()))
				require.False(t, span.EndTime().After(x.to.Add(slack+bound)), "section %d ends %s after Wait returned, ± %s",
					a["i"].AsInt64(), span.EndTime().Sub(x.to), bound)
			}
			if jump < -time.Second {
				require.Contains(t, fmt.Sprint(errs), "its clock jumped backward")
			}
			if jump >= 10*time.Minute {
				require.Equal(t, "clock_jump", attrs(spans.Ended()[150])["gpu.timing.status"].AsString())
			}
		})
	}
}
