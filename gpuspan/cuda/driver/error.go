// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

// Error is a driver call that failed: Call, the function's name; Code, the CUresult; Name and Text, what the driver
// says of it. `cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected`.
type Error = eventapi.Error

func (d *Driver) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &Error{
		API: "CUDA", Call: call, Code: code, Name: d.describe("cuGetErrorName", code),
		Text: d.describe("cuGetErrorString", code),
	}
}

// call makes a call whose arguments are numbers.
func (d *Driver) call(name string, args ...uintptr) error {
	return d.check(name, d.fn[name].Call(args...))
}

// frame makes a call with the first n arguments of a frame.
func (d *Driver) frame(name string, f *dl.Frame, n int) error {
	return d.check(name, f.Call(d.fn[name], n))
}

// value makes a call that writes a number through its first argument, and returns the number.
func (d *Driver) value(call string, args ...uintptr) (uint64, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	n := 1 + copy(f.Args[1:], args)
	if err := d.frame(call, f, n); err != nil {
		return 0, err
	}
	return f.Out[0], nil
}

func (d *Driver) describe(name string, code int32) string {
	fn := d.fn[name]
	if fn == 0 {
		return ""
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = uintptr(code), f.Addr(0)
	if f.Call(fn, 2) != 0 {
		return ""
	}
	return dl.String(uintptr(f.Out[0]))
}
