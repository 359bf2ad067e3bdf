// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvmltest builds a fake of the NVML library, for tests.
package nvmltest

import (
	_ "embed" // the library's source
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/stub.c
var source []byte

// Build returns the path of a library compiled with NVIDIA's header, which comes with the binding of DCGM. It skips the
// test without gcc.
func Build(t testing.TB) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc to build the stub of NVML")
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-dcgm").Output()
	require.NoError(t, err)
	dir := t.TempDir()
	path, stub := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "stub.c")
	require.NoError(t, os.WriteFile(stub, source, 0o600))
	out, err := exec.Command(gcc, "-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-w",
		"-I"+filepath.Join(strings.TrimSpace(string(module)), "pkg", "dcgm"), "-o", path, stub).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
