// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

// Error is a HIP call that failed: Call, the function's name; Code, the hipError_t; Name and Text, what the library
// says of it. `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
type Error = eventapi.Error

func (b *Backend) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &Error{
		API: "HIP", Call: call, Code: code, Name: b.describe("hipGetErrorName", code),
		Text: b.describe("hipGetErrorString", code),
	}
}

func (b *Backend) describe(name string, code int32) string {
	if b.fn[name] == 0 {
		return ""
	}
	return dl.String(b.fn[name].Pointer(uintptr(code)))
}
