// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"maps"
	"slices"

	"github.com/otelgpu/otelgpu/semconv"
)

func presetNames() []string { return slices.Sorted(maps.Keys(presets)) }

func constant(to, value string) AttributeConfig { return AttributeConfig{To: to, Value: value} }
func from(source, to string) AttributeConfig    { return AttributeConfig{From: source, To: to} }

var hostTimed = constant(string(semconv.GPUTimingSourceKey), semconv.GPUTimingSourceHost)

// presets by name. Producers that time on the host are marked so: their spans give counts, bytes and items, and rates
// only where they state the time in the model.
var presets = map[string][]MappingConfig{
	// vLLM's request spans (vllm/tracing): times of the model in seconds, measured by the engine on the host.
	"vllm": {{
		Has: "gen_ai.latency.time_in_model_inference", Type: semconv.GPUOperationTypeSection,
		Attributes: []AttributeConfig{
			hostTimed,
			from("gen_ai.latency.time_in_model_inference", string(semconv.GPUDurationKey)),
			from("gen_ai.latency.time_in_queue", string(semconv.GPUStartDelayKey)),
			from("gen_ai.usage.completion_tokens", string(semconv.GPUOperationItemsKey)),
			from("gen_ai.usage.output_tokens", string(semconv.GPUOperationItemsKey)),
			constant(string(semconv.GPUOperationItemTypeKey), semconv.GPUOperationItemTypeToken),
			constant(string(semconv.GPUOperationNameKey), "llm_request"),
		},
	}},
	// Generative AI semantic conventions, spans of the process that runs the model (a client's time is not a GPU's).
	"gen_ai": {genAI("internal"), genAI("server")},
	// Services on the SDK of any language that state by our names what they timed (a pair of CUDA events, mostly), and no type.
	"sdk": {{Has: string(semconv.GPUDurationKey), Type: semconv.GPUOperationTypeSection}},
	// OpenTelemetry eBPF Instrumentation: CUDA calls as seen from outside of the process.
	"obi": {
		{
			Has: "cuda.kernel.name", Type: semconv.GPUOperationTypeKernel,
			Attributes: append([]AttributeConfig{hostTimed, from("cuda.kernel.name", string(semconv.GPUKernelNameKey))}, cudaDevice...),
		},
		{
			Has: "cuda.memcpy.kind", Type: semconv.GPUOperationTypeCopy,
			Attributes: append([]AttributeConfig{
				hostTimed, from("size", string(semconv.GPUIOSizeKey)), direction("cuda.memcpy.kind"),
			}, cudaDevice...),
		},
	},
	// Events of the PyTorch profiler that another tool made spans of, arguments by their names in the file. Only the names of
	// kernels and copies tell what they are: operators of the host have "Collective name" too.
	"pytorch": {
		pytorch("*[nr]ccl*", pytorchTypes{kernel: semconv.GPUOperationTypeCollective}),
		pytorch("*HtoD*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionHostToDevice)),
		pytorch("*DtoH*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionDeviceToHost)),
		pytorch("*DtoD*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionDeviceToDevice)),
		pytorch("*PtoP*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionPeerToPeer)),
		pytorch("", pytorchTypes{semconv.GPUOperationTypeKernel, semconv.GPUOperationTypeCopy, semconv.GPUOperationTypeMemset}),
	},
}

func genAI(kind string) MappingConfig {
	return MappingConfig{
		Has: "gen_ai.usage.output_tokens", Kind: kind, Type: semconv.GPUOperationTypeSection,
		Attributes: []AttributeConfig{
			hostTimed,
			from("gen_ai.usage.output_tokens", string(semconv.GPUOperationItemsKey)),
			constant(string(semconv.GPUOperationItemTypeKey), semconv.GPUOperationItemTypeToken),
			from("gen_ai.operation.name", string(semconv.GPUOperationNameKey)),
		},
	}
}

// pytorchTypes are the types of what the profiler's categories hold; "": another mapping's.
type pytorchTypes struct{ kernel, copy, memset string }

func pytorch(span string, types pytorchTypes, more ...AttributeConfig) MappingConfig {
	values := map[string]string{
		"kernel": types.kernel, "Kernel": types.kernel,
		"gpu_memcpy": types.copy, "Memcpy": types.copy,
		"gpu_memset": types.memset, "Memset": types.memset,
	}
	maps.DeleteFunc(values, func(_, kind string) bool { return kind == "" })
	return MappingConfig{Has: "cat", Span: span, Attributes: append([]AttributeConfig{
		{From: "cat", To: string(semconv.GPUOperationTypeKey), Values: values},
		constant(string(semconv.GPUTimingSourceKey), semconv.GPUTimingSourceCupti),
		from("bytes", string(semconv.GPUIOSizeKey)),
		from("stream", string(semconv.GPUStreamIDKey)),
		from("device", string(semconv.GPUDeviceOrdinalKey)),
		from("Group size", string(semconv.GPUCollectiveGroupSizeKey)),
		{From: "Collective name", To: string(semconv.GPUCollectiveNameKey), Values: collectives},
	}, more...)}
}

func copied(direction string) AttributeConfig {
	return constant(string(semconv.GPUCopyDirectionKey), direction)
}

var cudaDevice = []AttributeConfig{
	from("cuda.device.uuid", string(semconv.HWIDKey)),
	from("cuda.device.model", string(semconv.HWModelKey)),
	from("cuda.device.index", string(semconv.GPUDeviceOrdinalKey)),
}

// direction takes cudaMemcpyKind by name or number (driver_types.h: 0 to 3; 4, default, does not say).
func direction(source string) AttributeConfig {
	return AttributeConfig{From: source, To: string(semconv.GPUCopyDirectionKey), Values: map[string]string{
		"HostToHost": semconv.GPUCopyDirectionHostToHost, "0": semconv.GPUCopyDirectionHostToHost,
		"HostToDevice": semconv.GPUCopyDirectionHostToDevice, "1": semconv.GPUCopyDirectionHostToDevice,
		"DeviceToHost": semconv.GPUCopyDirectionDeviceToHost, "2": semconv.GPUCopyDirectionDeviceToHost,
		"DeviceToDevice": semconv.GPUCopyDirectionDeviceToDevice, "3": semconv.GPUCopyDirectionDeviceToDevice,
	}}
}

// collectives are names as torch.distributed writes them into its traces.
var collectives = map[string]string{
	"allreduce": semconv.GPUCollectiveNameAllReduce, "allreduce_coalesced": semconv.GPUCollectiveNameAllReduce,
	"allgather": semconv.GPUCollectiveNameAllGather, "_allgather_base": semconv.GPUCollectiveNameAllGather,
	"allgather_into_tensor_coalesced": semconv.GPUCollectiveNameAllGather,
	"reduce_scatter":                  semconv.GPUCollectiveNameReduceScatter, "_reduce_scatter_base": semconv.GPUCollectiveNameReduceScatter,
	"reduce_scatter_tensor_coalesced": semconv.GPUCollectiveNameReduceScatter,
	"all_to_all":                      semconv.GPUCollectiveNameAllToAll, "all_to_allv": semconv.GPUCollectiveNameAllToAll,
	"broadcast": semconv.GPUCollectiveNameBroadcast, "reduce": semconv.GPUCollectiveNameReduce,
	"gather": semconv.GPUCollectiveNameGather, "scatter": semconv.GPUCollectiveNameScatter,
	"send": semconv.GPUCollectiveNameSend, "recv": semconv.GPUCollectiveNameRecv,
}
