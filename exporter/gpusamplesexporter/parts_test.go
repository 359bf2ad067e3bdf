// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpusamplesexporter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// labels returns the labels of dcgm-exporter for GPU-1, and more.
func labels(more ...string) map[string]any {
	l := map[string]any{
		"UUID": "GPU-1", "gpu": "0", "device": "nvidia0", "modelName": "NVIDIA H100 80GB HBM3", "Hostname": "n1",
	}
	for i := 0; i < len(more); i += 2 {
		l[more[i]] = more[i+1]
	}
	return l
}

// TestPodsOfASharedGPUAreItsParts writes what dcgm-exporter 4.5.3 to 4.8.2 exposes with
// KUBERNETES_VIRTUAL_GPUS=true (NVIDIA/dcgm-exporter#594): the device's series of utilization and
// memory and one for each pod, in any order; of the power, of which a pod has no part, a copy for
// each pod.
func TestPodsOfASharedGPUAreItsParts(t *testing.T) {
	pod := func(name string) map[string]any {
		return labels("pod", name, "namespace", "ml", "container", "main", "pod_uid", "uid-"+name, "vgpu", "0")
	}
	for seed := range uint64(20) {
		r := newRig(t)
		at := time.Now().Add(-time.Minute)
		for i := range 3 {
			now := at.Add(time.Duration(i) * time.Second)
			points := []point{
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 95, attrs: labels()},
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 70, attrs: pod("a")},
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 25, attrs: pod("b")},
				{name: "DCGM_FI_DEV_GPU_UTIL", value: 0, attrs: pod("c")},
				{name: "DCGM_FI_DEV_FB_USED", value: 60000, attrs: labels()},
				{name: "DCGM_FI_DEV_FB_USED", value: 40000, attrs: pod("a")},
				{name: "DCGM_FI_DEV_FB_USED", value: 19000, attrs: pod("b")},
				{name: "DCGM_FI_DEV_FB_USED", value: 0, attrs: pod("c")},
				{name: "DCGM_FI_DEV_POWER_USAGE", value: 500, attrs: pod("a")},
				{name: "DCGM_FI_DEV_POWER_USAGE", value: 500, attrs: pod("b")},
				{name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value: 5e5 * float64(i), sum: true, attrs: pod("a")},
				{name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", value: 5e5 * float64(i), sum: true, attrs: pod("b")},
				{name: "DCGM_FI_PROF_PCIE_TX_BYTES", value: 1e6, attrs: pod("a")},
				{name: "DCGM_FI_PROF_PCIE_TX_BYTES", value: 1e6, attrs: pod("b")},
			}
			for k := range points {
				points[k].at = now
			}
			rand.New(rand.NewPCG(seed, 1)).Shuffle(len(points), func(a, b int) { points[a], points[b] = points[b], points[a] })
			r.write(points...)
		}
		end := at.Add(2 * time.Second)
		for f, want := range map[devicesamples.Field]float64{
			devicesamples.Utilization: 0.95, devicesamples.MemoryUsed: 60000 << 20, devicesamples.Power: 500,
		} {
			got, ok := r.value("GPU-1", f, end)
			require.True(t, ok, f.String())
			assert.InDelta(t, want, got, 1e-9*want, f.String())
		}
		v := r.store.Acquire()
		d, _ := v.Lookup("GPU-1")
		joules, _ := d.Integral(devicesamples.Energy, at.UnixNano(), end.UnixNano())
		bytes, _ := d.Integral(devicesamples.PCIeTransmit, at.UnixNano(), end.UnixNano())
		v.Release()
		assert.InDelta(t, 1000, joules, 1e-9)
		assert.InDelta(t, 2e6, bytes, 1e-6)
		assert.Equal(t, map[string]int64{"written": 15, "part": 18, "copy": 9}, r.outcomes())
		ids, by := r.store.DevicesOf(nil, &devicesamples.Workload{Namespace: "ml", Pod: "b"}, end.UnixNano(), end.UnixNano())
		assert.Equal(t, []string{"GPU-1"}, ids)
		assert.Equal(t, devicesamples.FoundByPod, by)

		// gpu_join receives the shares of the pods, also of one that was idle.
		windows := r.store.Shares("GPU-1", at.UnixNano(), end.UnixNano(), nil)
		require.Len(t, windows, 2)
		for i, w := range windows {
			assert.Equal(t, at.Add(time.Duration(i)*time.Second).UnixNano(), w.From)
			assert.Equal(t, at.Add(time.Duration(i+1)*time.Second).UnixNano(), w.To)
			require.Len(t, w.Users, 3)
			for _, u := range w.Users {
				want := map[string]float64{"a": 70. / 95, "b": 25. / 95}[u.Pod]
				assert.InDelta(t, want, u.Share, 1e-9, u.Pod)
				assert.Equal(t, devicesamples.MatchGroup,
					u.Match(&devicesamples.Workload{Namespace: "ml", Pod: u.Pod, PID: 1, HostName: u.Pod}, "", "n1"))
			}
		}
	}
}

// TestASeriesWithAPodIsTheDevicesIfThereIsNoOther: with one pod on a device, its series is the only
// one. Series of several pods that agree are copies; series that differ are parts, of which none is
// the device's value.
func TestASeriesWithAPodIsTheDevicesIfThereIsNoOther(t *testing.T) {
	for name, x := range map[string]struct {
		values []float64 // by pod
		want   float64
		ok     bool
	}{
		"one pod":    {[]float64{60}, 0.6, true},
		"two copies": {[]float64{60, 60}, 0.6, true},
		"two parts":  {[]float64{60, 30}, 0, false},
	} {
		r := newRig(t)
		at := time.Now().Add(-time.Second)
		var points []point
		for i, v := range x.values {
			points = append(points, point{
				name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: v, attrs: labels("pod", fmt.Sprint(i), "namespace", "ml"),
			})
		}
		r.write(points...)
		got, ok := r.value("GPU-1", devicesamples.Utilization, at)
		assert.Equal(t, x.ok, ok, name)
		assert.Equal(t, x.want, got, name)
	}
}

// TestPartsStayPartsWhenTheyAreEqual: two idle pods of a shared device have equal series, too.
func TestPartsStayPartsWhenTheyAreEqual(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-10 * time.Minute)
	both := func(after time.Duration, a, b float64) {
		at := at.Add(after)
		r.write(point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: a, attrs: labels("pod", "a")},
			point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: b, attrs: labels("pod", "b")})
	}
	both(0, 60, 30)
	both(time.Second, 20, 20)
	_, ok := r.value("GPU-1", devicesamples.Utilization, at.Add(time.Second))
	assert.False(t, ok)
	both(6*time.Minute, 20, 20)
	_, ok = r.value("GPU-1", devicesamples.Utilization, at.Add(6*time.Minute))
	assert.False(t, ok)
	for after, want := range map[time.Duration]bool{5 * time.Minute: false, 5*time.Minute + 1: true} {
		r := newRig(t)
		both := []point{
			{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 60, attrs: labels("pod", "a")},
			{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 30, attrs: labels("pod", "b")},
		}
		r.write(both...)
		r.write(point{name: "DCGM_FI_DEV_GPU_UTIL", at: at.Add(after), value: 20, attrs: labels("pod", "a")})
		_, ok := r.value("GPU-1", devicesamples.Utilization, at.Add(after))
		assert.Equal(t, want, ok, "one pod alone after %s", after)
	}
}

// TestADeviceThatAPodGetsKeepsItsSeries: a device without a pod, then with one.
func TestADeviceThatAPodGetsKeepsItsSeries(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Minute)
	r.write(point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 0, attrs: labels()})
	r.write(point{name: "DCGM_FI_DEV_GPU_UTIL", at: at.Add(time.Second), value: 50, attrs: labels("pod", "a")})
	got, ok := r.value("GPU-1", devicesamples.Utilization, at.Add(time.Second))
	assert.True(t, ok)
	assert.Equal(t, 0.5, got)
}

// TestProcessesAreParts writes metrics of a device that name a process, beside the device's own.
func TestProcessesAreParts(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Minute)
	id := map[string]any{"hw.id": "GPU-1"}
	r.write(
		point{name: "hw.gpu.memory.usage", at: at, value: 700, attrs: id},
		point{name: "hw.gpu.memory.usage", at: at, value: 300, attrs: with(id, "process.pid", "7")},
		point{name: "hw.gpu.utilization", at: at, value: 0.25, attrs: with(with(id, "process.pid", "8"), "hw.gpu.task", "general")})
	used, _ := r.value("GPU-1", devicesamples.MemoryUsed, at)
	assert.Equal(t, 700.0, used)
	_, ok := r.value("GPU-1", devicesamples.Utilization, at)
	assert.False(t, ok, "the device's utilization is unknown")
	assert.Equal(t, map[string]int64{"written": 1, "part": 2}, r.outcomes())
}

// TestRecordedVirtualGPUs reads a scrape of the exporter with KUBERNETES_VIRTUAL_GPUS=true.
func TestRecordedVirtualGPUs(t *testing.T) {
	path := recorded.Path(t, "per-process/dcgm-exporter-virtual-gpus.prom")
	r := newRig(t)
	at := time.Now().Add(-time.Second)
	r.write(scrape(t, path, at)...)
	const id = "GPU-d0090727-b9e3-839f-fd85-30cea38e3171"
	for f, want := range map[devicesamples.Field]float64{
		devicesamples.Utilization: 0.95, devicesamples.MemoryUsed: 21000 << 20, devicesamples.Power: 248.5,
	} {
		got, ok := r.value(id, f, at)
		assert.True(t, ok)
		assert.InDelta(t, want, got, 1e-9*want, f.String())
	}
	for _, pod := range []string{"infer-a", "infer-b"} {
		ids, _ := r.store.DevicesOf(nil, &devicesamples.Workload{Namespace: "serve", Pod: pod, Container: "vllm"},
			at.UnixNano(), at.UnixNano())
		assert.Equal(t, []string{id}, ids)
	}
}

// TestPodLabelsJoinSpans writes the labels of pods as dcgm-exporter, Prometheus and OpenTelemetry
// name them.
func TestPodLabelsJoinSpans(t *testing.T) {
	for name, l := range map[string][]string{
		"dcgm-exporter":         {"pod", "train-0", "namespace", "ml", "container", "main"},
		"--use-old-namespace":   {"pod_name", "train-0", "pod_namespace", "ml", "container_name", "main"},
		"scraped by Prometheus": {"pod", "dcgm-exporter-x", "namespace", "gpu-operator", "container", "nvidia-dcgm-exporter", "exported_pod", "train-0", "exported_namespace", "ml", "exported_container", "main"},
		"OpenTelemetry":         {"k8s.pod.name", "train-0", "k8s.namespace.name", "ml", "k8s.container.name", "main"},
	} {
		r := newRig(t)
		at := time.Now().Add(-time.Minute)
		for i := range 2 {
			now := at.Add(time.Duration(i) * 30 * time.Second)
			r.write(
				point{name: "DCGM_FI_DEV_POWER_USAGE", at: now, value: 300, attrs: labels(l...)},
				point{name: "DCGM_FI_DEV_POWER_USAGE", at: now, value: 100, attrs: map[string]any{"UUID": "GPU-2", "Hostname": "n1"}})
		}
		found := func(w devicesamples.Workload) []string {
			now := time.Now().UnixNano()
			ids, _ := r.store.DevicesOf(nil, &w, now, now)
			return ids
		}
		assert.Equal(t, []string{"GPU-1"}, found(devicesamples.Workload{Namespace: "ml", Pod: "train-0", Container: "main"}), name)
		assert.Empty(t, found(devicesamples.Workload{Namespace: "other", Pod: "train-0"}), name)
		watts, ok := r.value("GPU-1", devicesamples.Power, at)
		assert.True(t, ok, name)
		assert.Equal(t, 300.0, watts, name)
	}
}

// TestTheExportersOwnPodIsNoUser: a series of a device that no pod uses has the labels of the
// target.
func TestTheExportersOwnPodIsNoUser(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Second)
	own := []string{"pod", "dcgm-exporter-x", "namespace", "gpu-operator", "container", "nvidia-dcgm-exporter"}
	r.write(
		point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 95, attrs: labels(own...)},
		point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 70, attrs: labels(append(slices.Clone(own), "exported_pod", "a")...)},
		point{name: "DCGM_FI_DEV_GPU_UTIL", at: at, value: 25, attrs: labels(append(slices.Clone(own), "exported_pod", "b")...)})
	got, _ := r.value("GPU-1", devicesamples.Utilization, at)
	assert.InDelta(t, 0.95, got, 1e-12)

	md := batch(t, point{name: "DCGM_FI_DEV_POWER_USAGE", at: at, value: 95, attrs: labels(own...)})
	md.ResourceMetrics().At(0).Resource().Attributes().PutStr("k8s.pod.name", "dcgm-exporter-x")
	r = newRig(t)
	require.NoError(t, r.ConsumeMetrics(t.Context(), md))
	ids, by := r.store.DevicesOf(nil, &devicesamples.Workload{Namespace: "gpu-operator", Pod: "dcgm-exporter-x"},
		at.UnixNano(), at.UnixNano())
	assert.Equal(t, devicesamples.FoundByHost, by, ids)
}

// TestAPodThatEndedHasItsDeviceNoLonger follows the labels over scrapes 15 s apart.
func TestAPodThatEndedHasItsDeviceNoLonger(t *testing.T) {
	r := newRig(t)
	w := devicesamples.Workload{Namespace: "ml", Pod: "a"}
	at := time.Now().Add(-time.Minute)
	power := func(seconds int, l map[string]any) {
		r.write(point{name: "DCGM_FI_DEV_POWER_USAGE", at: at.Add(time.Duration(seconds) * time.Second), value: 300, attrs: l},
			point{
				name: "DCGM_FI_DEV_POWER_USAGE", at: at.Add(time.Duration(seconds) * time.Second), value: 300,
				attrs: map[string]any{"UUID": "GPU-2", "Hostname": "n1"},
			})
	}
	power(0, labels("pod", "a", "namespace", "ml"))
	power(15, labels("pod", "a", "namespace", "ml"))
	power(30, labels())
	later := time.Now().Add(5 * time.Minute).UnixNano()
	ids, _ := r.store.DevicesOf(nil, &w, later, later)
	assert.Empty(t, ids)
}

// TestOtherHardwareIsNoGPU writes the power of all hardware of a host, as MetricsHub does.
func TestOtherHardwareIsNoGPU(t *testing.T) {
	r := newRig(t)
	at := time.Now().Add(-time.Second)
	r.write(point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": "GPU-1", "hw.type": "gpu"}},
		point{name: "hw.power", at: at, value: 300, attrs: map[string]any{"hw.id": "GPU-2"}})
	others := []string{"fan", "power_supply", "cpu", "enclosure", "memory", "temperature", "voltage", "physical_disk"}
	for _, kind := range others {
		for _, name := range []string{"hw.power", "hw.energy", "hw.temperature"} {
			r.write(point{name: name, at: at, value: 30, attrs: map[string]any{"hw.id": kind + "1", "hw.type": kind}})
		}
	}
	md := batch(t, point{name: "hw.power", at: at, value: 30, attrs: map[string]any{"hw.id": "fan2"}})
	md.ResourceMetrics().At(0).Resource().Attributes().PutStr("hw.type", "fan")
	require.NoError(t, r.ConsumeMetrics(t.Context(), md))
	v := r.store.Acquire()
	assert.Len(t, v.Devices(nil), 2)
	v.Release()
	assert.Equal(t, map[string]int64{"written": 2, "other_hardware": int64(3*len(others) + 1)}, r.outcomes())
}

// TestNamesThatAreUnknownAreLogged writes metrics that no rule has, as a pipeline or an old
// exporter names them.
func TestNamesThatAreUnknownAreLogged(t *testing.T) {
	for _, file := range []string{"lower_case_names", "names_1x"} {
		points := scrape(t, recorded.Path(t, "cases/energy/"+file+".prom"), time.Now())
		r := newRig(t)
		r.write(point{name: "http_requests", at: time.Now(), value: 1})
		require.Empty(t, r.logs.All(), "no metric of a device")
		for range 3 {
			r.write(points...)
		}
		require.Len(t, r.logs.All(), 1, file)
		assert.Contains(t, fmt.Sprint(r.logs.All()[0].ContextMap()["names"]), points[0].name)
	}
}

// TestJobLabelsAreUses: a series names the job that uses the device, by itself or for a process.
func TestJobLabelsAreUses(t *testing.T) {
	for name, attrs := range map[string]map[string]any{
		"dcgm-exporter": labels("hpc_job", "48213"),
		"the receiver gpu": {
			"hw.id": "GPU-1", "hw.type": "gpu", "gpu.job.id": "slurm-48213", "process.pid": "7", "host.name": "n1",
		},
	} {
		r := newRig(t)
		at := time.Now().Add(-time.Minute)
		for i := range 2 {
			now := at.Add(time.Duration(i) * 15 * time.Second)
			points := []point{{name: "DCGM_FI_DEV_POWER_USAGE", at: now, value: 300, attrs: attrs}}
			if attrs["process.pid"] != nil {
				points = []point{
					{name: "hw.gpu.memory.usage", at: now.Add(-time.Second), value: 400, attrs: map[string]any{"hw.id": "GPU-1"}},
					{name: "gpu.process.memory.usage", at: now, value: 300, attrs: attrs},
				}
			}
			r.write(points...)
		}
		uses := r.store.Uses(nil, "GPU-1")
		require.Len(t, uses, 1, name)
		assert.Equal(t, "slurm-48213", uses[0].Job, name)
	}
}
