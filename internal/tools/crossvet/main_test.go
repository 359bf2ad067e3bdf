// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The module is right on Linux; go vet reports the same lines for the other systems.
func TestIntegrationFaultsOfOneSystemAreReportedForThatSystem(t *testing.T) {
	if os.Getenv("OTELGPU_INTEGRATION") == "" {
		t.Skip("reads the standard library four times: runs in make test-integration (OTELGPU_INTEGRATION=1)")
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":              "module example.com/m\n\ngo 1.26\n",
		"a.go":                "package m\n\nfunc Logf(format string, args ...any) { write(format, args...) }\n",
		"a_linux.go":          "package m\n\nimport \"fmt\"\n\nfunc write(f string, a ...any) { fmt.Printf(f, a...) }\n",
		"a_windows.go":        "package m\n\nimport \"fmt\"\n\nfunc write(f string, a ...any) { fmt.Printf(f, a...) }\n",
		"b/b_windows_test.go": "package b\n\nimport \"example.com/m\"\n\nfunc init() { m.Logf(\"%d\", \"x\") }\n",
		"b/b.go":              "package b\n\nimport \"syscall\"\n\nvar Stop = syscall.SIGTERM\n",
		"b/b_test.go":         "package b\n\nimport \"syscall\"\n\nvar user = syscall.SIGUSR1\n",
		"c/c_windows.go":      "package c\n\nimport \"sync\"\n\nfunc C(m sync.Mutex) { m.Lock() }\n",
		"c/c.go":              "package c\n",
	} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	t.Run("linux", func(t *testing.T) {
		found, err := vet(dir, "linux/amd64")
		require.NoError(t, err)
		require.Empty(t, found)
	})
	t.Run("windows", func(t *testing.T) {
		found, err := vet(dir, "windows/amd64")
		require.NoError(t, err)
		require.Equal(t, []string{
			filepath.Join(dir, "b", "b_test.go") + ":5:20: undefined: syscall.SIGUSR1",
			filepath.Join(dir, "c", "c_windows.go") + ":5:10: C passes lock by value: sync.Mutex (copylocks)",
		}, found)
	})
	t.Run("after the compiler's errors are fixed", func(t *testing.T) {
		require.NoError(t, os.Remove(filepath.Join(dir, "b", "b_test.go")))
		found, err := vet(dir, "windows/amd64")
		require.NoError(t, err)
		require.Equal(t, []string{
			filepath.Join(dir, "b", "b_windows_test.go") +
				":5:23: example.com/m.Logf format %d has arg \"x\" of wrong type string (printf)",
			filepath.Join(dir, "c", "c_windows.go") + ":5:10: C passes lock by value: sync.Mutex (copylocks)",
		}, found)
	})
	t.Run("darwin, where a function is missing", func(t *testing.T) {
		found, err := vet(dir, "darwin/arm64")
		require.NoError(t, err)
		require.Equal(t, []string{filepath.Join(dir, "a.go") + ":3:41: undefined: write"}, found)
	})
}
