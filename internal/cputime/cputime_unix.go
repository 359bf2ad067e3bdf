// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cputime

import (
	"syscall"
	"time"
)

// Used returns the CPU time of the process, including the garbage collector: other load on the
// machine does not change it.
func Used() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
