// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"fmt"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Error is a HIP call that failed.
type Error struct {
	Call string // the function's name
	Code int32  // the hipError_t
	Name string // its name, e.g. hipErrorNoDevice; empty when the library does not know
	Text string // the library's description; may be empty
}

// Error is `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Name == "" {
		s = fmt.Sprintf("%s: HIP error %d", e.Call, e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}

func (b *Backend) check(call string, code int32) error {
	if code == 0 {
		return nil
	}
	return &Error{Call: call, Code: code, Name: b.describe(b.fn.errorName, code), Text: b.describe(b.fn.errorString, code)}
}

func (b *Backend) describe(fn dl.Func, code int32) string {
	if fn == 0 {
		return ""
	}
	return dl.String(fn.Pointer(uintptr(code)))
}
