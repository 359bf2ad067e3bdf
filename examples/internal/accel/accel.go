// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package accel gives the examples a device to work on: the first CUDA device, or a simulated one
// if there is none.
//
// The examples show how to instrument a computation, not a useful computation. A simulated device
// takes the time that the stated FLOPs and bytes would take. A real one moves the bytes, by copies
// within its memory, and computes nothing: so its sections declare bytes and no FLOPs.
package accel

import (
	"errors"
	"fmt"
	"io"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/backend"
	"github.com/otelgpu/otelgpu/gpuspan/cuda"
	"github.com/otelgpu/otelgpu/gpuspan/cuda/driver"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/report/ddsketch"
	"github.com/otelgpu/otelgpu/gpuspan/simgpu"
)

// Device is where an example runs. All work is enqueued on its one stream; errors of the driver
// show at Wait.
type Device interface {
	Backend() backend.Backend
	Stream() uintptr
	// Copy copies n bytes from or to pinned host memory and returns the work that a section around
	// it should declare.
	Copy(n int64, direction gpuspan.Direction) gpuspan.Work
	// Compute enqueues work of that many FLOPs and bytes of device memory and returns what was
	// actually enqueued.
	Compute(w gpuspan.Work) gpuspan.Work
	// Wait blocks until everything enqueued is done, like an application that needs a result.
	Wait() error
	Close() error
}

// Open returns a device and prints which one on w. simulated skips the search for a real one.
func Open(simulated bool, w io.Writer) Device {
	if !simulated {
		d, err := openCUDA()
		if err == nil {
			fmt.Fprintln(w, "running on the first CUDA device (moving bytes, computing nothing)")
			return d
		}
		fmt.Fprintf(w, "no GPU, running on a simulated one (%v)\n", err)
	} else {
		fmt.Fprintln(w, "running on a simulated GPU")
	}
	g := simgpu.New(nil)
	return &sim{g, g.Stream(0)}
}

// Report returns the report of a service with quantiles of its whole run, however long it is.
func Report(service string) gpuspan.Option {
	return gpuspan.WithReport(report.WithService(service), report.WithSketch(ddsketch.New))
}

type sim struct {
	gpu    *simgpu.GPU
	stream backend.StreamHandle
}

func (s *sim) Backend() backend.Backend { return s.gpu }
func (s *sim) Stream() uintptr          { return s.stream }

func (s *sim) Copy(n int64, direction gpuspan.Direction) gpuspan.Work {
	s.gpu.Copy(s.stream, simgpu.Copy{Bytes: n, Direction: direction})
	return gpuspan.Work{Bytes: n}
}

func (s *sim) Compute(w gpuspan.Work) gpuspan.Work {
	s.gpu.Launch(s.stream, simgpu.Kernel{FLOPs: w.FLOPs, Precision: w.Precision, Bytes: w.Read + w.Written + w.Bytes})
	return w
}

func (s *sim) Wait() error {
	if st := s.gpu.Wait(s.stream); st != backend.StatusOK {
		return fmt.Errorf("simulated device: status %d", st)
	}
	return nil
}

func (s *sim) Close() error { return nil }

// bufferSize is the device memory that copies go back and forth in.
const bufferSize = 64 << 20

type real struct {
	backend *cuda.Backend
	driver  *driver.Driver
	device  driver.Device
	context driver.Context
	stream  driver.Stream
	host    []byte
	memory  driver.Ptr
	err     error
}

func openCUDA() (_ *real, err error) {
	b, err := cuda.Open()
	if err != nil {
		return nil, err
	}
	r := &real{backend: b, driver: b.Driver()}
	if r.device, err = r.driver.Device(0); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	if r.context, err = r.driver.RetainPrimary(r.device); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	err = r.driver.Do(r.context, func() (err error) {
		if r.stream, err = r.driver.NewStream(); err != nil {
			return err
		}
		if r.host, err = r.driver.AllocHost(bufferSize); err != nil {
			return err
		}
		r.memory, err = r.driver.Alloc(2 * bufferSize)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return r, nil
}

func (r *real) Backend() backend.Backend { return r.backend }
func (r *real) Stream() uintptr          { return uintptr(r.stream) }

// do keeps the first error; an example that cannot copy cannot continue.
func (r *real) do(f func() error) {
	if err := r.driver.Do(r.context, f); err != nil && r.err == nil {
		r.err = err
	}
}

// pieces calls f for n bytes in pieces of at most the buffer's size.
func pieces(n int64, f func(n int64) error) error {
	for n > 0 {
		m := min(n, bufferSize)
		if err := f(m); err != nil {
			return err
		}
		n -= m
	}
	return nil
}

func (r *real) Copy(n int64, direction gpuspan.Direction) gpuspan.Work {
	r.do(func() error {
		return pieces(n, func(n int64) error {
			if direction == gpuspan.HostToDevice {
				return r.driver.Upload(r.memory, r.host[:n], r.stream)
			}
			return r.driver.Download(r.host[:n], r.memory, r.stream)
		})
	})
	return gpuspan.Work{Bytes: n}
}

func (r *real) Compute(w gpuspan.Work) gpuspan.Work {
	n := (w.Read + w.Written + w.Bytes) / 2 // a copy reads and writes
	r.do(func() error {
		return pieces(n, func(n int64) error { return r.driver.Copy(r.memory+bufferSize, r.memory, n, r.stream) })
	})
	return gpuspan.Work{Read: n, Written: n, Items: w.Items}
}

func (r *real) Wait() error {
	r.do(func() error { return r.driver.SynchronizeStream(r.stream) })
	return r.err
}

func (r *real) Close() error {
	return r.driver.Do(r.context, func() error {
		return errors.Join(r.driver.FreeStream(r.stream), r.driver.FreeHost(r.host), r.driver.Free(r.memory))
	})
}
