// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build cgo && linux

package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// On the stub of libcuda, a fill takes 5 ms, so that the host launches faster than the device
// works, and four fills take 20 ms.
func TestWorkOfAPrivateStreamIsTimedByEventsThatCRecords(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the C stub cannot be built")
	}
	path := filepath.Join(t.TempDir(), "libcuda.so")
	source := filepath.Join("..", "..", "gpuspan", "internal", "ctest", "csrc", "cuda.c")
	b, err := exec.Command(gcc, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-DLAUNCH_NS=5000000",
		"-o", path, source, "-lm", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(b))
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), path, "", 25, &out))
	require.Regexp(t, `(?m)^engine\.fill +25 .* 20\.00ms `, out.String())
	require.NotContains(t, out.String(), "the host's")

	out.Reset()
	t.Setenv("GPUSPAN_ENABLED", "false")
	require.NoError(t, run(t.Context(), path, "", 2, &out))
	require.Contains(t, out.String(), "no section has finished")

	require.EqualError(t, run(t.Context(), "/nonexistent/libcuda.so", "", 1, &out),
		"cannot open the engine on /nonexistent/libcuda.so: error -1 (it needs a CUDA driver and a device)")
}
