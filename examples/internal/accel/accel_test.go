// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package accel

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/gpuspan"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Examples must declare the work that the device gets, or their rates are wrong.
func TestSimulatedDeviceUsesDeclaredWork(t *testing.T) {
	var said strings.Builder
	d := Open(true, &said)
	require.Equal(t, "running on a simulated GPU\n", said.String())
	p, err := gpuspan.New(d.Backend())
	require.NoError(t, err)
	require.Len(t, p.Devices(), 1)
	want := gpuspan.Work{FLOPs: 1e9, Precision: gpuspan.BF16, Read: 1000, Written: 500, Items: 3}
	require.Equal(t, want, d.Compute(want))
	require.Equal(t, gpuspan.Work{Bytes: 4096}, d.Copy(4096, gpuspan.HostToDevice))
	require.Equal(t, gpuspan.Work{Bytes: 8192}, d.Copy(8192, gpuspan.DeviceToHost))
	require.NoError(t, d.Wait())
	peaks := p.Devices()[0].Peaks
	require.Positive(t, peaks.Memory)
	require.Positive(t, peaks.FLOPs["bf16"])
	require.NoError(t, p.Shutdown(t.Context()))
	require.NoError(t, d.Close())
}

func TestLargeCopiesAreMadeInPieces(t *testing.T) {
	for n, want := range map[int64][]int64{
		0: nil, 1: {1}, bufferSize: {bufferSize}, 2*bufferSize + 7: {bufferSize, bufferSize, 7},
	} {
		var got []int64
		require.NoError(t, pieces(n, func(n int64) error { got = append(got, n); return nil }))
		require.Equal(t, want, got)
	}
}
