// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// machine is what the demo's services run on: the first CUDA device, or a simulated one.
type machine interface {
	// queue makes a stream, with a backend to time it.
	queue() (queue, error)
	// precision is that of the arithmetic that the device does here.
	precision() gpuspan.Precision
	close() error
}

// queue is a stream of one service.
type queue interface {
	backend() backend.Backend
	handle() uintptr
	// compute enqueues a kernel of about that much work, and returns the work that was really enqueued: the sections
	// declare nothing else.
	compute(w gpuspan.Work, s shape) gpuspan.Work
	copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work
	// wait blocks until everything is done, as a service does that needs the result.
	wait() error
	close() error
}

// shape says how well a simulated kernel uses the device; a real one is as it is.
type shape struct{ efficiency, occupancy float64 }

type simulatedMachine struct{ gpu *simgpu.GPU }

func (m simulatedMachine) precision() gpuspan.Precision { return gpuspan.BF16 }
func (m simulatedMachine) close() error                 { return m.gpu.Close() }

func (m simulatedMachine) queue() (queue, error) {
	return simulatedQueue{gpu: m.gpu, stream: m.gpu.Stream(0)}, nil
}

type simulatedQueue struct {
	gpu    *simgpu.GPU
	stream backend.StreamHandle
}

func (q simulatedQueue) backend() backend.Backend { return q.gpu }
func (q simulatedQueue) handle() uintptr          { return uintptr(q.stream) }
func (q simulatedQueue) close() error             { return nil }

func (q simulatedQueue) compute(w gpuspan.Work, s shape) gpuspan.Work {
	q.gpu.Launch(q.stream, simgpu.Kernel{
		FLOPs: w.FLOPs, Precision: w.Precision, Bytes: w.Read + w.Written + w.Bytes, Efficiency: s.efficiency,
		Occupancy: s.occupancy,
	})
	return w
}

func (q simulatedQueue) copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work {
	q.gpu.Copy(q.stream, simgpu.Copy{Bytes: bytes, Direction: d, Pageable: m == gpuspan.Pageable})
	return gpuspan.Work{Bytes: bytes}
}

func (q simulatedQueue) wait() error {
	q.gpu.Wait(q.stream)
	return nil
}
