// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A line that another process is still writing looks like one from a crash.
func TestALineThatGrowsIsNotTruncated(t *testing.T) {
	path := filepath.Join(t.TempDir(), "steps.csv")
	require.NoError(t, os.WriteFile(path, []byte("step,epoch\n1,2\n3"), 0o600))
	f, err := os.OpenFile(path, os.O_RDWR|os.O_APPEND, 0)
	require.NoError(t, err)
	defer f.Close()
	rest := []string{",", "4", "\n5,"}
	size, repaired, err := repair(f, func() {
		if len(rest) > 0 {
			_, err := f.WriteString(rest[0])
			require.NoError(t, err)
			rest = rest[1:]
		}
	})
	require.NoError(t, err)
	require.True(t, repaired, "a line that no longer grows")
	require.EqualValues(t, len("step,epoch\n1,2\n3,4\n"), size)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "step,epoch\n1,2\n3,4\n", string(b))
}
