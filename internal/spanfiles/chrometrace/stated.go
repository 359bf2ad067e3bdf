// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"cmp"
	"math"

	"github.com/otelgpu/otelgpu/semconv"
)

// threadName is an attribute of OpenTelemetry that is not in this project's registry.
const threadName = "thread.name"

// torchNames are attributes for which PyTorch has an argument.
var torchNames = map[string]string{
	string(semconv.GPUKernelGridKey):             "grid",
	string(semconv.GPUKernelBlockKey):            "block",
	string(semconv.GPUKernelRegistersKey):        "registers per thread",
	string(semconv.GPUKernelSharedMemorySizeKey): "shared memory",
	string(semconv.GPUKernelBlocksPerSMKey):      "blocks per SM",
	string(semconv.GPUKernelWarpsPerSMKey):       "warps per SM",
	string(semconv.GPUCollectiveNameKey):         "Collective name",
	string(semconv.GPUCollectiveGroupNameKey):    "Process Group Name",
	string(semconv.GPUCollectiveGroupSizeKey):    "Group size",
	string(semconv.GPUCollectiveElementTypeKey):  "dtype",
	string(semconv.GPUGraphIDKey):                "graph id",
	string(semconv.GPUGraphNodeIDKey):            "graph node id",
}

const occupancyPercent = "est. achieved occupancy %"

// ownPrefix precedes the names of attributes for which arguments have another use.
const ownPrefix = "attribute."

var reserved = func() map[string]bool {
	m := map[string]bool{
		"": true, "loop": true, "trace_id": true, "span_id": true, "parent_span_id": true, "span.kind": true,
		"otel.status_code": true, "otel.status_description": true, "links": true, "device": true, "stream": true,
		"correlation": true, "bytes": true, "flops": true, occupancyPercent: true, "In msg nelems": true,
		"Out msg nelems": true,
	}
	for _, name := range torchNames {
		m[name] = true
	}
	return m
}()

// stated holds the attributes that decide on which track a span is shown.
type stated struct {
	kind, category, kernel string // gpu.operation.type, gpu.operation.category, gpu.kernel.name
	stream, thread         int64  // −1: none
	threadName             string
	device                 int64
	delay                  float64 // gpu.start.delay, s
	step, hostStep         float64 // gpu.step.duration, gpu.step.host.duration, s
	index                  int64   // gpu.step.index
	hasDelay, hasIndex     bool
}

// read reads from Args what decides on the track, and renames arguments to PyTorch's names.
func (e *Event) read(at *taken) stated {
	s := stated{stream: -1, thread: -1}
	for i := range e.Args {
		a := &e.Args[i]
		switch a.Key {
		case string(semconv.GPUOperationTypeKey):
			s.kind, _ = a.Value.AsString()
		case string(semconv.GPUOperationCategoryKey):
			s.category, _ = a.Value.AsString()
		case string(semconv.GPUStreamIDKey):
			s.stream, at.stream = whole(a.Value, s.stream), i
		case string(semconv.GPUDeviceOrdinalKey):
			s.device, at.device = whole(a.Value, s.device), i
		case string(semconv.GPUCorrelationIDKey):
			e.Correlation, at.correlation = whole(a.Value, 0), i
		case string(semconv.GPUStartDelayKey):
			s.delay, s.hasDelay = a.Value.AsFloat()
		case string(semconv.GPUStepDurationKey):
			s.step, _ = a.Value.AsFloat()
		case string(semconv.GPUStepHostDurationKey):
			s.hostStep, _ = a.Value.AsFloat()
		case string(semconv.GPUStepIndexKey):
			s.index, s.hasIndex = a.Value.AsInt()
		case string(semconv.HWIDKey):
			e.Device, _ = a.Value.AsString()
		case string(semconv.HWModelKey):
			e.Model, _ = a.Value.AsString()
		case string(semconv.GPUKernelNameKey):
			s.kernel, _ = a.Value.AsString()
		case string(semconv.ThreadIDKey):
			s.thread = whole(a.Value, s.thread)
		case threadName:
			s.threadName, _ = a.Value.AsString()
		case string(semconv.GPUKernelOccupancyEstimateKey):
			e.occupancy(a)
		default:
			if to, ok := torchNames[a.Key]; ok {
				a.Key = to
			} else if reserved[a.Key] {
				a.Key = ownPrefix + a.Key
			}
		}
	}
	e.inherit(at, &s)
	return s
}

// inherit takes device and stream from the scope if the span does not state them, unless it names
// another device.
func (e *Event) inherit(at *taken, s *stated) {
	scope := e.Scope
	id, known := valueOf(scope, semconv.HWIDKey).AsString()
	if known && e.Device != "" && e.Device != id {
		return
	}
	if at.device < 0 {
		s.device = whole(valueOf(scope, semconv.GPUDeviceOrdinalKey), s.device)
	}
	if at.stream < 0 {
		s.stream = whole(valueOf(scope, semconv.GPUStreamIDKey), s.stream)
	}
	e.Device = cmp.Or(e.Device, id)
	if e.Model == "" {
		e.Model, _ = valueOf(scope, semconv.HWModelKey).AsString()
	}
}

// occupancy converts the estimate to a percentage; it rounds because 0.29 × 100 is not exact.
func (e *Event) occupancy(a *Arg) {
	v, ok := a.Value.AsFloat()
	if !ok {
		return
	}
	a.Key, a.Value = occupancyPercent, Float(math.Round(v*1e11)/1e9)
}

func whole(v Value, otherwise int64) int64 {
	if n, ok := v.AsInt(); ok {
		return n
	}
	return otherwise
}
