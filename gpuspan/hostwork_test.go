// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/gpuspan/train"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestHostWorkIsReportedButNotAsGPUWork(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	compile, kernel := gpuspan.NewOperation("compile", gpuspan.HostWork()), gpuspan.NewOperation("kernel")
	x := compile.Start(context.Background(), s)
	r.clock.Advance(40 * time.Millisecond)
	y := x.Start(kernel) // a warm-up run of the compiled kernel
	r.busy(h, 2*time.Millisecond)
	y.End()
	r.clock.Advance(5 * time.Millisecond)
	x.End()
	r.flush()
	span := r.ended()["compile"]
	a := attrs(span)
	require.Equal(t, "host", a["gpu.operation.type"].AsString())
	require.Equal(t, "host", a["gpu.timing.source"].AsString())
	require.NotContains(t, a, "gpu.duration")
	require.InDelta(t, 0.045, span.EndTime().Sub(span.StartTime()).Seconds(), 1e-4)
	sum := r.p.Snapshot()
	require.InDelta(t, 2e6, float64(sum.Total()), 1e4)
	require.Len(t, sum.Operations, 2)
	require.Equal(t, "compile", sum.Operations[0].Name)
	require.Zero(t, sum.Operations[0].ShareOfTotal)
	require.InDelta(t, 1, sum.Operations[1].ShareOfTotal, 1e-6)
	require.Zero(t, sum.OnHost)
}

// Two phases of equal length have half of the time each, even if their sections start with the
// step's context.
func TestSharesOfPhasesAndTheirSectionsCountOnce(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	adamw := gpuspan.NewOperation("adamw")
	for ctx, st := range train.NewLoop(r.p, "train", s, train.TotalSteps(3)).Steps(context.Background()) {
		f := st.Phase(train.Forward)
		r.busy(h, time.Millisecond)
		f.End()
		o := st.Phase(train.Optimizer)
		x := adamw.Start(ctx, s)
		r.busy(h, time.Millisecond)
		x.End()
		o.End()
		r.clock.Advance(5 * time.Millisecond)
	}
	r.flush()
	sum := r.p.Snapshot()
	share := map[string]float64{}
	for _, o := range sum.Operations {
		share[strings.Join(o.Path, ">")] = o.ShareOfTotal
	}
	require.Len(t, share, 3, share)
	require.InDelta(t, .5, share["forward"], 1e-2)
	require.InDelta(t, .5, share["optimizer"], 1e-2)
	require.InDelta(t, .5, share["optimizer>adamw"], 1e-2)
}

func TestReportsHaveRatesIfTheTimeOfWorkIsKnown(t *testing.T) {
	r := newRig(t, set(func(s *settings.Settings) { s.Sync = settings.SyncNone }))
	s, _ := r.stream()
	for name, op := range map[string]*gpuspan.Operation{
		"launched": gpuspan.NewOperation("launched", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pinned)),
		"blocking": gpuspan.NewOperation("blocking", gpuspan.Copy(gpuspan.HostToDevice, gpuspan.Pageable),
			gpuspan.Synchronous(),
			gpuspan.Attributes(semconv.GPUIOAccessPattern(semconv.GPUIOAccessPatternStrided))),
	} {
		x := op.Start(context.Background(), s)
		r.clock.Advance(time.Millisecond)
		x.EndWith(gpuspan.Work{Bytes: 64e6})
		r.flush()
		for _, o := range r.p.Snapshot().Operations {
			if o.Name != name {
				continue
			}
			if name == "launched" {
				require.Zero(t, o.All.Rates())
			} else {
				require.InDelta(t, 64e9, o.All.Rates().PCIe, 1e9)
				require.Equal(t, "strided", o.AccessPattern)
			}
		}
	}
	require.Zero(t, r.p.Snapshot().Pending)
	s.Name()
}
