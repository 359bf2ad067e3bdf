// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"hash/maphash"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestIdentityFindsTheDevice(t *testing.T) {
	bdf := nominal
	bdf.PCIBDF, bdf.HostName = "00000000:17:00.0", "node1"
	for name, tt := range map[string]struct {
		edit func(*Config)
		span func(s ptrace.Span, td *traces)
		id   any // hw.id of the joined span
	}{
		"bare UUID": {id: gpu0[4:], span: func(s ptrace.Span, _ *traces) { s.Attributes().PutStr("hw.id", gpu0[4:]) }},
		"host and PCI address": {id: gpu0, span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			s.Attributes().PutStr("gpu.pci.bdf", "0000:17:00.0")
			td.rs.Resource().Attributes().PutStr("host.name", "node1")
		}},
		"hw.id on the resource": {span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			td.rs.Resource().Attributes().PutStr("hw.id", gpu0)
		}},
		"hw.id on the scope": {span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			td.ss.Scope().Attributes().PutStr("hw.id", gpu0)
		}},
		"PCI address on the scope": {id: gpu0, span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			td.ss.Scope().Attributes().PutStr("gpu.pci.bdf", "0000:17:00.0")
			td.rs.Resource().Attributes().PutStr("host.name", "node1")
		}},
		"mapped ordinal": {
			id:   gpu0,
			edit: func(c *Config) { c.Ordinals = map[string]string{"3": gpu0} },
			span: func(s ptrace.Span, _ *traces) {
				s.Attributes().Remove("hw.id")
				s.Attributes().PutInt("gpu.device.ordinal", 3)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				zero := time.Now()
				r := newRig(t).join(func(c *Config) {
					if tt.edit != nil {
						tt.edit(c)
					}
				})
				defer r.close()
				r.run(r.device(bdf), steady(zero, 300))
				time.Sleep(time.Second)
				td := newTraces("a")
				tt.span(td.gpu(1, 0, zero, time.Now()), td)
				r.consume(td.Traces)
				settle()
				s := r.spans()[1]
				assert.InDelta(t, 300, energy(t, s), 1e-6)
				assert.Equal(t, tt.id, s.Attributes().AsRaw()["hw.id"], "written where neither span nor resource had one")
			})
		})
	}
}

func TestPCIAddressOfAnotherHostDoesNotMatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := nominal
		d.PCIBDF, d.HostName = "0000:17:00.0", "node1"
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(d), steady(time.Now(), 300))
		td := newTraces("a")
		s := td.gpu(1, 0, time.Now().Add(-time.Second), time.Now())
		s.Attributes().Remove("hw.id")
		s.Attributes().PutStr("gpu.pci.bdf", "0000:17:00.0")
		td.rs.Resource().Attributes().PutStr("host.name", "node2")
		r.consume(td.Traces)
		time.Sleep(r.maxWait() + time.Millisecond)
		assert.NotContains(t, r.spans()[1].Attributes().AsRaw(), "gpu.join.coverage")
	})
}

func TestAResourceNamesTheWorkload(t *testing.T) {
	attrs := pcommon.NewMap()
	require.NoError(t, attrs.FromRaw(map[string]any{
		"host.id": "id-1", "host.name": "node1", "k8s.namespace.name": "ml", "k8s.pod.name": "vllm-0", "k8s.pod.uid": "uid-1",
		"k8s.container.name": "server", "container.id": "c-1", "process.pid": 42,
	}))
	assert.Equal(t, devicesamples.Workload{
		HostID: "id-1", HostName: "node1", Namespace: "ml", Pod: "vllm-0", PodUID: "uid-1",
		Container: "server", ContainerID: "c-1", PID: 42,
	}, identifier{seed: maphash.MakeSeed()}.resource(attrs).workload)
}

func TestMIGInstancesHaveRatiosOfTheirOwnAndShareTheBoard(t *testing.T) {
	const mig1, mig2 = "MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000"
	for _, withEnergy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			zero := time.Now()
			r := newRig(t).join(func(c *Config) { c.EnergyOnMIG = withEnergy })
			defer r.close()
			r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
				steady(zero, 300)(now, s)
				s.Known &^= 1 << devicesamples.Utilization
				s.Set(devicesamples.SMUtilization, 0.7)
			})
			for id, util := range map[string]float64{mig1: 0.2, mig2: 0.9} {
				r.run(r.device(devicesamples.Device{
					ID: id, Parent: gpu0, Interval: 100 * time.Millisecond,
					Source: "simulated",
				}),
					func(_ time.Time, s *devicesamples.Sample) { s.Set(devicesamples.Utilization, util) })
			}
			time.Sleep(2 * time.Second)
			td := newTraces("a")
			td.gpu(1, 0, zero.Add(time.Second), time.Now()).Attributes().PutStr("hw.id", mig1)
			td.resource("b").gpu(2, 0, zero.Add(time.Second), time.Now()).Attributes().PutStr("hw.id", mig2[4:])
			r.consume(td.Traces)
			settle()
			s := r.spans()
			assert.InDelta(t, 0.2, attr(t, s[1], "gpu.utilization"), 1e-9)
			assert.InDelta(t, 0.9, attr(t, s[2], "gpu.utilization"), 1e-9)
			assert.InDelta(t, 300, attr(t, s[1], "gpu.power"), 1e-9, "the board's")
			assert.NotContains(t, s[1].Attributes().AsRaw(), "gpu.sm.utilization", "also of others")
			if withEnergy {
				assert.InDelta(t, 150, energy(t, s[1]), 1e-6)
				assert.InDelta(t, 150, energy(t, s[2]), 1e-6)
			} else {
				assert.NotContains(t, s[1].Attributes().AsRaw(), "gpu.energy")
			}
		})
	}
}

// A scope with a measurement source was joined by another Collector; usage records and host work
// get no share.
func TestJoinedAndHostSpansPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(func(*Config) {})
		defer r.close()
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		td.gpu(2, 0, zero, time.Now()).Attributes().PutStr("gpu.operation.type", "share")
		td.gpu(3, 0, zero, time.Now()).Attributes().PutStr("gpu.operation.type", "host")
		td.scope("joined")
		td.ss.Scope().Attributes().PutStr("gpu.measurement.source", "dcgm")
		td.gpu(4, 0, zero, time.Now())
		r.consume(td.Traces)
		settle()
		all := r.spans()
		assert.InDelta(t, 300, energy(t, all[1]), 1e-6)
		for _, id := range []uint64{2, 3, 4} {
			_, there := all[id].Attributes().Get("gpu.energy")
			assert.False(t, there, id)
		}
	})
}

// A process ID is unique only within its host and container.
func TestProcessesWithOneNumberAreDistinguishedByHost(t *testing.T) {
	id := identifier{seed: maphash.MakeSeed()}
	seen := map[uint64]string{}
	for _, key := range []string{"", "host.id", "host.name", "container.id", "k8s.pod.uid", "k8s.pod.name"} {
		attrs := pcommon.NewMap()
		attrs.PutInt("process.pid", 7)
		if key != "" {
			attrs.PutStr(key, "x")
		}
		p := id.resource(attrs).process
		assert.NotContains(t, seen, p, key)
		seen[p] = key
		attrs.PutStr("thread", "9") // resources of one process may differ in details
		assert.Equal(t, p, id.resource(attrs).process)
	}
}
