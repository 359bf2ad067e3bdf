// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux && (amd64 || arm64) && !gpuspan_static

package nvml

import (
	"cmp"
	"fmt"
	"reflect"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"
)

// library is the one of the driver. It is loaded by Init and stays loaded: other code of the
// process may use it too.
type library struct {
	path   string
	mu     sync.Mutex
	handle uintptr
	known  map[string]uintptr // 0: the driver lacks it
}

// New returns the library at a path, or the loader's where it is empty.
func New(path string) Library {
	return &library{path: cmp.Or(path, "libnvidia-ml.so.1"), known: map[string]uintptr{}}
}

// symbol returns the address of a function, 0 if missing. The loader keeps the reason of a failure
// for the thread, so both of purego's calls are made on one.
func (l *library) symbol(name string) uintptr {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn, ok := l.known[name]
	if !ok && l.handle != 0 {
		runtime.LockOSThread()
		fn, _ = purego.Dlsym(l.handle, name)
		runtime.UnlockOSThread()
		l.known[name] = fn
	}
	return fn
}

func (l *library) Has(function string) bool { return l.symbol(function) != 0 }

// Call converts arguments to words. What an argument points to is on the heap, because it was put
// into an interface; Go does not move it, and KeepAlive keeps it until the function has returned.
func (l *library) Call(function string, args ...any) Return {
	fn := l.symbol(function)
	if fn == 0 {
		return ErrorFunctionNotFound
	}
	var words [8]uintptr // no function has more
	for i, arg := range args {
		switch v := arg.(type) {
		case Handle:
			words[i] = uintptr(v)
		case int:
			words[i] = uintptr(v)
		default:
			words[i] = reflect.ValueOf(v).Pointer()
		}
	}
	r, _, _ := purego.SyscallN(fn, words[:len(args)]...)
	runtime.KeepAlive(args)
	return Return(uint32(r))
}

func (l *library) Init() Return {
	l.mu.Lock()
	if l.handle == 0 {
		runtime.LockOSThread()
		handle, err := purego.Dlopen(l.path, purego.RTLD_LAZY|purego.RTLD_LOCAL)
		runtime.UnlockOSThread()
		if err != nil {
			l.mu.Unlock()
			return ErrorLibraryNotFound
		}
		l.handle = handle
	}
	l.mu.Unlock()
	return l.Call("nvmlInit_v2")
}

func (l *library) ErrorString(ret Return) string {
	if fn := l.symbol("nvmlErrorString"); fn != 0 {
		if p, _, _ := purego.SyscallN(fn, uintptr(ret)); p != 0 {
			return text(*(*unsafe.Pointer)(unsafe.Pointer(&p)))
		}
	}
	return fmt.Sprintf("NVML error %d", ret)
}

// text copies a C text. It reads nothing behind its end, where memory may be unreadable.
func text(p unsafe.Pointer) string {
	const most = 256
	var b []byte
	for ; len(b) < most && *(*byte)(p) != 0; p = unsafe.Add(p, 1) {
		b = append(b, *(*byte)(p))
	}
	return string(b)
}
