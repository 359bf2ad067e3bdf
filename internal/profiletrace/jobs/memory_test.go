// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// All ranks of a job are kept until the last file is read, and then compared: both determine the
// memory of a folder.
func TestMemoryPerActivityIsBounded(t *testing.T) {
	const ranks, steps = 8, 4_000
	w := newWorld(1, ranks, steps)
	w.extra = late(5, 200_000)
	w.run()
	memory := func() (m runtime.MemStats) {
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m
	}
	var p Profiles
	before := memory()
	w.into(&p)
	for rank := range ranks {
		p.Judged(fmt.Sprintf("folder%p/%d.json", w, rank), nil)
	}
	kept := memory()
	// In each step a rank runs two kernels, of 8 bytes, and two collectives, of 80 bytes.
	assert.Less(t, (kept.HeapAlloc-before.HeapAlloc)/(ranks*steps), uint64(184), "bytes kept per rank and step")
	jobs := p.Jobs()
	compared := memory()
	require.Len(t, jobs, 1)
	require.NotEmpty(t, jobs[0].Late)
	assert.EqualValues(t, 5, jobs[0].Late[0].Rank)
	assert.Less(t, (compared.TotalAlloc-kept.TotalAlloc)/(ranks*steps), uint64(5_000),
		"bytes allocated to compare, per rank and step, not all at one time")
	runtime.KeepAlive(&p)
	runtime.KeepAlive(w)
}
