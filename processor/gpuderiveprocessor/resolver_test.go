// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/extension/extensiontest"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/gpuspan/peaks"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/processor/gpuderiveprocessor/internal/metadata"
)

type host struct {
	extensions map[component.ID]component.Component
}

func (h host) GetExtensions() map[component.ID]component.Component { return h.extensions }

var samplesID = component.MustNewID("gpu_samples")

// withSamples starts a deriver with a real gpu_samples extension that contains the devices.
func withSamples(t *testing.T, edit func(*Config), devices ...devicesamples.Device) *deriver {
	t.Helper()
	f := gpusamplesextension.NewFactory()
	ext, err := f.Create(context.Background(), extensiontest.NewNopSettings(f.Type()), f.CreateDefaultConfig())
	require.NoError(t, err)
	h := host{map[component.ID]component.Component{samplesID: ext}}
	require.NoError(t, ext.Start(context.Background(), h))
	t.Cleanup(func() { require.NoError(t, ext.Shutdown(context.Background())) })
	w, err := devicesamples.FindWriter(h, samplesID)
	require.NoError(t, err)
	for _, d := range devices {
		_, err := w.Register(component.MustNewID("gpu"), d)
		require.NoError(t, err)
	}
	d := newTestDeriver(t, func(c *Config) {
		c.Samples = &samplesID
		if edit != nil {
			edit(c)
		}
	})
	require.NoError(t, d.start(context.Background(), h))
	return d
}

func derivedOf(t *testing.T, d *deriver, in attrs) attrs {
	t.Helper()
	td, s := oneSpan(t, in)
	process(t, d, td)
	return gained(s, in)
}

func TestSamplesNameTheModelAndTheLimits(t *testing.T) {
	d := withSamples(t, nil, devicesamples.Device{
		ID: "GPU-aa", Model: "NVIDIA H200", Limits: devicesamples.Limits{
			PCIeBandwidth: 16e9,
			FLOPRate:      map[string]float64{"fp32": 50e12},
		},
	})
	// a bare uuid matches
	in := attrs{"gpu.operation.type": "section", "gpu.duration": 0.001, "hw.id": "aa", "gpu.io.size": 2_400_000_000}
	got := derivedOf(t, d, in)
	assert.InEpsilon(t, 0.5, got["gpu.io.utilization"], 1e-12) // 4.8e12 from the table
	assert.Equal(t, "table", got["gpu.peak.source"])

	// The negotiated link has half of a generation 4 link, so 8 GB/s is a half of it.
	got = derivedOf(t, d, with(in, attrs{
		"gpu.operation.type": "copy", "gpu.copy.direction": "host_to_device",
		"gpu.io.size": 8_000_000,
	}))
	assert.InEpsilon(t, 0.5, got["gpu.io.utilization"], 1e-12)
	assert.Equal(t, "device", got["gpu.peak.source"])

	got = derivedOf(t, d, with(in, attrs{"gpu.flop.count": 25e9, "gpu.flop.precision": "fp32"}))
	assert.InEpsilon(t, 0.5, got["gpu.flop.utilization"], 1e-12)
	assert.Equal(t, "ok", got["gpu.declaration.status"])
	got = derivedOf(t, d, with(in, attrs{"gpu.flop.count": 55e9, "gpu.flop.precision": "fp32"}))
	assert.Equal(t, "exceeds_peak", got["gpu.declaration.status"], "its FLOPs alone")
}

func TestSpansInheritTheDeviceOfTheResource(t *testing.T) {
	d := withSamples(t, nil, devicesamples.Device{ID: "GPU-aa", Model: "NVIDIA H200"},
		devicesamples.Device{ID: "GPU-bb", Model: "NVIDIA L4"})
	for _, tt := range []struct {
		own  attrs
		peak float64 // of memory
	}{{attrs{}, 4.8e12}, {attrs{"hw.id": "GPU-bb"}, 300e9}} {
		in := with(attrs{"gpu.operation.type": "section", "gpu.duration": 0.001, "gpu.io.size": 30_000_000}, tt.own)
		td, s := oneSpan(t, in)
		td.ResourceSpans().At(0).Resource().Attributes().PutStr("hw.id", "GPU-aa")
		process(t, d, td)
		assert.InEpsilon(t, 30e9/tt.peak, gained(s, in)["gpu.io.utilization"], 1e-12)
	}
}

func TestCopiesOfASuperchipDoNotUsePCIe(t *testing.T) {
	d := withSamples(t, nil,
		devicesamples.Device{
			ID: "GPU-aa", Model: "NVIDIA GH200 480GB",
			Limits: devicesamples.Limits{PCIeBandwidth: 63e9},
		},
		devicesamples.Device{
			ID: "GPU-bb", Model: "NVIDIA GB200",
			Limits: devicesamples.Limits{PCIeBandwidth: 63e9},
		})
	in := attrs{
		"gpu.operation.type": "copy", "gpu.copy.direction": "host_to_device", "gpu.duration": 0.001,
		"gpu.io.size": 225_000_000, "hw.id": "GPU-aa",
	}
	assert.InEpsilon(t, 0.5, derivedOf(t, d, in)["gpu.io.utilization"], 1e-12) // NVLink-C2C, 450e9 in one direction
	in["hw.id"] = "GPU-bb"
	assert.NotContains(t, derivedOf(t, d, in), "gpu.io.utilization")
}

func TestConfigurationOverridesTheDevice(t *testing.T) {
	d := withSamples(t, func(c *Config) { c.Peaks = []PeakConfig{{Model: "*", MemoryBandwidth: 1e12}} },
		devicesamples.Device{
			ID: "GPU-aa", Model: "NVIDIA H200", Limits: devicesamples.Limits{MemoryBandwidth: 2e12},
		})
	got := derivedOf(t, d, attrs{
		"gpu.operation.type": "section", "gpu.duration": 0.001, "hw.id": "GPU-aa",
		"gpu.io.size": 500_000_000,
	})
	assert.InEpsilon(t, 0.5, got["gpu.io.utilization"], 1e-12)
	assert.Equal(t, "config", got["gpu.peak.source"])
}

func TestMIGSharesComeFromTheSamples(t *testing.T) {
	d := withSamples(t, nil, devicesamples.Device{
		ID: "MIG-bb", Parent: "GPU-aa", Model: "NVIDIA H100 80GB HBM3",
		MIG: devicesamples.MIG{Profile: "3g.40gb", SMs: 60, BoardSMs: 132, Slices: 4, AllSlices: 8},
	}, devicesamples.Device{
		ID: "MIG-cc", Parent: "GPU-aa", Model: "NVIDIA H100 80GB HBM3", MIG: devicesamples.MIG{Profile: "2g.20gb"},
	})
	in := attrs{
		"gpu.operation.type": "section", "gpu.duration": 0.001, "hw.id": "MIG-bb", "gpu.io.size": 837_500_000,
		"gpu.flop.count": 989.5e9 * 60 / 132 / 2, "gpu.flop.precision": "bf16",
	}
	got := derivedOf(t, d, in)
	assert.InEpsilon(t, 0.5, got["gpu.io.utilization"], 1e-12) // 4 of 8 slices of 3.35e12
	assert.InEpsilon(t, 0.5, got["gpu.flop.utilization"], 1e-12)
	in["hw.id"], in["gpu.io.size"] = "MIG-cc", 418_750_000 // from the profile's name: 2 of 8 slices
	assert.InEpsilon(t, 0.5, derivedOf(t, d, in)["gpu.io.utilization"], 1e-12)
}

// Every model that MIG divides, and compute instances, have peaks from what the driver reports,
// without a table of profiles.
func TestSharesOfEveryModelComeFromTheDriver(t *testing.T) {
	for _, model := range []string{
		"NVIDIA H100 PCIe", "NVIDIA H100 NVL", "NVIDIA H200 NVL", "NVIDIA H20", "NVIDIA GH200 480GB", "NVIDIA B200", "NVIDIA GB200",
		"NVIDIA B300", "NVIDIA GB300", "NVIDIA RTX PRO 6000 Blackwell Server Edition", "NVIDIA A100-SXM4-40GB",
	} {
		row, ok := peaks.Lookup(model)
		require.True(t, ok, model)
		for _, boardSMs := range []int{0, row.SMs} {
			d := withSamples(t, nil, devicesamples.Device{
				ID: "MIG-bb", Parent: "GPU-aa", Model: model,
				MIG: devicesamples.MIG{Profile: "1c.3g.40gb", SMs: 12, BoardSMs: boardSMs, Slices: 4, AllSlices: 8},
			})
			roof := d.resolver.roof(device{id: "MIG-bb"}, 1)
			require.NotNil(t, roof, model)
			assert.InEpsilon(t, row.MemoryBandwidth/2, roof.Memory.Rate, 1e-12, model)
			assert.InEpsilon(t, row.FLOPs.BF16*12/float64(row.SMs), roof.FLOPs["bf16"].Rate, 1e-12, model)
			assert.Zero(t, roof.Interconnect.Rate, model)
		}
	}
}

func TestLimitsAreReadAgainAfterAWhile(t *testing.T) {
	d := withSamples(t, nil)
	dev := device{id: "GPU-aa"}
	assert.Nil(t, d.resolver.roof(dev, 1))
	reader := d.resolver.reader.(devicesamples.Writer)
	_, err := reader.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-aa", Model: "NVIDIA L4"})
	require.NoError(t, err)
	assert.Nil(t, d.resolver.roof(dev, 2))
	got := d.resolver.roof(dev, 1+int64(roofAge))
	require.NotNil(t, got)
	assert.Equal(t, 300e9, got.Memory.Rate)
}

func TestStartReportsAMissingExtension(t *testing.T) {
	d := newTestDeriver(t, func(c *Config) { c.Samples = &samplesID })
	err := d.start(context.Background(), componenttest.NewNopHost())
	require.ErrorContains(t, err, `cannot find extension "gpu_samples"`)
}

func TestUnknownModelsAreLoggedOnceAndMemoryIsBounded(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	r := newResolver(createDefaultConfig().(*Config), zap.New(core))
	for range 3 {
		for i := range 2 * maxRoofs {
			assert.Nil(t, r.roof(device{id: fmt.Sprint(i), model: "Voodoo 2"}, 1))
		}
	}
	assert.Equal(t, 1, logs.Len())
	assert.LessOrEqual(t, len(r.roofs), maxRoofs)
}

func TestOutcomesAreCounted(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := processortest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	cfg := createDefaultConfig().(*Config)
	cfg.Presets = []string{"obi"}
	assembling(func(a *AssembleConfig) { a.MaxSums = 1 })(cfg)
	sink := new(consumertest.TracesSink)
	p, err := NewFactory().CreateTraces(context.Background(), set, cfg, sink)
	require.NoError(t, err)
	require.NoError(t, p.Start(context.Background(), componenttest.NewNopHost()))
	for _, a := range []attrs{
		with(h100, attrs{"gpu.io.size": 1000}),
		with(h100, attrs{"gpu.io.size": 1000, "hw.model": "Voodoo 2"}),
		with(h100, attrs{"gpu.io.size": 1000, "gpu.duration": 1e-6}),
		with(h100, attrs{"gpu.io.size": 1000, "gpu.timing.status": "dropped"}),
		h100,
		{"cuda.memcpy.kind": 1, "size": 10},
		{"http.request.method": "GET"},
		{"gpu.operation.type": "step", "gpu.step.items": 4},
		{"gpu.operation.type": "step", "gpu.step.model.flop.count": 1e9},
		{"gpu.operation.type": "step"},
	} {
		td, _ := oneSpan(t, a)
		require.NoError(t, p.ConsumeTraces(context.Background(), td))
	}
	for _, n := range []node{ // the second sum evicts the first
		{2, 9, 0, 10, section("data", nil)},
		{3, 1, 0, 10, section("data", nil)},
		{1, 0, 0, 20, attrs{"gpu.operation.type": "step"}},
	} {
		td := ptrace.NewTraces()
		put(t, td, n)
		require.NoError(t, p.ConsumeTraces(context.Background(), td))
	}
	require.NoError(t, p.Shutdown(context.Background()))
	assert.Equal(t, 13, sink.SpanCount(), "nothing is lost")
	got := map[string]int64{}
	for _, name := range []string{"spans", "mapped", "unknown_peaks", "steps_assembled", "steps_evicted"} {
		m, err := tel.GetMetric("otelcol_processor_gpu_derive_" + name)
		require.NoError(t, err)
		maps.Copy(got, sumByOutcome(name, m))
	}
	assert.Equal(t, map[string]int64{
		"spans derived": 4, "spans below_floor": 1, "spans untimed": 2, "spans undeclared": 5, "mapped ": 1,
		"unknown_peaks ": 3, "steps_assembled ": 1, "steps_evicted ": 1,
	}, got)
}

func TestModelComesFromSpanThenResourceThenConfig(t *testing.T) {
	in := attrs{"gpu.operation.type": "section", "gpu.duration": 0.001, "gpu.io.size": 3_850_000_000}
	for name, tt := range map[string]struct {
		span, resource, config string
		want                   float64
	}{
		"span":     {"NVIDIA B200", "NVIDIA L4", "NVIDIA T4", 0.5},
		"resource": {"", "NVIDIA B200", "NVIDIA T4", 0.5},
		"config":   {"", "", "NVIDIA B200", 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			a := maps.Clone(in)
			if tt.span != "" {
				a["hw.model"] = tt.span
			}
			td, s := oneSpan(t, a)
			if tt.resource != "" {
				td.ResourceSpans().At(0).Resource().Attributes().PutStr("hw.model", tt.resource)
			}
			process(t, newTestDeriver(t, func(c *Config) { c.Model = tt.config }), td)
			got, _ := s.Attributes().Get("gpu.io.utilization")
			assert.InEpsilon(t, tt.want, got.Double(), 1e-12)
		})
	}
}

func TestOverridesWinFieldByField(t *testing.T) {
	d := newTestDeriver(t, func(c *Config) {
		c.Precision = "bf16"
		c.Peaks = []PeakConfig{
			{Model: "*h100*", MemoryBandwidth: 3e12, FLOPRate: map[string]float64{"bf16": 8e14}},
			{Model: "NVIDIA H100 80GB *", MemoryBandwidth: 2e12, InterconnectDevices: 16},
			{Model: "Voodoo ?", MemoryBandwidth: 1e9},
			{Model: "Rage", FLOPRate: map[string]float64{"bf16": 1e9}},
		}
	})
	in := with(h100, attrs{"gpu.io.size": 2_000_000_000, "gpu.flop.count": 8e11})
	td, s := oneSpan(t, in)
	process(t, d, td)
	got := gained(s, in)
	assert.InEpsilon(t, 0.5, got["gpu.io.utilization"], 1e-12)
	assert.InEpsilon(t, 0.5, got["gpu.flop.utilization"], 1e-12)
	assert.Equal(t, "config", got["gpu.peak.source"])

	in = with(h100, attrs{"hw.model": "Voodoo 2", "gpu.io.size": 1_000_000})
	td, s = oneSpan(t, in)
	process(t, d, td)
	assert.InEpsilon(t, 0.5, gained(s, in)["gpu.io.utilization"], 1e-12)

	in = with(h100, attrs{"hw.model": "Rage", "gpu.io.size": 1_000_000, "gpu.flop.count": 1e6})
	td, s = oneSpan(t, in)
	process(t, d, td)
	got = gained(s, in)
	assert.InEpsilon(t, 0.5, got["gpu.flop.utilization"], 1e-12)
	assert.NotContains(t, got, "gpu.roofline.bound", "without a peak of the memory")

	in = with(h100, attrs{
		"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce", "gpu.collective.group.size": 16,
		"gpu.io.size": 200_000_000,
	})
	td, s = oneSpan(t, in)
	process(t, d, td)
	assert.InEpsilon(t, 1.875e11/450e9, gained(s, in)["gpu.io.utilization"], 1e-12, "NVLink joins 16")
}

// More devices than a batch caches, in an order in which they evict each other, and one without its
// own model.
func TestEveryDeviceOfABatchHasItsOwnPeaks(t *testing.T) {
	share := map[string]float64{ // of 3.35 TB/s: the HBM3 of an H100, the HBM2e of an A100, the GDDR6 of an L4
		"NVIDIA H100 80GB HBM3": 1, "NVIDIA A100-SXM4-80GB": 3.35 / 2.039, "NVIDIA L4": 3.35 / 0.3,
	}
	models := slices.Sorted(maps.Keys(share))
	td, _ := oneSpan(t, nil)
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	spans.RemoveIf(func(ptrace.Span) bool { return true })
	const n = 100
	for i := range n {
		_, s := oneSpan(t, with(h100, attrs{
			"gpu.io.size": 3_350_000_000, "gpu.duration": 0.01, "hw.id": "GPU-" + string(rune('a'+i%11)),
			"hw.model": models[i%3],
		}))
		if i%10 == 9 {
			s.Attributes().Remove("hw.model")
		}
		s.CopyTo(spans.AppendEmpty())
	}
	process(t, newTestDeriver(t, nil), td)
	for i, s := range spans.All() {
		used, ok := s.Attributes().Get("gpu.io.utilization")
		require.Equal(t, i%10 != 9, ok, "span %d", i)
		if ok {
			require.InEpsilon(t, 0.1*share[models[i%3]], used.Double(), 1e-9, "span %d", i)
		}
	}
}
