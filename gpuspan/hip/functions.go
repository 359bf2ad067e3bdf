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

func resolve(l *dl.Library, s *dl.Symbols) map[string]dl.Func {
	fn := map[string]dl.Func{}
	for _, name := range functions {
		fn[name] = s.Need(name)
	}
	for _, name := range optional {
		fn[name] = l.Lookup(name)
	}
	return fn
}
