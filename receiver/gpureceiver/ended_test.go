// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpureceiver

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/otelgpu/otelgpu/internal/conformance"
	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/gpuquantity"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/gpudata"
	"github.com/otelgpu/otelgpu/receiver/gpureceiver/internal/podresources"
)

// keptSeries are the series that an exporter keeps, as Prometheus' does: until a point ends them.
type keptSeries map[string]bool

// collect takes the values, adds the points of the next emission and returns how many series ended.
func (k keptSeries) collect(t *testing.T, r *gpuReceiver, b *gpudata.Batch) (ended int) {
	t.Helper()
	r.take(b)
	md := r.collect(t0)
	require.NoError(t, conformance.Metrics(md))
	for _, m := range md.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().All() {
		for _, p := range points(m).All() {
			labels := map[string]string{}
			for key, v := range p.Attributes().All() {
				labels[key] = v.AsString()
			}
			id := m.Name()
			for _, key := range slices.Sorted(maps.Keys(labels)) {
				id += " " + key + "=" + labels[key]
			}
			if !p.Flags().NoRecordedValue() {
				k[id] = true
				continue
			}
			assert.Equal(t, 1, points(m).Len(), "Prometheus' exporter ignores the points of a metric after one that ends a series")
			assert.Equal(t, pmetric.NumberDataPointValueTypeEmpty, p.ValueType())
			assert.Contains(t, k, id, "only series that exist end")
			delete(k, id)
			ended++
		}
	}
	return ended
}

// of returns the series with all the texts.
func (k keptSeries) of(texts ...string) (found []string) {
	for _, id := range slices.Sorted(maps.Keys(k)) {
		if !slices.ContainsFunc(texts, func(s string) bool { return !strings.Contains(id+" ", s) }) {
			found = append(found, id)
		}
	}
	return found
}

func reading(device, ms int) []gpudata.Value {
	return []gpudata.Value{
		val(device, gpuquantity.Power, ms, 300), val(device, gpuquantity.Energy, ms, float64(ms)),
		val(device, gpuquantity.MemoryUsed, ms, 8<<30), val(device, gpuquantity.MemoryLimit, ms, 80<<30),
		val(device, gpuquantity.Throttle, ms, float64(devicesamples.ThrottleSWPowerCap)),
	}
}

func TestSeriesOfTheLastSourceEnd(t *testing.T) {
	r, _ := testReceiver(t, func(c *Config) {
		c.Metrics = map[string]MetricConfig{"gpu.flop.rate.limit": {Enabled: true}}
	})
	ok, k := []gpudata.Health{gpudata.HealthOK}, keptSeries{}
	nvml := h100
	nvml.Source = "nvml"
	r.adopt([]devicesamples.Device{nvml})
	assert.Zero(t, k.collect(t, r, &gpudata.Batch{Values: reading(0, 0), Health: ok}))
	assert.Zero(t, k.collect(t, r, &gpudata.Batch{Values: reading(0, 100), Health: ok}))
	before, limits := len(k), len(k.of("gpu.flop.rate.limit"))
	require.Positive(t, limits)
	require.Len(t, k.of("source=nvml"), before-limits)

	r.adopt([]devicesamples.Device{h100})
	assert.Equal(t, before-limits, k.collect(t, r, &gpudata.Batch{Values: reading(0, 200), Health: ok}))
	assert.Empty(t, k.of("source=nvml"))
	assert.Len(t, k.of("source=dcgm"), before-limits)
	assert.Zero(t, k.collect(t, r, &gpudata.Batch{Values: reading(0, 300), Health: ok}), "they end once")

	r.adopt([]devicesamples.Device{nvml}) // and back, before the new source has values
	k.collect(t, r, &gpudata.Batch{})
	assert.Empty(t, k.of("source="))
	k.collect(t, r, &gpudata.Batch{Values: reading(0, 400), Health: ok})
	assert.Len(t, k, before)
}

func TestSeriesOfTheLastPodEnd(t *testing.T) {
	r, _ := testReceiver(t, nil)
	k := keptSeries{}
	pod := func(name string) {
		owners := map[string]podresources.Pod{}
		if name != "" {
			owners["GPU-1"] = podresources.Pod{Namespace: "ml", Name: name, Container: "main"}
		}
		r.pods.Store(podresources.NewDevices(owners))
	}
	r.adopt([]devicesamples.Device{h100})
	for i, name := range []string{"", "a", "a", "b", "", "a"} {
		pod(name)
		k.collect(t, r, &gpudata.Batch{Values: reading(0, 100*i)})
		for _, metric := range []string{"hw.power ", "hw.gpu.memory.usage ", "hw.energy ", "gpu.throttle.time "} {
			require.Len(t, k.of(metric), 1, "%s while pod %q uses the device", metric, name)
		}
		if name != "" {
			assert.Len(t, k.of("hw.power ", "k8s.pod.name="+name), 1)
		}
	}
}

func TestSeriesOfDevicesThatAreGoneEnd(t *testing.T) {
	r, _ := testReceiver(t, nil)
	r.nextMetrics = consumertest.NewNop()
	second, instance := h100, h100
	second.ID, second.Name = "GPU-2", "gpu1"
	instance.ID, instance.Parent, instance.MIG.Profile = "MIG-1", "GPU-1", "1g.10gb"
	all, ok := []devicesamples.Device{h100, second, instance}, []gpudata.Health{1, 1, 1}
	for i := range ok {
		ok[i] = gpudata.HealthOK
	}
	k := keptSeries{}
	read := func(ms int, devices []devicesamples.Device) {
		r.adopt(devices)
		b := &gpudata.Batch{Health: ok[:len(devices)]}
		for i := range devices {
			b.Values = append(b.Values, reading(i, ms)...)
		}
		k.collect(t, r, b)
	}
	read(0, all)
	first := len(k)
	read(100, all[:1])
	assert.Empty(t, k.of("hw.id=MIG-1 "))
	assert.Equal(t, k.of("hw.id=GPU-2 ", "hw.status "), k.of("hw.id=GPU-2 "), "a lost GPU has a status")
	assert.Len(t, k.of("hw.id=GPU-2 "), 4)
	read(200, all[:1])
	read(300, all)
	assert.GreaterOrEqual(t, len(k), first)

	r.adopt(all[:2]) // the instance is replaced between two emissions
	again := instance
	again.Name = "gpu0-1g.10gb-7"
	read(400, []devicesamples.Device{h100, second, again})
	assert.Len(t, k.of("hw.id=MIG-1 ", "hw.power "), 1)
}
