// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package benchmarks

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/receiver/gpureceiver"
)

// The page of the upstream prometheus exporter for the gpu receiver passes `promtool check
// metrics`, and distinguishes the devices of one host, because points contain their identity.
func TestDeviceScrapeIsCleanAndKeepsDevicesApart(t *testing.T) {
	exp, page := prometheusPage(t)

	const devices = 4
	rf := gpureceiver.NewFactory()
	rcfg := rf.CreateDefaultConfig()
	require.NoError(t, confmap.NewFromStringMap(map[string]any{
		"source": "simulated", "collection_interval": "200ms", "sampling_interval": "20ms",
		"simulated": map[string]any{"devices": devices},
	}).Unmarshal(rcfg))
	r, err := rf.CreateMetrics(context.Background(), receivertest.NewNopSettings(rf.Type()), rcfg, exp)
	require.NoError(t, err)
	require.NoError(t, r.Start(context.Background(), componenttest.NewNopHost()))
	require.Eventually(t, func() bool { // it needs two samples
		text, _ := page()
		return strings.Count(string(text), "\ngpu_sm_utilization_ratio{") == devices
	}, time.Minute, 50*time.Millisecond)
	require.NoError(t, r.Shutdown(context.Background()))

	text, problems := page()
	assert.Empty(t, problems)
	for _, name := range []string{
		"hw_power_watts", "hw_energy_joules_total", "hw_temperature_celsius",
		"gpu_sm_utilization_ratio", "hw_gpu_memory_usage_bytes",
	} {
		assert.Equal(t, devices, strings.Count(string(text), "\n"+name+"{"), name)
	}
}
