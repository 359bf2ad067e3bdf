// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// The demo has several devices, with a rank of the training job on each; the service uses the first
// one, too. They are simulated even if the machine has a GPU: the story needs four.
const devices = 4

// linkRate is what a device sends to all others together, in bytes per second: NVLink 4, 18 links
// of 25 GB/s.
const linkRate = 450e9

func newGPU() *simgpu.GPU {
	specs := make([]simgpu.Spec, devices)
	for i := range specs {
		specs[i] = simgpu.DefaultSpec()
	}
	return simgpu.New(nil, simgpu.WithDevices(specs...))
}

// queue is a stream of one service.
type queue struct {
	gpu    *simgpu.GPU
	device int
	stream backend.StreamHandle
}

// compute enqueues a kernel of that much work; efficiency and occupancy are how well it uses the
// device, 0 for the usual values.
func (q queue) compute(w gpuspan.Work, efficiency, occupancy float64) {
	q.gpu.Launch(q.stream, simgpu.Kernel{
		FLOPs: w.FLOPs, Precision: w.Precision, Bytes: w.Read + w.Written + w.Bytes, Efficiency: efficiency,
		Occupancy: occupancy,
	})
}

// reduce enqueues an all-reduce of that many bytes among the ranks, all of which have arrived. A
// rank of a ring sends 2 (n-1)/n of its bytes (Patarasuk and Yuan, 2009).
func (q queue) reduce(bytes int64) gpuspan.Work {
	sent := 2 * float64(devices-1) / devices * float64(bytes)
	q.gpu.Launch(q.stream, simgpu.Kernel{
		Bytes: 2 * bytes, Occupancy: 0.1, Duration: time.Duration(sent / linkRate * float64(time.Second)),
	})
	return gpuspan.Work{Bytes: bytes}
}

func (q queue) copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work {
	q.gpu.Copy(q.stream, simgpu.Copy{Bytes: bytes, Direction: d, Pageable: m == gpuspan.Pageable})
	return gpuspan.Work{Bytes: bytes}
}

// allocate allocates memory of the device, or, negative, frees it.
func (q queue) allocate(bytes int64) { q.gpu.Allocate(q.device, bytes) }

// wait blocks until everything is done, like a service that needs the result.
func (q queue) wait() { q.gpu.Wait(q.stream) }
