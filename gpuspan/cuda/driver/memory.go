// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import "github.com/otelgpu/otelgpu/gpuspan/internal/dl"

// Ptr is an address in device memory (CUdeviceptr).
type Ptr uint64

// Alloc allocates n bytes of device memory in the current context.
func (d *Driver) Alloc(n int64) (Ptr, error) {
	p, err := d.fn.Value("cuMemAlloc_v2", uintptr(n))
	return Ptr(p), err
}

// Free frees device memory.
func (d *Driver) Free(p Ptr) error { return d.fn.Call("cuMemFree_v2", uintptr(p)) }

// AllocHost allocates n bytes of pinned host memory; free it with FreeHost.
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

// Upload copies b to the device, ordered on s. From pageable memory the call returns after b was read; pinned memory
// (AllocHost) must stay as it is until the stream has done the copy.
func (d *Driver) Upload(dst Ptr, b []byte, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[2], f.Args[3] = uintptr(dst), uintptr(len(b)), uintptr(s)
	f.Bytes(1, b)
	return d.fn.Frame("cuMemcpyHtoDAsync_v2", f, 4)
}

// Download copies device memory to b, ordered on s. Into pageable memory the call returns after the copy; pinned memory
// is complete when the stream is.
func (d *Driver) Download(b []byte, src Ptr, s Stream) error {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[1], f.Args[2], f.Args[3] = uintptr(src), uintptr(len(b)), uintptr(s)
	f.Bytes(0, b)
	return d.fn.Frame("cuMemcpyDtoHAsync_v2", f, 4)
}

// Copy copies n bytes within the device, ordered on s.
func (d *Driver) Copy(dst, src Ptr, n int64, s Stream) error {
	return d.fn.Call("cuMemcpyDtoDAsync_v2", uintptr(dst), uintptr(src), uintptr(n), uintptr(s))
}

// Set sets n bytes of device memory to v, ordered on s.
func (d *Driver) Set(p Ptr, v byte, n int64, s Stream) error {
	return d.fn.Call("cuMemsetD8Async", uintptr(p), uintptr(v), uintptr(n), uintptr(s))
}
