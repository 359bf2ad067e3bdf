// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// A call more, and the copies that go with it, costs a section a quarter of its time: what callers use most must be
// small enough for the compiler to inline into them.
func TestTheCompilerInlinesTheHotPath(t *testing.T) {
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, method := range []string{"(*Operation).Start", "Section.Start", "Section.End", "Section.EndWith"} {
		require.Contains(t, string(out), "can inline "+method+"\n")
	}
}
