// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package convert

import (
	"os"
	"syscall"
)

// lockFolder keeps other runs from naming results in the folder at the same time. The lock ends
// with the process.
func lockFolder(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX) // file systems without locks are used without
	return func() { _ = f.Close() }, nil
}
