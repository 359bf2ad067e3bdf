// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Device is a CUdevice.
type Device int32

// Attributes of a device (CUdevice_attribute of cuda.h).
const (
	AttributeMultiprocessors = 16 // number of streaming multiprocessors
	AttributeComputeMajor    = 75 // major number of the compute capability
	AttributeComputeMinor    = 76 // minor number of the compute capability
)

// DeviceCount returns the number of devices that the process sees (after CUDA_VISIBLE_DEVICES).
func (d *Driver) DeviceCount() (int, error) {
	n, err := d.fn.Value("cuDeviceGetCount")
	return int(int32(n)), err
}

// Device returns the device of an ordinal.
func (d *Driver) Device(ordinal int) (Device, error) {
	dev, err := d.fn.Value("cuDeviceGet", uintptr(ordinal))
	return Device(dev), err
}

// Name returns the device's model, e.g. "NVIDIA H200".
func (d *Driver) Name(dev Device) (string, error) { return d.fn.String("cuDeviceGetName", int32(dev)) }

// PCI returns the device's PCI address in lower case, e.g. "0000:17:00.0".
func (d *Driver) PCI(dev Device) (string, error) {
	s, err := d.fn.String("cuDeviceGetPCIBusId", int32(dev))
	return strings.ToLower(s), err
}

// UUID returns `GPU-<uuid>`, or for a MIG instance `MIG-<uuid>` and the physical GPU's UUID as
// parent. The older of the driver's two functions returns the physical GPU's, so a difference
// identifies MIG instances (without the older function, the model does, which includes the
// profile).
func (d *Driver) UUID(dev Device) (uuid, parent string, err error) {
	physical, err1 := d.uuid("cuDeviceGetUuid", dev)
	instance, err2 := d.uuid("cuDeviceGetUuid_v2", dev)
	switch {
	case err1 != nil && err2 != nil:
		return "", "", err2
	case err2 != nil:
		return "GPU-" + physical, "", nil
	case err1 == nil && physical != instance:
		return "MIG-" + instance, "GPU-" + physical, nil
	}
	if name, err := d.Name(dev); err == nil && strings.Contains(name, " MIG ") {
		return "MIG-" + instance, "", nil
	}
	return "GPU-" + instance, "", nil
}

func (d *Driver) uuid(name string, dev Device) (string, error) {
	if d.fn.Of[name] == 0 {
		return "", fmt.Errorf("%s lacks %s", d.lib.Path, name)
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), uintptr(dev)
	f.Out[1] = 0
	if err := d.fn.Frame(name, f, 2); err != nil {
		return "", err
	}
	b := f.Bytes16(0)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16]), nil
}

// Memory returns the size of the device's memory in bytes.
func (d *Driver) Memory(dev Device) (int64, error) {
	n, err := d.fn.Value("cuDeviceTotalMem_v2", uintptr(dev))
	return int64(n), err
}

// Attribute returns an attribute of a device, such as [AttributeMultiprocessors].
func (d *Driver) Attribute(dev Device, attribute int) (int, error) {
	v, err := d.fn.Value("cuDeviceGetAttribute", uintptr(attribute), uintptr(dev))
	return int(int32(v)), err
}

// Context is a CUcontext.
type Context uintptr

// RetainPrimary returns a new reference to the device's primary context, which the CUDA runtime
// uses, and creates it if it does not exist. Release it with ReleasePrimary.
func (d *Driver) RetainPrimary(dev Device) (Context, error) {
	ctx, err := d.fn.Value("cuDevicePrimaryCtxRetain", uintptr(dev))
	return Context(ctx), err
}

const primaryRelease = "cuDevicePrimaryCtxRelease_v2"

// ReleasePrimary releases a reference of RetainPrimary.
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

// Current returns the calling OS thread's current context, 0 when it has none.
func (d *Driver) Current() (Context, error) {
	ctx, err := d.fn.Value("cuCtxGetCurrent")
	return Context(ctx), err
}

// Push makes ctx current on the calling OS thread, which must be locked to the goroutine, until pop
// is called, which restores the previous context. code is the CUresult; if it is not 0, pop does
// nothing. It does not allocate.
func (d *Driver) Push(ctx Context) (pop func(), code int32) {
	if code = d.push.Call(uintptr(ctx)); code != 0 {
		return func() {}, code
	}
	return d.pop, 0
}

// Pop removes the calling OS thread's current context and restores the previous one, like the
// function that Push returns.
func (d *Driver) Pop() {
	f := dl.NewFrame()
	f.Args[0] = f.Addr(0)
	f.Call(d.fn.Of["cuCtxPopCurrent_v2"], 1)
	f.Free()
}

// Do runs f on a locked OS thread with ctx current, and returns its error, or the error of making
// ctx current.
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

// ContextDevice returns the device of a context.
func (d *Driver) ContextDevice(ctx Context) (dev Device, err error) {
	err = d.Do(ctx, func() error {
		v, err := d.fn.Value("cuCtxGetDevice")
		dev = Device(v)
		return err
	})
	return dev, err
}

// Synchronize waits for all work of the current context, and returns errors of that work.
func (d *Driver) Synchronize() error { return d.fn.Call("cuCtxSynchronize") }

// Stream is a CUstream (the runtime's cudaStream_t is the same).
type Stream uintptr

// NewStream creates a non-blocking stream in the current context.
func (d *Driver) NewStream() (Stream, error) {
	s, err := d.fn.Value("cuStreamCreate", 1)
	return Stream(s), err
}

// FreeStream destroys a stream after its work is done, without waiting for it.
func (d *Driver) FreeStream(s Stream) error { return d.fn.Call("cuStreamDestroy_v2", uintptr(s)) }

// SynchronizeStream waits for the work of a stream, and returns errors of that work.
func (d *Driver) SynchronizeStream(s Stream) error {
	return d.fn.Call("cuStreamSynchronize", uintptr(s))
}

// StreamContext returns the context in which a stream was created. Do not call it while the stream
// captures a graph.
func (d *Driver) StreamContext(s Stream) (Context, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = uintptr(s), f.Addr(0)
	if err := d.fn.Frame("cuStreamGetCtx", f, 2); err != nil {
		return 0, err
	}
	return Context(f.Out[0]), nil
}

// Ptr is an address in device memory (CUdeviceptr).
type Ptr uint64

// Alloc allocates n bytes of device memory in the current context.
func (d *Driver) Alloc(n int64) (Ptr, error) {
	p, err := d.fn.Value("cuMemAlloc_v2", uintptr(n))
	return Ptr(p), err
}

// Free frees device memory.
func (d *Driver) Free(p Ptr) error { return d.fn.Call("cuMemFree_v2", uintptr(p)) }

// AllocHost allocates n bytes of pinned host memory. Free it with FreeHost.
func (d *Driver) AllocHost(n int64) ([]byte, error) {
	p, err := d.fn.Value("cuMemHostAlloc", uintptr(n), 0)
	if err != nil {
		return nil, err
	}
	return dl.Foreign(uintptr(p), int(n)), nil
}

// FreeHost frees what AllocHost returned.
func (d *Driver) FreeHost(b []byte) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Bytes(0, b)
	return d.fn.Frame("cuMemFreeHost", f, 1)
}

// Upload copies b to the device, in stream order on s. With pageable memory the call returns after
// b has been read; pinned memory (AllocHost) must not change until the copy is done.
func (d *Driver) Upload(dst Ptr, b []byte, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[2], f.Args[3] = uintptr(dst), uintptr(len(b)), uintptr(s)
	f.Bytes(1, b)
	return d.fn.Frame("cuMemcpyHtoDAsync_v2", f, 4)
}

// Download copies device memory to b, in stream order on s. With pageable memory the call returns
// after the copy; pinned memory is complete when the stream has reached that point.
func (d *Driver) Download(b []byte, src Ptr, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[1], f.Args[2], f.Args[3] = uintptr(src), uintptr(len(b)), uintptr(s)
	f.Bytes(0, b)
	return d.fn.Frame("cuMemcpyDtoHAsync_v2", f, 4)
}

// Copy copies n bytes within the device, in stream order on s.
func (d *Driver) Copy(dst, src Ptr, n int64, s Stream) error {
	return d.fn.Call("cuMemcpyDtoDAsync_v2", uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Set sets n bytes of device memory to v, in stream order on s.
func (d *Driver) Set(p Ptr, v byte, n int64, s Stream) error {
	return d.fn.Call("cuMemsetD8Async", uintptr(p), uintptr(v), uintptr(n), uintptr(s))
}
