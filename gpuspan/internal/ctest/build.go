// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ctest

import (
	"cmp"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

//go:embed csrc
var sources embed.FS

var built sync.Map // by source and flags: what compiles it once, and then returns the library

// build compiles a source of csrc into a shared library, once in the process, and copies it for the
// test alone: the loader gives every file its own variables.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the C stubs are for Linux")
	}
	gcc, err := exec.LookPath(cmp.Or(os.Getenv("CC"), "gcc")) // CC: of another processor, whose programs are emulated
	if err != nil {
		t.Skipf("the C stub cannot be built: %v", err)
	}
	once, _ := built.LoadOrStore(fmt.Sprint(source, flags), sync.OnceValues(func() ([]byte, error) {
		return compile(gcc, source, flags)
	}))
	lib, err := once.(func() ([]byte, error))()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c")+".so")
	if err := os.WriteFile(path, lib, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func compile(gcc, source string, flags []string) ([]byte, error) {
	dir, err := os.MkdirTemp("", "otelgpu-cc")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.CopyFS(dir, sources); err != nil {
		return nil, err
	}
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden", "-o", "out.so"},
		flags...)
	cmd := exec.Command(gcc, append(args, source, "-lm", "-lpthread")...)
	cmd.Dir = filepath.Join(dir, "csrc")
	if b, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("cannot build %s: %w\n%s", source, err, b)
	}
	return os.ReadFile(filepath.Join(cmd.Dir, "out.so"))
}
