// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/otelgpu/otelgpu/gpuspan/internal/dl"

// Stream is a CUstream (the runtime's cudaStream_t is the same).
type Stream uintptr

// NewStream makes a non-blocking stream in the current context.
func (d *Driver) NewStream() (Stream, error) {
	s, err := d.value("cuStreamCreate", 1)
	return Stream(s), err
}

// FreeStream destroys a stream once its work is done.
func (d *Driver) FreeStream(s Stream) error { return d.call("cuStreamDestroy_v2", uintptr(s)) }

// SynchronizeStream waits for the work of a stream.
func (d *Driver) SynchronizeStream(s Stream) error { return d.call("cuStreamSynchronize", uintptr(s)) }

// StreamContext is the context in which a stream was made. It must not be asked while the stream captures a graph.
func (d *Driver) StreamContext(s Stream) (Context, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = uintptr(s), f.Addr(0)
	if err := d.frame("cuStreamGetCtx", f, 2); err != nil {
		return 0, err
	}
	return Context(f.Out[0]), nil
}
