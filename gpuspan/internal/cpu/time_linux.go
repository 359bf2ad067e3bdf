// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cpu

import (
	"syscall"
	"time"
)

const rusageThread = 1 // RUSAGE_THREAD of getrusage(2)

// ThreadTime returns the processor time of the calling OS thread.
func ThreadTime() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(rusageThread, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
