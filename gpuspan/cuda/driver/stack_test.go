// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"bytes"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

func TestCallsAreWholeAtAnyStackDepth(t *testing.T) {
	d, _, ctx := open(t)
	dev, err := d.Device(0)
	require.NoError(t, err)
	var s driver.Stream
	var m driver.Module
	var k driver.Function
	var x, y driver.Ptr
	pattern := bytes.Repeat([]byte{7, 11, 13, 17}, 16)
	require.NoError(t, d.Do(ctx, func() error {
		s, err = d.NewStream()
		require.NoError(t, err)
		m, err = d.Load(saxpy)
		require.NoError(t, err)
		x, err = d.Alloc(64)
		require.NoError(t, err)
		y, err = d.Alloc(64)
		require.NoError(t, err)
		k, err = d.Function(m, "saxpy")
		require.NoError(t, err)
		return d.Upload(y, pattern, s)
	}))
	current := func(f func(depth int)) func(depth int) {
		return func(depth int) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			pop, _ := d.Push(ctx)
			f(depth)
			pop()
		}
	}
	ctest.AtEachDepth(func(int) {
		name, err := d.Name(dev)
		require.True(t, err == nil && name == "NVIDIA Stub GPU", name)
	}, func(int) {
		uuid, _, err := d.UUID(dev)
		require.True(t, err == nil && uuid == "GPU-00112233-4455-6677-8899-aabbccddee00", uuid)
	}, current(func(depth int) {
		var sent [16]byte
		sent[depth%16] = byte(depth)
		require.NoError(t, d.Upload(x, sent[:], s))
		got := make([]byte, 16)
		require.NoError(t, d.Download(got, x, s))
		require.True(t, sent == [16]byte(got))
	}), current(func(depth int) {
		var got [64]byte // would be on the stack if Download did not let it escape
		err := d.Download(got[:], y, s)
		require.True(t, err == nil && got == [64]byte(pattern), depth)
	}), func(int) {
		k, err := d.Function(m, "saxpy")
		require.True(t, err == nil && k != 0)
	}, current(func(int) {
		require.NoError(t, d.Launch(k, driver.Dim{X: 1}, driver.Dim{X: 32}, 0, s, x, y, float32(2), uint32(0)))
	}), current(func(depth int) {
		if depth%20 == 0 { // the compiler's log is 8 KiB
			_, err := d.Load("nonsense")
			require.ErrorContains(t, err, "ptxas fatal")
		}
	}))
	launched := make([]byte, 16)
	require.NoError(t, d.Do(ctx, func() error {
		require.NoError(t, d.Upload(x, put(1, 2, 3, 4), s))
		require.NoError(t, d.Launch(k, driver.Dim{X: 1}, driver.Dim{X: 32}, 0, s, x, x, float32(2), uint32(3)))
		return d.Download(launched, x, s)
	}))
	require.Equal(t, put(3, 6, 9, 4), launched)
}
