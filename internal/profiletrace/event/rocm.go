// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package event

import (
	"cmp"
	"math"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/occupancy"
)

// ROCm keeps what a file of rocprofv3 states about agents, which are devices and processors, and
// about kernels, by their numbers in the file.
type ROCm struct {
	agents  map[int64]rocAgent
	kernels map[int64]rocKernel
}

type rocAgent struct {
	ordinal int64
	gpu     bool
	name    string // such as gfx942
}

type rocKernel struct {
	name  string
	needs RocKernel
}

// Limits of what a broken file may claim.
const (
	maxRocNames   = 1 << 20
	maxRocDevices = 1 << 16
)

// NewROCm returns a ROCm without agents and kernels.
func NewROCm() *ROCm { return &ROCm{map[int64]rocAgent{}, map[int64]rocKernel{}} }

// Agent adds an agent. A GPU becomes a device of the file, with a number of compute units.
func (r *ROCm) Agent(m *Meta, id, ordinal int64, gpu bool, name, product string, units int64) {
	if len(r.agents) < maxRocNames {
		r.agents[id] = rocAgent{ordinal, gpu, name}
	}
	if gpu && len(m.Devices) < maxRocDevices {
		m.Devices = append(m.Devices, Device{
			Ordinal: ordinal, Model: cmp.Or(product, name), Limits: occupancy.Device{Target: name, Multiprocessors: units},
		})
	}
}

// Kernel adds a kernel.
func (r *ROCm) Kernel(id int64, name string, needs RocKernel) {
	if len(r.kernels) < maxRocNames {
		r.kernels[id] = rocKernel{strings.TrimSuffix(name, ".kd"), needs}
	}
}

// On assigns an activity to the first of some agents that is a GPU; false if none is.
func (r *ROCm) On(e *Event, agents ...int64) bool {
	for _, id := range agents {
		if a := r.agents[id]; a.gpu {
			e.Device = a.ordinal
			return true
		}
	}
	return false
}

// Launch sets how a kernel was launched on an agent, by the work-items of a group and of the grid,
// and returns its name.
func (r *ROCm) Launch(d *Detail, agent, kernel int64, group, grid [3]int64, sharedMemory int64) (name string) {
	if min(group[0], group[1], group[2]) > 0 {
		d.HasGrid, d.Block = true, group
		for i := range d.Grid {
			d.Grid[i] = (grid[i] + group[i] - 1) / group[i]
		}
	}
	k := r.kernels[kernel]
	d.setRoc(r.agents[agent].name, k.needs, sharedMemory)
	return cmp.Or(k.name, "kernel "+strconv.FormatUint(uint64(kernel), 10))
}

// RocKernel is what a kernel of an AMD device needs, as rocprofv3 states it; zero is unknown.
type RocKernel struct {
	Vectors, Accumulators int64 // registers of a thread
	Scalars               int64 // registers of a wave
}

// accumulators returns the accumulators. Before ROCm 6.4 rocprofv3 stated g·(8−v) as an unsigned
// number for g granules of 8 registers, v of which are vectors, instead of 8·g−v.
func (k *RocKernel) accumulators() int64 {
	n := int64(int32(k.Accumulators)) //nolint:gosec // a negative number that was stated as unsigned
	if n < 0 && k.Vectors > 8 && k.Accumulators <= math.MaxUint32 && n%(k.Vectors-8) == 0 {
		return max(0, 8*n/(8-k.Vectors)-k.Vectors)
	}
	return k.Accumulators
}

// setRoc sets the resources of a launch on a device with a name such as gfx942. The registers that
// limit the occupancy are set, if the device is known. Numbers that it cannot have are omitted.
func (d *Detail) setRoc(device string, k RocKernel, sharedMemory int64) {
	n, ok := occupancy.Vectors(device, k.Vectors, k.accumulators())
	if n <= 0 || !ok {
		return
	}
	d.Registers, d.SharedMemory, d.Scalars, d.HasResources = n, sharedMemory, k.Scalars, true
}
