// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package eventapi

import "fmt"

// Error is a call of a driver library that failed.
type Error struct {
	API  string // CUDA or HIP
	Call string // the function's name
	Code int32  // CUresult or hipError_t
	Name string // its name, e.g. CUDA_ERROR_NO_DEVICE; empty when the library does not know
	Text string // the library's description; may be empty
}

// Error is `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Name == "" {
		s = fmt.Sprintf("%s: %s error %d", e.Call, e.API, e.Code)
	}
	if e.Text != "" {
		s += ": " + e.Text
	}
	return s
}
