// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component/componentstatus"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
	"github.com/otelgpu/otelgpu/semconv"
)

var t0 = time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)

// at returns t0 plus ms milliseconds, in Unix ns.
func at(ms int) int64 { return t0.Add(time.Duration(ms) * time.Millisecond).UnixNano() }

func testReceiver(t *testing.T, change func(*Config)) (*gpuReceiver, *consumertest.LogsSink) {
	t.Helper()
	cfg := createDefaultConfig().(*Config)
	if change != nil {
		change(cfg)
	}
	require.NoError(t, cfg.Validate())
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(t, err)
	logs := &consumertest.LogsSink{}
	r.nextLogs = logs
	r.host = host{name: "n1", id: "h1"}
	t.Cleanup(func() { require.NoError(t, r.Shutdown(context.Background())) })
	return r, logs
}

var h100 = devicesamples.Device{
	ID: "GPU-1", Name: "gpu0", Model: "NVIDIA H100 80GB HBM3", Vendor: "NVIDIA", DriverVersion: "580.65.06",
	PCIBDF: "00000000:17:00.0", Ordinal: 0, Source: "dcgm",
}

func val(device int, q gpuquantity.Quantity, ms int, v float64) gpudata.Value {
	return gpudata.Value{Time: at(ms), V: v, Device: uint16(device), Quantity: q}
}

func points(m pmetric.Metric) pmetric.NumberDataPointSlice {
	if m.Type() == pmetric.MetricTypeGauge {
		return m.Gauge().DataPoints()
	}
	return m.Sum().DataPoints()
}

// text returns metrics as lines "name{distinguishing attributes} value @time [from start]", without
// the identity.
func text(md pmetric.Metrics) string {
	identity := map[string]bool{
		"hw.id": true, "hw.type": true, "hw.name": true, "hw.model": true, "hw.vendor": true,
		"hw.driver_version": true, "gpu.pci.bdf": true, "gpu.device.ordinal": true, "gpu.measurement.source": true,
		"hw.parent": true,
	}
	var lines []string
	for _, rm := range md.ResourceMetrics().All() {
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			for _, p := range points(m).All() {
				var attrs []string
				for k, v := range p.Attributes().All() {
					if !identity[k] {
						attrs = append(attrs, k+"="+v.AsString())
					}
				}
				id, _ := p.Attributes().Get("hw.id")
				v := fmt.Sprint(p.IntValue())
				if p.ValueType() == pmetric.NumberDataPointValueTypeDouble {
					v = fmt.Sprintf("%.6g", p.DoubleValue())
				}
				line := fmt.Sprintf("%s %s{%s} %s @%d", id.Str(), m.Name(), strings.Join(attrs, ","), v,
					p.Timestamp().AsTime().Sub(t0).Milliseconds())
				if p.StartTimestamp() != 0 {
					line += fmt.Sprintf(" from %d", p.StartTimestamp().AsTime().Sub(t0).Milliseconds())
				}
				lines = append(lines, line)
			}
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func TestEveryPointHasTheTimeOfItsSample(t *testing.T) {
	r, _ := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	b := &gpudata.Batch{Health: []gpudata.Health{gpudata.HealthOK}}
	b.Values = []gpudata.Value{
		val(0, gpuquantity.Energy, 0, 1000), val(0, gpuquantity.Energy, 100, 1030), val(0, gpuquantity.Energy, 200, 1070),
		val(0, gpuquantity.Power, 0, 300), val(0, gpuquantity.Power, 103, 310), val(0, gpuquantity.Power, 198, 320),
		val(0, gpuquantity.Utilization, 0, 1), val(0, gpuquantity.Utilization, 100, 0.5), val(0, gpuquantity.Utilization, 150, 0.2),
		val(0, gpuquantity.MemoryUsed, 200, 8<<30), val(0, gpuquantity.MemoryLimit, 0, 80<<30),
		val(0, gpuquantity.PCIeTransmit, 0, 10), val(0, gpuquantity.PCIeTransmit, 200, 1010),
	}
	r.take(b)
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	sm := md.ResourceMetrics().At(0).ScopeMetrics().At(0)
	assert.Equal(t, metadata.ScopeName, sm.Scope().Name())
	assert.Empty(t, sm.Scope().Version()+sm.SchemaUrl(), "a release does not rename the series")
	assert.Equal(t, semconv.SchemaURL, md.ResourceMetrics().At(0).SchemaUrl())
	assert.Equal(t, strings.Join([]string{
		`GPU-1 gpu.pcie.io{network.io.direction=transmit} 1000 @200 from 0`,
		`GPU-1 hw.energy{} 70 @200 from 0`,
		`GPU-1 hw.gpu.memory.limit{} 85899345920 @0`,
		`GPU-1 hw.gpu.memory.usage{} 8589934592 @200`,
		`GPU-1 hw.gpu.memory.utilization{} 0.1 @200`,
		`GPU-1 hw.gpu.utilization{hw.gpu.task=general} 0.4 @150`, // (0.5 × 100 + 0.2 × 50) / 150
		`GPU-1 hw.power{} 320 @198`,
		`GPU-1 hw.status{hw.state=degraded} 0 @200`,
		`GPU-1 hw.status{hw.state=failed} 0 @200`,
		`GPU-1 hw.status{hw.state=ok} 1 @200`,
		`GPU-1 hw.status{hw.state=predicted_failure} 0 @200`,
	}, "\n"), text(md))

	r.take(&gpudata.Batch{Values: []gpudata.Value{ // too far apart for the sampling interval, but not for the previous ones
		val(0, gpuquantity.Utilization, 2150, 0.1), val(0, gpuquantity.Utilization, 3650, 0.6), val(0, gpuquantity.Utilization, 4650, 0.8),
	}})
	assert.Contains(t, text(r.collect(t0)), `hw.gpu.utilization{hw.gpu.task=general} 0.68 @4650`) // (0.6×1.5 + 0.8×1) ÷ 2.5

	assert.Empty(t, text(r.collect(t0)), "nothing is repeated without a new sample")

	b = &gpudata.Batch{Values: []gpudata.Value{
		val(0, gpuquantity.Energy, 200, 1070), // read twice
		val(0, gpuquantity.Energy, 300, 20),   // the driver was reloaded
		val(0, gpuquantity.Energy, 400, 50),
	}}
	r.take(b)
	lines := text(r.collect(t0))
	assert.Contains(t, lines, "GPU-1 hw.energy{} 30 @400 from 300", "a decrease begins a new stream")

	r.take(&gpudata.Batch{Values: []gpudata.Value{
		val(0, gpuquantity.Energy, 500, 0), val(0, gpuquantity.Energy, 600, 90), val(0, gpuquantity.Energy, 700, 100),
	}})
	lines = text(r.collect(t0))
	assert.Contains(t, lines, "GPU-1 hw.energy{} 50 @700 from 500", "a return from a wrong value is no energy")
}

func TestIdentityIsOnEveryPointAndTheHostOnTheResource(t *testing.T) {
	r, _ := testReceiver(t, nil)
	mig := h100
	mig.ID, mig.Parent, mig.Ordinal, mig.Name = "MIG-1", "GPU-1", -1, "gpu0:1/0"
	r.adopt([]devicesamples.Device{h100, mig})
	r.take(&gpudata.Batch{Values: []gpudata.Value{val(0, gpuquantity.Power, 0, 1), val(1, gpuquantity.SMUtilization, 0, 1)}})
	md := r.collect(t0)
	assert.Equal(t, map[string]any{"host.name": "n1", "host.id": "h1"},
		md.ResourceMetrics().At(0).Resource().Attributes().AsRaw())
	ms := md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	got := map[string]map[string]any{}
	for _, m := range ms.All() {
		got[m.Name()] = points(m).At(points(m).Len() - 1).Attributes().AsRaw()
	}
	assert.Equal(t, map[string]any{
		"hw.id": "GPU-1", "hw.type": "gpu", "hw.name": "gpu0", "hw.model": "NVIDIA H100 80GB HBM3", "hw.vendor": "NVIDIA",
		"hw.driver_version": "580.65.06", "gpu.pci.bdf": "0000:17:00.0", "gpu.device.ordinal": int64(0),
		"gpu.measurement.source": "dcgm",
	}, got["hw.power"])
	assert.Equal(t, map[string]any{
		"hw.id": "MIG-1", "hw.parent": "GPU-1", "hw.type": "gpu", "hw.name": "gpu0:1/0", "hw.model": "NVIDIA H100 80GB HBM3",
		"hw.vendor":         "NVIDIA",
		"hw.driver_version": "580.65.06", "gpu.pci.bdf": "0000:17:00.0", "gpu.measurement.source": "dcgm",
	}, got["gpu.sm.utilization"])
}

func TestThrottleReasonsBecomeTimeEventsAndLogs(t *testing.T) {
	r, logs := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	const powerCap, thermal = 0x4, 0x40
	var values []gpudata.Value
	for i, mask := range []float64{0, powerCap, powerCap | thermal, powerCap, 0, 0} {
		values = append(values, val(0, gpuquantity.Throttle, 100*i, mask))
	}
	r.take(&gpudata.Batch{Values: values})
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	assert.Contains(t, text(md), "gpu.throttle.time{gpu.throttle.reason=hw_thermal_slowdown} 0.1 @500 from 0")
	assert.Contains(t, text(md), "gpu.throttle.time{gpu.throttle.reason=sw_power_cap} 0.3 @500 from 0")
	r.emitLogs(context.Background())
	assert.Equal(t, []string{
		"100 gpu.throttle INFO gpu0: clocks throttled: sw_power_cap",
		"200 gpu.throttle INFO gpu0: clocks throttled: hw_thermal_slowdown",
		"300 gpu.throttle INFO gpu0: clocks no longer throttled: hw_thermal_slowdown",
		"400 gpu.throttle INFO gpu0: clocks no longer throttled: sw_power_cap",
	}, logLines(t, logs))
}

func TestErrorsAreCountedAndLogged(t *testing.T) {
	r, logs := testReceiver(t, nil)
	samples := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	r.samples = samples
	r.adopt([]devicesamples.Device{h100})
	xid := gpudata.Event{Event: devicesamples.Event{
		Time: at(150), Kind: devicesamples.EventXID, Code: 79,
		Count: 1,
	}}
	known := devicesamples.Event{
		Time: at(160), Kind: devicesamples.EventFault, Code: 5, Count: 1,
		Fault: devicesamples.Fault{Module: "GPU-NVLINK", Category: 3, Code: 5, Severity: 40},
	}
	unknown := devicesamples.Event{
		Time: at(170), Kind: devicesamples.EventFault, Code: 0x1234, Count: 1,
		Fault: devicesamples.Fault{Category: 0x99, Code: 0x1234, Severity: 77},
	}
	r.take(&gpudata.Batch{
		Values: []gpudata.Value{
			val(0, gpuquantity.ECCCorrected, 0, 12), val(0, gpuquantity.ECCCorrected, 100, 15),
			val(0, gpuquantity.ECCUncorrected, 0, 1), val(0, gpuquantity.ECCUncorrected, 100, 2),
			val(0, gpuquantity.XIDs, 0, 0), val(0, gpuquantity.XIDs, 200, 1),
		},
		Events: []gpudata.Event{xid, {Event: known}, {Event: unknown}},
	})
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	for _, want := range []string{
		"hw.errors{error.type=ecc_corrected} 3 @100 from 0", "hw.errors{error.type=ecc_uncorrected} 1 @100 from 0",
		"hw.errors{error.type=xid} 1 @200 from 0",
	} {
		assert.Contains(t, text(md), want)
	}
	r.emitLogs(context.Background())
	for _, l := range logs.AllLogs() {
		require.NoError(t, conformance.Logs(l))
		sl := l.ResourceLogs().At(0).ScopeLogs().At(0)
		assert.Equal(t, semconv.SchemaURL, sl.SchemaUrl())
		assert.NotEmpty(t, sl.Scope().Version())
	}
	assert.Equal(t, []string{
		"100 gpu.ecc WARN gpu0: 3 corrected memory errors", "100 gpu.ecc ERROR gpu0: 1 uncorrected memory errors",
		"150 gpu.xid ERROR gpu0: XID 79", "160 gpu.fault FATAL gpu0: GPU-NVLINK 0x0005: interconnect_error, fatal",
		"170 gpu.fault WARN gpu0: 0x1234: 0x0099, 77",
	}, logLines(t, logs))
	view := samples.Acquire()
	defer view.Release()
	d, ok := view.Lookup("GPU-1")
	require.True(t, ok)
	assert.Equal(t, []devicesamples.Event{
		{Time: at(100), Kind: devicesamples.EventECCCorrected, Count: 3},
		{Time: at(100), Kind: devicesamples.EventECCUncorrected, Count: 1},
		{Time: at(150), Kind: devicesamples.EventXID, Code: 79, Count: 1},
		known, unknown,
	}, d.Events(at(0), at(300), nil), "for gpu_join")
}

func logLines(t *testing.T, sink *consumertest.LogsSink) (lines []string) {
	for _, l := range sink.AllLogs() {
		for _, rec := range l.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().All() {
			id, _ := rec.Attributes().Get("hw.id")
			require.Equal(t, "GPU-1", id.Str())
			lines = append(lines, fmt.Sprintf("%d %s %s %s", rec.Timestamp().AsTime().Sub(t0).Milliseconds(), rec.EventName(),
				severity(rec), rec.Body().Str()))
		}
	}
	return lines
}

func severity(r plog.LogRecord) string { return strings.ToUpper(r.SeverityText()) }

func TestLogsAreBounded(t *testing.T) {
	r, logs := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	b := &gpudata.Batch{}
	for i := range 3 * maxLogs {
		b.Events = append(b.Events, gpudata.Event{Event: devicesamples.Event{
			Time: at(i),
			Kind: devicesamples.EventXID, Code: 1,
		}})
	}
	r.take(b)
	r.emitLogs(context.Background())
	assert.Equal(t, maxLogs, logs.LogRecordCount())
}

func TestVanishedGPUHasFailedButVanishedInstanceHasNot(t *testing.T) {
	r, _ := testReceiver(t, nil)
	mig := h100
	mig.ID, mig.Parent = "MIG-1", "GPU-1"
	other := h100
	other.ID = "GPU-2"
	r.adopt([]devicesamples.Device{h100, mig, other})
	r.take(&gpudata.Batch{Values: []gpudata.Value{
		val(0, gpuquantity.Power, 0, 1), val(1, gpuquantity.SMUtilization, 0, 1),
		val(2, gpuquantity.Power, 0, 1),
	}})
	_ = r.collect(t0)
	r.adopt([]devicesamples.Device{other})
	lines := text(r.collect(t0.Add(time.Second)))
	assert.Contains(t, lines, "GPU-1 hw.status{hw.state=failed} 1 @1000")
	assert.NotContains(t, lines, "MIG-1")
	assert.NotContains(t, lines, "GPU-2", "of it there is nothing new")
	r.adopt([]devicesamples.Device{h100, other})
	r.take(&gpudata.Batch{Values: []gpudata.Value{val(0, gpuquantity.Power, 2000, 1)}})
	assert.Contains(t, text(r.collect(t0)), "GPU-1 hw.status{hw.state=ok} 1 @2000")
}

func TestMetricsCanBeSwitched(t *testing.T) {
	on := func(names ...string) func(*Config) {
		return func(c *Config) {
			c.Metrics = map[string]MetricConfig{"hw.power": {Enabled: false}}
			for _, n := range names {
				c.Metrics[n] = MetricConfig{Enabled: true}
			}
		}
	}
	r, _ := testReceiver(t, on("gpu.memory.bandwidth.limit", "gpu.flop.rate.limit", "gpu.pipe.utilization"))
	mig := h100
	mig.ID, mig.Parent, mig.MIG.SMs, mig.Limits.Memory = "MIG-1", "GPU-1", 16, 9984<<20
	r.adopt([]devicesamples.Device{h100, mig})
	r.take(&gpudata.Batch{
		Values: []gpudata.Value{
			val(0, gpuquantity.Power, 0, 1), val(0, gpuquantity.PipeFP32, 0, 0.25),
			val(1, gpuquantity.SMUtilization, 0, 1),
		},
	})
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	lines := text(md)
	assert.NotContains(t, lines, "hw.power")
	for _, want := range []string{
		"GPU-1 gpu.memory.bandwidth.limit{} 3.35", "MIG-1 gpu.memory.bandwidth.limit{} 4.18", // an eighth
		// 16 of 132 SMs
		"GPU-1 gpu.flop.rate.limit{gpu.flop.precision=bf16} 9.89", "MIG-1 gpu.flop.rate.limit{gpu.flop.precision=bf16} 1.19",
		"GPU-1 gpu.pipe.utilization{gpu.pipe=fp32} 0.25",
	} {
		assert.Contains(t, lines, want)
	}
}

func TestGaugesNameThePodOfTheDevice(t *testing.T) {
	r, _ := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	r.pods.Store(podresources.NewDevices(map[string]podresources.Pod{"GPU-1": {
		Namespace: "ml", Name: "train-0",
		Container: "c",
	}}))
	r.take(&gpudata.Batch{Values: []gpudata.Value{
		val(0, gpuquantity.Power, 0, 1), val(0, gpuquantity.Energy, 0, 1), val(0, gpuquantity.MemoryUsed, 0, 1),
		val(0, gpuquantity.MemoryLimit, 0, 2), val(0, gpuquantity.SMUtilization, 0, 1),
	}})
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	const pod = "k8s.namespace.name=ml,k8s.pod.name=train-0,k8s.container.name=c"
	lines := text(md)
	for _, want := range []string{
		"hw.power{" + pod + "}", "gpu.sm.utilization{" + pod + "}",
		"hw.gpu.memory.usage{" + pod + "}", "hw.energy{}", "hw.gpu.memory.limit{}",
	} {
		assert.Contains(t, lines, want)
	}
}

func TestConfigReportsEveryProblem(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Source, cfg.SamplingInterval, cfg.CollectionInterval, cfg.DCGM.Endpoint = "cuda", time.Minute, time.Second, ""
	cfg.Replay.Speed, cfg.Simulated.Devices = 0, 100
	cfg.Metrics = map[string]MetricConfig{"hw.pover": {}}
	err := cfg.Validate()
	for _, want := range []string{
		"`source` must be one of auto, dcgm, nvml, replay, samples, simulated, found \"cuda\"",
		"`sampling_interval` (1m0s) must not be longer than `collection_interval` (1s)",
		"`dcgm::endpoint` must be set unless `dcgm::embedded` is true",
		"`replay::speed` must be between 0.001 and 1e+06, found 0", "`simulated::devices` must be between 1 and 64, found 100",
		"`metrics` has an unknown name \"hw.pover\"",
	} {
		assert.ErrorContains(t, err, want)
	}
	for speed, ok := range map[float64]bool{
		1e-3: true, 9e-4: false, 1e6: true, 1e7: false, -1: false, math.Inf(1): false, math.NaN(): false,
	} {
		cfg.Replay.Speed = speed
		assert.Equal(t, ok, !strings.Contains(cfg.Validate().Error(), "replay::speed"), speed)
	}
	cfg = createDefaultConfig().(*Config)
	cfg.Source = sourceReplay
	assert.EqualError(t, cfg.Validate(), "`replay::file` must be set when `source` is replay")
}

// statusHost collects reported status events.
type statusHost struct {
	samplesHost
	events chan *componentstatus.Event
}

func (h statusHost) Report(e *componentstatus.Event) { h.events <- e }

func TestAMachineWithoutGPUStartsAndReportsIt(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.RetryInterval = 10 * time.Millisecond
	src := &fakeSource{name: "dcgm", openErr: fmt.Errorf("libdcgm.so.4 not found: %w", gpudata.ErrUnavailable)}
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), []gpudata.Source{src})
	require.NoError(t, err)
	h := statusHost{newSamplesHost(), make(chan *componentstatus.Event, 100)}
	require.NoError(t, r.Start(context.Background(), h))
	e := <-h.events
	assert.Equal(t, componentstatus.StatusRecoverableError, e.Status())
	assert.ErrorContains(t, e.Err(), "no GPU data: dcgm: libdcgm.so.4 not found: not available")
	src.set(func() { src.openErr = nil })
	assert.Equal(t, componentstatus.StatusOK, (<-h.events).Status(), "the library was installed meanwhile")
	require.NoError(t, r.Shutdown(context.Background()))
	assert.Empty(t, h.events, "nothing is reported twice")
}

func TestStartFailsWithoutTheExtension(t *testing.T) {
	cfg := createDefaultConfig().(*Config)
	cfg.Samples = &samplesID
	r, err := newReceiver(cfg, receivertest.NewNopSettings(metadata.Type), nil)
	require.NoError(t, err)
	require.EqualError(t, r.Start(context.Background(), componenttest.NewNopHost()),
		"cannot find extension \"gpu_samples\" (define it under `extensions` and list it under `service::extensions`)")
	require.NoError(t, r.Shutdown(context.Background()))
}

// TestValuesOfOneMomentBecomeOneSample supplies values field by field, as DCGM does, with energy at
// separate times.
func TestValuesOfOneMomentBecomeOneSample(t *testing.T) {
	r, _ := testReceiver(t, nil)
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(),
		func() time.Time { return t0.Add(time.Hour) })
	r.samples = store
	r.adopt([]devicesamples.Device{h100})
	b := &gpudata.Batch{}
	for i := range 50 {
		b.Values = append(b.Values, val(0, gpuquantity.Power, 10*i, float64(i)))
	}
	for i := range 50 {
		b.Values = append(b.Values, val(0, gpuquantity.Energy, 10*i+3, float64(i)))
	}
	for i := range 50 {
		b.Values = append(b.Values, val(0, gpuquantity.SMUtilization, 10*i, 0.5))
	}
	r.take(b)
	assert.Len(t, r.scratch, 100)
	b.Reset()
	b.Add(0, gpuquantity.EncoderUtilization, at(500), 97)
	r.take(b)
	require.Len(t, store.ContradictionEntries(), 1)
	assert.Equal(t, "utilization_range", store.ContradictionEntries()[0].Reason)
	v := store.Acquire()
	defer v.Release()
	d, ok := v.Lookup("GPU-1")
	require.True(t, ok)
	for f, first := range map[devicesamples.Field]int{
		devicesamples.Power: 0, devicesamples.Energy: 3,
		devicesamples.SMUtilization: 0,
	} {
		times := d.Times(f, 0, at(10000), nil)
		require.Equal(t, 50, len(times), f.String())
		assert.Equal(t, at(first), times[0])
		assert.Equal(t, at(first+490), times[49])
	}
}

// A machine's clock was an hour ahead: values since its correction are accepted immediately, and
// cumulative series restart. Otherwise, everything would be rejected for an hour.
func TestAClockThatIsSetBackHidesNothing(t *testing.T) {
	r, logs := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	now := time.Now()
	took := func(since time.Duration, power, energy, ecc float64) {
		at := now.Add(since).UnixNano()
		b := &gpudata.Batch{}
		b.Add(0, gpuquantity.Power, at, power)
		b.Add(0, gpuquantity.Energy, at, energy)
		b.Add(0, gpuquantity.ECCUncorrected, at, ecc)
		b.Add(0, gpuquantity.Throttle, at, float64(devicesamples.ThrottleSWPowerCap))
		r.take(b)
	}
	took(time.Hour-200*time.Millisecond, 300, 1000, 0)
	took(time.Hour-100*time.Millisecond, 300, 1030, 0)
	require.Contains(t, text(r.collect(now)), "hw.energy{} 30 ")
	took(-300*time.Millisecond, 310, 1060, 2)
	took(-200*time.Millisecond, 320, 1092, 2)
	took(-250*time.Millisecond, 999, 1080, 2) // an older one is ignored
	md := r.collect(now)
	found := map[string]pmetric.NumberDataPoint{}
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		found[m.Name()] = points(m).At(0)
	}
	require.InDelta(t, 320, found["hw.power"].DoubleValue(), 1e-9)
	for name, want := range map[string]float64{"hw.energy": 32, "gpu.throttle.time": 0.1} {
		p := found[name]
		require.InDelta(t, want, p.DoubleValue(), 1e-9, name)
		require.Equal(t, now.Add(-300*time.Millisecond).UnixNano(), int64(p.StartTimestamp()), name)
		require.Equal(t, now.Add(-200*time.Millisecond).UnixNano(), int64(p.Timestamp()), name)
	}
	require.Contains(t, found, "hw.status")
	r.emitLogs(t.Context())
	require.Equal(t, 2, logs.LogRecordCount(), "throttling began once, and two errors are one record")
}
