// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPackagesAreWrittenFromTheirDescription(t *testing.T) {
	out := t.TempDir()
	library := filepath.Join(out, "capture", "linux_amd64")
	require.NoError(t, os.MkdirAll(library, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(library, "libotelgpu_capture.so"), nil, 0o644))
	program := program{name: "otelcol-gpu", os: "linux", arch: "amd64", path: filepath.Join(out, "program")}
	require.NoError(t, os.WriteFile(program.path, nil, 0o755))
	root, err := filepath.Abs(repository)
	require.NoError(t, err)
	r := &release{root: root, out: out, version: "0.1.0-dev.abcdef", epoch: time.Unix(1700000000, 0)}
	require.NoError(t, r.packages(program))
	require.FileExists(t, filepath.Join(out, "otelcol-gpu_0.1.0~dev.abcdef-1_amd64.deb"))
	require.FileExists(t, filepath.Join(out, "otelcol-gpu-0.1.0~dev.abcdef-1.x86_64.rpm"))
}
