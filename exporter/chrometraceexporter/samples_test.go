// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometraceexporter

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/exporter/chrometraceexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/spanfiles/chrometrace"
)

type hostOf map[component.ID]component.Component

func (h hostOf) GetExtensions() map[component.ID]component.Component { return h }

// TestCountersOfRingsHaveTheResolutionOfSamples has a device that is sampled every 10 ms for a
// second, and works for 100 ms of it: each power sample applies to the time since the previous one.
func TestCountersOfRingsHaveTheResolutionOfSamples(t *testing.T) {
	const interval = 10 * time.Millisecond
	id := component.MustNewID("gpu_samples")
	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(t.Context(), extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(t, err)
	require.NoError(t, ext.Start(t.Context(), componenttest.NewNopHost()))
	t.Cleanup(func() { assert.NoError(t, ext.Shutdown(context.Background())) })
	device, err := ext.(devicesamples.Writer).Register(component.MustNewID("gpu"), devicesamples.Device{
		ID: "GPU-74e128b2-90b6-b409-07c8-33bee5ff6f88", Name: "gpu0", Interval: interval,
	})
	require.NoError(t, err)
	base := time.Now().Add(-2 * time.Second).Truncate(interval).UnixNano()
	at := func(i int) int64 { return base + int64(i)*int64(interval) }
	sample := func(from, to int) {
		var list []devicesamples.Sample
		for i := from; i < to; i++ {
			s := devicesamples.Sample{Time: at(i)}
			s.Set(devicesamples.Power, float64(100+i))
			s.Set(devicesamples.SMUtilization, float64(i)/100)
			s.Set(devicesamples.Temperature, 50) // is not among the counters
			list = append(list, s)
		}
		device.Write(list)
	}
	sample(0, 46)

	cfg := createDefaultConfig().(*Config)
	cfg.Path, cfg.Samples = filepath.Join(t.TempDir(), "trace.json"), &id
	tr, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, tr.Start(t.Context(), hostOf{id: ext}))
	work := func(from, to int64) ptrace.Traces {
		td := ptrace.NewTraces()
		s := td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty()
		s.SetName("kernel")
		s.SetTraceID([16]byte{1})
		s.SetSpanID([8]byte{1})
		s.SetStartTimestamp(pcommon.Timestamp(from))
		s.SetEndTimestamp(pcommon.Timestamp(to))
		s.Attributes().PutStr("gpu.operation.type", "kernel")
		s.Attributes().PutStr("hw.id", "GPU-74e128b2-90b6-b409-07c8-33bee5ff6f88")
		return td
	}
	require.NoError(t, tr.ConsumeTraces(t.Context(), work(at(40)+1, at(45))))
	require.NoError(t, tr.ConsumeTraces(t.Context(), work(at(45), at(50))))
	sample(46, 100) // later samples are drawn at the end, while the device worked
	require.NoError(t, tr.Shutdown(t.Context()))

	drawn := map[string]map[int]float64{}
	file := read(t, cfg.Path)
	for _, e := range file.Of("C") {
		if drawn[e.Name] == nil {
			drawn[e.Name] = map[int]float64{}
		}
		for _, v := range e.Args {
			i := math.Round(float64(file.Base+e.Time-base) / float64(interval))
			drawn[e.Name][int(i)] = math.Round(v.(float64)*100) / 100
		}
	}
	power, busy := map[int]float64{}, map[int]float64{}
	for i := 40; i <= 51; i++ { // from the sample before the first span to the one after the last
		power[i-1], busy[i-1] = float64(100+i), float64(i)/100
	}
	assert.Equal(t, map[string]map[int]float64{"hw.power": power, "gpu.sm.utilization": busy}, drawn)
}

func TestMissingSamplesExtensionFailsTheStart(t *testing.T) {
	id := component.MustNewID("gpu_samples")
	cfg := createDefaultConfig().(*Config)
	cfg.Path, cfg.Samples = filepath.Join(t.TempDir(), "trace.json"), &id
	tr, err := NewFactory().CreateTraces(t.Context(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.ErrorContains(t, tr.Start(t.Context(), componenttest.NewNopHost()), `cannot find extension "gpu_samples"`)
	require.NoError(t, tr.Shutdown(t.Context()))
}

// A monotonic sum would be a meaningless line; one that rises and falls is useful.
func TestMonotonicSumsAreNotDrawn(t *testing.T) {
	md := pmetric.NewMetrics()
	list := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
	for name, rises := range map[string]bool{"hw.energy": true, "hw.gpu.memory.usage": false} {
		m := list.AppendEmpty()
		m.SetName(name)
		m.SetEmptySum().SetIsMonotonic(rises)
		p := m.Sum().DataPoints().AppendEmpty()
		p.SetIntValue(7)
		p.Attributes().PutStr("hw.id", "GPU-1")
	}
	var b builder
	b.metrics(md, map[string]bool{"hw.energy": true, "hw.gpu.memory.usage": true})
	require.Len(t, b.counters, 1)
	assert.Equal(t, "hw.gpu.memory.usage", b.counters[0].Name)
}

func TestDevicesWhoseSamplesAreDrawnAreBounded(t *testing.T) {
	r := rings{
		samples: devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil), latest: map[string]int64{},
		drawn: map[ring]int64{},
	}
	events := make([]chrometrace.Event, 3*maxDevices)
	for i := range events {
		events[i] = chrometrace.Event{Device: fmt.Sprint("GPU-", i), Start: 1, End: 2}
	}
	assert.Empty(t, r.spans(events, nil))
	assert.Len(t, r.latest, maxDevices)
}
