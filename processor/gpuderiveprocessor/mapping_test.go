// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

func TestPresetsMakeGPUSpans(t *testing.T) {
	for name, tt := range map[string]struct {
		preset string
		kind   ptrace.SpanKind
		span   string // its name
		in     attrs
		want   attrs
	}{
		"gen_ai has counts, no rates": {
			"gen_ai", ptrace.SpanKindInternal, "x",
			attrs{"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 7},
			attrs{
				"gpu.operation.type": "request", "gpu.operation.name": "chat", "gpu.timing.source": "host",
				"gpu.operation.items": int64(7), "gpu.operation.item.type": "token",
			},
		},
		"gen_ai of a stream": {
			"gen_ai", ptrace.SpanKindServer, "chat llama",
			attrs{
				"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 7, "gen_ai.usage.completion_tokens": 8,
				"gen_ai.response.time_to_first_chunk": 0.25, "gen_ai.response.model": "llama-3-8b",
			},
			attrs{
				"gpu.operation.type": "request", "gpu.operation.name": "chat", "gpu.timing.source": "host",
				"gpu.operation.items": int64(7), "gpu.operation.item.type": "token",
				"gpu.request.time_to_first_item": 0.25, "gen_ai.request.model": "llama-3-8b",
			},
		},
		"gen_ai before 1.27": {
			"gen_ai", ptrace.SpanKindServer, "x",
			attrs{"gen_ai.usage.completion_tokens": 7},
			attrs{
				"gpu.operation.type": "request", "gpu.timing.source": "host",
				"gpu.operation.items": int64(7), "gpu.operation.item.type": "token",
			},
		},
		"gen_ai of an aborted stream": {
			"gen_ai", ptrace.SpanKindServer, "chat llama",
			attrs{"gen_ai.operation.name": "chat"},
			attrs{
				"gpu.operation.type": "request", "gpu.operation.name": "chat", "gpu.timing.source": "host",
				"gpu.operation.item.type": "token",
			},
		},
		"gen_ai of an embedding": {
			"gen_ai", ptrace.SpanKindServer, "embeddings bge",
			attrs{"gen_ai.operation.name": "embeddings", "gen_ai.usage.input_tokens": 7},
			attrs{
				"gpu.operation.type": "request", "gpu.operation.name": "embeddings", "gpu.timing.source": "host",
				"gpu.operation.item.type": "token",
			},
		},
		"gen_ai of an agent": {
			"gen_ai", ptrace.SpanKindInternal, "invoke_agent planner",
			attrs{"gen_ai.operation.name": "invoke_agent", "gen_ai.usage.output_tokens": 70},
			attrs{},
		},
		"gen_ai of a client": {
			"gen_ai", ptrace.SpanKindClient, "x",
			attrs{"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 7},
			attrs{},
		},
		"obi kernel": {
			"obi", ptrace.SpanKindInternal, "x",
			attrs{
				"cuda.kernel.name": "gemm", "cuda.device.uuid": "3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c21",
				"cuda.device.model": "NVIDIA H200", "cuda.device.index": 1,
			},
			attrs{
				"gpu.operation.type": "kernel", "gpu.timing.source": "host", "gpu.kernel.name": "gemm",
				"hw.id": "3b1c2f4e-8a67-4d1f-9b3c-5f0e9d7a6c21", "hw.model": "NVIDIA H200", "gpu.device.ordinal": int64(1),
			},
		},
		"obi copy by number": {
			"obi", ptrace.SpanKindInternal, "x",
			attrs{"cuda.memcpy.kind": 1, "size": 4096},
			attrs{
				"gpu.operation.type": "copy", "gpu.timing.source": "host", "gpu.copy.direction": "host_to_device",
				"gpu.io.size": int64(4096),
			},
		},
		"pytorch collective": {
			"pytorch", ptrace.SpanKindInternal, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
			attrs{"cat": "kernel", "stream": 20, "device": 0, "Collective name": "allreduce", "Group size": 2},
			attrs{
				"gpu.operation.type": "collective", "gpu.timing.source": "cupti", "gpu.stream.id": int64(20),
				"gpu.device.ordinal":  int64(0),
				"gpu.collective.name": "all_reduce", "gpu.collective.group.size": int64(2),
			},
		},
		"pytorch collective on the host": {
			"pytorch", ptrace.SpanKindInternal, "record_param_comms",
			attrs{"cat": "cpu_op", "Collective name": "allreduce", "Group size": 2},
			attrs{},
		},
		"pytorch kernel": {
			"pytorch", ptrace.SpanKindInternal, "void at::native::vectorized_elementwise_kernel<4>(int)",
			attrs{"cat": "kernel"},
			attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"},
		},
		"pytorch copy": { // 2 MB in the span's 2 ms, against a link of PCIe 5.0 x16: 32 GT/s on 16 lanes, 128b/130b
			"pytorch", ptrace.SpanKindInternal, "Memcpy HtoD (Pinned -> Device)",
			attrs{"cat": "gpu_memcpy", "bytes": 2_000_000, "hw.model": "NVIDIA H100 80GB HBM3"},
			attrs{
				"gpu.operation.type": "copy", "gpu.timing.source": "cupti", "gpu.io.size": int64(2_000_000),
				"gpu.copy.direction": "host_to_device", "gpu.io.rate": 1e9, "gpu.rate.status": "ok",
				"gpu.io.utilization": 1e9 / (32e9 * 16 / 8 * 128 / 130), "gpu.peak.source": "table", "gpu.declaration.status": "ok",
			},
		},
		"pytorch copy that does not say where": {
			"pytorch", ptrace.SpanKindInternal, "Memcpy Unknown",
			attrs{"cat": "gpu_memcpy", "bytes": 2_000_000},
			attrs{
				"gpu.operation.type": "copy", "gpu.timing.source": "cupti", "gpu.io.size": int64(2_000_000),
				"gpu.io.rate": 1e9, "gpu.rate.status": "ok",
			},
		},
		"pytorch memset of an impossible size": {
			"pytorch", ptrace.SpanKindInternal, "Memset (Device)",
			attrs{"cat": "gpu_memset", "bytes": -1, "stream": -1},
			attrs{"gpu.operation.type": "memset", "gpu.timing.source": "cupti"},
		},
		"sdk, as from Python": {
			"sdk", ptrace.SpanKindInternal, "x",
			attrs{
				"gpu.duration": 0.002, "gpu.flop.count": 989.5e9, "gpu.flop.precision": "bf16",
				"hw.model": "NVIDIA H100 80GB HBM3",
			},
			attrs{
				"gpu.operation.type": "section", "gpu.flop.rate": 494.75e12, "gpu.flop.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"sdk without a time": {"sdk", ptrace.SpanKindInternal, "x", attrs{"gpu.flop.count": 1e9}, attrs{}},
		"pytorch operator on the host": {
			"pytorch", ptrace.SpanKindInternal, "aten::mm",
			attrs{"cat": "cpu_op", "stream": 7},
			attrs{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			td, s := oneSpan(t, tt.in)
			s.SetKind(tt.kind)
			s.SetName(tt.span)
			d := newTestDeriver(t, func(c *Config) { c.Presets = []string{tt.preset} })
			process(t, d, td)
			assertGained(t, tt.want, gained(s, tt.in))
			require.NoError(t, conformance.Traces(td))
			once := ptrace.NewTraces()
			td.CopyTo(once)
			process(t, d, td)
			assert.Equal(t, once, td)
		})
	}
}

func TestMappingAppliesWhereAllConditionsHold(t *testing.T) {
	m := MappingConfig{
		Scope: "engine.*", Span: "decode*", Kind: "internal", Has: "my.bytes", Type: "section",
		Attributes: []AttributeConfig{
			{From: "my.bytes", To: "gpu.io.size"},
			{From: "my.ms", To: "gpu.duration", Scale: 0.001},
			{From: "my.text", To: "gpu.flop.count"}, // not a number: skipped
		},
	}
	for name, tt := range map[string]struct {
		scope, span string
		kind        ptrace.SpanKind
		in          attrs
		want        bool
	}{
		"all": {
			"engine.v1", "decode 1", ptrace.SpanKindInternal,
			attrs{"my.bytes": 3, "my.ms": 2, "my.text": "x"},
			true,
		},
		"slashes":     {"engine.org/a/b", "decode a/b", ptrace.SpanKindInternal, attrs{"my.bytes": 3, "my.ms": 2}, true},
		"other scope": {"other", "decode 1", ptrace.SpanKindInternal, attrs{"my.bytes": 3}, false},
		"other name":  {"engine.v1", "prefill", ptrace.SpanKindInternal, attrs{"my.bytes": 3}, false},
		"other kind":  {"engine.v1", "decode", ptrace.SpanKindServer, attrs{"my.bytes": 3}, false},
		"without":     {"engine.v1", "decode", ptrace.SpanKindInternal, attrs{"my.ms": 3}, false},
		"a GPU span": {
			"engine.v1", "decode", ptrace.SpanKindInternal,
			attrs{"my.bytes": 3, "gpu.operation.type": "kernel"},
			false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			td, s := oneSpan(t, tt.in)
			td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName(tt.scope)
			s.SetName(tt.span)
			s.SetKind(tt.kind)
			process(t, newTestDeriver(t, func(c *Config) { c.Mappings = []MappingConfig{m} }), td)
			size, mapped := s.Attributes().Get("gpu.io.size")
			assert.Equal(t, tt.want, mapped)
			if mapped {
				assert.EqualValues(t, 3, size.Int())
				duration, _ := s.Attributes().Get("gpu.duration")
				assert.InEpsilon(t, 0.002, duration.Double(), 1e-12)
				_, wrong := s.Attributes().Get("gpu.flop.count")
				assert.False(t, wrong)
			}
		})
	}
}

// OpenInference (with OPENINFERENCE_ENABLE_GENAI_SEMCONV), LiteLLM and Pydantic AI before version 2
// write calls of models elsewhere as internal spans, and LiteLLM's proxy as server spans. Engines
// in the same trace remain requests, and a mapping of the user has priority.
func TestClientsAndGatewaysAreNoRequests(t *testing.T) {
	excluded := []MappingConfig{{Scope: "my.client"}, {Span: "chat*", Type: "request"}}
	named := []MappingConfig{{Kind: "internal", Attributes: []AttributeConfig{constant("gpu.operation.name", "x")}}}
	for name, tt := range map[string]struct {
		scope    string
		kind     ptrace.SpanKind
		mappings []MappingConfig
		want     bool
	}{
		"OpenInference in Python":    {"openinference.instrumentation.openai", ptrace.SpanKindInternal, nil, false},
		"OpenInference in Node":      {"@arizeai/openinference-instrumentation-openai", ptrace.SpanKindInternal, nil, false},
		"LiteLLM":                    {"litellm", ptrace.SpanKindInternal, nil, false},
		"proxy of LiteLLM":           {"litellm", ptrace.SpanKindServer, nil, false},
		"Pydantic AI":                {"pydantic-ai", ptrace.SpanKindInternal, nil, false},
		"engine":                     {"my.engine", ptrace.SpanKindInternal, nil, true},
		"included by the user":       {"litellm", ptrace.SpanKindInternal, excluded, true},
		"without a type":             {"litellm", ptrace.SpanKindInternal, named, false},
		"excluded by the user":       {"my.client", ptrace.SpanKindInternal, excluded, false},
		"not excluded by the user":   {"my.engine", ptrace.SpanKindInternal, excluded, true},
		"excluded after its mapping": {"my.client", ptrace.SpanKindInternal, []MappingConfig{excluded[1], excluded[0]}, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, in := range []attrs{
				{"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 7, "gen_ai.response.model": "m"},
				{"gen_ai.usage.completion_tokens": 7},
			} {
				td, s := oneSpan(t, in)
				td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().SetName(tt.scope)
				s.SetName("chat m")
				s.SetKind(tt.kind)
				process(t, newTestDeriver(t, func(c *Config) {
					c.Presets, c.Mappings = []string{"vllm", "gen_ai"}, tt.mappings
				}), td)
				if !tt.want {
					assert.Empty(t, gained(s, in))
					continue
				}
				kind, _ := s.Attributes().Get("gpu.operation.type")
				assert.Equal(t, "request", kind.Str())
			}
		})
	}
}

func TestAttributesOfAProducerAreKept(t *testing.T) {
	m := MappingConfig{Has: "my.bytes", Type: "section", Attributes: []AttributeConfig{{
		From: "my.bytes",
		To:   "gpu.io.size",
	}}}
	td, s := oneSpan(t, attrs{"my.bytes": 3, "gpu.io.size": 9})
	process(t, newTestDeriver(t, func(c *Config) { c.Mappings = []MappingConfig{m} }), td)
	size, _ := s.Attributes().Get("gpu.io.size")
	assert.EqualValues(t, 9, size.Int())
}

func TestOnlyDelaysAndChangesCanBeMappedBelowZero(t *testing.T) {
	m := MappingConfig{Has: "n", Type: "section"}
	for _, to := range []string{"gpu.io.size", "gpu.duration", "gpu.start.delay", "gpu.memory.delta"} {
		m.Attributes = append(m.Attributes, AttributeConfig{From: "n", To: to})
	}
	in := attrs{"n": -3}
	td, s := oneSpan(t, in)
	process(t, newTestDeriver(t, func(c *Config) { c.Mappings = []MappingConfig{m} }), td)
	assertGained(t, attrs{"gpu.operation.type": "section", "gpu.start.delay": -3.0, "gpu.memory.delta": int64(-3)},
		gained(s, in))
}
