// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processes"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/processmeter"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/simsource"
)

const (
	containerA = "48c2e87402936fc06891e3eda56b154fb5b7964f0c6ec332747d50146bc35ac0"
	containerB = "320f953624a421262e8b86ebd941cb3e74588b87c74981671eb92e170d1623ed"
)

// node writes a /proc with processes in two pods and one of a Slurm job, and the kubelet's links.
func node(t *testing.T) (proc, logs string) {
	proc, logs = t.TempDir(), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(proc, "self/ns"), 0o755))
	require.NoError(t, os.Symlink("pid:[4026531836]", filepath.Join(proc, "self/ns/pid")))
	for pid, cgroup := range map[int]string{
		11: "0::/kubepods/pod1015257a-1185-30c4-b0a0-17f5376fa02d/" + containerA,
		12: "0::/kubepods/burstable/pod7def8c2f-c39e-46a4-7eb5-586e4111b90c/" + containerB,
		13: "0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_3",
	} {
		writeProcess(t, proc, int64(pid), cgroup)
	}
	require.NoError(t, os.WriteFile(filepath.Join(logs, "infer-a_serve_vllm-"+containerA+".log"), nil, 0o600))
	return proc, logs
}

// writeProcess writes the files of a process into a /proc.
func writeProcess(t testing.TB, proc string, pid int64, cgroup string) {
	dir := filepath.Join(proc, fmt.Sprint(pid))
	require.NoError(t, os.MkdirAll(dir, 0o755))
	for name, content := range map[string]string{
		"cgroup": cgroup + "\n", "status": "PPid:\t1\nUid:\t4123456789\n", "cmdline": "/usr/bin/python3\x00serve.py\x00",
		"stat": fmt.Sprintf("%d (python3) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 %d", pid, 1000+pid),
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
}

// scriptedProcesses is a driver that gives scripted answers.
type scriptedProcesses struct {
	use  gpudata.ProcessUse
	open bool
}

func (s *scriptedProcesses) Open() error  { s.open = true; return nil }
func (s *scriptedProcesses) Close() error { s.open = false; return nil }
func (s *scriptedProcesses) Read(_ func(string) int64, list bool) ([]gpudata.ProcessUse, error) {
	u := s.use
	if !list {
		u.Running = nil
	}
	return []gpudata.ProcessUse{u}, nil
}

// processRig is a receiver whose processes are measured in virtual time.
type processRig struct {
	*gpuReceiver
	w      *processWriter
	driver *scriptedProcesses
	shares *devicesamples.Store
	proc   string
	sink   *consumertest.MetricsSink
	second int
	joules float64
}

func newProcessRig(t *testing.T) *processRig {
	proc, logs := node(t)
	r, _ := testReceiver(t, func(c *Config) {
		_ = c.Kubernetes.GetOrInsertDefault()
		c.Kubernetes.Get().ContainerLogs = logs
	})
	rig := &processRig{
		gpuReceiver: r, driver: &scriptedProcesses{}, sink: &consumertest.MetricsSink{}, proc: proc,
		shares: devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil),
	}
	r.nextMetrics = rig.sink
	r.processes = processes.New(proc)
	require.NotNil(t, r.processes)
	r.processReader = newProcessReader(r.cfg, r.processes, rig.driver, rig.shares, &r.operational, r.set.Logger)
	rig.w = newProcessWriter(r)
	dev := h100
	dev.Limits.Power = 700
	r.adopt([]devicesamples.Device{dev})
	return rig
}

// run continues for some seconds with a power and the utilization of processes, all of which have a
// context.
func (rig *processRig) run(seconds int, watts float64, percents map[int64]uint32, running ...int64) {
	for range seconds {
		rig.second++
		rig.joules += watts
		now := t0.Add(time.Duration(rig.second) * time.Second)
		ms := rig.second * 1000
		rig.take(&gpudata.Batch{Values: []gpudata.Value{
			val(0, gpuquantity.Power, ms, watts), val(0, gpuquantity.Energy, ms, rig.joules),
		}})
		u := gpudata.ProcessUse{Device: "GPU-1", Time: now.UnixNano(), Reported: true}
		for pid, p := range percents {
			u.Percent = append(u.Percent, gpudata.ProcessPercent{PID: pid, Time: now.UnixNano(), Percent: p})
		}
		for _, pid := range running {
			u.Running = append(u.Running, gpudata.ProcessMemory{Device: "GPU-1", PID: pid, Bytes: pid << 30})
		}
		rig.driver.use = u
		rig.processReader.read(now)
	}
}

// emit returns the values of the newest points, and whether a series ended, by metric and pod, job
// or device.
func (rig *processRig) emit(t *testing.T) (values map[string]float64, ended map[string]bool) {
	rig.sink.Reset()
	md := pmetric.NewMetrics()
	rig.w.prepare(t.Context(), t0.Add(time.Duration(rig.second)*time.Second)).MoveAndAppendTo(md.ResourceMetrics())
	require.True(t, rig.sendMetrics(t.Context(), md))
	values, ended = map[string]float64{}, map[string]bool{}
	for _, md := range rig.sink.AllMetrics() {
		require.NoError(t, conformance.Metrics(md))
		for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
			points := m.Gauge().DataPoints
			if m.Type() == pmetric.MetricTypeSum {
				points = m.Sum().DataPoints
			}
			for _, p := range points().All() {
				name := strings.TrimPrefix(m.Name(), "gpu.")
				for _, k := range []string{"process.pid", "k8s.pod.name", "gpu.job.id", "gpu.idle.context", "gpu.unattributed.reason"} {
					if v, ok := p.Attributes().Get(k); ok {
						name += " " + v.AsString()
					}
				}
				v := p.DoubleValue()
				if p.ValueType() == pmetric.NumberDataPointValueTypeInt {
					v = float64(p.IntValue())
				}
				if p.Flags().NoRecordedValue() {
					ended[name] = true
				} else {
					values[name] = v
				}
			}
		}
	}
	return values, ended
}

func TestProcessesIdleAndTheRestAreTheDevicesEnergy(t *testing.T) {
	rig := newProcessRig(t)
	rig.run(10, 100, nil, 11, 12, 13)
	rig.emit(t)
	rig.run(10, 400, map[int64]uint32{11: 50, 12: 25, 13: 25}, 11, 12, 13)
	values, ended := rig.emit(t)
	assert.Empty(t, ended)
	assert.InDelta(t, 11<<30, values["process.memory.usage 11 infer-a"], 0)
	assert.InDelta(t, 0.5, values["process.utilization 11 infer-a"], 0.15)
	assert.InEpsilon(t, 1500, values["process.energy 11 infer-a"], 0.01)
	assert.InEpsilon(t, 750, values["process.energy 12"], 0.01)
	assert.InEpsilon(t, 750, values["process.energy 13 slurm-77"], 0.01)
	assert.Positive(t, values["process.energy_error 13 slurm-77"])
	assert.InDelta(t, 1900, values["idle.energy true"], 1)
	var sum float64
	for name, v := range values {
		if strings.Contains(name, "energy ") {
			sum += v
		}
	}
	assert.InDelta(t, rig.joules-100, sum, 1e-6, "since the first answer of the driver")

	// gpu_join receives the same shares.
	at := t0.Add(15500 * time.Millisecond).UnixNano()
	windows := rig.shares.Shares("GPU-1", at, at+1, nil)
	require.Len(t, windows, 1)
	require.Len(t, windows[0].Users, 3)
	for _, u := range windows[0].Users {
		want := 0.25
		if u.PID == 11 {
			want = 0.5
			assert.Equal(t, devicesamples.MatchGroup, u.Match(&devicesamples.Workload{Namespace: "serve", Pod: "infer-a"}, "", ""))
		}
		assert.InDelta(t, want, u.Share, 0.01)
		assert.InDelta(t, want, u.Resident, 1e-9)
		assert.Positive(t, u.Error)
	}
}

func TestAProcessThatEndsKeepsItsEnergyAndItsSeriesEnd(t *testing.T) {
	rig := newProcessRig(t)
	rig.run(5, 100, nil, 11, 12)
	rig.run(5, 400, map[int64]uint32{11: 100}, 11, 12)
	rig.run(1, 100, nil, 12)
	values, _ := rig.emit(t)
	assert.InEpsilon(t, 1500, values["process.energy 11 infer-a"], 0.01)
	assert.NotContains(t, values, "process.memory.usage 11 infer-a")
	rig.run(10, 100, nil, 12)
	_, ended := rig.emit(t)
	assert.True(t, ended["process.energy 11 infer-a"])
	assert.False(t, ended["process.memory.usage 12"])
	rig.run(10, 100, nil, 12)
	values, ended = rig.emit(t)
	assert.Empty(t, ended)
	assert.NotContains(t, values, "process.energy 11 infer-a")
	assert.Zero(t, values["process.utilization 12"])
}

// A process that gets the number of another one is another process, in another pod.
func TestAReusedProcessNumberIsAnotherProcess(t *testing.T) {
	rig := newProcessRig(t)
	rig.run(5, 100, nil, 11)
	rig.run(5, 400, map[int64]uint32{11: 100}, 11)
	rig.emit(t)
	writeProcess(t, rig.proc, 11, "0::/system.slice/slurmstepd.scope/job_99/step_0/user/task_0")
	stat := "11 (python3) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 99999"
	require.NoError(t, os.WriteFile(filepath.Join(rig.proc, "11", "stat"), []byte(stat), 0o600))
	rig.run(15, 400, map[int64]uint32{11: 100}, 11)
	values, _ := rig.emit(t)
	assert.InEpsilon(t, 1500, values["process.energy 11 infer-a"], 0.01)
	assert.InEpsilon(t, 4500, values["process.energy 11 slurm-99"], 0.01)
}

func TestASeriesWhoseNamesChangeBeginsAtZero(t *testing.T) {
	rig := newProcessRig(t)
	rig.run(5, 100, nil, 12)
	rig.run(5, 400, map[int64]uint32{12: 100}, 12)
	values, _ := rig.emit(t)
	before := values["process.energy 12"]
	logs := rig.cfg.Kubernetes.Get().ContainerLogs
	require.NoError(t, os.WriteFile(filepath.Join(logs, "infer-b_serve_vllm-"+containerB+".log"), nil, 0o600))
	rig.run(5, 400, map[int64]uint32{12: 100}, 12)
	values, ended := rig.emit(t)
	assert.True(t, ended["process.energy 12"])
	assert.InDelta(t, 1500, before, 1)
	assert.InDelta(t, 1500, values["process.energy 12 infer-b"], 1)
}

func TestRefusedPointsOfZeroAreRepeated(t *testing.T) {
	rig := newProcessRig(t)
	rig.run(5, 100, nil, 12)
	rig.run(5, 400, map[int64]uint32{12: 100}, 12)
	rig.nextMetrics = consumertest.NewErr(context.DeadlineExceeded)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	require.Zero(t, rig.w.prepare(ended, t0.Add(10*time.Second)).Len())
	rig.nextMetrics = rig.sink
	rig.run(5, 400, map[int64]uint32{12: 100}, 12)
	values, _ := rig.emit(t)
	require.Len(t, rig.sink.AllMetrics(), 2)
	for _, m := range rig.sink.AllMetrics()[0].ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		for _, p := range m.Sum().DataPoints().All() {
			assert.Zero(t, p.DoubleValue())
		}
	}
	assert.InDelta(t, 3000, values["process.energy 12"], 1)
}

func TestWithoutUtilizationAProcessThatIsAloneHasTheActiveEnergy(t *testing.T) {
	rig := newProcessRig(t)
	rig.processReader.source = nil
	for range 20 {
		rig.second++
		rig.joules += 100
		busy := 0.0
		if rig.second > 10 {
			rig.joules, busy = rig.joules+300, 1
		}
		ms := rig.second * 1000
		b := &gpudata.Batch{Values: []gpudata.Value{
			val(0, gpuquantity.Energy, ms, rig.joules), val(0, gpuquantity.Utilization, ms, busy),
		}, Listed: at(ms), Processes: []gpudata.ProcessMemory{{Device: rig.known[0].ID, PID: 13, Bytes: 7}}}
		rig.take(b)
		rig.processReader.list(rig.known, b)
		rig.processReader.read(t0.Add(time.Duration(rig.second) * time.Second))
	}
	values, _ := rig.emit(t)
	assert.InDelta(t, 3000, values["process.energy 13 slurm-77"], 350)
	assert.InDelta(t, 7, values["process.memory.usage 13 slurm-77"], 0)
}

func TestMissingRightsAreLoggedOnceWithTheirRemedy(t *testing.T) {
	rig := newProcessRig(t)
	core, logs := observer.New(zapcore.InfoLevel)
	rig.set.Logger = zap.New(core)
	rig.cfg.Kubernetes.Get().ContainerLogs = filepath.Join(t.TempDir(), "absent")
	rig.processes = nil
	rig.processReader = newProcessReader(rig.cfg, nil, rig.driver, nil, &rig.operational, rig.set.Logger)
	rig.processReader.meter.Adopt(rig.known)
	for range 2 {
		rig.run(5, 400, map[int64]uint32{1: 100}, 1)
		rig.emit(t)
	}
	hidden := t.TempDir() // as a user's processes with hidepid=2: even the first one looks absent
	require.NoError(t, os.MkdirAll(filepath.Join(hidden, "self/ns"), 0o755))
	require.NoError(t, os.Symlink("pid:[4026531836]", filepath.Join(hidden, "self/ns/pid")))
	rig.processes = processes.New(hidden)
	for range 2 {
		rig.run(5, 400, map[int64]uint32{1: 100}, 1)
		rig.emit(t)
	}
	var got []string
	for _, e := range logs.All() {
		if strings.Contains(e.Message, "rocesses on") {
			got = append(got, e.Message[strings.Index(e.Message, "("):])
		}
	}
	assert.Equal(t, []string{
		"(mount the node's folder /var/log/containers read-only, or set `kubernetes::container_logs`)",
		"(run the Collector on the host, or in a pod with `hostPID: true`)",
		"(give the Collector the capability SYS_PTRACE, run it as root, or mount /proc without `hidepid`)",
	}, got)
}

// TestTheBuiltInLoadIsDividedAmongItsProcesses measures the simulated driver like a real one.
func TestTheBuiltInLoadIsDividedAmongItsProcesses(t *testing.T) {
	rig := newProcessRig(t)
	now := t0
	clock := func() time.Time { return now }
	source := simsource.New(simsource.Loads(1, 1, clock), 100*time.Millisecond, 1)
	require.NoError(t, source.Open())
	rig.adopt(source.Devices())
	rig.processReader.source, rig.processReader.opened = simsource.Processes(1, 1, clock), true
	for range 600 {
		var b gpudata.Batch
		require.NoError(t, source.Read(&b))
		rig.take(&b)
		rig.processReader.read(now)
		now = now.Add(100 * time.Millisecond)
	}
	rig.second = 60
	values, _ := rig.emit(t)
	trainer, server := values["process.energy 4711 slurm-48213"], values["process.energy 4712 infer-a"]
	// Of a cycle of 10 s, the trainer has 0.7 of 4 s of 612 W and 3 s of 377 W beyond the idle
	// power, and the server 0.3 of the former and 1 s of 132 W. What each draws in the 4 s is
	// unknown.
	assert.InDelta(t, 6*(0.7*4*612+3*377), trainer, 1700)
	assert.InDelta(t, 6*(0.3*4*612+132), server, 1700)
	assert.InDelta(t, 60*78, values["idle.energy true"]+values["idle.energy false"], 500)
	assert.Less(t, values["unattributed.energy"], 0.03*(trainer+server))
	assert.InDelta(t, 40<<30, values["process.memory.usage 4711 slurm-48213"], 0)
}

// TestMoreProcessesThanTheLimit runs idle processes up to the limit, a busy one in their place, and
// short ones beyond it: the energy of what has no room is unattributed with its reason, counted and
// reported.
func TestMoreProcessesThanTheLimit(t *testing.T) {
	rig := newProcessRig(t)
	rig.processReader.meter = processmeter.New(rig.processes, 3, nil)
	rig.processReader.meter.Adopt(rig.known)
	core, logs := observer.New(zap.WarnLevel)
	rig.set.Logger = zap.New(core)
	rig.run(20, 100, nil, 101, 102, 103)
	rig.emit(t)
	rig.run(10, 400, map[int64]uint32{104: 100}, 101, 102, 103, 104)
	values, _ := rig.emit(t)
	assert.Positive(t, values["process.energy 104"])
	for pid := int64(200); pid < 210; pid++ {
		rig.run(2, 400, map[int64]uint32{pid: 100}, 101, 102, 103, pid)
	}
	values, _ = rig.emit(t)
	var sum float64
	for name, v := range values {
		if strings.Contains(name, "energy ") {
			sum += v
		}
	}
	assert.Greater(t, values["unattributed.energy process_limit"], 8*2*250.)
	assert.InDelta(t, rig.joules-100, sum, 1e-6)
	assert.Equal(t, 1, logs.FilterMessageSnippet("max_per_device").Len())
}

// TestPodsOfOtherComponents emits what another component has divided among pods, of this host and
// of another one, until a pod has ended.
func TestPodsOfOtherComponents(t *testing.T) {
	id := component.MustNewID("gpu_samples")
	r, _ := testReceiver(t, func(c *Config) { c.Source, c.Samples = sourceSamples, &id })
	sink := &consumertest.MetricsSink{}
	r.nextMetrics = sink
	store := devicesamples.NewStore(devicesamples.NewDefaultConfig(), nil)
	r.divisions = store
	board := h100
	board.HostName = "other"
	local := h100
	local.ID = "GPU-2"
	instance := board
	instance.ID, instance.Parent = "MIG-1", board.ID
	pod := func(id int64, on devicesamples.Device, name string, joules, utilization float64) devicesamples.DividedUse {
		return devicesamples.DividedUse{
			DeviceUse: &devicesamples.DeviceUse{Namespace: "ml", Pod: name, PodUID: "uid-" + name}, On: on, ID: id, Joules: joules,
			Error: joules / 10, Utilization: utilization, Bytes: -1,
		}
	}
	all := []devicesamples.Division{{
		Device: board, Time: t0.UnixNano(), Idle: [2]float64{60, 0}, Unattributed: 5,
		Users: []devicesamples.DividedUse{pod(1, board, "a", 30, -1), pod(2, instance, "b", 20, 0.5)},
	}, {Device: local, Time: t0.UnixNano(), Idle: [2]float64{0, 7}}}
	store.SetDivisions(id, func() []devicesamples.Division { return all })
	w := newProcessWriter(r)
	emit := func(second int) map[string]float64 {
		sink.Reset()
		values := pmetric.NewMetrics()
		w.prepare(t.Context(), t0.Add(time.Duration(second)*time.Second)).MoveAndAppendTo(values.ResourceMetrics())
		r.sendMetrics(t.Context(), values)
		got := map[string]float64{}
		for _, md := range sink.AllMetrics() {
			require.NoError(t, conformance.Metrics(md))
			for _, rm := range md.ResourceMetrics().All() {
				host, _ := rm.Resource().Attributes().Get("host.name")
				for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
					for _, p := range points(m).All() {
						attributes := p.Attributes().AsRaw()
						require.NotContains(t, attributes, "process.pid")
						v := p.DoubleValue()
						if p.Flags().NoRecordedValue() {
							v = -1
						}
						got[fmt.Sprintf("%v %v %v %v", host.AsString(), attributes["hw.id"], m.Name(), attributes["k8s.pod.name"])] = v
					}
				}
			}
		}
		return got
	}
	got := emit(10)
	on := "other " + board.ID + " "
	want := map[string]float64{
		on + "gpu.process.energy a": 30, on + "gpu.process.energy_error a": 3, on + "gpu.idle.energy <nil>": 60,
		on + "gpu.unattributed.energy <nil>": 5, "other MIG-1 gpu.process.energy b": 20, "other MIG-1 gpu.process.energy_error b": 2,
		"other MIG-1 gpu.process.utilization b":                         0.5,
		r.host.name + " " + local.ID + " gpu.idle.energy <nil>":         7,
		r.host.name + " " + local.ID + " gpu.unattributed.energy <nil>": 0,
	}
	assert.Equal(t, want, got)
	all[0].Users = all[0].Users[:1]
	got = emit(20)
	assert.Equal(t, -1., got["other MIG-1 gpu.process.energy b"], "the series has ended")
	assert.Equal(t, 30., got[on+"gpu.process.energy a"])
}

func TestProcessesOfAJobAreUses(t *testing.T) {
	now := t0
	source := simsource.Processes(1, 7, func() time.Time { return now })
	cfg := createDefaultConfig().(*Config)
	r := newProcessReader(cfg, nil, source, nil, &operationalEvents{}, zap.NewNop())
	id := simsource.Loads(1, 7, func() time.Time { return now })[0].Describe().ID
	r.meter.Adopt([]devicesamples.Device{{ID: id}})
	var calls int
	var uses []devicesamples.DeviceUse
	r.uses = func(list []devicesamples.DeviceUse) { calls, uses = calls+1, list }
	for range 12 {
		r.read(now)
		now = now.Add(time.Second)
	}
	assert.Equal(t, 2, calls, "every 10 s")
	require.Len(t, uses, 2)
	jobs := []string{uses[0].Job, uses[1].Job}
	slices.Sort(jobs)
	assert.Equal(t, []string{"", "slurm-48213"}, jobs)
	assert.Equal(t, []string{id, ""}, []string{uses[0].Device, uses[0].Pod}, "the kubelet names pods")
}
