// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Error is a driver call that failed.
type Error struct {
	Call string // the function's name
	Code int32  // the CUresult
	Name string // its name, e.g. CUDA_ERROR_NO_DEVICE; empty when the driver does not know
	Text string // the driver's description; may be empty
}

// Error is `cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected`.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Name == "" {
		s = fmt.Sprintf("%s: CUDA error %d", e.Call, e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

func (d *Driver) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: call, Code: code, Name: d.describe(d.fn.errorName, code), Text: d.describe(d.fn.errorString, code)}
}

// value makes a call that writes a number through its first argument, and returns the number.
func (d *Driver) value(call string, fn dl.Func, args ...uintptr) (uint64, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	n := 1 + copy(f.Args[1:], args)
	if err := d.check(call, f.Call(fn, n)); err != nil {
		return 0, err
	}
	return f.Out[0], nil
}

func (d *Driver) describe(fn dl.Func, code int32) string {
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
