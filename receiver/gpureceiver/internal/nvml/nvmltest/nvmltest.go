// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package nvmltest builds a fake of the NVML library, for tests.
package nvmltest

import (
	_ "embed" // the library's source
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

//go:embed testdata/stub.c
var source []byte

// Headers returns the folder of NVIDIA's headers of DCGM and NVML, which are in the module go-dcgm.
// No package of it is built, so that on a new machine nothing else downloads it.
func Headers() (string, error) {
	out, err := exec.Command("go", "mod", "download", "-json", "github.com/NVIDIA/go-dcgm").Output()
	var module struct{ Dir, Error string }
	if json.Unmarshal(out, &module) == nil && module.Error != "" {
		return "", fmt.Errorf("go mod download: %s", module.Error)
	}
	if err != nil {
		return "", fmt.Errorf("go mod download: %w", err)
	}
	return filepath.Join(module.Dir, "pkg", "dcgm"), nil
}

// Build returns the path of a library compiled with NVIDIA's header, which comes with the binding
// of DCGM. It skips the test without gcc.
func Build(t testing.TB) string {
	t.Helper()
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("needs gcc to build the stub of NVML")
	}
	headers, err := Headers()
	require.NoError(t, err)
	dir := t.TempDir()
	path, stub := filepath.Join(dir, "libnvidia-ml.so.1"), filepath.Join(dir, "stub.c")
	require.NoError(t, os.WriteFile(stub, source, 0o600))
	out, err := exec.Command(gcc, "-shared", "-fPIC", "-fvisibility=hidden", "-O1", "-w",
		"-I"+headers, "-o", path, stub).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}
