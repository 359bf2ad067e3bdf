// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// servers are the presets of config/llm.yaml.
var servers = []string{"vllm", "sglang", "tgi", "triton", "dynamo"}

// The payloads are from real engines (testdata/llm/README.md).
func TestRequestsOfEnginesAreRead(t *testing.T) {
	request := func(name string, more attrs) attrs {
		want := attrs{"gpu.operation.type": "request", "gpu.operation.name": name, "gpu.timing.source": "host"}
		maps.Copy(want, more)
		return want
	}
	tokens := attrs{
		"gpu.operation.items": int64(32), "gpu.operation.item.type": "token",
		"gpu.request.queue.duration": 0.021, "gpu.request.time_to_first_item": 0.118,
	}
	phases := attrs{"gpu.request.prefill.duration": 0.097, "gpu.request.decode.duration": 1.838}
	with := func(a, more attrs) attrs {
		out := attrs{}
		for _, m := range []attrs{a, more} {
			maps.Copy(out, m)
		}
		return out
	}
	for file, want := range map[string]attrs{
		"vllm_v0":       request("llm_request", with(tokens, attrs{"gen_ai.request.model": "facebook/opt-125m"})),
		"vllm_v1":       request("llm_request", with(tokens, phases)),
		"vllm_v1_otel":  request("llm_request", with(tokens, phases)),
		"vllm_v1_named": request("llm_request", tokens),
		"trtllm":        request("llm_request", tokens),
		"sglang": request("llm_request", attrs{
			"gpu.operation.items": int64(32), "gpu.operation.item.type": "token", "gpu.request.time_to_first_item": 0.118,
			"gen_ai.request.model": "qwen/qwen2.5-0.5b-instruct", "gpu.request.decode.duration": 1.838,
		}),
		"sglang_embedding": request("llm_request", attrs{
			"gpu.operation.item.type": "token", "gen_ai.request.model": "qwen/qwen2.5-0.5b-instruct",
		}),
		"tgi": request("llm_request", attrs{
			"gpu.operation.items": int64(32), "gpu.operation.item.type": "token", "gpu.request.queue.duration": 0.021083214,
		}),
		"triton": request("infer_request", attrs{"gen_ai.request.model": "densenet_onnx"}),
		"dynamo": request("llm_request", attrs{
			"gpu.operation.items": int64(32), "gpu.operation.item.type": "token", "gpu.request.time_to_first_item": 0.11834,
			"gen_ai.request.model": "Qwen/Qwen3-0.6B",
		}),
		"llm_d": request("llm_request", with(tokens, phases)),
	} {
		t.Run(file, func(t *testing.T) {
			td := payload(t, file)
			before := map[string]attrs{}
			everySpan(td, func(s ptrace.Span) { before[s.SpanID().String()] = s.Attributes().AsRaw() })
			d := newTestDeriver(t, func(c *Config) { c.Presets = servers })
			process(t, d, td)
			requests := 0
			everySpan(td, func(s ptrace.Span) {
				got := gained(s, before[s.SpanID().String()])
				if len(got) == 0 {
					return
				}
				if file == "dynamo" && s.Name() != "engine.generate" {
					assert.Equal(t, s.Name() == "handle_payload", got["gpu.operation.type"] == "request", s.Name())
					return
				}
				requests++
				assertGained(t, want, got)
				_, timed := s.Attributes().Get("gpu.duration")
				assert.False(t, timed, "the engine's time is not the GPU's")
			})
			assert.Equal(t, 1, requests)
		})
	}
}

// A client's span includes the time of the network and of the server's queue: it is not a request
// on a device.
func TestAClientSpanOfTritonIsNotARequest(t *testing.T) {
	td, s := oneSpan(t, attrs{"triton.model_name": "densenet_onnx", "triton.endpoint": "triton:8001"})
	process(t, newTestDeriver(t, func(c *Config) { c.Presets = servers }), td)
	assert.NotContains(t, s.Attributes().AsRaw(), "gpu.operation.type")
}

// A Ray Serve replica and a KServe predictor send spans of any request, even without GPU use, so
// only a mapping turns them into requests (docs/llm.md).
func TestSpansOfReplicasNeedAMapping(t *testing.T) {
	for file, m := range map[string]MappingConfig{
		"ray_serve": {Span: "replica_handle_request*", Has: "deployment", Attributes: []AttributeConfig{
			{From: "deployment", To: "gpu.operation.name"},
		}},
		"kserve": {Kind: "server", Resource: map[string]string{"service.name": "iris*"}},
	} {
		td := payload(t, file)
		d := newTestDeriver(t, func(c *Config) { c.Presets = servers })
		process(t, d, td)
		everySpan(td, func(s ptrace.Span) {
			assert.NotContains(t, s.Attributes().AsRaw(), "gpu.operation.type", "%s: %s", file, s.Name())
		})
		m.Type = "request"
		process(t, newTestDeriver(t, func(c *Config) { c.Presets, c.Mappings = servers, []MappingConfig{m} }), td)
		requests := 0
		everySpan(td, func(s ptrace.Span) {
			if v, ok := s.Attributes().Get("gpu.operation.type"); ok && v.Str() == "request" {
				requests++
			}
		})
		assert.Equal(t, 1, requests, file)
	}
}

func payload(t *testing.T, name string) ptrace.Traces {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", "llm", name+".json"))
	require.NoError(t, err)
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(b)
	require.NoError(t, err)
	return td
}

func everySpan(td ptrace.Traces, f func(ptrace.Span)) {
	for _, rs := range td.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, s := range ss.Spans().All() {
				f(s)
			}
		}
	}
}

// A user's mapping extends and overrides the preset.
func TestAMappingAddsToAPreset(t *testing.T) {
	td := payload(t, "vllm_v1")
	d := newTestDeriver(t, func(c *Config) {
		c.Presets = []string{"vllm"}
		c.Mappings = []MappingConfig{{
			Resource: map[string]string{"service.name": "vllm*"}, Has: "gen_ai.request.id",
			Attributes: []AttributeConfig{{To: "hw.id", Value: "GPU-1"}, {To: "gpu.operation.name", Value: "mine"}},
		}}
	})
	process(t, d, td)
	s := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0)
	got := s.Attributes().AsRaw()
	assert.Equal(t, "GPU-1", got["hw.id"])
	assert.Equal(t, "mine", got["gpu.operation.name"])
	assert.Equal(t, "request", got["gpu.operation.type"])
	assert.EqualValues(t, 32, got["gpu.operation.items"])
}

func TestAMappingWithoutATypeDoesNothingByItself(t *testing.T) {
	td := payload(t, "triton")
	d := newTestDeriver(t, func(c *Config) {
		c.Presets = []string{"vllm"}
		c.Mappings = []MappingConfig{{Has: "triton.model_name", Attributes: []AttributeConfig{{To: "hw.id", Value: "GPU-1"}}}}
	})
	process(t, d, td)
	everySpan(td, func(s ptrace.Span) { assert.NotContains(t, s.Attributes().AsRaw(), "hw.id") })

	in := attrs{"a": 3}
	td, s := oneSpan(t, in)
	process(t, newTestDeriver(t, func(c *Config) {
		c.Mappings = []MappingConfig{{Has: "a", Attributes: []AttributeConfig{
			{From: "a", To: "gpu.operation.items"}, {Value: "request", To: "gpu.operation.type"},
		}}}
	}), td)
	assert.Equal(t, attrs{"gpu.operation.type": "request", "gpu.operation.items": int64(3)}, gained(s, in), "a constant one")
}

func TestAMappingChecksTheResource(t *testing.T) {
	for pattern, want := range map[string]bool{"text-*": true, "*": true, "vllm": false} {
		td := payload(t, "tgi")
		d := newTestDeriver(t, func(c *Config) {
			c.Mappings = []MappingConfig{{
				Resource: map[string]string{"service.name": pattern}, Span: "generate",
				Type: "request",
			}}
		})
		process(t, d, td)
		_, mapped := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().Get("gpu.operation.type")
		assert.Equal(t, want, mapped, pattern)
	}
	d := newTestDeriver(t, func(c *Config) {
		c.Mappings = []MappingConfig{{Resource: map[string]string{"k8s.pod.name": "*"}, Span: "generate", Type: "request"}}
	})
	td := payload(t, "tgi")
	process(t, d, td)
	everySpan(td, func(s ptrace.Span) {
		assert.NotContains(t, s.Attributes().AsRaw(), "gpu.operation.type", "the resource lacks it")
	})
}

func TestNumbersAreDividedAndDurationsRead(t *testing.T) {
	for name, tt := range map[string]struct {
		a, b any
		want any
	}{
		"durations":     {"1.5s", "250ms", int64(6)},
		"numbers":       {6.0, 2, int64(3)},
		"by zero":       {6.0, 0, nil},
		"no number":     {"six", 2, nil},
		"no divisor":    {6.0, nil, nil},
		"negative":      {6.0, -2, nil},
		"texts":         {"6", "2", int64(3)},
		"a text with ∞": {"Inf", "2", nil},
		"no unit known": {"6 apples", 2, nil},
	} {
		in := attrs{"a": tt.a}
		if tt.b != nil {
			in["b"] = tt.b
		}
		td, s := oneSpan(t, in)
		process(t, newTestDeriver(t, func(c *Config) {
			c.Mappings = []MappingConfig{{Has: "a", Type: "request", Attributes: []AttributeConfig{{
				From: "a", Per: "b",
				To: "gpu.operation.items",
			}}}}
		}), td)
		assert.Equal(t, tt.want, s.Attributes().AsRaw()["gpu.operation.items"], name)
	}
}
