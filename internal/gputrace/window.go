// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gputrace

// deviceWindow is one device over the whole profile.
type deviceWindow struct {
	ordinal    int64
	process    *process
	all        union
	kernel     union
	comm       union
	compute    union
	memory     union
	kernels    int64
	kernelTime int64
	names      map[uint32]int64
}

func newDeviceWindow(ordinal int64, p *process) *deviceWindow {
	return &deviceWindow{ordinal: ordinal, process: p, names: map[uint32]int64{}}
}

func (d *deviceWindow) add(a *activity) {
	d.all.add(a.start, a.end)
	if a.kind != KindKernel {
		d.memory.add(a.start, a.end)
		return
	}
	d.kernel.add(a.start, a.end)
	if a.comm {
		d.comm.add(a.start, a.end)
	} else {
		d.compute.add(a.start, a.end)
	}
	d.kernels++
	d.kernelTime += a.duration
	d.names[a.name] += a.duration
}

// overlap is the time in which communication and compute kernels ran together: |A ∩ B| = |A| + |B| - |A ∪ B|.
func (d *deviceWindow) overlap() int64 { return d.comm.total + d.compute.total - d.kernel.total }
