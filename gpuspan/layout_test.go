// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/assert"
)

// Every Start reads the state of its operation while the polling thread counts the sections of others in it: a shared line of the cache would travel
// between the processors for each section.
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
		assert.LessOrEqual(t, end+line, counted, name)
	}
	statuses, after := unsafe.Offsetof(p.statuses), unsafe.Offsetof(p.statuses)+unsafe.Sizeof(p.statuses)
	for name, at := range map[string]uintptr{
		"clock": unsafe.Offsetof(p.clock), "timeAll": unsafe.Offsetof(p.timeAll), "level": unsafe.Offsetof(p.level),
		"loops": unsafe.Offsetof(p.loops), "ops": unsafe.Offsetof(p.ops),
	} {
		assert.True(t, at+line <= statuses || at >= after+line, "%s at %d, counters from %d to %d", name, at, statuses, after)
	}
}
