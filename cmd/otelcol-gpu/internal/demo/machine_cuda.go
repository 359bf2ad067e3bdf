// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && cgo

// Loading the driver makes a binary depend on the system's loader, so a static build (cgo off)
// omits it.

package demo

import (
	"errors"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/kernels"
)

// realMachine is the first CUDA device, with the sizes of its workload.
type realMachine struct {
	vector  int   // float32 of the vector kernel
	matrix  int   // width of the matrices
	staging int64 // bytes of the largest copy
}

// openCUDA finds the first CUDA device.
func openCUDA() (machine, string, error) {
	b, err := cuda.Open()
	if err != nil {
		return nil, "", err
	}
	devices, err := b.Devices()
	if err := errors.Join(err, b.Close()); err != nil {
		return nil, "", err
	}
	if len(devices) == 0 {
		return nil, "", errors.New("the driver reports no device")
	}
	// Vectors of 128 MiB, more than any cache.
	return realMachine{vector: 1 << 25, matrix: 1024, staging: 32 << 20}, devices[0].Model, nil
}

func (m realMachine) devices() int                 { return 1 }
func (m realMachine) precision() gpuspan.Precision { return gpuspan.FP32 }
func (m realMachine) close() error                 { return nil }

// realQueue has its own backend: a profiler polls a backend from one thread, and the demo has two
// profilers.
type realQueue struct {
	size    realMachine
	cuda    *cuda.Backend
	driver  *driver.Driver
	device  driver.Device
	context driver.Context
	stream  driver.Stream
	kernels *kernels.Set
	memory  [3]driver.Ptr
	pinned  []byte
	host    []byte
	failed  error // the first one; wait returns it
}

func (m realMachine) queue(device int) (_ queue, err error) {
	b, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	q := &realQueue{size: m, cuda: b, driver: b.Driver(), host: make([]byte, m.staging)}
	defer func() {
		if err != nil {
			err = errors.Join(err, q.close())
		}
	}()
	if q.device, err = q.driver.Device(device); err != nil {
		return nil, err
	}
	if q.context, err = q.driver.RetainPrimary(q.device); err != nil {
		return nil, err
	}
	err = q.driver.Do(q.context, func() (err error) {
		if q.stream, err = q.driver.NewStream(); err != nil {
			return err
		}
		if q.kernels, err = kernels.Load(q.driver); err != nil {
			return err
		}
		for i := range q.memory {
			if q.memory[i], err = q.driver.Alloc(4 * int64(m.vector)); err != nil {
				return err
			}
			if err = q.driver.Set(q.memory[i], 0, 4*int64(m.vector), q.stream); err != nil {
				return err
			}
		}
		q.pinned, err = q.driver.AllocHost(m.staging)
		return err
	})
	return q, err
}

func (q *realQueue) backend() backend.Backend { return q.cuda }
func (q *realQueue) handle() uintptr          { return uintptr(q.stream) }

// do keeps the first error: after one failure on a device all calls fail.
func (q *realQueue) do(f func() error) {
	if q.failed == nil {
		q.failed = q.driver.Do(q.context, f)
	}
}

// compute runs a matrix product for work with many FLOPs per byte, and a saxpy for the rest.
// Neither is as large as the model that the simulation runs, so that one kernel takes about a
// millisecond on any device.
func (q *realQueue) compute(w gpuspan.Work, _ shape) gpuspan.Work {
	if bytes := float64(w.Read + w.Written + w.Bytes); bytes > 0 && w.FLOPs/bytes > 16 {
		q.do(func() error { return q.kernels.Matmul(q.stream, q.memory[2], q.memory[0], q.memory[1], q.size.matrix) })
		n := int64(q.size.matrix)
		return gpuspan.Work{
			FLOPs: 2 * float64(n*n*n), Precision: gpuspan.FP32, Read: 2 * 4 * n * n, Written: 4 * n * n,
			Items: w.Items,
		}
	}
	q.do(func() error { return q.kernels.Saxpy(q.stream, q.memory[1], q.memory[0], 1, q.size.vector) })
	n := int64(q.size.vector)
	return gpuspan.Work{FLOPs: 2 * float64(n), Precision: gpuspan.FP32, Read: 8 * n, Written: 4 * n, Items: w.Items}
}

func (q *realQueue) copy(bytes int64, d gpuspan.Direction, m gpuspan.HostMemory) gpuspan.Work {
	bytes = min(bytes, q.size.staging, 4*int64(q.size.vector))
	host := q.pinned
	if m == gpuspan.Pageable {
		host = q.host
	}
	q.do(func() error {
		if d == gpuspan.DeviceToHost {
			return q.driver.Download(host[:bytes], q.memory[2], q.stream)
		}
		return q.driver.Upload(q.memory[0], host[:bytes], q.stream)
	})
	return gpuspan.Work{Bytes: bytes}
}

// reduce does nothing, because there is one rank.
func (q *realQueue) reduce(int64, int) gpuspan.Work { return gpuspan.Work{} }

// allocate does nothing: the memory of the kernels is allocated already.
func (q *realQueue) allocate(int64) {}

func (q *realQueue) wait() error {
	q.do(func() error { return q.driver.SynchronizeStream(q.stream) })
	return q.failed
}

func (q *realQueue) close() error {
	if q.context == 0 {
		return q.cuda.Close()
	}
	err := q.driver.Do(q.context, func() error {
		var errs []error
		if q.kernels != nil {
			errs = append(errs, q.kernels.Close())
		}
		for _, p := range q.memory {
			if p != 0 {
				errs = append(errs, q.driver.Free(p))
			}
		}
		if q.pinned != nil {
			errs = append(errs, q.driver.FreeHost(q.pinned))
		}
		if q.stream != 0 {
			errs = append(errs, q.driver.FreeStream(q.stream))
		}
		return errors.Join(errs...)
	})
	return errors.Join(err, q.cuda.Close(), q.driver.ReleasePrimary(q.device))
}
