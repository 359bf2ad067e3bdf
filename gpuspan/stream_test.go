// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

func TestAStreamIsFoundInTheContext(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	op := gpuspan.NewOperation("deep in a library")
	work := func(ctx context.Context) {
		x := op.Start(ctx, gpuspan.StreamFromContext(ctx))
		r.busy(h, time.Millisecond)
		x.End()
	}
	work(context.Background()) // as with profiling disabled
	ctx := gpuspan.ContextWithStream(context.Background(), s)
	require.Same(t, s, gpuspan.StreamFromContext(ctx))
	work(ctx)
	work(gpuspan.ContextWithStream(ctx, nil))
	r.clock.Advance(10 * time.Millisecond)
	r.flush()
	require.Len(t, r.named(op.Name()), 1)
}

// A simulated device states its peaks; for a device that no backend can query, the program does.
func TestReportsCompareWithThePeaksThatADeviceStates(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	peak := simgpu.DefaultSpec().MemoryBandwidth
	op := gpuspan.NewOperation("copy.kernel")
	x := op.Start(context.Background(), s)
	r.busy(h, time.Millisecond)
	x.EndWith(gpuspan.Work{Read: int64(peak / 1000 / 4)}) // a quarter of the peak for one millisecond
	told := r.p.Stream(0, "told", gpuspan.OnDevice(backend.Device{
		Ordinal: 1, UUID: "GPU-1", Peaks: &report.Peaks{FLOPs: map[string]float64{"bf16": 1e12}, Source: "config"},
	}))
	require.Same(t, told, r.p.Stream(0, "told", gpuspan.OnDevice(backend.Device{Ordinal: 1, UUID: "GPU-1"})))
	remote := gpuspan.NewOperation("remote", gpuspan.Synchronous())
	remote.RecordMeasured(context.Background(), told, epoch, time.Second, gpuspan.Work{FLOPs: 5e11, Precision: gpuspan.BF16})
	r.clock.Advance(10 * time.Millisecond)
	r.flush()
	for _, o := range r.p.Snapshot().Operations {
		switch o.Name {
		case "copy.kernel":
			require.Equal(t, "memory", o.PeakOf)
			require.InDelta(t, 0.25, o.PeakShare, 0.002, "the launch takes 4 µs more")
		case "remote":
			require.Equal(t, "bf16", o.PeakOf)
			require.InDelta(t, 0.5, o.PeakShare, 0.001)
		}
	}
	require.Len(t, r.p.Snapshot().Operations, 2)
}
