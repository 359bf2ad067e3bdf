// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

// If AMD's library is installed, it has every function except hipStreamGetDevice, which ROCm 5.6
// added, and a machine without a device returns an error. OTELGPU_TEST_LIBAMDHIP64 names a library
// other than the loader's.
func TestTheVendorsLibraryHasEveryFunction(t *testing.T) {
	candidates := paths
	if path := os.Getenv("OTELGPU_TEST_LIBAMDHIP64"); path != "" {
		candidates = []string{path}
	}
	lib, err := dl.Open(candidates...)
	if err != nil {
		t.Skip("AMD's library is not installed (name one in OTELGPU_TEST_LIBAMDHIP64): ", err)
	}
	s := lib.Symbols()
	b := &Backend{API: eventapi.New(s, names, nil), fn: resolve(lib, s)}
	if err := s.Err(); err != nil {
		require.EqualError(t, err, lib.Path+" lacks hipStreamGetDevice (library too old)")
	}
	err = b.fn.Check("hipInit", b.fn.Of["hipInit"].Call(0))
	if err == nil {
		t.Log("there is a device")
		return
	}
	var e *Error
	require.True(t, errors.As(err, &e), err)
	require.Contains(t, []int32{100, 101}, e.Code) // ROCm 5.2 answers 101
	require.True(t, strings.HasPrefix(e.Name, "hipError"), e.Name)
}
