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
type functions struct {
	init, deviceCount, deviceName, deviceUUID, devicePCI, deviceMemory dl.Func
	getDevice, setDevice, streamDevice                                 dl.Func
	malloc, free, memset                                               dl.Func
	errorName, errorString                                             dl.Func
}

func resolve(l *dl.Library, s *dl.Symbols) functions {
	return functions{
		init:         s.Need("hipInit"),
		deviceCount:  s.Need("hipGetDeviceCount"),
		deviceName:   s.Need("hipDeviceGetName"),
		deviceUUID:   l.Lookup("hipDeviceGetUuid"), // since ROCm 5.2
		devicePCI:    s.Need("hipDeviceGetPCIBusId"),
		deviceMemory: s.Need("hipDeviceTotalMem"),
		getDevice:    s.Need("hipGetDevice"),
		setDevice:    s.Need("hipSetDevice"),
		streamDevice: s.Need("hipStreamGetDevice"),
		malloc:       s.Need("hipMalloc"),
		free:         s.Need("hipFree"),
		memset:       s.Need("hipMemsetAsync"),
		errorName:    l.Lookup("hipGetErrorName"),
		errorString:  l.Lookup("hipGetErrorString"),
	}
}
