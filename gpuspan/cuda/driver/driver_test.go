// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/internal/ctest"
)

const saxpy = `.version 6.0
.target sm_70
.address_size 64
.visible .entry saxpy(.param .u64 y, .param .u64 x, .param .f32 a, .param .u32 n) { ret; }`

func open(t testing.TB) (*driver.Driver, *ctest.Stub, driver.Context) {
	t.Helper()
	stub := ctest.CUDA(t)
	d, err := driver.Open(stub.Path)
	require.NoError(t, err)
	require.Equal(t, stub.Path, d.Path())
	dev, err := d.Device(0)
	require.NoError(t, err)
	ctx, err := d.RetainPrimary(dev)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, d.ReleasePrimary(dev)) })
	return d, stub, ctx
}

func put(v ...float32) []byte {
	var b []byte
	for _, f := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	return b
}

func TestKernelGetsItsArguments(t *testing.T) {
	d, stub, ctx := open(t)
	require.NoError(t, d.Do(ctx, func() error {
		s, err := d.NewStream()
		require.NoError(t, err)
		m, err := d.Load(saxpy)
		require.NoError(t, err)
		k, err := d.Function(m, "saxpy")
		require.NoError(t, err)
		x, err := d.Alloc(16)
		require.NoError(t, err)
		y, err := d.Alloc(16)
		require.NoError(t, err)
		require.NoError(t, d.Upload(x, put(1, 2, 3, 4), s))
		require.NoError(t, d.Set(y, 0, 16, s))
		require.NoError(t, d.Launch(k, driver.Dim{X: 1}, driver.Dim{X: 32}, 0, s, y, x, float32(2.5), uint32(3)))
		got := make([]byte, 16)
		require.NoError(t, d.Download(got, y, s))
		require.NoError(t, d.SynchronizeStream(s))
		require.Equal(t, put(2.5, 5, 7.5, 0), got, "n = 3 leaves the last alone")
		require.NoError(t, d.Copy(x, y, 16, s))
		require.NoError(t, d.Download(got, x, s))
		require.Equal(t, put(2.5, 5, 7.5, 0), got)
		require.NoError(t, d.Synchronize())

		require.EqualError(t, d.Launch(k, driver.Dim{X: 1}, driver.Dim{X: 32}, 0, s, y, 3),
			"cannot launch: argument 1 has type int (Ptr, int32, uint32, int64, uint64, float32 or float64)")
		require.ErrorContains(t, d.Launch(k, driver.Dim{X: 1}, driver.Dim{X: 2048}, 0, s, y, x, float32(1), uint32(1)),
			"cuLaunchKernel: CUDA_ERROR_INVALID_VALUE (1)")
		require.NoError(t, d.Free(x))
		require.NoError(t, d.Free(y))
		require.NoError(t, d.Unload(m))
		require.NoError(t, d.FreeStream(s))
		return nil
	}))
	require.Zero(t, stub.Count("live_streams"))
}

func TestPTXErrorsCarryTheCompilersMessage(t *testing.T) {
	d, _, ctx := open(t)
	require.NoError(t, d.Do(ctx, func() error {
		_, err := d.Load("nonsense")
		require.EqualError(t, err,
			"cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX (218): ptxas fatal : stub: no .version, .target or .entry")
		m, err := d.Load(saxpy)
		require.NoError(t, err)
		_, err = d.Function(m, "daxpy")
		require.EqualError(t, err, `kernel "daxpy": cuModuleGetFunction: CUDA_ERROR_NOT_FOUND (500)`)
		return nil
	}))
}

func TestDoMakesTheContextCurrentOnlyWithin(t *testing.T) {
	d, stub, ctx := open(t)
	var depth func() int32
	stub.Func(&depth, "stub_depth")
	sentinel := errors.New("inner")
	require.ErrorIs(t, d.Do(ctx, func() error {
		current, err := d.Current()
		require.NoError(t, err)
		require.Equal(t, ctx, current)
		require.EqualValues(t, 1, depth())
		return sentinel
	}), sentinel)
	_, err := d.Alloc(1)
	require.ErrorContains(t, err, "cuMemAlloc_v2: CUDA_ERROR_INVALID_CONTEXT (201)")
	require.ErrorContains(t, d.Do(0, func() error { return nil }), "cuCtxPushCurrent_v2: CUDA_ERROR_INVALID_CONTEXT (201)")
}

func TestPinnedMemoryIsUsable(t *testing.T) {
	d, _, ctx := open(t)
	require.NoError(t, d.Do(ctx, func() error {
		b, err := d.AllocHost(4096)
		require.NoError(t, err)
		require.Len(t, b, 4096)
		b[4095] = 7
		return d.FreeHost(b)
	}))
}

func TestOutOfMemoryIsAnError(t *testing.T) {
	d, _, ctx := open(t)
	require.NoError(t, d.Do(ctx, func() error {
		_, err := d.Alloc(1 << 50)
		var e *driver.Error
		require.ErrorAs(t, err, &e)
		require.Equal(t, driver.Error{API: "CUDA", Call: "cuMemAlloc_v2", Code: 2, Name: "CUDA_ERROR_OUT_OF_MEMORY"}, *e)
		return nil
	}))
}

func TestDevicesAreCountedAndNamed(t *testing.T) {
	d, _, _ := open(t)
	n, err := d.DeviceCount()
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = d.Device(3)
	require.ErrorContains(t, err, "cuDeviceGet: CUDA error 101")
	dev, err := d.Device(0)
	require.NoError(t, err)
	sms, err := d.Attribute(dev, driver.AttributeMultiprocessors)
	require.NoError(t, err)
	require.Equal(t, 4, sms)
	cc, err := d.Attribute(dev, driver.AttributeComputeMajor)
	require.NoError(t, err)
	require.Equal(t, 9, cc)
}
