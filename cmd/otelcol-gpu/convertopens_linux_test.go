// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
)

// The kernel counts: each profile is opened once, whatever is made of it, alone and in a folder.
func TestConvertOpensEachProfileOnce(t *testing.T) {
	for _, detail := range []string{"auto", "steps", "kernels"} {
		dir := t.TempDir()
		a, b := writeFile(t, dir, "a.json", kernels("saxpy", 3)), writeFile(t, dir, "b.json", kernels("axpy", 4))
		text, err := os.ReadFile(recorded.Path(t, "nsys", "nsys-ai", "mock.sqlite"))
		require.NoError(t, err)
		db := writeFile(t, dir, "c.sqlite", string(text))
		for _, files := range [][]string{{a}, {a, b}, {db}} {
			opens := watchOpens(t, files)
			args := append([]string{"convert", "--html", "--detail", detail, "--out", t.TempDir()}, files...)
			_, stderr, err := inProcess(t, args...)
			require.NoError(t, err, stderr)
			for file, n := range opens() {
				assert.Equal(t, 1, n, "%s at %s", file, detail)
			}
		}
	}
}

// watchOpens returns a function that returns how often each file was opened since.
func watchOpens(t *testing.T, files []string) func() map[string]int {
	t.Helper()
	fd, err := syscall.InotifyInit1(syscall.IN_NONBLOCK | syscall.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = syscall.Close(fd) })
	names := map[int32]string{}
	for _, f := range files {
		id, err := syscall.InotifyAddWatch(fd, f, syscall.IN_OPEN)
		require.NoError(t, err)
		names[int32(id)] = f
	}
	return func() map[string]int {
		count := map[string]int{}
		for _, f := range files {
			count[f] = 0
		}
		buf := make([]byte, 1<<16)
		for {
			n, err := syscall.Read(fd, buf)
			if err != nil || n <= 0 {
				return count
			}
			for at := 0; at < n; {
				e := (*syscall.InotifyEvent)(unsafe.Pointer(&buf[at])) //nolint:gosec // the layout of the kernel's records
				count[names[e.Wd]]++
				at += syscall.SizeofInotifyEvent + int(e.Len)
			}
		}
	}
}
