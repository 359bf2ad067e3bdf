// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"unsafe"

	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
)

// Module is a loaded CUmodule.
type Module uintptr

// Function is a kernel of a module (CUfunction).
type Function uintptr

// Options of the PTX compiler (CUjit_option of cuda.h).
const (
	jitErrorLog     = 5
	jitErrorLogSize = 6
	jitLogBytes     = 8192
)

// Load compiles PTX text for the current context's device. A failure carries the compiler's own message.
func (d *Driver) Load(ptx string) (Module, error) {
	image := append([]byte(ptx), 0)
	log := make([]byte, jitLogBytes)
	options := []uint32{jitErrorLog, jitErrorLogSize}
	values := []uintptr{uintptr(unsafe.Pointer(&log[0])), jitLogBytes}
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0] = f.Addr(0)
	f.Args[1] = uintptr(unsafe.Pointer(&image[0]))
	f.Args[2] = uintptr(len(options))
	f.Args[3] = uintptr(unsafe.Pointer(&options[0]))
	f.Args[4] = uintptr(unsafe.Pointer(&values[0]))
	err := d.check("cuModuleLoadDataEx", f.Call(d.fn.moduleLoad, 5))
	runtime.KeepAlive(image)
	runtime.KeepAlive(options)
	runtime.KeepAlive(values)
	runtime.KeepAlive(log)
	if err != nil {
		if text := strings.TrimSpace(cString(log)); text != "" {
			return 0, fmt.Errorf("%w: %s", err, text)
		}
		return 0, err
	}
	return Module(f.Out[0]), nil
}

// Unload unloads a module.
func (d *Driver) Unload(m Module) error {
	return d.check("cuModuleUnload", d.fn.moduleUnload.Call1(uintptr(m)))
}

// Function finds a kernel by its name.
func (d *Driver) Function(m Module, name string) (Function, error) {
	b := append([]byte(name), 0)
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1], f.Args[2] = f.Addr(0), uintptr(m), uintptr(unsafe.Pointer(&b[0]))
	err := d.check("cuModuleGetFunction", f.Call(d.fn.moduleFunction, 3))
	runtime.KeepAlive(b)
	if err != nil {
		return 0, fmt.Errorf("kernel %q: %w", name, err)
	}
	return Function(f.Out[0]), nil
}

// Dim is the size of a grid, in blocks, or of a block, in threads; a zero counts as 1.
type Dim struct{ X, Y, Z uint32 }

// Launch starts a kernel on s. Arguments are Ptr, int32, uint32, int64, uint64, float32 or float64, as the kernel declares
// them; the driver copies them before it returns.
func (d *Driver) Launch(k Function, grid, block Dim, shared uint32, s Stream, args ...any) error {
	values := make([]uint64, max(len(args), 1))
	pointers := make([]unsafe.Pointer, max(len(args), 1))
	for i, a := range args {
		pointers[i] = unsafe.Pointer(&values[i])
		switch v := a.(type) {
		case Ptr:
			values[i] = uint64(v)
		case int32:
			values[i] = uint64(uint32(v))
		case uint32:
			values[i] = uint64(v)
		case int64:
			values[i] = uint64(v)
		case uint64:
			values[i] = v
		case float32:
			values[i] = uint64(math.Float32bits(v))
		case float64:
			values[i] = math.Float64bits(v)
		default:
			return fmt.Errorf("cannot launch: argument %d has type %T (Ptr, int32, uint32, int64, uint64, float32 or float64)", i, a)
		}
	}
	f := dl.NewFrame()
	defer f.Free()
	f.Args = [12]uintptr{
		uintptr(k), one(grid.X), one(grid.Y), one(grid.Z), one(block.X), one(block.Y), one(block.Z),
		uintptr(shared), uintptr(s), uintptr(unsafe.Pointer(&pointers[0])), 0,
	}
	err := d.check("cuLaunchKernel", f.Call(d.fn.launch, 11))
	runtime.KeepAlive(values)
	runtime.KeepAlive(pointers)
	return err
}

func one(n uint32) uintptr { return uintptr(max(n, 1)) }
