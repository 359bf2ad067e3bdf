// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// Categories of events that are read for purposes other than spans, or not at all.
const (
	kindNone     event.Kind = 255 - iota // counted by category and omitted
	kindIgnore                           // known to repeat other events
	kindOverhead                         // the profiler's own work
	kindCounters                         // a kernel that CUPTI ran repeatedly to count: its times are not work
)

// mtiaCommands are the commands run by the command processors of an MTIA device.
const mtiaCommands = "mtia_ccp_events"

// mtiaCommand returns the kind of such a command by its name: all are kernels but copies, waits of
// one stream for another, which are no work, and the marks that those wait for.
func mtiaCommand(name []byte) event.Kind {
	switch string(name) {
	case "dma_request":
		return event.KindCopy
	case "event_wait", "event_record":
		return kindIgnore
	}
	return event.KindKernel
}

// category maps the names of all generations of the format: 2021 (Operator, Runtime, Kernel,
// Memcpy), 2022 on (cpu_op, cuda_runtime, kernel, gpu_memcpy), and categories of other devices
// (privateuse1, XPU, MTIA, HPU).
func category(cat []byte) event.Kind {
	switch string(cat) {
	case "cpu_op", "Operator", "hpu_op", "cpu_instant_event":
		return event.KindOperator
	case "user_annotation":
		return event.KindAnnotation
	case "python_function":
		return event.KindFrame
	case "cuda_runtime", "cuda_driver", "Runtime", "runtime", "hip_runtime":
		return event.KindRuntime
	case "kernel", "Kernel", mtiaCommands:
		return event.KindKernel
	case "gpu_memcpy", "Memcpy", "memcpy":
		return event.KindCopy
	case "gpu_memset", "Memset", "memset":
		return event.KindMemset
	case "overhead":
		return kindOverhead
	case "cuda_profiler_range":
		return kindCounters
	case "gpu_user_annotation", "Trace", "cuda_sync", "cuda_event", "xpu_sync", "xpu_scope_profiler":
		return kindIgnore
	}
	switch {
	case bytes.EqualFold(cat, []byte("kernel")):
		return event.KindKernel
	case bytes.EqualFold(cat, []byte("gpu_memcpy")), bytes.EqualFold(cat, []byte("memcpy")):
		return event.KindCopy
	case bytes.EqualFold(cat, []byte("gpu_memset")), bytes.EqualFold(cat, []byte("memset")):
		return event.KindMemset
	case bytes.HasSuffix(cat, []byte("_runtime")), bytes.HasSuffix(cat, []byte("_driver")):
		return event.KindRuntime
	case len(cat) == 0:
		return kindNone
	}
	return event.KindOther
}

// uncategorised finds the kind of an event without a category, as PyTorch writes them if it was
// built without Kineto: its process is "CPU functions" or a device, "CUDA functions". In other
// files only events with PyTorch's names are read.
func uncategorised(pid, name []byte) event.Kind {
	device, ok := bytes.CutSuffix(unquote(pid), []byte(" functions"))
	switch {
	case ok && string(device) == "CPU", bytes.HasPrefix(name, []byte("aten::")), bytes.HasPrefix(name, stepPrefix):
		return event.KindOperator
	case ok && bytes.HasPrefix(name, []byte("Memcpy ")):
		return event.KindCopy
	case ok && bytes.HasPrefix(name, []byte("Memset ")):
		return event.KindMemset
	case ok:
		return event.KindKernel
	}
	return kindNone
}
