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
)

// Every way to declare a copy of 64 MB in 2 ms is 32 GB/s in the column of its direction, from Copy
// to the printed text.
func TestCopiesHaveTheirDirection(t *testing.T) {
	const n = 64_000_000
	for name, tt := range map[string]struct {
		direction gpuspan.Direction
		declare   func(gpuspan.Section, gpuspan.Direction)
		of        bool // the direction is the operation's
	}{
		"bytes":            {gpuspan.HostToDevice, func(x gpuspan.Section, _ gpuspan.Direction) { x.EndWith(gpuspan.Work{Bytes: n}) }, true},
		"read and written": {gpuspan.HostToDevice, func(x gpuspan.Section, _ gpuspan.Direction) { x.EndWith(gpuspan.Work{Read: n, Written: n}) }, true},
		"read, then added": {gpuspan.DeviceToHost, func(x gpuspan.Section, _ gpuspan.Direction) {
			x.Add(gpuspan.Work{Read: n})
			x.EndWith(gpuspan.Work{Written: n})
		}, true},
		"copied in":         {gpuspan.HostToDevice, func(x gpuspan.Section, d gpuspan.Direction) { x.AddCopied(d, n); x.End() }, false},
		"copied out":        {gpuspan.DeviceToHost, func(x gpuspan.Section, d gpuspan.Direction) { x.AddCopied(d, n); x.End() }, false},
		"written to memory": {gpuspan.DeviceToHost, func(x gpuspan.Section, _ gpuspan.Direction) { x.EndWith(gpuspan.Work{Written: n}) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s, h := r.stream()
			var opts []gpuspan.OperationOption
			if tt.of {
				opts = append(opts, gpuspan.Copy(tt.direction, gpuspan.Pinned))
			}
			x := gpuspan.NewOperation("copy", opts...).Start(context.Background(), s)
			r.busy(h, 2*time.Millisecond)
			tt.declare(x, tt.direction)
			r.gpu.Wait(h)
			r.flush()
			o := r.p.Snapshot().Operations[0]
			in, out := o.All.Rates().ToDevice, o.All.Rates().FromDevice
			line := `(?m)^copy +- +- +- +31\.9\d +- +31\.9`
			if tt.direction == gpuspan.DeviceToHost {
				in, out = out, in
				line = `(?m)^copy +- +- +- +- +31\.9\d +31\.9`
			}
			require.InDelta(t, 32e9, in, 1e8)
			require.Zero(t, out)
			var b strings.Builder
			require.NoError(t, r.p.Snapshot().WriteText(&b))
			require.Regexp(t, line, b.String())
			require.Regexp(t, `to dev +from`, b.String())
		})
	}
}

// Work that no device can do in the time, as if a kernel ran on another stream than its section, is
// remarked in the text, the table and the object, as gpu_derive does.
func TestImpossibleRatesAreRemarked(t *testing.T) {
	r := newRig(t)
	s, h := r.stream()
	for name, flops := range map[string]float64{"possible": 1e9, "impossible": 1e18} {
		x := gpuspan.NewOperation(name).Start(context.Background(), s)
		r.busy(h, time.Millisecond)
		x.EndWith(gpuspan.Work{FLOPs: flops, Precision: gpuspan.BF16})
	}
	r.gpu.Wait(h)
	r.flush()
	var text, table, object strings.Builder
	require.NoError(t, r.p.Snapshot().WriteText(&text))
	require.Regexp(t, `(?m)^impossible .* bf16!$`, text.String())
	require.Regexp(t, `(?m)^possible .* bf16$`, text.String())
	require.Contains(t, text.String(), "!: more than the device can do in the time (exceeds_peak)")
	require.NoError(t, r.p.Snapshot().WriteCSV(&table))
	require.Equal(t, 1, strings.Count(table.String(), "exceeds_peak"))
	require.NoError(t, r.p.Snapshot().WriteJSON(&object))
	require.Equal(t, 1, strings.Count(object.String(), `"declaration_status": "exceeds_peak"`))
}
