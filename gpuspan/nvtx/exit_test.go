// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nvtx_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/nvtx"
)

// A tool flushes its buffers in an atexit handler.
func TestExitRunsTheHandlersOfATool(t *testing.T) {
	const variable = "NVTX_TEST_EXIT"
	if how := os.Getenv(variable); how != "" {
		open(t, newRecorder(t))
		libc, err := dl.Open("libc.so.6", "libc.so")
		require.NoError(t, err)
		require.Zero(t, libc.Lookup("atexit", "__cxa_atexit").Call(
			purego.NewCallback(func() { _, _ = os.Stdout.WriteString("flushed") }), 0, 0))
		if how == "exit" {
			nvtx.Exit(3)
		}
		os.Exit(3)
	}
	for how, want := range map[string]bool{"exit": true, "os.Exit": false} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExitRunsTheHandlersOfATool$")
		cmd.Env = append(os.Environ(), variable+"="+how, "TMPDIR="+t.TempDir()) // it leaves its own
		out, err := cmd.CombinedOutput()
		var code *exec.ExitError
		require.ErrorAs(t, err, &code)
		require.Equal(t, 3, code.ExitCode(), string(out))
		require.Equal(t, want, string(out) == "flushed", string(out))
	}
}
