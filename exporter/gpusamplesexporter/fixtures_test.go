// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

// rig is an exporter whose points and log lines are counted.
type rig struct {
	exporter.Metrics
	t     *testing.T
	store *devicesamples.Store
	logs  *observer.ObservedLogs
	tel   *componenttest.Telemetry
}

func newRig(t *testing.T, change ...func(*Config)) *rig {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	for _, f := range change {
		f(cfg)
	}
	require.NoError(t, cfg.Validate())
	core, logs := observer.New(zap.InfoLevel)
	r := &rig{t: t, logs: logs, tel: componenttest.NewTelemetry()}
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = r.tel.NewTelemetrySettings()
	set.Logger = zap.New(core)
	r.store = devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	x, err := NewFactory().CreateMetrics(t.Context(), set, cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(t.Context(), host{componenttest.NewNopHost(), r.store}))
	r.Metrics = x
	t.Cleanup(func() {
		require.NoError(t, x.Shutdown(context.Background()))
		require.NoError(t, r.tel.Shutdown(context.Background()))
	})
	return r
}

// write writes points as one batch.
func (r *rig) write(points ...point) {
	r.t.Helper()
	require.NoError(r.t, r.ConsumeMetrics(r.t.Context(), batch(r.t, points...)))
}

// value returns the value of a device at a time; false if it has none.
func (r *rig) value(id string, f devicesamples.Field, at time.Time) (float64, bool) {
	v := r.store.Acquire()
	defer v.Release()
	d, ok := v.Lookup(id)
	if !ok {
		return 0, false
	}
	return d.Value(f, at.UnixNano())
}

// outcomes returns the number of points by outcome.
func (r *rig) outcomes() map[string]int64 {
	r.t.Helper()
	m, err := r.tel.GetMetric("otelcol_exporter_gpu_samples_points")
	require.NoError(r.t, err)
	got := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value("outcome")
		got[v.AsString()] = p.Value
	}
	return got
}
