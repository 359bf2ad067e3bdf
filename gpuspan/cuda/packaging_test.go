// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cuda_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Without cgo, a program that imports only package gpuspan is static and starts in an empty image.
// One with a backend needs the system's loader and C library, but no driver.
func TestIntegrationLinkingOfProgramsWithoutCgo(t *testing.T) {
	if os.Getenv("OTELGPU_INTEGRATION") == "" || runtime.GOOS != "linux" {
		t.Skip("everything that imports net is compiled again: runs in make test-integration (OTELGPU_INTEGRATION=1), on Linux")
	}
	for _, c := range []struct {
		program, says string
		needs         []string
	}{
		{"core", "host <nil>\n", nil},
		{"withcuda", "host true\n", []string{"libc.so.6"}},
	} {
		t.Run(c.program, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c.program)
			cmd := exec.Command("go", "build", "-o", path, "./testdata/"+c.program)
			cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, string(out))
			f, err := elf.Open(path)
			require.NoError(t, err)
			defer f.Close()
			libraries, err := f.ImportedLibraries()
			require.NoError(t, err)
			if c.needs == nil {
				require.Empty(t, libraries)
			}
			for _, n := range c.needs {
				require.Contains(t, libraries, n)
			}
			for _, l := range libraries {
				require.False(t, strings.HasPrefix(l, "libcuda"), l)
			}
			cmd = exec.Command(path)
			cmd.Env = []string{} // no logging settings, no library named
			said, err := cmd.Output()
			require.NoError(t, err)
			require.Equal(t, c.says, string(said))
		})
	}
}
