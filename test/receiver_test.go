// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
	"github.com/otelgpu/otelgpu/semconv"
)

// Every metric that the registry assigns to the gpu receiver, enabled, from a recording with every
// quantity and every kind of event.
func TestReceiverWritesEveryMetricAndEventThatIsRegisteredForIt(t *testing.T) {
	path := filepath.Join(t.TempDir(), "all.gpurec")
	var lines []object
	const samples = 40
	for i := range samples {
		at := recorded + int64(i)*int64(sampling)
		mask := 0
		if i >= 10 && i < 20 {
			mask = 4 // NVML: the power limit
		}
		values := object{
			"energy": 100 * i, "power": watts, "temperature": celsius, "utilization": utilization, "sm_utilization": smActive,
			"sm_occupancy": occupancy, "tensor_utilization": tensor, "dram_utilization": dram, "clock_sm": smHertz,
			"clock_memory": memoryHertz, "clock_graphics": smHertz, "clock_video": 1.6e9, "memory_used": memoryUsed,
			"memory_limit": 80 << 30, "memory_reserved": 1 << 30, "encoder_utilization": 0.1, "decoder_utilization": 0.2,
			"throttle": mask, "pcie_transmit": 1000 * i, "pcie_receive": 2000 * i, "nvlink_transmit": 3000 * i,
			"nvlink_receive": 4000 * i,
			"pipe_fp64":      0.1, "pipe_fp32": 0.2, "pipe_fp16": 0.3, "pipe_int": 0.1, "pipe_tensor_hmma": 0.4,
			"pipe_tensor_imma": 0.1,
			"pipe_tensor_dfma": 0.1, "ecc_corrected": i, "ecc_uncorrected": i / 10, "pcie_replays": i, "nvlink_crc": i,
			"xids": i / 20,
		}
		fill(values, i)
		lines = append(lines, object{"d": 0, "t": at, "v": values})
		if i == 25 {
			lines = append(lines, object{"d": 0, "t": at + 1, "e": "xid", "code": 79, "count": 1},
				object{"d": 0, "t": at + 2, "e": "ecc_corrected", "count": 2},
				object{"d": 0, "t": at + 3, "e": "ecc_uncorrected", "count": 1},
				object{"d": 0, "t": at + 4, "e": "fault", "code": 0x1234, "count": 1, "fault": object{
					"module": "GPU-NVLINK", "category": 3, "code": 0x1234, "severity": 2,
				}})
		}
	}
	record(t, path, object{
		"id": "GPU-51a0c0de-0000-4000-8000-000000000000", "model": "NVIDIA H100 80GB HBM3",
		"memory_bandwidth": 3.35e12, "flop_rate": object{"bf16": 989.4e12},
	}, lines)

	switched := map[string]any{}
	var want []string
	for _, m := range semconv.Metrics() {
		if m.Group == "device" && slices.Contains(m.Writers, "gpu") {
			switched[m.Name] = map[string]any{"enabled": true}
			want = append(want, m.Name)
		}
	}
	factory := gpureceiver.NewFactory()
	cfg := factory.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"source": "replay", "collection_interval": "100ms", "metrics": switched,
		"replay": map[string]any{"file": path, "speed": 10.0},
	}).Unmarshal(cfg))
	require.NoError(t, confmap.Validate(cfg))

	metrics, logs := &consumertest.MetricsSink{}, &consumertest.LogsSink{}
	settings := receivertest.NewNopSettings(factory.Type())
	m, err := factory.CreateMetrics(t.Context(), settings, cfg, metrics)
	require.NoError(t, err)
	l, err := factory.CreateLogs(t.Context(), settings, cfg, logs)
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context(), componenttest.NewNopHost()))
	require.NoError(t, l.Start(t.Context(), componenttest.NewNopHost()))
	written := func() map[string]bool {
		seen := map[string]bool{ // processes are not in recordings
			semconv.GPUProcessEnergyName: true, semconv.GPUProcessEnergyErrorName: true, semconv.GPUProcessMemoryUsageName: true,
			semconv.GPUProcessUtilizationName: true, semconv.GPUIdleEnergyName: true, semconv.GPUUnattributedEnergyName: true,
		}
		for _, md := range metrics.AllMetrics() {
			for _, rm := range md.ResourceMetrics().All() {
				for _, sm := range rm.ScopeMetrics().All() {
					for _, m := range sm.Metrics().All() {
						seen[m.Name()] = true
					}
				}
			}
		}
		return seen
	}
	happened := func() map[string]int {
		events := map[string]int{}
		for _, ld := range logs.AllLogs() {
			for _, rl := range ld.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, r := range sl.LogRecords().All() {
						events[r.EventName()]++
					}
				}
			}
		}
		return events
	}
	assert.Eventually(t, func() bool {
		seen, events := written(), happened()
		return !slices.ContainsFunc(want, func(name string) bool { return !seen[name] }) &&
			!slices.ContainsFunc(semconv.Events(), func(e semconv.Event) bool {
				return slices.Contains(e.Writers, "gpu") && events[e.Name] == 0
			})
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, m.Shutdown(t.Context()))
	require.NoError(t, l.Shutdown(t.Context()))

	for _, md := range metrics.AllMetrics() {
		require.NoError(t, conformance.Metrics(md))
	}
	seen := written()
	for _, name := range want {
		require.True(t, seen[name], "%s is registered but was not written", name)
	}
	for _, ld := range logs.AllLogs() {
		require.NoError(t, conformance.Logs(ld))
	}
	events := happened()
	for _, e := range semconv.Events() {
		if !slices.Contains(e.Writers, "gpu") {
			continue
		}
		require.NotZero(t, events[e.Name], "%s among %v", e.Name, events)
	}
}
