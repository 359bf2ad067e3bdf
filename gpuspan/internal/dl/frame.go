// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package dl loads C libraries at run time and calls them without cgo. Every byte of Go memory that
// C sees is passed through it: a [Frame] for the time of one call, [Address] for what C uses
// longer.
package dl

import (
	"bytes"
	"sync"
	"unsafe"
)

// maxArgs is how many arguments a call may have.
const maxArgs = 12

// Frame holds all that C sees of one call: arguments, results, and the memory that arguments point
// to. Frames live on the heap, where addresses stay what they are; memory of the caller that is
// passed by Pointer or Bytes moves there with them (it escapes) and is kept until Free. They are
// pooled, so that a call allocates nothing.
//
// An address of Go memory becomes an integer in this package alone. Elsewhere the stack may grow,
// and move, between the conversion and the call, and C would use memory that belongs to other code.
type Frame struct {
	Args [maxArgs]uintptr

	Out  [4]uint64 // memory for results that C writes through pointers
	kept []unsafe.Pointer
	room []byte
	used int // of room
}

var frames = sync.Pool{New: func() any { return new(Frame) }}

// NewFrame takes a frame from the pool; what Args and Out contain is undefined.
func NewFrame() *Frame { return frames.Get().(*Frame) }

// Free releases the frame and the memory that it lent.
func (f *Frame) Free() {
	clear(f.kept)
	f.kept, f.used = f.kept[:0], 0
	frames.Put(f)
}

// Addr returns the address of Out[i], cleared before.
func (f *Frame) Addr(i int) uintptr {
	f.Out[i] = 0
	return uintptr(unsafe.Pointer(&f.Out[i]))
}

// Float32 reads Out[i] as a C float.
func (f *Frame) Float32(i int) float32 { return *(*float32)(unsafe.Pointer(&f.Out[i])) }

// Int32 reads Out[i] as a C int.
func (f *Frame) Int32(i int) int32 { return *(*int32)(unsafe.Pointer(&f.Out[i])) }

// Bytes16 reads Out[i] and Out[i+1] as 16 bytes.
func (f *Frame) Bytes16(i int) [16]byte { return *(*[16]byte)(unsafe.Pointer((*[2]uint64)(f.Out[i:]))) }

// Reference is memory of the caller that C is to see.
type Reference struct{ p unsafe.Pointer }

// Ref returns a reference to a pointer.
func Ref[T any](p *T) Reference { return Reference{unsafe.Pointer(p)} }

// Pointer makes argument i the address of the caller's memory, which is kept until Free.
func (f *Frame) Pointer(i int, r Reference) {
	f.Args[i] = uintptr(r.p)
	f.kept = append(f.kept, r.p)
}

// Bytes makes argument i the address of b, NULL for an empty one. It is kept until Free.
func (f *Frame) Bytes(i int, b []byte) {
	f.Args[i] = 0
	if len(b) > 0 {
		f.Pointer(i, Ref(&b[0]))
	}
}

// Buffer makes argument i the address of n zeroed bytes, which are the caller's until Free. Where C
// gets the address within other memory, i is a slot behind the arguments of the call.
func (f *Frame) Buffer(i, n int) []byte {
	b := f.lend(n)
	clear(b)
	f.Bytes(i, b)
	return b
}

// Words is like Buffer, for n zeroed integers of 64 bits.
func (f *Frame) Words(i, n int) []uint64 {
	b := f.Buffer(i, 8*max(n, 1))
	return unsafe.Slice((*uint64)(unsafe.Pointer(&b[0])), n)
}

// Text makes argument i the address of a copy of s as a C string.
func (f *Frame) Text(i int, s string) {
	b := f.lend(len(s) + 1)
	b[copy(b, s)] = 0
	f.Bytes(i, b)
}

// maxPooled bounds the bytes that a frame keeps between calls.
const maxPooled = 16 << 10

// lend returns n bytes of the frame's own memory. Earlier loans stay valid.
func (f *Frame) lend(n int) []byte {
	if f.used+n > len(f.room) {
		b := make([]byte, max(n, 1024))
		if len(b) > maxPooled {
			return b[:n:n]
		}
		f.room, f.used = b, 0
	}
	b := f.room[f.used : f.used+n : f.used+n]
	f.used += (n + 7) &^ 7 // C structures are aligned to 8 bytes
	return b
}

// Address returns the address of memory that C uses beyond one call, such as a table that a tool
// fills in. The memory moves to the heap; the caller keeps it alive for as long as C may use it.
func Address[T any](p *T) uintptr {
	escape(unsafe.Pointer(p))
	return uintptr(unsafe.Pointer(p))
}

var sink unsafe.Pointer // stays nil

// escape makes the compiler allocate what p points to on the heap, because of an assignment that
// never happens.
func escape(p unsafe.Pointer) {
	if sink != nil {
		sink = p
	}
}

// Call calls fn with the first n arguments of the frame and returns what C returned as an int.
func (f *Frame) Call(fn Func, n int) int32 { return int32(f.call(fn, n)) }

// CallPointer is like Call, for a function that returns a pointer or 64 bits.
func (f *Frame) CallPointer(fn Func, n int) uintptr { return f.call(fn, n) }

// Call calls fn with up to three arguments.
func (fn Func) Call(args ...uintptr) int32 { return int32(fn.Pointer(args...)) }

// Pointer is like Call, for a function that returns a pointer or 64 bits.
func (fn Func) Pointer(args ...uintptr) uintptr {
	f := NewFrame()
	r := f.call(fn, copy(f.Args[:], args))
	f.Free()
	return r
}

// String copies a C string that the library owns; empty for NULL.
func String(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := foreign(addr)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// Foreign returns n bytes of memory that C allocated.
func Foreign(addr uintptr, n int) []byte { return unsafe.Slice((*byte)(foreign(addr)), n) }

// foreign converts an address unknown to the garbage collector to a pointer.
func foreign(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }

// CString returns the text in b up to the first zero byte.
func CString(b []byte) string {
	if n := bytes.IndexByte(b, 0); n >= 0 {
		b = b[:n]
	}
	return string(b)
}
