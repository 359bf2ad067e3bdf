// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build (linux || darwin) && !(linux && amd64 && !gpuspan_noasm)

package dl

import "github.com/ebitengine/purego"

func call(fn uintptr, args []uintptr) uintptr {
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// call4 passes four integers, more than most functions take, which no calling convention here minds.
func call4(fn, a, b, c, d uintptr) uintptr {
	f := NewFrame()
	f.Args[0], f.Args[1], f.Args[2], f.Args[3] = a, b, c, d
	r := call(fn, f.Args[:4])
	f.Free()
	return r
}
