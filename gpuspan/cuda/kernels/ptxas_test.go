// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kernels

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The interpreter of ptx_test.go verifies what the kernels compute; NVIDIA's assembler verifies
// that they are valid PTX. It is part of the CUDA toolkit, is the compiler inside the driver, and
// needs no GPU.
func TestPTXAssembles(t *testing.T) {
	ptxas, err := exec.LookPath("ptxas")
	if err != nil {
		t.Skip("no ptxas: the PTX is checked by the interpreter only (ptxas is part of the CUDA toolkit)")
	}
	version, err := exec.Command(ptxas, "--version").Output()
	require.NoError(t, err)
	t.Log(string(bytes.TrimSpace(version)))
	assembled := 0
	for _, arch := range []string{"sm_70", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"} {
		cubin := filepath.Join(t.TempDir(), arch)
		out, err := exec.Command(ptxas, "-v", "-warn-spills", "-warn-lmem-usage", "-arch="+arch, "kernels.ptx", "-o",
			cubin).CombinedOutput()
		if strings.Contains(string(out), "is not defined for option 'gpu-name'") {
			t.Log(arch, "is newer or older than this ptxas")
			continue
		}
		require.NoError(t, err, "%s: %s", arch, out)
		require.NotContains(t, string(out), "warning", arch)
		for _, kernel := range []string{"copy", "saxpy", "matmul", "spin"} {
			require.Contains(t, string(out), "Compiling entry function '"+kernel+"' for '"+arch+"'")
		}
		info, err := os.Stat(cubin)
		require.NoError(t, err)
		require.Positive(t, info.Size())
		assembled++
	}
	require.Positive(t, assembled)
}
