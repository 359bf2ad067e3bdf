// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && amd64 && gpuspan_asm && !gpuspan_static

package dl

import (
	"unsafe"

	"github.com/ebitengine/purego"
)

// A call of up to four integers through an own trampoline costs half of purego.SyscallN, which moves three blocks of 32
// words for each. It depends on two things that the Go project does not promise: that runtime.cgocall may be linked to,
// and purego's own set-up of the C side in programs without cgo. So the build tag gpuspan_asm has to ask for it.
//
// cgocall and not asmcgocall, which is faster still: a driver call can block, and must not hold up the scheduler.

// trampolineAddr is the address of trampoline in call_fast_amd64.s.
var trampolineAddr uintptr

//go:linkname cgocall runtime.cgocall
//go:noescape
func cgocall(fn uintptr, arg unsafe.Pointer) int32

// call passes the frame itself to the trampoline. Arguments on the goroutine's stack, as in cgo, would be sufficient
// for functions that never call back into Go; functions that do return after the stack has moved.
func (f *Frame) call(fn Func, n int) uintptr {
	if n > 4 {
		r, _, _ := purego.SyscallN(uintptr(fn), f.Args[:n]...)
		return r
	}
	f.fn = uintptr(fn)
	cgocall(trampolineAddr, unsafe.Pointer(f))
	return f.result
}
