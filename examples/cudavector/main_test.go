// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

var small = settings{elements: 10_000, matrix: 48, runs: 3}

func TestWithoutAGPUItReportsIt(t *testing.T) {
	s := small
	s.library = "/nonexistent/libcuda.so.1"
	require.ErrorContains(t, run(t.Context(), s, &bytes.Buffer{}), "cannot load the CUDA driver")
}

// stub builds a stub of libcuda whose kernels with these names compute on the host.
func stub(t *testing.T) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the C stub cannot be built")
	}
	path := filepath.Join(t.TempDir(), "libcuda.so")
	source := filepath.Join("..", "..", "gpuspan", "internal", "ctest", "csrc", "cuda.c")
	out, err := exec.Command(gcc, "-std=gnu11", "-O2", "-shared", "-fPIC", "-fvisibility=hidden", "-o", path, source,
		"-lm", "-lpthread").CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}

func TestOnADriverItLoadsItsKernelsAndChecksThem(t *testing.T) {
	s := small
	s.library = stub(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out))
	require.NotContains(t, out.String(), "the host's")
	require.Contains(t, out.String(), "NVIDIA Stub GPU (GPU-00112233-4455-6677-8899-aabbccddee00)")
	require.Contains(t, out.String(), "saxpy: 10000 elements are right\n")
	require.Regexp(t, `(?m)^matmul +3 `, out.String())
}

func TestSettingsAreChecked(t *testing.T) {
	err := run(t.Context(), settings{elements: 10, matrix: 16, runs: 0}, &bytes.Buffer{})
	require.EqualError(t, err, "-elements must be from 256 to 268435456 and -runs at least 1, found 10 and 0")
	s := small
	s.matrix, s.library = 17, stub(t)
	require.ErrorContains(t, run(t.Context(), s, &bytes.Buffer{}), "matmul: matrices must be a multiple of 16 wide, found 17")
}

func TestInterruptEndsIt(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	s := small
	s.library = stub(t)
	require.ErrorIs(t, run(ctx, s, &bytes.Buffer{}), context.Canceled)
}

func TestEnvironmentSwitchesTimingOff(t *testing.T) {
	t.Setenv("GPUSPAN_ENABLED", "false")
	s := small
	s.library = stub(t)
	var out bytes.Buffer
	require.NoError(t, run(t.Context(), s, &out))
	require.Contains(t, out.String(), "no section has finished")
}
