// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package hip

import (
	"github.com/otelgpu/otelgpu/gpuspan/internal/dl"
	"github.com/otelgpu/otelgpu/gpuspan/internal/eventapi"
)

var names = eventapi.Names{
	EventCreate:               []string{"hipEventCreateWithFlags"},
	EventDestroy:              []string{"hipEventDestroy"},
	EventRecord:               []string{"hipEventRecord"},
	EventQuery:                []string{"hipEventQuery"},
	EventSynchronize:          []string{"hipEventSynchronize"},
	EventElapsed:              []string{"hipEventElapsedTime"},
	StreamIsCapturing:         []string{"hipStreamIsCapturing"},
	ThreadExchangeCaptureMode: []string{"hipThreadExchangeStreamCaptureMode"},
	StreamCreateWithPriority:  []string{"hipStreamCreateWithPriority"},
	StreamDestroy:             []string{"hipStreamDestroy"},
	StreamPriorityRange:       []string{"hipDeviceGetStreamPriorityRange"},
	MemGetInfo:                []string{"hipMemGetInfo"},
}

// functions are what HIP has of its own.
var functions = []string{
	"hipInit", "hipGetDeviceCount", "hipDeviceGetName", "hipDeviceGetPCIBusId", "hipDeviceTotalMem", "hipGetDevice",
	"hipSetDevice", "hipStreamGetDevice", "hipMalloc", "hipFree", "hipMemsetAsync",
}

// optional are those that some versions do not have: hipDeviceGetUuid came with ROCm 5.2.
var optional = []string{"hipDeviceGetUuid", "hipGetErrorName", "hipGetErrorString"}

func resolve(l *dl.Library, s *dl.Symbols) eventapi.Functions {
	fn := eventapi.Functions{
		API: "HIP", Of: map[string]dl.Func{}, Name: "hipGetErrorName", Text: "hipGetErrorString",
		Says: func(describe dl.Func, code int32) string { return dl.String(describe.Pointer(uintptr(code))) },
	}
	for _, name := range functions {
		fn.Of[name] = s.Need(name)
	}
	for _, name := range optional {
		fn.Of[name] = l.Lookup(name)
	}
	return fn
}

// EnvLibrary names the environment variable with the path of libamdhip64.
const EnvLibrary = "GPUSPAN_HIP_LIBRARY"

// places are where libamdhip64 is; the version in the name is ROCm's major version.
var places = []string{
	"libamdhip64.so",
	"libamdhip64.so.7",
	"libamdhip64.so.6",
	"libamdhip64.so.5",
	"/opt/rocm/lib/libamdhip64.so",
}

// Option configures [Open].
type Option interface{ apply(*config) }

type config struct{ library string }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithLibrary names the file of libamdhip64. It goes before the environment variable GPUSPAN_HIP_LIBRARY and the usual
// places; the empty string means those.
func WithLibrary(path string) Option { return optionFunc(func(c *config) { c.library = path }) }

// Error is a HIP call that failed: Call, the function's name; Code, the hipError_t; Name and Text, what the library
// says of it. `hipInit: hipErrorNoDevice (100): no ROCm-capable device is detected`.
type Error = eventapi.Error
