// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"

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

// Load compiles PTX source code for the current context's device. Its error includes the compiler's
// message.
func (d *Driver) Load(ptx string) (Module, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[2] = f.Addr(0), 2
	f.Text(1, ptx)
	options := f.Buffer(3, 8) // two of four bytes
	binary.NativeEndian.PutUint32(options, jitErrorLog)
	binary.NativeEndian.PutUint32(options[4:], jitErrorLogSize)
	log := f.Buffer(5, jitLogBytes)
	values := f.Words(4, 2)
	values[0], values[1] = uint64(f.Args[5]), jitLogBytes
	if err := d.fn.Frame("cuModuleLoadDataEx", f, 5); err != nil {
		if text := strings.TrimSpace(dl.CString(log)); text != "" {
			return 0, fmt.Errorf("%w: %s", err, text)
		}
		return 0, err
	}
	return Module(f.Out[0]), nil
}

// Unload unloads a module.
func (d *Driver) Unload(m Module) error { return d.fn.Call("cuModuleUnload", uintptr(m)) }

// Function returns the kernel with a name, or an error if the module has none.
func (d *Driver) Function(m Module, name string) (Function, error) {
	f := dl.NewFrame()
	defer f.Free()
	f.Args[0], f.Args[1] = f.Addr(0), uintptr(m)
	f.Text(2, name)
	if err := d.fn.Frame("cuModuleGetFunction", f, 3); err != nil {
		return 0, fmt.Errorf("kernel %q: %w", name, err)
	}
	return Function(f.Out[0]), nil
}

// Dim is the size of a grid, in blocks, or of a block, in threads; a zero counts as 1.
type Dim struct{ X, Y, Z uint32 }

// Launch starts a kernel on s with shared bytes of dynamic shared memory. Arguments are Ptr, int32,
// uint32, int64, uint64, float32 or float64, as the kernel declares them; other types are an error.
// The driver copies them before Launch returns.
func (d *Driver) Launch(k Function, grid, block Dim, shared uint32, s Stream, args ...any) error {
	f := dl.NewFrame()
	defer f.Free()
	values := f.Words(11, len(args))
	pointers := f.Words(9, len(args))
	for i, a := range args {
		pointers[i] = uint64(f.Args[11]) + uint64(8*i)
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
			return fmt.Errorf("cannot launch: argument %d has type %T (Ptr, int32, uint32, int64, uint64, float32 or float64)",
				i, a)
		}
	}
	copy(f.Args[:], []uintptr{
		uintptr(k), one(grid.X), one(grid.Y), one(grid.Z), one(block.X), one(block.Y), one(block.Z), uintptr(shared),
		uintptr(s),
	})
	f.Args[10] = 0
	return d.fn.Frame("cuLaunchKernel", f, 11)
}

func one(n uint32) uintptr { return uintptr(max(n, 1)) }
