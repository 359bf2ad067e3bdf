// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"context"
	"math"
	"path/filepath"
	"sort"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
	"github.com/otelgpu/otelgpu/processor/gpujoinprocessor"
)

func TestUniqueIDsAreReadFromBoardsOnly(t *testing.T) {
	for uuid, want := range map[string]string{
		"51ff74a1-0000-1000-802e-2769a3f6a69e": "GPU-512e2769a3f6a69e",
		"510074A1-0000-1000-802E-2769A3F6A69E": "GPU-512e2769a3f6a69e",
		"510374a1-0000-1000-802e-2769a3f6a69e": "", // partition 3
		"51ff74a1-0000-4000-802e-2769a3f6a69e": "", // UUID of another version
		"51ff74a1-0000-1000-802e-2769a3f6a69":  "",
		"51ff74a1-0000-1000-802e-2769a3f6a69g": "",
		"692251001124":                         "",
	} {
		got, ok := uniqueID(uuid)
		assert.Equal(t, want, got, uuid)
		assert.Equal(t, want != "", ok, uuid)
	}
}

type hosted map[component.ID]component.Component

func (h hosted) GetExtensions() map[component.ID]component.Component { return h }

// A scrape of AMD's exporter, repeated each second, gives the section of a HIP service its power,
// utilization and energy.
func TestAHIPServiceGetsPowerAndEnergyFromAMDsExporter(t *testing.T) {
	ctx := context.Background()
	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(ctx, extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(t, err)
	id := component.MustNewID("gpu_samples")
	h := hosted{id: ext}
	require.NoError(t, ext.Start(ctx, h))
	x, err := NewFactory().CreateMetrics(ctx, exportertest.NewNopSettings(metadata.Type), createDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, x.Start(ctx, h))
	sink := new(consumertest.TracesSink)
	jf := gpujoinprocessor.NewFactory()
	cfg := jf.CreateDefaultConfig().(*gpujoinprocessor.Config)
	cfg.Samples, cfg.Attributes = &id, spanfacts.Full
	join, err := jf.CreateTraces(ctx, processortest.NewNopSettings(jf.Type()), cfg, sink)
	require.NoError(t, err)
	require.NoError(t, join.Start(ctx, h))

	// The board's power wanders; the exporter is not reached at second 25, and the driver is loaded
	// again at second 40.
	joules := func(t float64) float64 { return 512*t + 150*7/(2*math.Pi)*(1-math.Cos(2*math.Pi*t/7)) }
	begin := time.Now().Add(-time.Minute).Truncate(time.Second)
	var at, counter []float64
	for i := range 50 {
		if i == 25 {
			continue
		}
		points := scrape(t, filepath.Join("testdata", "amd_mi300x.prom"), begin.Add(time.Duration(i)*time.Second))
		require.Greater(t, len(points), 10)
		for k := range points {
			x := &points[k]
			if x.name == "gpu_energy_consumed" && x.attrs["gpu_id"] == "0" {
				at, counter = append(at, float64(i)), append(counter, joules(float64(i)))
				x.value = math.Round(7e12 + counter[len(counter)-1]*1e6) // µJ
				if i >= 40 {
					x.value = math.Round((joules(float64(i)) - joules(40)) * 1e6)
				}
			}
		}
		require.NoError(t, x.ConsumeMetrics(ctx, batch(t, points...)))
	}
	// read is what the counter read at a time, by the line between two scrapes.
	read := func(t float64) float64 {
		i := sort.SearchFloat64s(at, t)
		return counter[i-1] + (counter[i]-counter[i-1])*(t-at[i-1])/(at[i]-at[i-1])
	}

	td := ptrace.NewTraces()
	rs := td.ResourceSpans().AppendEmpty()
	rs.Resource().Attributes().PutStr("service.name", "hip-service")
	s := rs.ScopeSpans().AppendEmpty().Spans().AppendEmpty()
	s.SetName("gemm")
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{1})
	s.SetStartTimestamp(pcommon.NewTimestampFromTime(begin.Add(20300 * time.Millisecond)))
	s.SetEndTimestamp(pcommon.NewTimestampFromTime(begin.Add(30700 * time.Millisecond)))
	require.NoError(t, s.Attributes().FromRaw(map[string]any{
		"gpu.operation.type": "section", "gpu.operation.name": "gemm", "gpu.duration": 10.4,
		"gpu.timing.source": "hip_event", "gpu.timing.status": "ok",
		"hw.id": "GPU-512e2769a3f6a69e", "hw.vendor": "AMD", "gpu.stream.id": 1, // from hipDeviceGetUuid
	}))
	require.NoError(t, join.ConsumeTraces(ctx, td))
	require.NoError(t, join.Shutdown(ctx))
	require.NoError(t, x.Shutdown(ctx))
	require.NoError(t, ext.Shutdown(ctx))
	require.Equal(t, 1, sink.SpanCount())
	a := sink.AllTraces()[0].ResourceSpans().At(0).ScopeSpans().At(0).Spans().At(0).Attributes().AsRaw()
	want := read(30.7) - read(20.3)
	stated, _ := a["gpu.energy_error"].(float64)
	assert.InDelta(t, want, a["gpu.energy"], max(stated, 0.05*want))
	assert.InEpsilon(t, joules(30.7)-joules(20.3), want, 0.02, "of the board's energy")
	assert.InDelta(t, 512, a["gpu.power"], 1e-6)
	assert.InDelta(t, 0.97, a["gpu.utilization"], 1e-9)
	assert.InDelta(t, 61, a["gpu.temperature.max"], 1e-9)
	assert.InDelta(t, 2.1e9, a["gpu.clock.sm.frequency"], 1)
}
