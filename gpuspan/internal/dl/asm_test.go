// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64 && !gpuspan_asm

package dl_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A build must not depend on internals of the Go runtime unless a build tag enables it. The assembly behind that tag
// passes the same tests.
func TestIntegrationOnlyATagBuildsTheAssembly(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.GoFiles}} {{.SFiles}}", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	require.NotContains(t, string(out), "call_fast")
	if os.Getenv("OTELGPU_INTEGRATION") == "" {
		t.Skip("the tests run with the assembly in make test-integration (OTELGPU_INTEGRATION=1)")
	}
	out, err = exec.Command("go", "test", "-tags", "gpuspan_asm", "-short", ".").CombinedOutput()
	require.NoError(t, err, string(out))
}
