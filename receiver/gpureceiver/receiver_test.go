// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
)

// samplesHost is a host with one gpu_samples extension.
type samplesHost struct {
	component.Host
	store *devicesamples.Store
}

type samplesExtension struct{ *devicesamples.Store }

func (samplesExtension) Start(context.Context, component.Host) error { return nil }
func (samplesExtension) Shutdown(context.Context) error              { return nil }

var samplesID = component.MustNewID("gpu_samples")

func newSamplesHost() samplesHost {
	return samplesHost{componenttest.NewNopHost(), devicesamples.NewStore(devicesamples.NewDefaultConfig(),
		nil)}
}

func (h samplesHost) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{samplesID: samplesExtension{h.store}}
}

func TestSimulatedDevicesReachSamplesMetricsAndLogs(t *testing.T) {
	f := NewFactory()
	cfg := f.CreateDefaultConfig().(*Config)
	cfg.Source = sourceSimulated
	cfg.Simulated.Devices = 2
	cfg.SamplingInterval = 50 * time.Millisecond
	cfg.CollectionInterval = 100 * time.Millisecond
	cfg.Samples = &samplesID
	sink := &consumertest.MetricsSink{}
	logs := &consumertest.LogsSink{}
	set := receivertest.NewNopSettings(metadata.Type)
	mr, err := f.CreateMetrics(context.Background(), set, cfg, sink)
	require.NoError(t, err)
	lr, err := f.CreateLogs(context.Background(), set, cfg, logs)
	require.NoError(t, err)
	assert.Same(t, mr, lr, "one receiver serves both pipelines")
	host := newSamplesHost()
	require.NoError(t, mr.Start(context.Background(), host))
	require.NoError(t, lr.Start(context.Background(), host))
	const device = "GPU-51a0c0de-0000-4000-8000-000000000001"
	require.Eventually(t, func() bool {
		v := host.store.Acquire()
		defer v.Release()
		dev, ok := v.Lookup(device)
		if !ok {
			return false
		}
		oldest, newest := dev.Range(devicesamples.Energy)
		return len(sink.AllMetrics()) >= 3 && newest-oldest > int64(time.Second)
	}, time.Minute, 5*time.Millisecond)
	require.NoError(t, mr.Shutdown(context.Background()))
	require.NoError(t, lr.Shutdown(context.Background()))

	v := host.store.Acquire()
	defer v.Release()
	dev, ok := v.Lookup(device)
	require.True(t, ok)
	oldest, newest := dev.Range(devicesamples.Energy)
	require.Greater(t, newest, oldest)
	joules, coverage := dev.Integral(devicesamples.Energy, oldest, newest)
	require.NotZero(t, coverage)
	seconds := float64(newest-oldest) * 1e-9 * coverage
	// Between the powers of the idle and of the busiest phase (78 W, 690 W), within one counter
	// step at the ends of such a short window.
	assert.InDelta(t, 384, joules/seconds, 360)

	last := map[string]pmetric.NumberDataPoint{}
	for _, md := range sink.AllMetrics() {
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			for _, p := range points(m).All() {
				id, ok := p.Attributes().Get("hw.id")
				require.True(t, ok, m.Name())
				key := m.Name() + id.Str()
				if m.Type() == pmetric.MetricTypeSum && m.Sum().IsMonotonic() {
					assert.NotZero(t, p.StartTimestamp(), m.Name())
				}
				if before, ok := last[key]; ok && p.Attributes().Len() == before.Attributes().Len() {
					assert.GreaterOrEqual(t, p.Timestamp(), before.Timestamp(), "%s: no point is repeated", m.Name())
				}
				last[key] = p
			}
		}
	}
	assert.Contains(t, last, "hw.energyGPU-51a0c0de-0000-4000-8000-000000000000")
	assert.Contains(t, last, "hw.statusGPU-51a0c0de-0000-4000-8000-000000000001")
}
