// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// Package driver calls the part of the CUDA driver API that timing and small programs need, without
// cgo: the library is loaded at run time, so a program that uses it builds anywhere and starts
// without a GPU. A failed call returns an [*Error] with the driver's result code.
//
// It is not a complete binding. Applications that use CUDA through cgo or a C library do not need
// it: they pass their stream handles to gpuspan unchanged.
//
// A CUDA context is current per OS thread. [Driver.Do] runs a function with a context current on a
// locked thread; every method documented as such must be called within it.
//
// Importing this package imports github.com/ebitengine/purego, which makes the binary dynamically
// linked (libc, libdl), also with CGO_ENABLED=0. The build tag gpuspan_static leaves purego out:
// opening a driver then fails with a reason, and with CGO_ENABLED=0 the binary is static.
package driver

import (
	"fmt"
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

// EnvLibrary names the environment variable with the path of libcuda; it precedes the usual paths.
const EnvLibrary = "GPUSPAN_CUDA_LIBRARY"

// paths lists the paths of libcuda: the loader's own, WSL, GKE, NixOS, Jetson.
var paths = []string{
	"libcuda.so.1",
	"libcuda.so",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/home/kubernetes/bin/nvidia/lib64/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
}

// Driver is the loaded CUDA driver. It is safe for concurrent use.
type Driver struct {
	lib  *dl.Library
	fn   eventapi.Functions
	push dl.Func // cuCtxPushCurrent_v2, which is called often
	pop  func()  // Pop, as a value that exists once
}

// symbols are the driver's functions, `_v2` if today's header maps the name to it: the plain ones
// have other arguments.
var symbols = []string{
	"cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuDeviceGet", "cuDeviceGetName", "cuDeviceGetPCIBusId",
	"cuDeviceTotalMem_v2", "cuDeviceGetAttribute", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxGetState",
	"cuCtxPushCurrent_v2", "cuCtxPopCurrent_v2", "cuCtxGetCurrent", "cuCtxGetDevice", "cuCtxSynchronize",
	"cuStreamCreate", "cuStreamDestroy_v2", "cuStreamSynchronize", "cuStreamGetCtx",
	"cuMemAlloc_v2", "cuMemFree_v2", "cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2",
	"cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuModuleLoadDataEx", "cuModuleUnload", "cuModuleGetFunction",
	"cuLaunchKernel",
}

// Open loads and initializes libcuda. path "" means the environment variable GPUSPAN_CUDA_LIBRARY,
// otherwise the usual paths. Errors: the library was not found (every path is named), it is too old
// (the missing symbols are named), or cuInit failed (an [*Error]; code 100 means that there is no
// device).
func Open(path string) (*Driver, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("cannot use CUDA on %s (only Linux is supported)", runtime.GOOS)
	}
	lib, err := dl.Find(path, EnvLibrary, paths)
	if err != nil {
		return nil, fmt.Errorf("cannot load the CUDA driver (install it, or name it in %s): %w", EnvLibrary, err)
	}
	d := &Driver{lib: lib}
	if err := d.resolve(); err != nil {
		return nil, fmt.Errorf("cannot use the CUDA driver: %w", err)
	}
	if err := d.fn.Call("cuInit", 0); err != nil {
		return nil, fmt.Errorf("cannot initialize the CUDA driver %s: %w", lib.Path, err)
	}
	return d, nil
}

func (d *Driver) resolve() error {
	s := d.lib.Symbols()
	d.fn = eventapi.Functions{
		API: "CUDA", Of: map[string]dl.Func{}, Says: says, Name: "cuGetErrorName", Text: "cuGetErrorString",
	}
	for _, name := range symbols {
		d.fn.Of[name] = s.Need(name)
	}
	d.fn.Of[primaryRelease] = s.Need(primaryRelease, "cuDevicePrimaryCtxRelease")
	for _, name := range []string{"cuDeviceGetUuid", "cuDeviceGetUuid_v2", "cuGetErrorName", "cuGetErrorString"} {
		d.fn.Of[name] = d.lib.Lookup(name) // 0 in drivers that are too old or too new
	}
	d.push, d.pop = d.fn.Of["cuCtxPushCurrent_v2"], d.Pop
	return s.Err()
}

// Path returns the path or name of the library as passed to the loader.
func (d *Driver) Path() string { return d.lib.Path }

// Symbol resolves the first of names that the driver exports to an address; 0 if it exports none.
func (d *Driver) Symbol(names ...string) uintptr { return uintptr(d.lib.Lookup(names...)) }

// Version returns the newest CUDA version that the driver supports, e.g. 12, 8.
func (d *Driver) Version() (major, minor int, err error) {
	v, err := d.fn.Value("cuDriverGetVersion")
	return int(v / 1000), int(v % 1000 / 10), err
}

// Error is a failed driver call: Call, the function's name; Code, the CUresult; Name and Text, the
// driver's description. `cuInit: CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected`.
type Error = eventapi.Error

// says returns a text whose address the driver writes.
func says(describe dl.Func, code int32) string {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = uintptr(code), f.Addr(0)
	if f.Call(describe, 2) != 0 {
		return ""
	}
	return dl.String(uintptr(f.Out[0]))
}
