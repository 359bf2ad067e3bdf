// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64 && !gpuspan_noasm

package dl

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// A call of up to four integers through an own trampoline costs a third of purego.SyscallN, which moves three blocks of 32
// words for each. It needs two things that purego, which stays for everything else, needs as well: that the Go runtime
// lets runtime.cgocall be linked to (it names purego as a reason to), and purego's own set-up of the C side in
// programs without cgo. The build tag gpuspan_noasm leaves it out.
//
// cgocall and not asmcgocall, which is faster still: a driver call can block, and must not hold up the scheduler.

// arguments is the memory of one call, laid out for the trampoline. It may live on the stack, as cgo's own does: the stack
// does not move while the thread is in C, and nothing here calls back into Go with it.
type arguments struct {
	fn         uintptr
	a, b, c, d uintptr
	result     uintptr
}

// trampolineAddr is the address of trampoline in call_fast_amd64.s.
var trampolineAddr uintptr

//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

func call4(fn, a, b, c, d uintptr) uintptr {
	f := arguments{fn: fn, a: a, b: b, c: c, d: d}
	cgocall(trampolineAddr, unsafe.Pointer(&f))
	return f.result
}

func call(fn uintptr, args []uintptr) uintptr {
	switch len(args) {
	case 1:
		return call4(fn, args[0], 0, 0, 0)
	case 2:
		return call4(fn, args[0], args[1], 0, 0)
	case 3:
		return call4(fn, args[0], args[1], args[2], 0)
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}
