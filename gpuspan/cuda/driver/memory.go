// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"runtime"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Ptr is an address in device memory (CUdeviceptr).
type Ptr uint64

// Alloc allocates n bytes of device memory in the current context.
func (d *Driver) Alloc(n int64) (Ptr, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), uintptr(n)
	if err := d.check("cuMemAlloc_v2", f.Call(d.fn.memAlloc, 2)); err != nil {
		return 0, err
	}
	return Ptr(f.Out[0]), nil
}

// Free frees device memory.
func (d *Driver) Free(p Ptr) error { return d.check("cuMemFree_v2", d.fn.memFree.Call1(uintptr(p))) }

// AllocHost allocates n bytes of pinned host memory; free it with FreeHost.
func (d *Driver) AllocHost(n int64) ([]byte, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1], f.Args[2] = f.Addr(0), uintptr(n), 0
	if err := d.check("cuMemHostAlloc", f.Call(d.fn.hostAlloc, 3)); err != nil {
		return nil, err
	}
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&f.Out[0]))), n), nil
}

// FreeHost frees what AllocHost returned.
func (d *Driver) FreeHost(b []byte) error {
	return d.check("cuMemFreeHost", d.fn.hostFree.Call1(uintptr(unsafe.Pointer(unsafe.SliceData(b)))))
}

// Upload copies b to the device, ordered on s. From pageable memory the call returns after b was read; pinned memory
// (AllocHost) must stay as it is until the stream has done the copy.
func (d *Driver) Upload(dst Ptr, b []byte, s Stream) error {
	err := d.copy("cuMemcpyHtoDAsync_v2", d.fn.copyHtoD, uintptr(dst), uintptr(unsafe.Pointer(unsafe.SliceData(b))), len(b), s)
	runtime.KeepAlive(b)
	return err
}

// Download copies device memory to b, ordered on s. Into pageable memory the call returns after the copy; pinned memory
// is complete when the stream is.
func (d *Driver) Download(b []byte, src Ptr, s Stream) error {
	err := d.copy("cuMemcpyDtoHAsync_v2", d.fn.copyDtoH, uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(src), len(b), s)
	runtime.KeepAlive(b)
	return err
}

// Copy copies n bytes within the device, ordered on s.
func (d *Driver) Copy(dst, src Ptr, n int64, s Stream) error {
	return d.copy("cuMemcpyDtoDAsync_v2", d.fn.copyDtoD, uintptr(dst), uintptr(src), int(n), s)
}

func (d *Driver) copy(name string, fn dl.Func, dst, src uintptr, n int, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1], f.Args[2], f.Args[3] = dst, src, uintptr(n), uintptr(s)
	return d.check(name, f.Call(fn, 4))
}

// Set sets n bytes of device memory to v, ordered on s.
func (d *Driver) Set(p Ptr, v byte, n int64, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1], f.Args[2], f.Args[3] = uintptr(p), uintptr(v), uintptr(n), uintptr(s)
	return d.check("cuMemsetD8Async", f.Call(d.fn.memset, 4))
}
