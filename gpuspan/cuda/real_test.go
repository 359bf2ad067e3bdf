// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

func TestTheVendorsLibraryHasEveryEventFunction(t *testing.T) {
	path := os.Getenv("OTELGPU_TEST_LIBCUDA")
	if path == "" {
		path = "libcuda.so.1"
	}
	lib, err := dl.Open(path)
	if err != nil {
		t.Skip("NVIDIA's library is not installed (name one in OTELGPU_TEST_LIBCUDA): ", err)
	}
	s := lib.Symbols()
	eventapi.New(s, names, nil)
	require.NoError(t, s.Err())
}
