// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build (linux || darwin) && !gpuspan_static

package dl

import "github.com/ebitengine/purego"

func (f *Frame) call(fn Func, n int) uintptr {
	r, _, _ := purego.SyscallN(uintptr(fn), f.Args[:n]...)
	return r
}
