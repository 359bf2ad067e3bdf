// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuMeter sums the CPU time of the benchmark's own thread. Unlike elapsed time, it excludes other
// programs and the garbage collector's threads.
type cpuMeter struct{ total, from int64 }

// newCPUMeter locks the benchmark to its thread until it ends.
func newCPUMeter(b *testing.B) *cpuMeter {
	runtime.LockOSThread()
	b.Cleanup(runtime.UnlockOSThread)
	return &cpuMeter{}
}

func threadCPU() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return t.Nano()
}

func (m *cpuMeter) start() { m.from = threadCPU() }
func (m *cpuMeter) stop()  { m.total += threadCPU() - m.from }

// report adds cpu-ns/span.
func (m *cpuMeter) report(b *testing.B) {
	b.ReportMetric(float64(m.total)/float64(b.N)/batchSize, "cpu-ns/span")
}
