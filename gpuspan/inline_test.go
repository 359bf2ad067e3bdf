// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// One more call with its copies adds a quarter to the time of a section, so the compiler must be
// able to inline the most used functions.
func TestTheCompilerInlinesTheHotPath(t *testing.T) {
	out, err := exec.Command("go", "build", "-gcflags=-m", ".").CombinedOutput()
	require.NoError(t, err, string(out))
	for _, method := range []string{"(*Operation).Start", "Section.Start", "Section.End", "Section.EndWith"} {
		require.Contains(t, string(out), "can inline "+method+"\n")
	}
}
