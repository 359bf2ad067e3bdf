// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package cpu_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/internal/cpu"
)

func TestPrefetchChangesNoMemory(t *testing.T) {
	type large struct {
		cpu.Start
		words [64]uint64
	}
	x := &large{}
	for i := range x.words {
		x.words[i] = uint64(i)
	}
	want := *x
	cpu.Prefetch(&x.Start)
	require.Equal(t, want, *x)
	cpu.Prefetch(nil) // a hint never faults
}

func TestThreadTimeCountsTheCallingThread(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, ok := cpu.ThreadTime()
	require.Equal(t, runtime.GOOS == "linux", ok)
	if !ok {
		return
	}
	for now := before; now-before < time.Millisecond; now, _ = cpu.ThreadTime() {
	}
}
