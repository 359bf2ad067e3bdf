// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"os"
	"runtime"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// EnvLibrary names the environment variable with the path of libcuda; it goes before the usual places.
const EnvLibrary = "GPUSPAN_CUDA_LIBRARY"

// places are where libcuda is: the loader's own path, WSL, GKE, NixOS, Jetson.
var places = []string{
	"libcuda.so.1",
	"libcuda.so",
	"/usr/lib/wsl/lib/libcuda.so.1",
	"/usr/local/nvidia/lib64/libcuda.so.1",
	"/home/kubernetes/bin/nvidia/lib64/libcuda.so.1",
	"/run/opengl-driver/lib/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/nvidia/libcuda.so.1",
	"/usr/lib/aarch64-linux-gnu/tegra/libcuda.so.1",
}

// Driver is the loaded CUDA driver. Its methods may be called from any goroutine.
type Driver struct {
	lib *dl.Library
	fn  functions
	pop func() // popContext, as a value that exists once
}

type functions struct {
	init, version, deviceCount, deviceGet, deviceName, deviceUUID, deviceUUIDv2, devicePCI, deviceMemory, deviceAttribute,
	primaryRetain, primaryRelease, primaryState, ctxPush, ctxPop, ctxGet, ctxDevice, ctxSync,
	streamCreate, streamDestroy, streamSync, streamCtx,
	memAlloc, memFree, hostAlloc, hostFree, copyHtoD, copyDtoH, copyDtoD, memset,
	moduleLoad, moduleUnload, moduleFunction, launch, errorName, errorString dl.Func
}

// Open loads libcuda and initialises it. path "" means the environment variable GPUSPAN_CUDA_LIBRARY, else the usual
// places. Errors: the library is not there (every place is named), it is too old (the missing symbols are named), or
// cuInit failed (an [*Error]; code 100 means that there is no device).
func Open(path string) (*Driver, error) {
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("cannot use CUDA on %s (only Linux is supported)", runtime.GOOS)
	}
	paths := places
	switch env := os.Getenv(EnvLibrary); {
	case path != "":
		paths = []string{path}
	case env != "":
		paths = []string{env}
	}
	lib, err := dl.Open(paths...)
	if err != nil {
		return nil, fmt.Errorf("cannot load the CUDA driver (install it, or name it in %s): %w", EnvLibrary, err)
	}
	d := &Driver{lib: lib}
	d.pop = d.popContext
	if err := d.resolve(); err != nil {
		return nil, fmt.Errorf("cannot use the CUDA driver: %w", err)
	}
	if err := d.check("cuInit", d.fn.init.Call(0)); err != nil {
		return nil, fmt.Errorf("cannot initialise the CUDA driver %s: %w", lib.Path, err)
	}
	return d, nil
}

// resolve takes the `_v2` symbols wherever the header of today names them so: the plain ones have other arguments.
func (d *Driver) resolve() error {
	s := d.lib.Symbols()
	d.fn = functions{
		init:            s.Need("cuInit"),
		version:         s.Need("cuDriverGetVersion"),
		deviceCount:     s.Need("cuDeviceGetCount"),
		deviceGet:       s.Need("cuDeviceGet"),
		deviceName:      s.Need("cuDeviceGetName"),
		deviceUUID:      d.lib.Lookup("cuDeviceGetUuid"),
		deviceUUIDv2:    d.lib.Lookup("cuDeviceGetUuid_v2"),
		devicePCI:       s.Need("cuDeviceGetPCIBusId"),
		deviceMemory:    s.Need("cuDeviceTotalMem_v2"),
		deviceAttribute: s.Need("cuDeviceGetAttribute"),
		primaryRetain:   s.Need("cuDevicePrimaryCtxRetain"),
		primaryRelease:  s.Need("cuDevicePrimaryCtxRelease_v2", "cuDevicePrimaryCtxRelease"),
		primaryState:    s.Need("cuDevicePrimaryCtxGetState"),
		ctxPush:         s.Need("cuCtxPushCurrent_v2"),
		ctxPop:          s.Need("cuCtxPopCurrent_v2"),
		ctxGet:          s.Need("cuCtxGetCurrent"),
		ctxDevice:       s.Need("cuCtxGetDevice"),
		ctxSync:         s.Need("cuCtxSynchronize"),
		streamCreate:    s.Need("cuStreamCreate"),
		streamDestroy:   s.Need("cuStreamDestroy_v2"),
		streamSync:      s.Need("cuStreamSynchronize"),
		streamCtx:       s.Need("cuStreamGetCtx"),
		memAlloc:        s.Need("cuMemAlloc_v2"),
		memFree:         s.Need("cuMemFree_v2"),
		hostAlloc:       s.Need("cuMemHostAlloc"),
		hostFree:        s.Need("cuMemFreeHost"),
		copyHtoD:        s.Need("cuMemcpyHtoDAsync_v2"),
		copyDtoH:        s.Need("cuMemcpyDtoHAsync_v2"),
		copyDtoD:        s.Need("cuMemcpyDtoDAsync_v2"),
		memset:          s.Need("cuMemsetD8Async"),
		moduleLoad:      s.Need("cuModuleLoadDataEx"),
		moduleUnload:    s.Need("cuModuleUnload"),
		moduleFunction:  s.Need("cuModuleGetFunction"),
		launch:          s.Need("cuLaunchKernel"),
		errorName:       d.lib.Lookup("cuGetErrorName"),
		errorString:     d.lib.Lookup("cuGetErrorString"),
	}
	return s.Err()
}

// Path is the library's name as it was given to the loader.
func (d *Driver) Path() string { return d.lib.Path }

// Symbol resolves the first of names that the driver has, as an address; 0 when it has none.
func (d *Driver) Symbol(names ...string) uintptr { return uintptr(d.lib.Lookup(names...)) }

// Version is the newest CUDA version that the driver supports, e.g. 12, 8.
func (d *Driver) Version() (major, minor int, err error) {
	v, err := d.value("cuDriverGetVersion", d.fn.version)
	return int(v / 1000), int(v % 1000 / 10), err
}
