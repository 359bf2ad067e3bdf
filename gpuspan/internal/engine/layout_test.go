// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Every Start reads the state of its operation while the polling thread counts the sections of others in it: a shared
// line of the cache would travel between the processors for each section.
func TestWhatStartReadsIsApartFromWhatThePollingThreadWrites(t *testing.T) {
	const line = 64
	var st opState
	var p Profiler
	counted := unsafe.Offsetof(st.timed)
	for name, end := range map[string]uintptr{
		"operation":               unsafe.Offsetof(st.op) + unsafe.Sizeof(st.op),
		"places within others":    unsafe.Offsetof(st.inner) + unsafe.Sizeof(st.inner),
		"counters of the untimed": unsafe.Offsetof(st.outermost) + unsafe.Offsetof(st.outermost.children),
	} {
		require.LessOrEqual(t, end+line, counted, name)
	}
	statuses, after := unsafe.Offsetof(p.statuses), unsafe.Offsetof(p.statuses)+unsafe.Sizeof(p.statuses)
	for name, at := range map[string]uintptr{
		"clock": unsafe.Offsetof(p.clock), "timeAll": unsafe.Offsetof(p.timeAll), "level": unsafe.Offsetof(p.level),
		"loops": unsafe.Offsetof(p.loops), "ops": unsafe.Offsetof(p.ops),
	} {
		require.True(t, at+line <= statuses || at >= after+line, "%s at %d, counters from %d to %d", name, at, statuses,
			after)
	}
}

// The polling thread has cleared the slot, so each of its lines that Start and End touch comes from another processor.
func TestStartAndEndTouchThreeLinesOfASlot(t *testing.T) {
	const line = 64
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	var sl slot
	require.Zero(t, unsafe.Sizeof(sl)%line)
	require.LessOrEqual(t, unsafe.Offsetof(sl.rec)+unsafe.Offsetof(sl.rec.work)+unsafe.Sizeof(sl.rec.work),
		uintptr(3*line))
	require.Less(t, unsafe.Offsetof(sl.rec)+unsafe.Offsetof(sl.rec.annotation), uintptr(3*line))
	require.LessOrEqual(t, maxPhases+2, 1<<7-1, "the index of a phase fits")
	require.LessOrEqual(t, settings.MaxSlots, 1<<16, "the index of a slot fits")
}
