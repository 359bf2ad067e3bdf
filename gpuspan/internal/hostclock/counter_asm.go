// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64)

package hostclock

import (
	"os"
	"runtime"
	"strings"
	"sync"
)

// counter reads the processor's counter: the time-stamp counter (RDTSC), or the virtual count
// (CNTVCT_EL0). Neither waits for earlier instructions, whose few nanoseconds are less than a tick
// of any device's clock.
func counter() uint64

// steady reports whether the counter runs at a constant rate, in all power states and on all
// processors. The counter of arm64 does by definition, the counter of amd64 if the kernel reports
// it.
var steady = sync.OnceValue(func() bool {
	if runtime.GOARCH == "arm64" {
		return true
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return false
	}
	for line := range strings.Lines(string(info)) {
		if flags, ok := strings.CutPrefix(line, "flags"); ok {
			return strings.Contains(flags, " constant_tsc") && strings.Contains(flags, " nonstop_tsc")
		}
	}
	return false
})
