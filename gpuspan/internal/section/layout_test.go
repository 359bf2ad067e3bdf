// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/gpuspan/settings"
)

// Every Start reads the state of its operation while the polling thread counts sections in it: on a
// shared cache line, every section would move the line between cores.
func TestStartSharesNoCacheLineWithThePollingThread(t *testing.T) {
	const line = 64
	var st OpState
	var p Core
	counted := unsafe.Offsetof(st.Timed)
	for name, end := range map[string]uintptr{
		"operation":               unsafe.Offsetof(st.Operation) + unsafe.Sizeof(st.Operation),
		"nodes within others":     unsafe.Offsetof(st.inner) + unsafe.Sizeof(st.inner),
		"counters of the untimed": unsafe.Offsetof(st.Outermost) + unsafe.Offsetof(st.Outermost.children),
	} {
		require.LessOrEqual(t, end+line, counted, name)
	}
	statuses, after := unsafe.Offsetof(p.statuses), unsafe.Offsetof(p.statuses)+unsafe.Sizeof(p.statuses)
	for name, at := range map[string]uintptr{
		"clock": unsafe.Offsetof(p.Clock), "timeAll": unsafe.Offsetof(p.timeAll), "level": unsafe.Offsetof(p.level),
		"loops": unsafe.Offsetof(p.loops), "ops": unsafe.Offsetof(p.ops),
	} {
		require.True(t, at+line <= statuses || at >= after+line, "%s at %d, counters from %d to %d", name, at, statuses,
			after)
	}
}

// The polling thread has cleared the slot, so every cache line that Start and End access comes from
// another core.
func TestStartAndEndTouchThreeLinesOfASlot(t *testing.T) {
	const line = 64
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("laid out for 64 bits")
	}
	var sl Slot
	require.Zero(t, unsafe.Sizeof(sl)%line)
	require.LessOrEqual(t, unsafe.Offsetof(sl.Rec)+unsafe.Offsetof(sl.Rec.Work)+unsafe.Sizeof(sl.Rec.Work),
		uintptr(3*line))
	require.Less(t, unsafe.Offsetof(sl.Rec)+unsafe.Offsetof(sl.Rec.annotation), uintptr(3*line))
	require.LessOrEqual(t, settings.MaxSlots, 1<<16, "the index of a slot fits")
}
