// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/confmap"

	"github.com/otelgpu/otelgpu/internal/configtest"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor/internal/metadata"
)

func load(t *testing.T, name string) (*Config, error) {
	t.Helper()
	return configtest.Load[Config](t, component.MustNewIDWithName(metadata.Type.String(), name).String(),
		createDefaultConfig)
}

func TestConfigUnmarshalsEveryKey(t *testing.T) {
	cfg, err := load(t, "full")
	require.NoError(t, err)
	assert.Equal(t, "gpu_samples/node", cfg.Samples.String())
	assert.Equal(t, 3*time.Microsecond, cfg.Floor)
	assert.Equal(t, []PeakConfig{{
		Model: "NVIDIA H20*", MemoryBandwidth: 4e12, HostBandwidth: 6.3e10, InterconnectBandwidth: 4.5e11,
		InterconnectDevices: 8,
		FLOPRate:            map[string]float64{"bf16": 1.48e14},
	}}, cfg.Peaks)
	assert.Equal(t, []string{"vllm", "obi"}, cfg.Presets)
	assert.Equal(t, []MappingConfig{{
		Scope: "engine.*", Span: "decode*", Kind: "internal", Has: "my.bytes",
		Resource: map[string]string{"service.name": "engine*"}, Type: "section",
		Attributes: []AttributeConfig{
			{From: "my.bytes", To: "gpu.io.size", Per: "my.count"},
			{From: "my.ms", To: "gpu.duration", Scale: 0.001},
			{From: "my.kind", To: "gpu.copy.direction", Values: map[string]string{"up": "host_to_device"}},
			{To: "gpu.collective.name", Value: "all_reduce"},
		},
	}}, cfg.Mappings)
	assert.Equal(t, AssembleConfig{MaxSums: 100, MaxAge: 2 * time.Minute, MaxIntervals: 64}, *cfg.AssembleSteps.Get())
	assert.Equal(t, spanfacts.Full, cfg.Attributes)
	assert.Equal(t, []string{"engine"}, cfg.Repeat)
}

func TestDefaults(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	require.NoError(t, confmap.Validate(cfg))
	assert.Equal(t, 2*time.Microsecond, cfg.Floor)
	assert.False(t, cfg.AssembleSteps.HasValue())
	assert.Nil(t, cfg.Samples)
}

func TestValidateRejectsPeaksInOtherUnits(t *testing.T) {
	c := createDefaultConfig().(*Config)
	c.Peaks = []PeakConfig{{
		Model: "*", MemoryBandwidth: 3350, HostBandwidth: 64, InterconnectBandwidth: 450,
		FLOPRate: map[string]float64{"bf16": 989.5, "fp32": 1e6},
	}}
	require.EqualError(t, c.Validate(), "`peaks::0::memory_bandwidth` must be in bytes per second, such as 3.35e12, found 3350\n"+
		"`peaks::0::host_bandwidth` must be in bytes per second, such as 3.35e12, found 64\n"+
		"`peaks::0::interconnect_bandwidth` must be in bytes per second, such as 3.35e12, found 450\n"+
		"`peaks::0::flop_rate::bf16` must be in FLOP per second, such as 9.9e14, found 989.5")
}

func TestValidateReportsEveryProblem(t *testing.T) {
	_, err := load(t, "broken")
	for _, want := range []string{
		"`floor` must not be negative, found -1s",
		"`precision` must be one of fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8, found \"half\"",
		"`presets::0` must be one of dynamo, gen_ai, nemo_lens, obi, pytorch, sdk, sglang, tgi, triton, vllm, found \"lmdeploy\"",
		"`peaks::0::model` must not be empty",
		"`peaks::0::memory_bandwidth` must be a finite number and not negative (0: not stated), found -1",
		"`peaks::0::host_bandwidth` must be a finite number and not negative (0: not stated), found -2",
		"`peaks::0::interconnect_bandwidth` must be a finite number and not negative (0: not stated), found -3",
		"`peaks::0::interconnect_devices` must not be negative, found -4",
		"`peaks::0::flop_rate` must have keys of fp64, fp32, tf32, fp16, bf16, fp8, fp4, int8, found \"fp17\"",
		"`peaks::1::model` must be a pattern, found \"[\"",
		"`mappings::0` must have a condition",
		"`mappings::0::type` must be set, or one of `attributes` or a preset must set gpu.operation.type",
		"`mappings::1::type` must be one of collective, copy, graph, host, kernel, memset, request, section, share, step, found \"gemm\"",
		"`mappings::1::attributes::0::to` must be a span attribute of the registry (docs/semconv), found \"gpu.nothing\"",
		"`mappings::1::attributes::1` must have one of `from` and `value`",
		"`mappings::1::attributes::3::scale` must be a finite number above 0, found -2",
		"`mappings::1::kind` must be one of internal, server, client, producer, consumer, found \"remote\"",
		"`mappings::1::attributes::2` must give one of device_to_device, device_to_host, host_to_device, host_to_host, peer_to_peer, found \"up\"",
		"`assemble_steps::max_sums` must be positive, found 0",
		"`assemble_steps::max_age` must be positive, found 0s",
		"`assemble_steps::max_intervals` must be at least 2, found 1",
	} {
		assert.ErrorContains(t, err, want)
	}
}
