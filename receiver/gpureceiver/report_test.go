// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/receiver/receivertest"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/metadata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// loggedReceiver returns a receiver with readable log and internal metrics.
func loggedReceiver(t *testing.T) (*gpuReceiver, func() []string, *componenttest.Telemetry) {
	t.Helper()
	core, logs := observer.New(zapcore.InfoLevel)
	tel := componenttest.NewTelemetry()
	set := receivertest.NewNopSettings(metadata.Type)
	set.TelemetrySettings = tel.NewTelemetrySettings()
	set.Logger = zap.New(core)
	cfg := createDefaultConfig().(*Config)
	cfg.Source = sourceDCGM
	r, err := newReceiver(cfg, set, newSources(cfg, nil))
	require.NoError(t, err)
	r.componentHost = componenttest.NewNopHost()
	t.Cleanup(func() {
		require.NoError(t, r.Shutdown(context.Background()))
		require.NoError(t, tel.Shutdown(context.Background()))
	})
	return r, func() (lines []string) {
		for _, e := range logs.TakeAll() {
			line := e.Level.String() + " " + e.Message
			fields := e.ContextMap()
			for _, k := range []string{"hw.id", "devices", "reason", "error"} {
				if v, ok := fields[k]; ok {
					line += fmt.Sprintf("; %s=%v", k, v)
				}
			}
			lines = append(lines, line)
		}
		return lines
	}, tel
}

func TestAChangeOfTheReasonIsReportedAgain(t *testing.T) {
	r, logs, _ := loggedReceiver(t)
	busy, refused := errors.New("dcgm: open has not returned"), errors.New("dcgm: one connection for each process")
	for range 3 {
		r.unavailable(busy, time.Second)
	}
	r.unavailable(refused, 2*time.Second)
	r.unavailable(refused, 4*time.Second)
	assert.Equal(t, []string{
		"warn GPU source does not respond; error=no GPU data: dcgm: open has not returned (see the receiver's README for what each source needs)",
		"warn GPU source does not respond; error=no GPU data: dcgm: one connection for each process (see the receiver's README for what each source needs)",
	}, logs())
	r.opened("dcgm", nil, nil)
	r.unavailable(refused, time.Second)
	assert.Len(t, logs(), 2, "opened, and missed again")
}

func TestASourceWithoutOperationalEventsIsReportedOnce(t *testing.T) {
	r, logs, _ := loggedReceiver(t)
	for _, c := range []struct {
		source, driver string
		present        bool
		want           int
	}{
		{"dcgm", "610.43.02", false, 0},
		{"dcgm", "", false, 0},
		{"nvml", "615.12", false, 0},
		{"dcgm", "615.12", true, 0},
		{"dcgm", "615.12", false, 1},
		{"dcgm", "615.12", false, 0},
	} {
		r.operational.set(c.present)
		r.read(c.source, []devicesamples.Device{{ID: "GPU-1", DriverVersion: c.driver}}, &gpudata.Batch{}, 0)
		lines := logs()
		assert.Len(t, lines, c.want, c)
		assert.Equal(t, c.want == 1, strings.Contains(fmt.Sprint(lines), "libnvidia-ml.so.1"), c)
	}
}

// TestAFaultOfTwoSourcesIsOneEvent reads an XID from DCGM and what the driver reports of it.
func TestAFaultOfTwoSourcesIsOneEvent(t *testing.T) {
	link := devicesamples.Fault{Module: "GPU-NVLINK", Category: 3, Code: 5, Severity: 40}
	const dcgm, driver, other = 1, 2, 4 // notifications: an XID, an operational event with it, one without
	for name, c := range map[string]struct {
		seconds []int
		want    []string
	}{
		"the driver first":     {[]int{driver, 0, 0, dcgm}, []string{"XID 74 GPU-NVLINK"}},
		"DCGM first":           {[]int{dcgm, driver}, []string{"XID 74 GPU-NVLINK"}},
		"at the same time":     {[]int{dcgm | driver}, []string{"XID 74 GPU-NVLINK"}},
		"DCGM only":            {[]int{dcgm}, []string{"XID 74 "}},
		"the driver only":      {[]int{driver}, []string{"XID 74 GPU-NVLINK"}},
		"an event without XID": {[]int{other, dcgm}, []string{"fault 5 GPU-NVLINK", "XID 74 "}},
		"two faults":           {[]int{driver, driver, dcgm, dcgm}, []string{"XID 74 GPU-NVLINK", "XID 74 GPU-NVLINK"}},
		"long apart":           {append([]int{driver}, append(make([]int, 20), dcgm)...), []string{"XID 74 GPU-NVLINK", "XID 74 "}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, logs := testReceiver(t, nil)
				r.operational.pairs.PlainAfter, r.operational.pairs.OperationalAfter = int64(12*time.Second), int64(2*time.Second)
				devices := []devicesamples.Device{h100}
				r.adopt(devices)
				var got []string
				for second := range len(c.seconds) + 20 {
					sent := 0
					if second < len(c.seconds) {
						sent = c.seconds[second]
					}
					use, b := gpudata.ProcessUse{Device: h100.ID, Operational: true}, &gpudata.Batch{}
					event := devicesamples.Event{Time: time.Now().UnixNano(), Kind: devicesamples.EventXID, Code: 74, Count: 1}
					if sent&dcgm != 0 {
						b.Events = append(b.Events, gpudata.Event{Event: event})
					}
					event.Fault = link
					if sent&driver != 0 {
						use.Faults = append(use.Faults, event)
					}
					event.Kind, event.Code = devicesamples.EventFault, 5
					if sent&other != 0 {
						use.Faults = append(use.Faults, event)
					}
					r.operational.put(&use)
					r.read("dcgm", devices, b, 0)
					for _, e := range b.Events {
						kind := map[devicesamples.EventKind]string{devicesamples.EventXID: "XID", devicesamples.EventFault: "fault"}[e.Kind]
						got = append(got, fmt.Sprint(kind, " ", e.Code, " ", e.Fault.Module))
					}
					time.Sleep(time.Second)
				}
				assert.Equal(t, c.want, got)
				r.emitLogs(t.Context())
				assert.Equal(t, len(c.want), logs.LogRecordCount())
			})
		})
	}
}

func TestABoardThatFailsAndReturnsIsReported(t *testing.T) {
	r, logs, _ := loggedReceiver(t)
	second := devicesamples.Device{ID: "GPU-2", Name: "gpu1"}
	r.adopt([]devicesamples.Device{h100, second})
	health := func(h gpudata.Health) {
		r.take(&gpudata.Batch{Health: []gpudata.Health{gpudata.HealthOK, h}})
	}
	for _, h := range []gpudata.Health{
		gpudata.HealthOK, gpudata.HealthFailed, gpudata.HealthFailed, gpudata.HealthUnknown, gpudata.HealthOK,
		gpudata.HealthSilent,
		gpudata.HealthSilent, gpudata.HealthDegraded,
	} {
		health(h)
	}
	assert.Equal(t, []string{
		"warn GPU returns no values; hw.id=GPU-2; reason=the driver reports it as lost or detached",
		"info GPU returns values again; hw.id=GPU-2",
		"warn GPU returns no values; hw.id=GPU-2; reason=every value is blank though the driver lists it (see its XIDs; it may need a reset)",
		"info GPU returns values again; hw.id=GPU-2",
	}, logs())
	r.adopt([]devicesamples.Device{h100})
	r.adopt([]devicesamples.Device{h100, second})
	assert.Equal(t, []string{
		"warn GPU removed; hw.id=GPU-2; reason=the source does not list it any more",
		"info GPU is back; hw.id=GPU-2",
	}, logs())
}

func TestOnlyMeasuredValuesMakeADeviceOK(t *testing.T) {
	r, _ := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	r.take(&gpudata.Batch{Values: []gpudata.Value{val(0, gpuquantity.XIDs, 0, 0)}})
	assert.NotContains(t, text(r.collect(t0)), "hw.status", "a count of events says nothing of the device")
	r.take(&gpudata.Batch{
		Values: []gpudata.Value{val(0, gpuquantity.Power, 0, 300)},
		Health: []gpudata.Health{gpudata.HealthOK},
	})
	assert.Contains(t, text(r.collect(t0)), "hw.status{hw.state=ok} 1")
	r.take(&gpudata.Batch{
		Values: []gpudata.Value{val(0, gpuquantity.XIDs, 100, 0)},
		Health: []gpudata.Health{gpudata.HealthUnknown},
	})
	assert.NotContains(t, text(r.collect(t0)), "hw.status", "the driver hangs: not known")
	r.take(&gpudata.Batch{Health: []gpudata.Health{gpudata.HealthSilent}})
	assert.Contains(t, text(r.collect(t0)), "hw.status{hw.state=failed} 1")
}

func TestMissingDataIsReportedOnceAndCounted(t *testing.T) {
	r, logs, tel := loggedReceiver(t)
	batch := func(refused int64, notices ...gpudata.Notice) {
		r.read("dcgm", nil, &gpudata.Batch{Notices: notices, Refused: refused}, time.Millisecond)
	}
	lost := gpudata.Notice{
		Kind: gpudata.NoticeProfiling, Devices: []string{"gpu0", "gpu1"},
		Err: errors.New("max limit reached"),
	}
	nameless := gpudata.Notice{
		Kind: gpudata.NoticeIdentity, Devices: []string{"gpu7"},
		Err: errors.New("DCGM gives no UUID"),
	}
	batch(1, lost, nameless)
	batch(0, lost, nameless)
	batch(1, lost, nameless)
	batch(0)
	normal := lost
	normal.Normal = true
	batch(0, normal)
	normal.Err = errors.New("no permission")
	batch(0, normal) // another reason
	const profiling = "Devices have no profiling ratios (SM, tensor, DRAM, PCIe, NVLink); the source tries again"
	got := logs()
	assert.ElementsMatch(t, []string{
		"warn " + profiling + "; devices=[gpu0 gpu1]; error=max limit reached",
		"warn Devices have no data, because the source cannot identify them; devices=[gpu7]; error=DCGM gives no UUID",
		"info Devices have profiling ratios again; devices=[gpu0 gpu1]",
		"info The source identifies devices again; devices=[gpu7]",
		"info " + profiling + "; devices=[gpu0 gpu1]; error=max limit reached",
		"info " + profiling + "; devices=[gpu0 gpu1]; error=no permission",
	}, got)
	metrics, err := tel.GetMetric("otelcol_receiver_gpu_failures")
	require.NoError(t, err)
	counts := map[string]int64{}
	for _, p := range metrics.Data.(metricdata.Sum[int64]).DataPoints {
		reason, _ := p.Attributes.Value("reason")
		counts[reason.AsString()] += p.Value
	}
	assert.Equal(t, map[string]int64{"profiling": 2, "identity": 1}, counts)
}

// useRecorder is a gpu_samples extension that records the owners of devices.
type useRecorder struct {
	*devicesamples.Store
	uses map[devicesamples.UseKind][]devicesamples.DeviceUse
}

func (u *useRecorder) SetUses(o devicesamples.UseOrigin, uses []devicesamples.DeviceUse, _ time.Duration) {
	u.uses[o.Kind] = uses
}

func TestUsersOfADeviceAreReported(t *testing.T) {
	r, _ := testReceiver(t, func(c *Config) { c.Samples = &component.ID{} })
	rec := &useRecorder{
		devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil),
		map[devicesamples.UseKind][]devicesamples.DeviceUse{},
	}
	r.samples = rec
	board := devicesamples.Device{ID: "GPU-2", Name: "gpu1"}
	instance := devicesamples.Device{ID: "MIG-3", Parent: "GPU-2", Name: "gpu1:7/0"}
	devices := []devicesamples.Device{h100, board, instance}
	r.adopt(devices)
	r.usesOfProcesses(devices, &gpudata.Batch{Listed: 1, Processes: []gpudata.ProcessMemory{
		{Device: "GPU-1", PID: 10}, {Device: "GPU-2", PID: 11}, {Device: "MIG-3", PID: 11},
	}})
	assert.Equal(t, []devicesamples.DeviceUse{{Device: "GPU-1", PID: 10}, {Device: "MIG-3", PID: 11}},
		rec.uses[devicesamples.UsesOfProcesses], "no process is on a divided board")
	r.usesOfProcesses(devices, &gpudata.Batch{})
	assert.Len(t, rec.uses[devicesamples.UsesOfProcesses], 2, "no list, no change")

	r.usesOfPods(podresources.NewDevices(map[string]podresources.Pod{
		"GPU-1":         {Namespace: "ml", Name: "serve-0", Container: "s"},
		"GPU-elsewhere": {Namespace: "ml", Name: "front-0", Container: "f"},
	}))
	assert.ElementsMatch(t, []devicesamples.DeviceUse{
		{Device: "GPU-1", Namespace: "ml", Pod: "serve-0", Container: "s"},
	}, rec.uses[devicesamples.UsesOfPods])
	r.forgetUses()
	assert.Nil(t, rec.uses[devicesamples.UsesOfPods])
}

// A claim names an instance by its profile, which is one device only if the board has no other of
// it. A claim without a known device is logged once.
func TestClaimsOfInstancesNeedAnUnambiguousProfile(t *testing.T) {
	r, _ := testReceiver(t, func(c *Config) { c.Samples = &component.ID{} })
	rec := &useRecorder{
		devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil),
		map[devicesamples.UseKind][]devicesamples.DeviceUse{},
	}
	r.samples = rec
	core, logs := observer.New(zap.WarnLevel)
	r.set.Logger = zap.New(core)
	mig := func(id, profile string) devicesamples.Device {
		return devicesamples.Device{
			ID: id, Parent: "GPU-1", DeviceFile: "nvidia3/gi" + id[4:], MIG: devicesamples.MIG{Profile: profile},
		}
	}
	claims := podresources.NewDevices(nil)
	claims.AddClaim("gpu.nvidia.com", "gpu-3-mig-1g10gb-19-4", podresources.Pod{Namespace: "ml", Name: "a"})
	for _, x := range []struct {
		devices []devicesamples.Device
		want    []devicesamples.DeviceUse
	}{
		{[]devicesamples.Device{mig("MIG-1", "1g.10gb"), mig("MIG-2", "2g.20gb")}, []devicesamples.DeviceUse{
			{Device: "MIG-1", Namespace: "ml", Pod: "a"},
		}},
		{[]devicesamples.Device{mig("MIG-1", "1g.10gb"), mig("MIG-2", "1g.10gb")}, []devicesamples.DeviceUse{}},
		{[]devicesamples.Device{mig("MIG-1", "1g.10gb"), mig("MIG-2", "1g.10gb")}, []devicesamples.DeviceUse{}},
	} {
		r.adopt(x.devices)
		r.usesOfPods(claims)
		assert.Equal(t, x.want, rec.uses[devicesamples.UsesOfPods])
	}
	assert.Equal(t, 1, logs.FilterField(zap.String("pod", "a")).Len())
}

func TestTimeWithoutSamplesIsNoThrottleTime(t *testing.T) {
	r, _ := testReceiver(t, nil)
	r.adopt([]devicesamples.Device{h100})
	for _, ms := range []int{0, 100, 200, 500, 30_500, 30_600} { // a gap of 3 intervals, and one of 300
		r.take(&gpudata.Batch{Values: []gpudata.Value{val(0, gpuquantity.Throttle, ms, 4)}})
	}
	assert.Contains(t, text(r.collect(t0)), "gpu.throttle.time{gpu.throttle.reason=sw_power_cap} 0.6 @30600 from 0")
}
