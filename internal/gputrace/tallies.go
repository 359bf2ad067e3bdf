// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

// tallies are what findings of a device or of a step go by.
type tallies struct {
	kernels, kernelTime             int64
	gridTime                        int64 // of kernels whose grid is known
	short, pageable, narrow, opaque tally

	idle     idle
	culprits map[uint32]int64 // host ranges around launches that the device waited for: time by name
}

// tally is how often, how long, how much.
type tally struct{ count, time, bytes int64 }

func (t *tally) add(a *activity) {
	t.count++
	t.time += a.duration
	t.bytes += a.detail.Bytes
}

// idle splits the gaps of the union of a device's activities by the launch of the activity that ends the gap.
type idle struct{ host, launch, unknown int64 }

// shortKernel is the length under which a kernel is shorter than what launching it costs the host.
const shortKernel = 10_000

// add takes an activity, whether or not it waited.
func (t *tallies) add(a *activity) {
	if a.kind != KindKernel {
		if a.detail.HostMemory == "pageable" {
			t.pageable.add(a)
		}
		return
	}
	t.kernels++
	t.kernelTime += a.duration
	if a.duration < shortKernel {
		t.short.add(a)
	}
	if a.detail.BlocksPerSM > 0 && !a.comm {
		t.gridTime += a.duration
		if a.detail.BlocksPerSM < 1 {
			t.narrow.add(a)
		}
	}
	if a.launch.opaque {
		t.opaque.add(a)
	}
}

// gap takes the time before an activity in which the device did nothing.
func (t *tallies) gap(a *activity, gap int64) {
	switch {
	case !a.hasLaunch:
		t.idle.unknown += gap
	case a.launch.start > a.start-gap:
		t.idle.host += gap
		if t.culprits == nil {
			t.culprits = map[uint32]int64{}
		}
		t.culprits[a.launch.node.around()] += gap
	default:
		t.idle.launch += gap
	}
}

// waitTally are calls of the host that wait for a device.
type waitTally struct {
	tally
	in map[uint32]int64 // host ranges around them: time by name
}

func (w *waitTally) add(around *node, duration int64) {
	w.count++
	w.time += duration
	if w.in == nil {
		w.in = map[uint32]int64{}
	}
	w.in[around.around()] += duration
}
