// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// cpuMeter adds up the processor time of the benchmark's own thread. Unlike elapsed time it does not grow when other
// programs want the machine, and the garbage collector's own threads are not in it.
type cpuMeter struct{ total, from int64 }

// newCPUMeter ties the benchmark to its thread until it ends.
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
