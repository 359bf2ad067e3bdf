// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Runs the first program of docs/gpuspan.md in a new module, as a reader would.
func TestTheQuickStartRunsAsPasted(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell")
	}
	doc, err := os.ReadFile(filepath.Join("..", "docs", "gpuspan.md"))
	require.NoError(t, err)
	program := regexp.MustCompile("(?s)```go\n(package main.*?)```").FindSubmatch(doc)
	require.NotNil(t, program, "docs/gpuspan.md has a whole program")
	commands := regexp.MustCompile("(?s)```\n(go mod init.*?)```").FindSubmatch(doc)
	require.NotNil(t, commands)

	dir := t.TempDir()
	clone, err := filepath.Abs("..")
	require.NoError(t, err)
	sums, err := os.ReadFile("go.sum") // as a module proxy would provide
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), program[1], 0o600))
	script := strings.ReplaceAll(string(commands[1]), "../otelgpu/", clone+"/")
	// The modules are in the cache, but tidy would also download what only their tests need.
	script = strings.Replace(script, "go mod tidy && go run .", "go run -mod=mod .", 1)
	run := exec.Command(sh, "-ec", script)
	run.Dir = dir
	run.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off", "GOFLAGS=")
	out, err := run.CombinedOutput()
	require.NoError(t, err, string(out))
	require.Regexp(t, `(?m)^prefill +10 `, string(out))
	require.Contains(t, string(out), "Simulated GPU")
}
