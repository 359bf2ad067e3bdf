// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/config/configoptional"

	"github.com/otelgpu/otelgpu/internal/configtest"
)

func load(t *testing.T, id string) (*Config, error) {
	t.Helper()
	return configtest.Load[Config](t, id, createDefaultConfig)
}

func TestEveryKeyIsRead(t *testing.T) {
	got, err := load(t, "gpu/all")
	require.NoError(t, err)
	samples := component.MustNewIDWithName("gpu_samples", "node")
	assert.Equal(t, &Config{
		Source: "dcgm", CollectionInterval: 5 * time.Second, SamplingInterval: 50 * time.Millisecond, Samples: &samples,
		CallTimeout: 3 * time.Second, RetryInterval: time.Minute,
		DCGM: DCGMConfig{
			Endpoint: "unix:///run/dcgm.sock", Embedded: true, MaxKeepAge: 10 * time.Minute, MaxStaleness: 2 * time.Minute,
		},
		NVML:      NVMLConfig{Library: "/opt/libnvidia-ml.so.1"},
		Replay:    ReplayConfig{File: "x.gpurec", Loop: true, Speed: 10},
		Simulated: SimulatedConfig{Devices: 8, Seed: 7},
		Kubernetes: configoptional.Some(KubernetesConfig{
			PodResources: "/run/kubelet.sock", ContainerLogs: "/logs", ResourceSlices: true,
		}),
		Processes: ProcessesConfig{Interval: time.Second, MaxPerDevice: 100},
		Metrics:   map[string]MetricConfig{"hw.power": {Enabled: false}, "gpu.pipe.utilization": {Enabled: true}},
	}, got)
}

func TestAnEmptyBlockIsTheDefault(t *testing.T) {
	got, err := load(t, "gpu")
	require.NoError(t, err)
	assert.Equal(t, createDefaultConfig(), got)
	assert.False(t, got.Kubernetes.HasValue())
}

func TestWrongKeysAndValuesAreNamed(t *testing.T) {
	_, err := load(t, "gpu/unknown")
	assert.ErrorContains(t, err, "'gpureceiver.Config' has invalid keys: sampling")
	_, err = load(t, "gpu/pods")
	assert.EqualError(t, err, "kubernetes: `pod_resources` must be an absolute path, found \"kubelet.sock\"\n"+
		"`container_logs` must be an absolute path, found \"logs\"")
}

// An engine does not keep pace with 1 ms, which NVML does.
func TestTheShortestSamplingIntervalIsTheSources(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	for source, want := range map[string]string{
		"dcgm": "`sampling_interval` must be at least 10ms if `source` is dcgm, found 9.999ms", "nvml": "", "auto": "",
	} {
		cfg.Source, cfg.SamplingInterval = source, 9999*time.Microsecond
		if err := cfg.Validate(); want == "" {
			assert.NoError(t, err, source)
		} else {
			assert.EqualError(t, err, want)
		}
		cfg.SamplingInterval = 10 * time.Millisecond
		assert.NoError(t, cfg.Validate(), source)
	}
}

func TestAnEndpointMayHaveBrackets(t *testing.T) {
	for endpoint, want := range map[string]string{
		"[10.0.0.1]:5555": "10.0.0.1:5555", "[localhost]:5555": "localhost:5555", "[fd00::1]:5555": "[fd00::1]:5555",
		"10.0.0.1:5555": "10.0.0.1:5555", "unix:///run/dcgm.sock": "unix:///run/dcgm.sock",
	} {
		require.Equal(t, want, plainIPv4(endpoint))
	}
}
