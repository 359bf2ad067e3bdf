// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64 && !gpuspan_asm

package dl_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A user's build must not depend on what the Go runtime keeps to itself unless it asks to. The assembly that a tag asks
// for passes the same tests.
func TestOnlyATagBuildsTheAssembly(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.GoFiles}} {{.SFiles}}", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "call_fast")
	out, err = exec.Command("go", "test", "-tags", "gpuspan_asm", "-short", ".").CombinedOutput()
	require.NoError(t, err, string(out))
}
