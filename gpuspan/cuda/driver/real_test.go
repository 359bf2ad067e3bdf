// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// If NVIDIA's library is installed, every requested function exists under the name in its header,
// and a machine without a device returns 100. OTELGPU_TEST_LIBCUDA names a library other than the
// loader's.
func TestTheVendorsLibraryHasEveryFunction(t *testing.T) {
	path := os.Getenv("OTELGPU_TEST_LIBCUDA")
	if path == "" {
		path = "libcuda.so.1"
	}
	lib, err := dl.Open(path)
	if err != nil {
		t.Skip("NVIDIA's library is not installed (name one in OTELGPU_TEST_LIBCUDA): ", err)
	}
	d := &Driver{lib: lib}
	require.NoError(t, d.resolve())
	for name, fn := range d.fn.Of {
		require.NotZero(t, fn, name)
	}
	d, err = Open(path)
	if err == nil {
		t.Log("there is a device")
		major, _, err := d.Version()
		require.NoError(t, err)
		require.Positive(t, major)
		return
	}
	var e *Error
	require.True(t, errors.As(err, &e), err)
	require.Equal(t, Error{
		API: "CUDA", Call: "cuInit", Code: 100, Name: "CUDA_ERROR_NO_DEVICE",
		Text: "no CUDA-capable device is detected",
	}, *e)
}
