// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometracetest

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

const ownProcess = "GPUSPAN_TEST_FULL_DISK"

// FullDisk returns a function that limits the size of files in bytes, so that writes fail in the
// middle as on a full disk. The limit applies to the whole process and would break its other files,
// such as the go command's log of the test, so FullDisk runs the test again in a separate process.
// In the original process ok is false: the test must return.
func FullDisk(t *testing.T) (limit func(bytes uint64) (free func()), ok bool) {
	t.Helper()
	if os.Getenv(ownProcess) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), ownProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return nil, false
	}
	signal.Ignore(syscall.SIGXFSZ)
	var unlimited syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &unlimited); err != nil {
		t.Fatal(err)
	}
	set := func(to syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &to); err != nil {
			t.Error(err)
		}
	}
	return func(bytes uint64) func() {
		set(syscall.Rlimit{Cur: bytes, Max: unlimited.Max})
		return func() { set(unlimited) }
	}, true
}
