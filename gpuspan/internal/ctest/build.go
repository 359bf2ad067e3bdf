// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package ctest

import (
	"crypto/sha256"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

//go:embed csrc
var sources embed.FS

// build compiles a source of csrc into a shared library in the cache and copies it for the test alone: the loader gives
// every file its own variables.
func build(t testing.TB, source string, flags ...string) string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the C stubs are for Linux")
	}
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		t.Skip("no gcc: the C stub cannot be built")
	}
	cached, err := compile(gcc, source, flags)
	if err != nil {
		t.Fatal(err)
	}
	lib, err := os.ReadFile(cached)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), strings.TrimSuffix(source, ".c")+".so")
	if err := os.WriteFile(path, lib, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// compile returns the library in the cache, which is named by the hash of all that it is made from.
func compile(gcc, source string, flags []string) (string, error) {
	dir, err := os.MkdirTemp("", "otelgpu-cc")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	h := sha256.New()
	fmt.Fprintln(h, gcc, source, flags)
	files, err := fs.ReadDir(sources, "csrc")
	if err != nil {
		return "", err
	}
	for _, f := range files {
		b, err := sources.ReadFile("csrc/" + f.Name())
		if err != nil {
			return "", err
		}
		h.Write(b)
		if err := os.WriteFile(filepath.Join(dir, f.Name()), b, 0o644); err != nil {
			return "", err
		}
	}
	cache := filepath.Join(os.TempDir(), fmt.Sprintf("otelgpu-ctest-cache-%d", os.Getuid()))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	out := filepath.Join(cache, fmt.Sprintf("%s-%x.so", strings.TrimSuffix(source, ".c"), h.Sum(nil)[:12]))
	if _, err := os.Stat(out); err == nil {
		return out, nil
	}
	tmp := filepath.Join(dir, "out.so")
	args := append([]string{"-std=gnu11", "-O2", "-Wall", "-shared", "-fPIC", "-fvisibility=hidden", "-o", tmp}, flags...)
	cmd := exec.Command(gcc, append(args, source, "-lm", "-lpthread")...)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("cannot build %s: %w\n%s", source, err, b)
	}
	b, err := os.ReadFile(tmp)
	if err != nil {
		return "", err
	}
	// Tests of several packages build at the same time; renaming makes the result appear whole.
	part, err := os.CreateTemp(cache, "part")
	if err != nil {
		return "", err
	}
	if _, err = part.Write(b); err == nil {
		err = part.Close()
	}
	if err == nil {
		err = os.Rename(part.Name(), out)
	}
	return out, err
}
