// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package capturetest runs processes with libotelgpu_capture.so in tests: built by gcc from
// receiver/gpucapturereceiver/shim, with the stubs of its testdata.
package capturetest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Programs are the files that tests need.
type Programs struct {
	Shim, CUPTI, CUPTINoClock, Driver, Host string
}

var build = sync.OnceValues(func() (Programs, error) {
	dir, err := os.MkdirTemp("", "capturetest")
	if err == nil {
		err = removeAtExit(dir)
	}
	if err != nil {
		return Programs{}, err
	}
	_, self, _, _ := runtime.Caller(0)
	root := filepath.Join(filepath.Dir(self), "..", "..", "receiver", "gpucapturereceiver")
	p := Programs{
		Shim: filepath.Join(dir, "libotelgpu_capture.so"), CUPTI: filepath.Join(dir, "libcupti.so.12"),
		CUPTINoClock: filepath.Join(dir, "libcupti_noclock.so"), Driver: filepath.Join(dir, "libcuda.so.1"),
		Host: filepath.Join(dir, "host"),
	}
	sources, err := filepath.Glob(filepath.Join(root, "shim", "*.c"))
	if err != nil {
		return Programs{}, err
	}
	stub := filepath.Join(root, "testdata", "stub", "cupti.c")
	common := []string{"-std=c11", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC"}
	if os.Getenv("OTELGPU_TEST_SANITIZE") != "" { // address, or undefined; see the test that sets it
		common = append(common, "-fsanitize="+os.Getenv("OTELGPU_TEST_SANITIZE"), "-fno-sanitize-recover=all")
	}
	for _, args := range [][]string{
		append([]string{"-shared", "-fvisibility=hidden", "-o", p.Shim}, sources...),
		{"-shared", "-Wl,-soname,libcupti.so.12", "-o", p.CUPTI, stub},
		{"-shared", "-Wl,-soname,libcuda.so.1", "-o", p.Driver, filepath.Join(root, "testdata", "driver", "cuda.c")},
		{"-shared", "-DNO_CLOCK", "-o", p.CUPTINoClock, stub},
		{"-I" + filepath.Join(root, "shim"), "-o", p.Host, filepath.Join(root, "testdata", "host", "host.c")},
	} {
		out, err := exec.Command("gcc", append(append(common, args...), "-lpthread", "-ldl")...).CombinedOutput()
		if err != nil {
			return Programs{}, fmt.Errorf("%w\n%s", err, out)
		}
	}
	return p, nil
})

// Build builds the programs, once for each test binary. Without gcc the test is skipped.
func Build(t testing.TB) Programs {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		t.Skip("gcc is not installed: the capture library cannot be built")
	}
	p, err := build()
	require.NoError(t, err)
	return p
}

// removeAtExit starts a process that removes a folder when this one has ended, however it ends: its
// input is then closed.
func removeAtExit(dir string) error {
	remover := exec.Command("sh", "-c", `cat >/dev/null; rm -rf "$1"`, "sh", dir)
	in, err := remover.StdinPipe()
	if err != nil {
		return err
	}
	ended = append(ended, in)
	return remover.Start()
}

// ended holds pipes that stay open until this process ends.
var ended []io.Closer

// Process is a running host.
type Process struct {
	Folder string // of the rings
	PID    int

	t      testing.TB
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr *lockedBuffer
}

// Start runs a host whose ring is in the folder, with more environment if given.
func Start(t testing.TB, folder string, env ...string) *Process {
	t.Helper()
	return StartIn(t, folder, nil, env...)
}

// StartIn is like Start, with attributes of the process such as namespaces; the test is skipped if
// they are not permitted.
func StartIn(t testing.TB, folder string, attr *syscall.SysProcAttr, env ...string) *Process {
	t.Helper()
	programs := Build(t)
	p := &Process{Folder: folder, t: t, cmd: exec.Command(programs.Host), stderr: &lockedBuffer{}}
	p.cmd.Env = append(os.Environ(), "CUDA_INJECTION64_PATH="+programs.Shim, "OTELGPU_CAPTURE_DIR="+folder,
		"OTELGPU_CUPTI_LIBRARY="+programs.CUPTI, "OTELGPU_CAPTURE_VERBOSE=1")
	p.cmd.Env = append(p.cmd.Env, env...)
	p.cmd.Stderr = p.stderr
	var err error
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewReader(out)
	p.cmd.SysProcAttr = attr
	if err = p.cmd.Start(); attr != nil && errors.Is(err, os.ErrPermission) {
		t.Skipf("a process with %+v is not permitted here: %v", *attr, err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
		if s := p.stderr.String(); strings.Contains(s, "Sanitizer") || strings.Contains(s, "broken rule") {
			t.Errorf("the host's error: %s", s)
		}
	})
	require.True(t, strings.HasPrefix(p.line(), "ready "), p.stderr)
	p.PID = p.cmd.Process.Pid
	return p
}

func (p *Process) line() string {
	p.t.Helper()
	s, err := p.out.ReadString('\n')
	require.NoError(p.t, err, "the host ended: %s", p.stderr)
	return strings.TrimSuffix(s, "\n")
}

// Do sends a command and returns the answer.
func (p *Process) Do(command string) string {
	p.t.Helper()
	_, err := io.WriteString(p.in, command+"\n")
	require.NoError(p.t, err)
	return p.line()
}

// Ring waits for the path of the process's newest ring.
func (p *Process) Ring() string {
	p.t.Helper()
	var out string
	require.Eventually(p.t, func() bool {
		found, _ := filepath.Glob(filepath.Join(p.Folder, "*.ring"))
		if len(found) > 0 {
			out = found[len(found)-1]
		}
		return len(found) > 0
	}, time.Minute, time.Millisecond, "no ring: %s", p.stderr)
	return out
}

// Stderr returns what the process has written so far.
func (p *Process) Stderr() string { return p.stderr.String() }

// Kill ends the process immediately, like a crash.
func (p *Process) Kill() {
	_ = p.cmd.Process.Signal(syscall.SIGKILL)
	_ = p.cmd.Wait()
}

// Exit ends it normally.
func (p *Process) Exit() {
	_, _ = io.WriteString(p.in, "exit\n")
	_ = p.cmd.Wait()
}

type lockedBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
