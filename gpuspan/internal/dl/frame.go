// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package dl

import (
	"sync"
	"unsafe"
)

// Frame holds the arguments and results of one C call on the heap, where addresses stay what they are. Frames are
// pooled, because the variadic slice of a direct call would be an allocation each time.
type Frame struct {
	Args [12]uintptr
	Out  [4]uint64
}

var frames = sync.Pool{New: func() any { return new(Frame) }}

// NewFrame takes a frame from the pool; its contents are undefined.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Free gives the frame back.
func (f *Frame) Free() { frames.Put(f) }

// Addr is the address of Out[i], cleared before.
func (f *Frame) Addr(i int) uintptr {
	f.Out[i] = 0
	return uintptr(unsafe.Pointer(&f.Out[i]))
}

// Float32 reads Out[i] as a C float.
func (f *Frame) Float32(i int) float32 { return *(*float32)(unsafe.Pointer(&f.Out[i])) }

// Int32 reads Out[i] as a C int.
func (f *Frame) Int32(i int) int32 { return *(*int32)(unsafe.Pointer(&f.Out[i])) }

// Call calls fn with the first n arguments of the frame and returns what C returned as an int.
func (f *Frame) Call(fn Func, n int) int32 { return int32(call(uintptr(fn), f.Args[:n])) }

// Call calls fn with args, which must live on the heap for the call to be free of allocations.
func (fn Func) Call(args []uintptr) int32 { return int32(call(uintptr(fn), args)) }

// Call1 calls fn with one argument.
func (fn Func) Call1(a uintptr) int32 { return int32(call4(uintptr(fn), a, 0, 0, 0)) }

// Call2 calls fn with two arguments.
func (fn Func) Call2(a, b uintptr) int32 { return int32(call4(uintptr(fn), a, b, 0, 0)) }

// CallPointer is Call for a function that returns a pointer or 64 bits.
func (f *Frame) CallPointer(fn Func, n int) uintptr { return call(uintptr(fn), f.Args[:n]) }

// CallPointer is Call for a function that returns a pointer or 64 bits.
func (fn Func) CallPointer(args []uintptr) uintptr { return call(uintptr(fn), args) }

// Pointer1 calls fn with one argument; the function returns a pointer.
func (fn Func) Pointer1(a uintptr) uintptr { return call4(uintptr(fn), a, 0, 0, 0) }

// String copies a C string that the library owns; empty for NULL.
func String(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := *(*unsafe.Pointer)(unsafe.Pointer(&addr)) // the address is C's: the collector does not know it
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}
