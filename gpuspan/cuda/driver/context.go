// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Context is a CUcontext.
type Context uintptr

// RetainPrimary takes a reference to the device's primary context, the one that the CUDA runtime uses, and makes it if
// it does not exist. Release it with ReleasePrimary.
func (d *Driver) RetainPrimary(dev Device) (Context, error) {
	ctx, err := d.fn.Value("cuDevicePrimaryCtxRetain", uintptr(dev))
	return Context(ctx), err
}

const primaryRelease = "cuDevicePrimaryCtxRelease_v2"

// ReleasePrimary gives a reference back.
func (d *Driver) ReleasePrimary(dev Device) error { return d.fn.Call(primaryRelease, uintptr(dev)) }

// PrimaryActive reports whether the device's primary context exists.
func (d *Driver) PrimaryActive(dev Device) (bool, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1], f.Args[2] = uintptr(dev), f.Addr(0), f.Addr(1)
	if err := d.fn.Frame("cuDevicePrimaryCtxGetState", f, 3); err != nil {
		return false, err
	}
	return f.Int32(1) != 0, nil
}

// Current is the calling OS thread's current context, 0 when it has none.
func (d *Driver) Current() (Context, error) {
	ctx, err := d.fn.Value("cuCtxGetCurrent")
	return Context(ctx), err
}

// Push makes ctx current on the calling OS thread, which must be locked, until the returned function is called. It
// restores what was current before, as setting the context would not. It does not allocate.
func (d *Driver) Push(ctx Context) (pop func(), code int32) {
	if code = d.push.Call(uintptr(ctx)); code != 0 {
		return func() {}, code
	}
	return d.pop, 0
}

// Pop takes the calling OS thread's current context away and restores the one before it. What Push returned does the
// same.
func (d *Driver) Pop() {
	f := dl.NewFrame()
	f.Args[0] = f.Addr(0)
	f.Call(d.fn.Of["cuCtxPopCurrent_v2"], 1)
	f.Free()
}

// Do runs f on a locked OS thread with ctx current.
func (d *Driver) Do(ctx Context, f func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	pop, code := d.Push(ctx)
	if err := d.fn.Check("cuCtxPushCurrent_v2", code); err != nil {
		return err
	}
	defer pop()
	return f()
}

// ContextDevice is the device of a context.
func (d *Driver) ContextDevice(ctx Context) (dev Device, err error) {
	err = d.Do(ctx, func() error {
		v, err := d.fn.Value("cuCtxGetDevice")
		dev = Device(v)
		return err
	})
	return dev, err
}

// Synchronize waits for all work of the current context.
func (d *Driver) Synchronize() error { return d.fn.Call("cuCtxSynchronize") }

// Stream is a CUstream (the runtime's cudaStream_t is the same).
type Stream uintptr

// NewStream makes a non-blocking stream in the current context.
func (d *Driver) NewStream() (Stream, error) {
	s, err := d.fn.Value("cuStreamCreate", 1)
	return Stream(s), err
}

// FreeStream destroys a stream once its work is done.
func (d *Driver) FreeStream(s Stream) error { return d.fn.Call("cuStreamDestroy_v2", uintptr(s)) }

// SynchronizeStream waits for the work of a stream.
func (d *Driver) SynchronizeStream(s Stream) error {
	return d.fn.Call("cuStreamSynchronize", uintptr(s))
}

// StreamContext is the context in which a stream was made. It must not be asked while the stream captures a graph.
func (d *Driver) StreamContext(s Stream) (Context, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = uintptr(s), f.Addr(0)
	if err := d.fn.Frame("cuStreamGetCtx", f, 2); err != nil {
		return 0, err
	}
	return Context(f.Out[0]), nil
}
