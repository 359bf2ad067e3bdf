// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"time"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// machine is what the demo's services run on: the first CUDA device, or simulated ones.
type machine interface {
	// devices returns the number of devices; each has a rank of the training job.
	devices() int
	// queue creates a stream on a device, with a backend to time it.
	queue(device int) (queue, error)
	// precision is the precision of the arithmetic.
	precision() gpuspan.Precision
	close() error
}

// queue is a stream of one service.
type queue interface {
	backend() backend.Backend
	handle() uintptr
	// compute enqueues a kernel of about that much work, and returns the work that was actually
	// enqueued: the sections declare nothing else.
	compute(w gpuspan.Work, s shape) gpuspan.Work
	copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work
	// reduce enqueues an all-reduce of that many bytes among n ranks, all of which have arrived.
	reduce(bytes int64, n int) gpuspan.Work
	// allocate allocates memory of the device, or, negative, frees it.
	allocate(bytes int64)
	// wait blocks until everything is done, like a service that needs the result.
	wait() error
	close() error
}

// shape sets how well a simulated kernel uses the device; real devices ignore it.
type shape struct{ efficiency, occupancy float64 }

// A simulated machine has several devices; the service uses the first one, which a rank of the job
// uses, too.
const simulatedDevices = 4

// linkRate is what a device sends to all others together, in bytes per second: NVLink 4, 18 links
// of 25 GB/s.
const linkRate = 450e9

type simulatedMachine struct{ gpu *simgpu.GPU }

func newSimulatedMachine() simulatedMachine {
	specs := make([]simgpu.Spec, simulatedDevices)
	for i := range specs {
		specs[i] = simgpu.DefaultSpec()
	}
	return simulatedMachine{gpu: simgpu.New(nil, simgpu.WithDevices(specs...))}
}

func (m simulatedMachine) devices() int                 { return simulatedDevices }
func (m simulatedMachine) precision() gpuspan.Precision { return gpuspan.BF16 }
func (m simulatedMachine) close() error                 { return m.gpu.Close() }

func (m simulatedMachine) queue(device int) (queue, error) {
	return simulatedQueue{gpu: m.gpu, own: &ownBackend{m.gpu}, device: device, stream: m.gpu.Stream(device)}, nil
}

// ownBackend is the backend of one queue: each queue has a profiler, and profilers do not share a
// backend.
type ownBackend struct{ *simgpu.GPU }

type simulatedQueue struct {
	gpu    *simgpu.GPU
	own    *ownBackend
	device int
	stream backend.StreamHandle
}

func (q simulatedQueue) backend() backend.Backend { return q.own }
func (q simulatedQueue) handle() uintptr          { return q.stream }
func (q simulatedQueue) allocate(bytes int64)     { q.gpu.Allocate(q.device, bytes) }
func (q simulatedQueue) close() error             { return nil }

func (q simulatedQueue) compute(w gpuspan.Work, s shape) gpuspan.Work {
	q.gpu.Launch(q.stream, simgpu.Kernel{
		FLOPs: w.FLOPs, Precision: w.Precision, Bytes: w.Read + w.Written + w.Bytes, Efficiency: s.efficiency,
		Occupancy: s.occupancy,
	})
	return w
}

// reduce returns the traffic of a ring: each rank sends 2 (n-1)/n of its bytes (Patarasuk and Yuan,
// 2009).
func (q simulatedQueue) reduce(bytes int64, n int) gpuspan.Work {
	sent := 2 * float64(n-1) / float64(n) * float64(bytes)
	q.gpu.Launch(q.stream, simgpu.Kernel{
		Bytes: 2 * bytes, Occupancy: 0.1, Duration: time.Duration(sent / linkRate * float64(time.Second)),
	})
	return gpuspan.Work{Bytes: bytes}
}

func (q simulatedQueue) copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work {
	q.gpu.Copy(q.stream, simgpu.Copy{Bytes: bytes, Direction: d, Pageable: m == gpuspan.Pageable})
	return gpuspan.Work{Bytes: bytes}
}

func (q simulatedQueue) wait() error {
	q.gpu.Wait(q.stream)
	return nil
}
