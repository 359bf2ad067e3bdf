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

// The request's own times, as engines state them.
var (
	toQueue     = string(semconv.GPURequestQueueDurationKey)
	toFirstItem = string(semconv.GPURequestTimeToFirstItemKey)
	toPrefill   = string(semconv.GPURequestPrefillDurationKey)
	toDecode    = string(semconv.GPURequestDecodeDurationKey)
	toModel     = string(semconv.GenAIRequestModelKey)
	toItems     = string(semconv.GPUOperationItemsKey)
	tokens      = constant(string(semconv.GPUOperationItemTypeKey), semconv.GPUOperationItemTypeToken)
)

// request returns a mapping for spans of an engine's requests. They are timed on the host, while
// other requests run on the same devices, so they never have a GPU time; gpu_join gives them energy
// and means of the device.
func request(m MappingConfig, attributes ...AttributeConfig) MappingConfig {
	m.Type, m.Attributes = semconv.GPUOperationTypeRequest, append(attributes, hostTimed)
	return m
}

// presets are mappings by name. Producers that time on the host are marked so: their spans give
// counts, bytes and items, and no rates.
var presets = map[string][]MappingConfig{
	// vLLM's request spans, of engine v0 and v1 (vllm/tracing, SpanAttributes): seconds. Engine v1
	// does not state the model. A proposal names the span by operation and model; it is identified
	// by its scope then.
	"vllm": {
		vllm(MappingConfig{Span: "llm_request", Has: "gen_ai.latency.e2e"}),
		vllm(MappingConfig{Scope: "vllm*", Has: "gen_ai.latency.e2e"}),
	},
	// SGLang's request spans (sglang/srt/observability): attributes of finished requests on their
	// root span, ` Req 1a2b3c4d`; seconds. Embeddings have no completion tokens.
	"sglang": {request(MappingConfig{Scope: "sglang*", Has: "gen_ai.usage.prompt_tokens"},
		constant(string(semconv.GPUOperationNameKey), "llm_request"), tokens,
		from("gen_ai.usage.completion_tokens", toItems),
		from("gen_ai.latency.time_in_queue", toQueue),
		from("gen_ai.latency.time_to_first_token", toFirstItem),
		from("gen_ai.latency.time_in_model_decode", toDecode), // its time_in_model_prefill includes the queue
		from("gen_ai.response.model", toModel),
	)},
	// Text Generation Inference's router (router/src/server.rs): durations as text in the form of
	// Rust's Debug, which is Go's too, and no count of tokens; the time per token is the time of
	// the inference divided by that count.
	"tgi": {request(MappingConfig{Has: "time_per_token"},
		constant(string(semconv.GPUOperationNameKey), "llm_request"), tokens,
		AttributeConfig{From: "inference_time", Per: "time_per_token", To: toItems},
		from("queue_time", toQueue),
	)},
	// Triton Inference Server in its mode `opentelemetry` (src/tracer.cc): a span for each request
	// to a model, including each model of an ensemble. It does not state how many inputs a request
	// had, and its queue is an event. Clients name the model too, but not the server's trace.
	"triton": {request(MappingConfig{Has: "triton.trace_id"},
		constant(string(semconv.GPUOperationNameKey), "infer_request"),
		from("triton.model_name", toModel),
	)},
	// NVIDIA Dynamo: a worker's `handle_payload` lasts as long as the request occupies it; prefill and
	// decode workers have one each. `engine.generate` (lib/backend-common/src/adapter.rs) ends before
	// the stream starts, but has the tokens; only some workers have it. The frontend's `http-request`,
	// which has no device and no type, has them otherwise: gpu_requests uses the ones of the trace.
	// Numbers can be texts, as Rust's tracing exports unsigned ones.
	"dynamo": {
		request(MappingConfig{Span: "handle_payload", Kind: "server", Has: "endpoint=generate"},
			constant(string(semconv.GPUOperationNameKey), "llm_request"), tokens),
		request(MappingConfig{Span: "engine.generate", Has: "disagg_role"}, append(dynamoTokens,
			constant(string(semconv.GPUOperationNameKey), "llm_request"), tokens)...),
		{Span: "http-request", Has: "output_tokens", Attributes: dynamoTokens},
	},
	// Generative AI semantic conventions, spans of the process that runs the model (a client's time
	// is not a GPU's). Until version 1.26 the output's tokens were the completion's.
	"gen_ai": {
		genAI("internal", "gen_ai.usage.output_tokens"), genAI("server", "gen_ai.usage.output_tokens"),
		genAI("internal", "gen_ai.usage.completion_tokens"), genAI("server", "gen_ai.usage.completion_tokens"),
	},
	// Trainers of NVIDIA through NeMo Lens.
	"nemo_lens": training(),
	// Services on the SDK of any language that use our attribute names for timed sections (usually
	// a pair of CUDA events), and no type.
	"sdk": {{Has: string(semconv.GPUDurationKey), Type: semconv.GPUOperationTypeSection}},
	// OpenTelemetry eBPF Instrumentation: CUDA calls as seen from outside of the process.
	"obi": {
		{
			Has: "cuda.kernel.name", Type: semconv.GPUOperationTypeKernel,
			Attributes: append([]AttributeConfig{hostTimed, from("cuda.kernel.name", string(semconv.GPUKernelNameKey))},
				cudaDevice...),
		},
		{
			Has: "cuda.memcpy.kind", Type: semconv.GPUOperationTypeCopy,
			Attributes: append([]AttributeConfig{
				hostTimed, from("size", string(semconv.GPUIOSizeKey)), direction("cuda.memcpy.kind"),
			}, cudaDevice...),
		},
	},
	// Events of the PyTorch profiler that another tool converted to spans, arguments by their names
	// in the file. Only the names of kernels and copies identify them: operators of the host have
	// "Collective name" too.
	"pytorch": {
		pytorch("*[nr]ccl*", pytorchTypes{kernel: semconv.GPUOperationTypeCollective}),
		pytorch("*HtoD*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionHostToDevice)),
		pytorch("*DtoH*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionDeviceToHost)),
		pytorch("*DtoD*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionDeviceToDevice)),
		pytorch("*PtoP*", pytorchTypes{copy: semconv.GPUOperationTypeCopy}, copied(semconv.GPUCopyDirectionPeerToPeer)),
		pytorch("", pytorchTypes{
			semconv.GPUOperationTypeKernel, semconv.GPUOperationTypeCopy,
			semconv.GPUOperationTypeMemset,
		}),
	},
}

// presetResources are the resource attributes of presets.
var presetResources = map[string][]ResourceConfig{"nemo_lens": trainingResource()}

var dynamoTokens = []AttributeConfig{
	from("output_tokens", toItems), {From: "ttft_ms", To: toFirstItem, Scale: 1e-3}, from("model", toModel),
}

func vllm(m MappingConfig) MappingConfig {
	return request(m,
		constant(string(semconv.GPUOperationNameKey), "llm_request"), tokens,
		from("gen_ai.usage.completion_tokens", toItems),
		from("gen_ai.usage.output_tokens", toItems),
		from("gen_ai.latency.time_in_queue", toQueue),
		from("gen_ai.latency.time_to_first_token", toFirstItem),
		from("gen_ai.latency.time_in_model_prefill", toPrefill),
		from("gen_ai.latency.time_in_model_decode", toDecode),
		from("gen_ai.response.model", toModel),
	)
}

func genAI(kind, output string) MappingConfig {
	return request(MappingConfig{Has: output, Kind: kind},
		tokens,
		from(output, toItems),
		from("gen_ai.operation.name", string(semconv.GPUOperationNameKey)),
		from("gen_ai.response.time_to_first_chunk", toFirstItem),
		from("gen_ai.response.model", toModel),
	)
}

// pytorchTypes are the operation types for the profiler's categories; "": from another mapping.
type pytorchTypes struct{ kernel, copy, memset string }

func pytorch(span string, types pytorchTypes, more ...AttributeConfig) MappingConfig {
	values := map[string]string{
		"kernel": types.kernel, "Kernel": types.kernel,
		"gpu_memcpy": types.copy, "Memcpy": types.copy,
		"gpu_memset": types.memset, "Memset": types.memset,
	}
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

// direction accepts cudaMemcpyKind by name or number (driver_types.h: 0 to 3; 4, default, is not a
// direction).
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
	"reduce_scatter":                  semconv.GPUCollectiveNameReduceScatter,
	"_reduce_scatter_base":            semconv.GPUCollectiveNameReduceScatter,
	"reduce_scatter_tensor_coalesced": semconv.GPUCollectiveNameReduceScatter,
	"all_to_all":                      semconv.GPUCollectiveNameAllToAll, "all_to_allv": semconv.GPUCollectiveNameAllToAll,
	"broadcast": semconv.GPUCollectiveNameBroadcast, "reduce": semconv.GPUCollectiveNameReduce,
	"gather": semconv.GPUCollectiveNameGather, "scatter": semconv.GPUCollectiveNameScatter,
	"send": semconv.GPUCollectiveNameSend, "recv": semconv.GPUCollectiveNameRecv,
}
