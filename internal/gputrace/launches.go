// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import "github.com/otelgpu/otelgpu/internal/gputrace/verdict"

// launch is a host call that may have put work on a device.
type launch struct {
	corr       int64
	start, end int64
	node       *node
	process    *process
	step       *step
	work       *work        // of the outermost operator around it whose work is known
	opaque     bool         // within a compiled region
	graph      bool         // it launches a graph
	opStart    int64        // begin of the innermost operator around it
	op         uint32       // innermost operator around it, by name
	around     uint32       // innermost annotation or module around it
	in         uint32       // innermost range around it that has a name of its own, no call
	thread     uint32       // its track
	phase      uint32       // outermost annotation around it that is no step and has no number; 0: none
	previous   int64        // end of the launch before, of the same thread or of the main one
	unit       verdict.Unit // that it is of
}

// launchTable remembers the latest launches by correlation.
type launchTable struct {
	at        map[int64]uint32 // place among launches
	launches  []launch
	oldest    int // once there are launchMemory of them
	forgotten int64
}

const launchMemory = 1 << 16 // a stream queues some 1,000

// newLaunchTable has room for a number of launches, as far as that is within the limit.
func newLaunchTable(launches int64) *launchTable {
	n := min(launches, launchMemory)
	return &launchTable{at: make(map[int64]uint32, n), launches: make([]launch, 0, n)}
}

// put remembers a launch; the same correlation again replaces it.
func (t *launchTable) put(l launch) {
	i, ok := t.at[l.corr]
	switch {
	case ok:
	case len(t.launches) < launchMemory:
		i = uint32(len(t.launches))
		t.launches = append(t.launches, launch{})
	default:
		i = uint32(t.oldest)
		t.oldest = (t.oldest + 1) % launchMemory
		t.forgotten++
		delete(t.at, t.launches[i].corr)
	}
	t.at[l.corr], t.launches[i] = i, l
}

func (t *launchTable) get(corr int64) (*launch, bool) {
	if i, ok := t.at[corr]; ok {
		return &t.launches[i], true
	}
	return nil, false
}
