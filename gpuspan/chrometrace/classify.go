// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"math"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/semconv"
)

// threadName is an attribute of OpenTelemetry that is not among the names of this project.
const threadName = "thread.name"

// Categories (cat) as PyTorch's profiler writes them, so that its readers know what they see.
const (
	catKernel         = "kernel"
	catCopy           = "gpu_memcpy"
	catMemset         = "gpu_memset"
	catGPUAnnotation  = "gpu_user_annotation"
	catHostAnnotation = "user_annotation"
	catRuntime        = "cuda_runtime"
	catOperator       = "cpu_op"
	catModule         = "python_function"
	catProfile        = "Trace" // the profiler's own record of its window, which readers pass over
)

// torchNames are attributes that PyTorch has an argument for.
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

// Classify decides track, category, name, correlation, launch and device of a span from its attributes in Args, where
// it sets Track.ID to −1 for what has no stream or thread. Attributes that become fields of the event or have another
// name in PyTorch's files are taken out of Args or renamed; Args is changed in place.
func (e *Event) Classify() {
	at := taken{-1, -1, -1}
	e.classify(&at)
	e.settle(at)
}

func (e *Event) classify(at *taken) {
	var (
		kind, kernel, category string
		stream, thread, step   int64 = -1, -1, 0
		device                 int64
		name                   string
		delay, length, hosted  float64
		hasDelay, hasStep      bool
		apart                  []Arg
	)
	for i := range e.Args {
		a := &e.Args[i]
		key := a.Key
		switch key {
		case string(semconv.GPUOperationTypeKey):
			kind, _ = a.Value.AsString()
		case string(semconv.GPUOperationCategoryKey):
			category, _ = a.Value.AsString()
		case string(semconv.GPUStreamIDKey):
			stream, at.stream = whole(a, stream), i
		case string(semconv.GPUDeviceOrdinalKey):
			device, at.device = whole(a, device), i
		case string(semconv.GPUCorrelationIDKey):
			e.Correlation, at.correlation = whole(a, 0), i
		case string(semconv.GPUStartDelayKey):
			delay, hasDelay = a.Value.AsFloat()
		case string(semconv.GPUStepDurationKey):
			length, _ = a.Value.AsFloat()
		case string(semconv.GPUStepHostDurationKey):
			hosted, _ = a.Value.AsFloat()
		case string(semconv.GPUStepIndexKey):
			step, hasStep = a.Value.AsInt()
		case string(semconv.HWIDKey):
			e.Device, _ = a.Value.AsString()
		case string(semconv.HWModelKey):
			e.Model, _ = a.Value.AsString()
		case string(semconv.GPUKernelNameKey):
			kernel, _ = a.Value.AsString()
		case string(semconv.ThreadIDKey):
			thread = whole(a, thread)
		case threadName:
			name, _ = a.Value.AsString()
		case string(semconv.GPUKernelOccupancyEstimateKey):
			if v, ok := a.Value.AsFloat(); ok { // a percentage there; the rounding undoes that of 0.29 × 100
				percent := math.Round(v*1e11) / 1e9
				if percent/100 < v || percent/100 > v || a.Value.kind != kindFloat {
					e.kept = append(e.kept, *a)
				}
				a.Key, a.Value = "est. achieved occupancy %", Float(percent)
			}
		default:
			if to, ok := torchNames[a.Key]; ok {
				a.Key = to
			} else if reserved[a.Key] {
				apart = append(apart, *a)
				a.Key = ""
				continue
			}
		}
		if !a.Value.tells() {
			e.kept = append(e.kept, Arg{key, a.Value})
		}
	}
	e.kept = append(e.kept, apart...)
	switch kind {
	case "":
		e.Track = Track{Kind: Host, ID: thread, Name: name}
		e.Category = hostCategory(e.Name, category, e.Correlation)
		if e.Category == catOperator {
			e.rename(string(semconv.GPUFLOPCountKey), "flops")
		}
		if e.Process.Profile && thread < 0 && e.Correlation == 0 {
			// Every host range of a file has a thread; what has none is made by who read the file.
			e.Category, e.Track = catProfile, Track{Kind: Profile, ID: -1}
			if at.device >= 0 && e.Args[at.device].Value.kind == kindInt { // the window of a device
				e.Args[at.device].Key = "device"
			}
		}
		return
	case semconv.GPUOperationTypeStep:
		e.Category = catHostAnnotation
		e.Track = Track{Kind: Host, ID: thread, Name: name}
		if thread < 0 {
			e.Track = Track{Kind: Steps, Device: device, ID: -1}
		}
		if thread < 0 && hasDelay && length > 0 && max(math.Abs(delay), length, hosted) < maxSeconds {
			// The span reaches from the host's start to the device's end, and where the host runs ahead such spans
			// overlap. What tiles is the host's part and the device's part.
			e.DeviceStart = e.Start + nanoseconds(delay)
			e.DeviceEnd = e.DeviceStart + nanoseconds(length)
			if hosted > 0 {
				e.shorten(e.Start + nanoseconds(hosted))
			}
		}
		if n := "ProfilerStep#" + strconv.FormatInt(step, 10); hasStep && e.Name != n {
			if thread < 0 {
				e.Track.Name = e.Name
			}
			e.Args = append(e.Args, Arg{"loop", String(e.Name)})
			e.Name = n
		}
		return
	case semconv.GPUOperationTypeKernel, semconv.GPUOperationTypeCollective:
		e.Category = catKernel
		if kind == semconv.GPUOperationTypeCollective {
			e.messageElements()
		}
		if kernel != "" && !mangled(kernel) {
			e.call(kernel)
			e.drop(string(semconv.GPUKernelNameKey))
		}
	case semconv.GPUOperationTypeCopy:
		e.Category = catCopy
		e.rename(string(semconv.GPUIOSizeKey), "bytes")
	case semconv.GPUOperationTypeMemset:
		e.Category = catMemset
		e.rename(string(semconv.GPUIOSizeKey), "bytes")
	default:
		e.Category = catGPUAnnotation
	}
	e.Track = Track{Kind: Stream, Device: device, ID: stream}
	if hasDelay && math.Abs(delay) < maxSeconds {
		e.Launched = e.Start - nanoseconds(delay)
	}
}

// mangled names stay in the arguments, below the short name of the span: no viewer shows them as one reads them, and
// the demangler of speedscope 1.25 runs out of memory after about a thousand.
func mangled(name string) bool {
	return strings.HasPrefix(name, "_Z") || strings.HasPrefix(name, "__Z") || strings.HasPrefix(name, "_R")
}

// maxSeconds bounds durations that are believed.
const maxSeconds = 1e6

func nanoseconds(seconds float64) int64 { return int64(math.Round(seconds * 1e9)) }

// hostCategory tells PyTorch's host events apart by their names, since spans of them have no attribute for it: operators
// are namespace::operator, frames of modules begin with nn.Module.
func hostCategory(name, category string, correlation int64) string {
	switch {
	case correlation != 0 || category == semconv.GPUOperationCategoryRuntime:
		return catRuntime
	case strings.HasPrefix(name, "nn.Module: "):
		return catModule
	}
	if namespace, _, ok := strings.Cut(name, "::"); ok && namespace != "" && strings.Trim(namespace, "abcdefghijklmnopqrstuvwxyz0123456789_") == "" {
		return catOperator
	}
	return catHostAnnotation
}

// whole reads a whole number.
func whole(a *Arg, otherwise int64) int64 {
	if v, ok := a.Value.AsInt(); ok {
		return v
	}
	return otherwise
}

func (e *Event) rename(from, to string) {
	for i := range e.Args {
		if e.Args[i].Key == from {
			e.Args[i].Key = to
		}
	}
}

func (e *Event) drop(key string) { e.rename(key, "") }

// ProcessOf reads a process from the attributes of a resource.
func ProcessOf(attributes []Arg) Process {
	var p Process
	for _, a := range attributes {
		switch a.Key {
		case string(semconv.ServiceNameKey):
			p.Service, _ = a.Value.AsString()
		case string(semconv.ServiceInstanceIDKey):
			p.Instance, _ = a.Value.AsString()
		case string(semconv.HostNameKey):
			p.Host, _ = a.Value.AsString()
		case string(semconv.GPUJobRankKey):
			p.Rank, p.HasRank = a.Value.AsInt()
		case string(semconv.ProcessPidKey):
			p.PID, _ = a.Value.AsInt()
		case string(semconv.GPUJobLocalRankKey):
			p.LocalRank, p.HasLocalRank = a.Value.AsInt()
		case string(semconv.GPUJobWorldSizeKey):
			p.WorldSize, _ = a.Value.AsInt()
		case string(semconv.GPUJobIDKey):
			p.Job, _ = a.Value.AsString()
		case string(semconv.GPUTraceDetailKey):
			p.Profile = true
		}
	}
	return p
}
