// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"bufio"
	"context"
	"errors"
	"maps"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/exporter"
	"go.opentelemetry.io/collector/exporter/exportertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"

	"github.com/otelgpu/otelgpu/exporter/gpusamplesexporter/internal/metadata"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

type host struct {
	component.Host
	store *devicesamples.Store
}

type extension struct{ *devicesamples.Store }

func (extension) Start(context.Context, component.Host) error { return nil }
func (extension) Shutdown(context.Context) error              { return nil }

func (h host) GetExtensions() map[component.ID]component.Component {
	return map[component.ID]component.Component{component.MustNewID("gpu_samples"): extension{h.store}}
}

func start(t *testing.T, cfg *Config) (exporter.Metrics, *devicesamples.Store) {
	t.Helper()
	require.NoError(t, cfg.Validate())
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	x, err := NewFactory().CreateMetrics(context.Background(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.NoError(t, x.Start(context.Background(), host{componenttest.NewNopHost(), store}))
	t.Cleanup(func() { require.NoError(t, x.Shutdown(context.Background())) })
	return x, store
}

// point is one data point of a batch.
type point struct {
	name  string
	at    time.Time
	value float64
	attrs map[string]any
	delta bool
	sum   bool
	since time.Time // start of the sum
}

func batch(t *testing.T, points ...point) pmetric.Metrics {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "dcgm")
	ms := rm.ScopeMetrics().AppendEmpty().Metrics()
	for _, p := range points {
		m := ms.AppendEmpty()
		m.SetName(p.name)
		var dp pmetric.NumberDataPoint
		if p.sum || p.delta {
			s := m.SetEmptySum()
			s.SetIsMonotonic(true)
			s.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			if p.delta {
				s.SetAggregationTemporality(pmetric.AggregationTemporalityDelta)
			}
			dp = s.DataPoints().AppendEmpty()
		} else {
			dp = m.SetEmptyGauge().DataPoints().AppendEmpty()
		}
		dp.SetTimestamp(pcommon.NewTimestampFromTime(p.at))
		if !p.since.IsZero() {
			dp.SetStartTimestamp(pcommon.NewTimestampFromTime(p.since))
		}
		dp.SetDoubleValue(p.value)
		require.NoError(t, dp.Attributes().FromRaw(p.attrs))
	}
	return md
}

var (
	promLine  = regexp.MustCompile(`^(\w+)\{(.*)\} (\S+)$`)
	promLabel = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// scrape returns a page of dcgm-exporter as the prometheus receiver passes it on.
func scrape(t *testing.T, path string, at time.Time) (points []point) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := promLine.FindStringSubmatch(lines.Text())
		if m == nil {
			continue
		}
		attrs := map[string]any{}
		for _, l := range promLabel.FindAllStringSubmatch(m[2], -1) {
			attrs[l[1]] = l[2]
		}
		v, err := strconv.ParseFloat(m[3], 64)
		require.NoError(t, err)
		points = append(points, point{name: m[1], at: at, value: v, attrs: attrs, sum: strings.Contains(m[1], "ENERGY")})
	}
	return points
}

func TestARealScrapeOfDCGMExporterBecomesSamples(t *testing.T) {
	path := recorded.Path(t, "dcgm/dcgm-exporter_t4_driver460.prom")
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute).Truncate(time.Millisecond)
	points := scrape(t, path, at)
	require.NotEmpty(t, points)
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
	// The next scrape: 30 s later, 300 J more.
	for i := range points {
		points[i].at = at.Add(30 * time.Second)
		if points[i].name == "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" {
			points[i].value += 300_000
		}
	}
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))

	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-20c56d28-0da5-6d26-a36a-e7af1ce2586e")
	require.True(t, ok)
	desc := d.Device()
	assert.Equal(t, "Tesla T4", desc.Model)
	assert.Equal(t, "gpu0", desc.Name)
	assert.Equal(t, "460.106.00", desc.DriverVersion)
	assert.Equal(t, "424773df46e0", desc.HostName)
	assert.Equal(t, "dcgm", desc.Source)
	a, b := at.UnixNano(), at.Add(30*time.Second).UnixNano()
	for f, want := range map[devicesamples.Field]float64{
		devicesamples.Power:       8.969,
		devicesamples.Temperature: 25,
		devicesamples.ClockSM:     300e6,
		devicesamples.ClockMemory: 405e6,
		devicesamples.Utilization: 0,
	} {
		got, coverage := d.Mean(f, a, b)
		assert.Equal(t, 1.0, coverage, f.String())
		assert.InDelta(t, want, got, 1e-9*max(1, want), f.String())
	}
	joules, _ := d.Integral(devicesamples.Energy, a, b)
	assert.InDelta(t, 300, joules, 1e-6)
}

// TestTheDefaultFieldsOfDCGMExporterAreKnown compares the table with the exporter's own list.
func TestTheDefaultFieldsOfDCGMExporterAreKnown(t *testing.T) {
	f, err := os.Open(recorded.Path(t, "dcgm/dcgm-exporter-default-counters.csv"))
	require.NoError(t, err)
	defer f.Close()
	noSample := map[string]bool{ // not applicable to a span
		"DCGM_FI_DEV_MEMORY_TEMP": true, "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": true, "DCGM_FI_DEV_MEM_COPY_UTIL": true,
		"DCGM_FI_DEV_ENC_UTIL": true, "DCGM_FI_DEV_DEC_UTIL": true, "DCGM_FI_DEV_FB_FREE": true,
		"DCGM_FI_DEV_FB_RESERVED":            true,
		"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": true, // no direction
		"DCGM_FI_DEV_VGPU_LICENSE_STATUS":    true, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": true,
		"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": true, "DCGM_FI_DEV_ROW_REMAP_FAILURE": true,
	}
	known := 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, rest, ok := strings.Cut(lines.Text(), ",")
		name = strings.TrimSpace(name)
		if !ok || strings.HasPrefix(name, "#") || strings.HasPrefix(strings.TrimSpace(rest), "label") {
			continue
		}
		_, ok = rulesOf(name)
		assert.NotEqual(t, ok, noSample[name], name)
		if ok {
			known++
		}
	}
	assert.GreaterOrEqual(t, known, 12)
}

func TestInstancesOfDCGMExporterHaveTheirBoardAsParent(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Instances = map[string]string{"GPU-1/7": "MIG-aaaa"}
	x, store := start(t, cfg)
	at := time.Now().Add(-time.Second)
	mig := func(id string) map[string]any {
		return map[string]any{
			"UUID": "GPU-1", "gpu": "0", "modelName": "NVIDIA H100", "GPU_I_ID": id,
			"GPU_I_PROFILE": "1g.10gb",
		}
	}
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t,
		point{name: "DCGM_FI_DEV_POWER_USAGE", at: at, value: 400, attrs: map[string]any{"UUID": "GPU-1", "gpu": "0"}},
		point{name: "DCGM_FI_PROF_SM_ACTIVE", at: at, value: 0.5, attrs: mig("7")},
		point{name: "DCGM_FI_PROF_SM_ACTIVE", at: at, value: 0.75, attrs: mig("8")},
	)))
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("MIG-aaaa")
	require.True(t, ok)
	assert.Equal(t, "GPU-1", d.Device().Parent)
	assert.Equal(t, "1g.10gb", d.Device().MIG.Profile)
	assert.Equal(t, "gpu0:7", d.Device().Name)
	sm, ok := d.Value(devicesamples.SMUtilization, at.UnixNano())
	require.True(t, ok)
	assert.Equal(t, 0.5, sm)
	assert.False(t, d.Has(devicesamples.Power))
	board, ok := d.Board()
	require.True(t, ok)
	assert.True(t, board.Has(devicesamples.Power))
	_, ok = v.Lookup("MIG-GPU-1/8/0")
	assert.True(t, ok)
}

func TestSemanticConventionMetricsBecomeSamples(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	id := func(more ...string) map[string]any {
		m := map[string]any{"hw.id": "GPU-2", "hw.vendor": "AMD", "gpu.measurement.source": "nvml"}
		for i := 0; i < len(more); i += 2 {
			m[more[i]] = more[i+1]
		}
		return m
	}
	for i := range 3 {
		now := at.Add(time.Duration(i) * time.Second)
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t,
			point{name: "hw.energy", at: now, value: 10, delta: true, attrs: id()},
			point{name: "hw.gpu.utilization", at: now, value: 0.5, attrs: id("hw.gpu.task", "general")},
			point{name: "hw.gpu.utilization", at: now, value: 0.9, attrs: id("hw.gpu.task", "encoder")},
			point{name: "gpu.clock.frequency", at: now, value: 1e9, attrs: id("gpu.clock.type", "memory")},
			point{
				name: "gpu.pcie.io", at: now, value: float64(1000 * i), sum: true,
				attrs: id("network.io.direction", "transmit"),
			},
			point{name: "hw.gpu.utilization", at: now, value: 0.9, attrs: map[string]any{}},
			point{name: "system.cpu.time", at: now, value: 1, attrs: id()},
		)))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-2")
	require.True(t, ok)
	assert.Equal(t, "AMD", d.Device().Vendor)
	assert.Equal(t, "nvml", d.Device().Source)
	a, b := at.UnixNano(), at.Add(2*time.Second).UnixNano()
	joules, _ := d.Integral(devicesamples.Energy, a, b)
	assert.InDelta(t, 20, joules, 1e-9)
	util, _ := d.Mean(devicesamples.Utilization, a, b)
	assert.InDelta(t, 0.5, util, 1e-12)
	bytes, _ := d.Integral(devicesamples.PCIeTransmit, a, b)
	assert.InDelta(t, 2000, bytes, 1e-6)
	assert.True(t, d.Has(devicesamples.ClockMemory))
	assert.False(t, d.Has(devicesamples.ClockSM))
}

// Points in any order, in one batch and over several: 1000 J in each second, 4000 J in all.
func TestPointsOutOfOrderInventNoEnergy(t *testing.T) {
	for _, batches := range [][][]int{{{0}, {1}, {3}, {2}, {4}}, {{0, 1, 3, 2, 4}}, {{0, 1}, {3, 2}, {2, 4, 4}}} {
		x, store := start(t, createDefaultConfig().(*Config))
		at := time.Now().Add(-time.Minute)
		for _, b := range batches {
			var points []point
			for _, i := range b {
				points = append(points, point{
					name: "hw.energy", at: at.Add(time.Duration(i) * time.Second), value: 7000 + 1000*float64(i), sum: true,
					attrs: map[string]any{"hw.id": "GPU-5"},
				})
			}
			require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, points...)))
		}
		v := store.Acquire()
		d, ok := v.Lookup("GPU-5")
		require.True(t, ok)
		a := at.UnixNano()
		for i, want := range map[int]float64{1: 1000, 4: 4000} {
			joules, _ := d.Integral(devicesamples.Energy, a, a+int64(i)*int64(time.Second))
			assert.InDelta(t, want, joules, 1e-9, "%v to %d s", batches, i)
		}
		v.Release()
	}
}

// An invalid value, such as infinity, a negative number or DCGM's value for "unknown", does not
// affect later values.
func TestOneAbsurdValueSpoilsNoSum(t *testing.T) {
	for _, absurd := range []float64{math.Inf(1), math.Inf(-1), math.NaN(), -5, 0x7ffffffffffffff0} {
		for name, scale := range map[string]float64{"hw.energy": 1, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": 1e3} {
			x, store := start(t, createDefaultConfig().(*Config))
			at := time.Now().Add(-time.Minute)
			for i, v := range []float64{100, 101, absurd, 102, 103.1} {
				if i != 2 {
					v *= scale
				}
				require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, point{
					name: name, at: at.Add(time.Duration(i) * time.Second), value: v, sum: true,
					attrs: map[string]any{"hw.id": "GPU-7"},
				})))
			}
			v := store.Acquire()
			d, ok := v.Lookup("GPU-7")
			require.True(t, ok)
			joules, _ := d.Integral(devicesamples.Energy, at.UnixNano(), at.Add(4*time.Second).UnixNano())
			assert.InDelta(t, 3.1, joules, 1e-9, "%s, %g", name, absurd)
			v.Release()
		}
	}
}

// The counter was reset 200 ms after its value of 250 J, and has exceeded that value since.
func TestARestartIsSeenByTheStartTimeAlone(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	for i, p := range []struct {
		since, value float64 // s, J
	}{{0, 100}, {0, 250}, {1.2, 300}} {
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, point{
			name: "hw.energy", at: at.Add(time.Duration(i) * time.Second), value: p.value, sum: true,
			since: at.Add(time.Duration(p.since * 1e9)), attrs: map[string]any{"hw.id": "GPU-6"},
		})))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-6")
	require.True(t, ok)
	joules, _ := d.Integral(devicesamples.Energy, at.UnixNano(), at.Add(2*time.Second).UnixNano())
	assert.InDelta(t, 450, joules, 1e-9)
}

// A device with two metrics for one field has only the values of the better one, in any order of
// arrival.
func TestTwoMetricsOfOneFieldAreNotMixed(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	id := map[string]any{"UUID": "GPU-7", "gpu": "0"}
	for i := range 3 {
		now := at.Add(time.Duration(i) * time.Second)
		mean := point{name: "DCGM_FI_DEV_POWER_USAGE", at: now, value: 900, attrs: id}
		instant := point{name: "DCGM_FI_DEV_POWER_USAGE_INSTANT", at: now, value: 300, attrs: id}
		graphics := point{name: "DCGM_FI_PROF_GR_ENGINE_ACTIVE", at: now, value: 0.25, attrs: id}
		percent := point{name: "DCGM_FI_DEV_GPU_UTIL", at: now, value: 50, attrs: id}
		order := []point{mean, instant, percent, graphics}
		if i == 1 {
			order = []point{instant, mean, graphics, percent}
		}
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, order...)))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-7")
	require.True(t, ok)
	for i := range 3 {
		now := at.Add(time.Duration(i) * time.Second).UnixNano()
		watts, _ := d.Value(devicesamples.Power, now)
		assert.Equal(t, 300.0, watts, i)
		busy, _ := d.Value(devicesamples.Utilization, now)
		assert.Equal(t, 0.5, busy, i)
	}
}

// A rate is in bytes per second since the previous point; over a much longer gap it is unknown.
func TestARateIsIntegratedOverTheGapBeforeIt(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	for _, p := range []struct{ at, rate float64 }{{0, 1e6}, {1, 100}, {2.5, 200}, {3.5, 400}} {
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, point{
			name: "DCGM_FI_PROF_NVLINK_TX_BYTES", at: at.Add(time.Duration(p.at * 1e9)), value: p.rate,
			attrs: map[string]any{"UUID": "GPU-8"},
		})))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-8")
	require.True(t, ok)
	bytes, _ := d.Integral(devicesamples.NVLinkTransmit, at.UnixNano(), at.Add(3500*time.Millisecond).UnixNano())
	assert.InDelta(t, 100+1.5*200+400, bytes, 1e-6)
}

// Each metric has one value for two seconds, or increases by it in the second one.
func TestEveryMetricIsInTheUnitsOfItsField(t *testing.T) {
	const plain, grows = false, true
	for name, tt := range map[string]struct {
		value float64
		grows bool
		field devicesamples.Field
		want  float64 // the mean
		attrs map[string]any
	}{
		"DCGM_FI_DEV_GPU_UTIL":                       {40, plain, devicesamples.Utilization, 0.4, nil},
		"DCGM_FI_DEV_GPU_UTIL_RATIO":                 {40, plain, devicesamples.Utilization, 0.4, nil},
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE":              {0.4, plain, devicesamples.Utilization, 0.4, nil},
		"DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO":          {0.4, plain, devicesamples.Utilization, 0.4, nil},
		"DCGM_FI_DEV_POWER_USAGE_INSTANT":            {300, plain, devicesamples.Power, 300, nil},
		"DCGM_FI_DEV_BOARD_POWER_RAW_WATTS":          {300, plain, devicesamples.Power, 300, nil},
		"DCGM_FI_DEV_POWER_USAGE":                    {300, plain, devicesamples.Power, 300, nil},
		"DCGM_FI_DEV_BOARD_POWER_WATTS":              {300, plain, devicesamples.Power, 300, nil},
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION":       {300_000, grows, devicesamples.Energy, 300, nil},
		"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION_total": {300_000, grows, devicesamples.Energy, 300, nil}, // Prometheus
		"DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL":        {300, grows, devicesamples.Energy, 300, nil},
		"DCGM_FI_DEV_GPU_TEMP":                       {60, plain, devicesamples.Temperature, 60, nil},
		"DCGM_FI_DEV_SM_CLOCK":                       {1980, plain, devicesamples.ClockSM, 1.98e9, nil},
		"DCGM_FI_DEV_MEM_CLOCK":                      {2619, plain, devicesamples.ClockMemory, 2.619e9, nil},
		"DCGM_FI_DEV_SM_CLOCK_HERTZ":                 {1.98e9, plain, devicesamples.ClockSM, 1.98e9, nil},
		"DCGM_FI_DEV_MEMORY_CLOCK_HERTZ":             {2.619e9, plain, devicesamples.ClockMemory, 2.619e9, nil},
		"DCGM_FI_DEV_FB_USED":                        {3, plain, devicesamples.MemoryUsed, 3 << 20, nil},
		"DCGM_FI_PROF_SM_ACTIVE":                     {0.4, plain, devicesamples.SMUtilization, 0.4, nil},
		"DCGM_FI_PROF_SM_UTIL_RATIO":                 {0.4, plain, devicesamples.SMUtilization, 0.4, nil},
		"DCGM_FI_PROF_SM_OCCUPANCY":                  {0.4, plain, devicesamples.SMOccupancy, 0.4, nil},
		"DCGM_FI_PROF_SM_OCCUPANCY_RATIO":            {0.4, plain, devicesamples.SMOccupancy, 0.4, nil},
		"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":            {0.4, plain, devicesamples.TensorUtilization, 0.4, nil},
		"DCGM_FI_PROF_TENSOR_UTIL_RATIO":             {0.4, plain, devicesamples.TensorUtilization, 0.4, nil},
		"DCGM_FI_PROF_DRAM_ACTIVE":                   {0.4, plain, devicesamples.DRAMUtilization, 0.4, nil},
		"DCGM_FI_PROF_DRAM_UTIL_RATIO":               {0.4, plain, devicesamples.DRAMUtilization, 0.4, nil},
		"DCGM_FI_PROF_PCIE_TX_BYTES":                 {1e9, plain, devicesamples.PCIeTransmit, 1e9, nil},
		"DCGM_FI_PROF_PCIE_RX_BYTES":                 {1e9, plain, devicesamples.PCIeReceive, 1e9, nil},
		"DCGM_FI_PROF_PCIE_TX_BYTES_TOTAL":           {1e9, grows, devicesamples.PCIeTransmit, 1e9, nil},
		"DCGM_FI_PROF_PCIE_RX_BYTES_TOTAL":           {1e9, grows, devicesamples.PCIeReceive, 1e9, nil},
		"DCGM_FI_PROF_NVLINK_TX_BYTES":               {1e9, plain, devicesamples.NVLinkTransmit, 1e9, nil},
		"DCGM_FI_PROF_NVLINK_RX_BYTES":               {1e9, plain, devicesamples.NVLinkReceive, 1e9, nil},

		"hw.energy":              {300, grows, devicesamples.Energy, 300, nil},
		"hw.power":               {300, plain, devicesamples.Power, 300, nil},
		"hw.temperature":         {60, plain, devicesamples.Temperature, 60, nil},
		"hw.gpu.utilization":     {0.4, plain, devicesamples.Utilization, 0.4, nil},
		"hw.gpu.memory.usage":    {4096, plain, devicesamples.MemoryUsed, 4096, nil},
		"gpu.sm.utilization":     {0.4, plain, devicesamples.SMUtilization, 0.4, nil},
		"gpu.sm.occupancy":       {0.4, plain, devicesamples.SMOccupancy, 0.4, nil},
		"gpu.tensor.utilization": {0.4, plain, devicesamples.TensorUtilization, 0.4, nil},
		"gpu.dram.utilization":   {0.4, plain, devicesamples.DRAMUtilization, 0.4, nil},
		"gpu.clock.frequency": {
			2.619e9, plain, devicesamples.ClockMemory, 2.619e9, map[string]any{"gpu.clock.type": "memory"},
		},
		"gpu.pcie.io": {1e9, grows, devicesamples.PCIeReceive, 1e9, map[string]any{"network.io.direction": "receive"}},
		"gpu.nvlink.io": {
			1e9, grows, devicesamples.NVLinkTransmit, 1e9, map[string]any{"network.io.direction": "transmit"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, store := start(t, createDefaultConfig().(*Config))
			at := time.Now().Add(-time.Minute)
			attrs := map[string]any{"hw.id": "GPU-1"}
			maps.Copy(attrs, tt.attrs)
			value := tt.value
			for i := range 2 {
				if tt.grows {
					value = tt.value * float64(5+i)
				}
				require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t, point{
					name: name, at: at.Add(time.Duration(i) * time.Second), value: value, attrs: attrs, sum: tt.grows,
				})))
			}
			v := store.Acquire()
			defer v.Release()
			d, ok := v.Lookup("GPU-1")
			require.True(t, ok)
			mean, known := d.Mean(tt.field, at.UnixNano(), at.Add(time.Second).UnixNano())
			assert.Equal(t, 1.0, known)
			assert.InEpsilon(t, tt.want, mean, 1e-9)
		})
	}
}

func TestAnXIDIsAnEventWhenItChanges(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	for i, code := range []float64{31, 31, 79, 79} {
		require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t,
			point{
				name: "DCGM_FI_DEV_XID_ERRORS", at: at.Add(time.Duration(i) * time.Second), value: code,
				attrs: map[string]any{"UUID": "GPU-3"},
			})))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-3")
	require.True(t, ok)
	events := d.Events(0, time.Now().UnixNano(), nil)
	require.Len(t, events, 1, "the time of the first value is unknown")
	assert.Equal(t, int64(79), events[0].Code)
	assert.Equal(t, at.Add(2*time.Second).UnixNano(), events[0].Time)
}

func TestPointsAreCountedByOutcome(t *testing.T) {
	tel := componenttest.NewTelemetry()
	t.Cleanup(func() { require.NoError(t, tel.Shutdown(context.Background())) })
	set := exportertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	x, err := NewFactory().CreateMetrics(context.Background(), set, createDefaultConfig())
	require.NoError(t, err)
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	require.NoError(t, x.Start(context.Background(), host{componenttest.NewNopHost(), store}))
	at, gpu := time.Now().Add(-time.Minute), map[string]any{"hw.id": "GPU-1"}
	md := batch(t,
		point{name: "hw.power", at: at, value: 300, attrs: gpu},
		point{name: "hw.energy", at: at, value: 300, attrs: gpu, sum: true},
		point{name: "hw.energy", at: at.Add(-time.Second), value: 200, attrs: gpu, sum: true},
		point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"x": "y"}},
		point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": "GPU-\xff"}},
		point{name: "hw.power", at: at, value: math.NaN(), attrs: gpu},
		point{name: "hw.fan.speed", at: at, value: 1, attrs: gpu},
		point{name: "hw.gpu.utilization", at: at, value: 1, attrs: with(gpu, "hw.gpu.task", "encoder")})
	h := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().AppendEmpty()
	h.SetName("latency")
	h.SetEmptyHistogram().DataPoints().AppendEmpty()
	require.NoError(t, x.ConsumeMetrics(context.Background(), md))
	require.NoError(t, x.Shutdown(context.Background()))
	m, err := tel.GetMetric("otelcol_exporter_gpu_samples_points")
	require.NoError(t, err)
	got := map[string]int64{}
	for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
		v, _ := p.Attributes.Value("outcome")
		got[v.AsString()] = p.Value
	}
	assert.Equal(t, map[string]int64{
		"written": 2, "out_of_order": 1, "no_device": 2, "no_value": 1, "unknown_metric": 3,
	}, got)
}

func with(base map[string]any, key, value string) map[string]any {
	out := maps.Clone(base)
	out[key] = value
	return out
}

func TestADeviceOfAnotherWriterIsRefusedNotMixed(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	_, err := store.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-4"})
	require.NoError(t, err)
	at := time.Now()
	require.NoError(t, x.ConsumeMetrics(context.Background(), batch(t,
		point{name: "hw.power", at: at, value: 1, attrs: map[string]any{"hw.id": "GPU-4"}})))
	v := store.Acquire()
	defer v.Release()
	d, _ := v.Lookup("GPU-4")
	assert.False(t, d.Has(devicesamples.Power))
}

// refusing is an extension that rejects every device.
type refusing struct {
	devicesamples.UseWriter
	devicesamples.Contradictions
	asked int
}

func (r *refusing) Register(component.ID, devicesamples.Device) (devicesamples.DeviceWriter, error) {
	r.asked++
	return nil, errors.New("no")
}

func TestADeviceThatIsRefusedIsRetriedEachMinute(t *testing.T) {
	var r refusing
	x := &writer{logger: zap.NewNop(), out: &r, devices: map[string]*device{}}
	now := time.Now()
	for i := range 100 {
		x.device(devicesamples.Device{ID: "GPU-4"}, now.Add(time.Duration(i)*time.Second))
	}
	assert.Equal(t, 2, r.asked)
}

func TestADeviceWithoutPointsIsDropped(t *testing.T) {
	tel := exportertest.NewNopSettings(metadata.Type)
	x, err := newWriter(createDefaultConfig().(*Config), tel)
	require.NoError(t, err)
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	require.NoError(t, x.start(t.Context(), host{componenttest.NewNopHost(), store}))
	x.device(devicesamples.Device{ID: "GPU-4"}, time.Now().Add(-time.Hour))
	require.NoError(t, x.consume(t.Context(), pmetric.NewMetrics()))
	_, err = store.Register(component.MustNewID("gpu"), devicesamples.Device{ID: "GPU-4"})
	assert.NoError(t, err, "another may write it")
	require.NoError(t, x.shutdown(t.Context()))
}

func TestADeviceHasItsNewestDescription(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	for i, name := range []string{"gpu0", "gpu3"} { // renumbered
		require.NoError(t, x.ConsumeMetrics(t.Context(), batch(t, point{
			name: "hw.power", at: time.Now().Add(time.Duration(i-2) * time.Second), value: 1,
			attrs: map[string]any{"hw.id": "GPU-4", "hw.name": name},
		})))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-4")
	require.True(t, ok)
	assert.Equal(t, "gpu3", d.Device().Name)
	assert.Len(t, d.Times(devicesamples.Power, 0, math.MaxInt64, nil), 2)
}

// Bit 0 means idle. NVML's header reserves the right to add reasons, whose bits are kept.
func TestEveryReasonButIdleThrottles(t *testing.T) {
	for _, x := range []struct {
		written any
		want    uint64
	}{
		{float64(1<<40 | 0x20 | 1), 1<<40 | 0x20},
		{float64(512), 512},
		{float64(1024 | 1), 1024},
		{int64(1<<62 | 4), 4}, // a float64 does not hold both
		{int64(math.MinInt64), 1 << 63},
		{float64(math.MinInt64), 1 << 63},
		{float64(1), 0},
	} {
		exp, store := start(t, createDefaultConfig().(*Config))
		at := time.Now().Add(-time.Minute)
		for i := range 2 {
			md := batch(t, point{
				name: "DCGM_FI_DEV_CLOCKS_EVENT_REASONS", at: at.Add(time.Duration(i) * time.Second),
				attrs: map[string]any{"UUID": "GPU-3"},
			})
			p := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0).Gauge().DataPoints().At(0)
			if n, ok := x.written.(int64); ok {
				p.SetIntValue(n)
			} else {
				p.SetDoubleValue(x.written.(float64))
			}
			require.NoError(t, exp.ConsumeMetrics(t.Context(), md))
		}
		v := store.Acquire()
		d, _ := v.Lookup("GPU-3")
		assert.Equal(t, x.want, d.Mask(devicesamples.Throttle, 0, math.MaxInt64), x.written)
		v.Release()
	}
}

// Prometheus marks a series that has disappeared from a target with a point without a value, which
// still contains a number.
func TestAPointWithoutAValueIsNoSample(t *testing.T) {
	x, store := start(t, createDefaultConfig().(*Config))
	at := time.Now().Add(-time.Minute)
	md := batch(t, point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": "GPU-4"}},
		point{name: "hw.power", at: at.Add(time.Second), attrs: map[string]any{"hw.id": "GPU-4"}})
	stale := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Gauge().DataPoints().At(0)
	stale.SetFlags(stale.Flags().WithNoRecordedValue(true))
	require.NoError(t, x.ConsumeMetrics(t.Context(), md))
	v := store.Acquire()
	defer v.Release()
	d, _ := v.Lookup("GPU-4")
	assert.Equal(t, []int64{at.UnixNano()}, d.Times(devicesamples.Power, 0, math.MaxInt64, nil))
}

func TestStartFailsWithoutTheExtension(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	x, err := NewFactory().CreateMetrics(context.Background(), exportertest.NewNopSettings(metadata.Type), cfg)
	require.NoError(t, err)
	require.EqualError(t, x.Start(context.Background(), componenttest.NewNopHost()),
		"cannot find extension \"gpu_samples\" (define it under `extensions` and list it under `service::extensions`)")
	require.NoError(t, x.Shutdown(context.Background()))
}

// countingWriter counts how often devices are registered.
type countingWriter struct {
	devicesamples.Writer
	registered int
}

func (c *countingWriter) Register(owner component.ID, d devicesamples.Device) (devicesamples.DeviceWriter, error) {
	c.registered++
	return c.Writer.Register(owner, d)
}

// In the semantic conventions, hw.power has fewer device attributes than hw.gpu.utilization.
func TestDeviceAttributesOfOneMetricAreKept(t *testing.T) {
	x, err := newWriter(createDefaultConfig().(*Config), exportertest.NewNopSettings(metadata.Type))
	require.NoError(t, err)
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	out := &countingWriter{Writer: store}
	x.out = out
	full := map[string]any{"hw.id": "GPU-a", "hw.model": "H100", "hw.name": "gpu3", "gpu.device.ordinal": 3}
	for i := range 5 {
		at := time.Now().Add(time.Duration(i-10) * time.Second)
		require.NoError(t, x.consume(t.Context(), batch(t,
			point{name: "hw.gpu.utilization", at: at, value: 0.5, attrs: full},
			point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": "GPU-a"}},
		)))
	}
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-a")
	require.True(t, ok)
	assert.Equal(t, "H100", d.Device().Model)
	assert.Equal(t, "gpu3", d.Device().Name)
	assert.Equal(t, 3, d.Device().Ordinal)
	assert.Equal(t, 1, out.registered)
}

// A histogram of a server has what the catalogue names of its sum and of its count.
func TestHistogramsOfServersAreRead(t *testing.T) {
	for name, want := range map[string]float64{
		"dynamo_component_request_duration_seconds": 15, "vllm:request_decode_time_seconds": 8.5,
	} {
		m := pmetric.NewMetric()
		m.SetName(name)
		p := m.SetEmptyHistogram().DataPoints().AppendEmpty()
		p.SetTimestamp(1)
		p.SetCount(15)
		p.SetSum(8.5)
		p.Attributes().PutStr("dynamo_endpoint", "generate")
		var from origin
		var counts [numOutcomes]int64
		(&writer{}).metric(m, &from, &counts)
		require.Len(t, from.server, 1)
		values := from.server[1].Values()
		require.Len(t, values, 1)
		assert.Equal(t, want, values[0].Value)
		assert.EqualValues(t, 1, counts[written])
	}
}
