// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

import "slices"

// deviceWindow is one device over the whole profile.
type deviceWindow struct {
	tallies
	ordinal  int64
	process  *process
	all      union
	kernel   union
	comm     union
	compute  union
	memory   union
	computed computed
	names    map[uint32]int64
	streams  map[int64]*stream
	queueMax int
}

func newDeviceWindow(ordinal int64, p *process) *deviceWindow {
	return &deviceWindow{ordinal: ordinal, process: p, names: map[uint32]int64{}, streams: map[int64]*stream{}}
}

func (d *deviceWindow) add(a *activity, firstOfWork bool) {
	if gap := d.all.add(a.start, a.end); gap > 0 {
		d.gap(a, gap)
	}
	d.stream(a)
	d.tallies.add(a)
	if a.kind != KindKernel {
		d.memory.add(a.start, a.end)
		return
	}
	d.kernel.add(a.start, a.end)
	if a.comm {
		d.comm.add(a.start, a.end)
	} else {
		d.compute.add(a.start, a.end)
		d.computed.add(a, firstOfWork)
	}
	d.names[a.name] += a.duration
}

// overlap is the time in which communication and compute kernels ran together: |A ∩ B| = |A| + |B| - |A ∪ B|.
func (d *deviceWindow) overlap() int64 { return d.comm.total + d.compute.total - d.kernel.total }

// stream holds what Holistic Trace Analysis computes for one stream, by its definitions.
type stream struct {
	any                             bool
	prevEnd                         int64
	hostWait, kernelWait, otherWait int64
	starts                          []int64 // from head on: of activities that had not begun at the last launch
	head                            int
	lastLaunch                      int64
}

// kernelDelay is the gap below which HTA takes two kernels of a stream as consecutive.
const kernelDelay = 30

// maxQueue bounds the starts that a stream keeps.
const maxQueue = 1 << 16

// stream splits the gap before an activity on its stream: host_wait where the launch began after the activity before
// ended, kernel_wait below 30 ns, else other. Gaps of overlapping activities are negative and summed as such.
func (d *deviceWindow) stream(a *activity) {
	s := d.streams[a.stream]
	if s == nil {
		s = &stream{}
		d.streams[a.stream] = s
	}
	if s.any {
		switch gap := a.start - s.prevEnd; {
		case a.hasLaunch && a.launch.start > s.prevEnd:
			s.hostWait += gap
		case gap < kernelDelay:
			s.kernelWait += gap
		default:
			s.otherWait += gap
		}
	}
	s.any, s.prevEnd = true, a.end
	if !a.hasLaunch {
		return
	}
	// The queue grows by one at a launch and shrinks by one at a start. Activities of a stream come in the order of their
	// launches, so right after this launch it holds this one and those before that had not begun.
	s.lastLaunch = max(s.lastLaunch, a.launch.start)
	for s.head < len(s.starts) && s.starts[s.head] <= s.lastLaunch {
		s.head++
	}
	if s.head > len(s.starts)/2 {
		s.starts, s.head = slices.Delete(s.starts, 0, s.head), 0
	}
	if len(s.starts) < maxQueue {
		s.starts = append(s.starts, a.start)
	}
	d.queueMax = max(d.queueMax, len(s.starts)-s.head)
}

// waits sums the split over streams.
func (d *deviceWindow) waits() (host, kernel, other int64) {
	for _, s := range d.streams {
		host += s.hostWait
		kernel += s.kernelWait
		other += s.otherWait
	}
	return host, kernel, other
}

// allocated follows the framework's allocator.
type allocated struct {
	any      bool
	hasUsage bool
	delta    int64
	usage    int64 // last
	first    int64 // before the first event
	highest  int64
	at       uint32 // name of the host range in which it was highest
}

func (m *allocated) add(d *Detail, in *node) {
	m.delta += d.Bytes
	if d.HasMemoryUsage {
		if !m.hasUsage {
			m.first = d.MemoryUsage - d.Bytes
			m.highest = m.first
		}
		if m.hasUsage, m.usage = true, d.MemoryUsage; m.usage > m.highest {
			m.highest, m.at = m.usage, in.around()
		}
	}
	m.any = true
}
