// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/sinktest"
)

// Spans that arrive before their device is known get it when it is found, and take part in the
// energy attribution as if they had had it from the beginning. Of the three spans of one second at
// 300 W, two arrive before, in two requests that are repeated; the third one names the device.
func TestADeviceIsFoundAfterTheSpansArrived(t *testing.T) {
	uses := func(r *rig, kind devicesamples.UseKind, u devicesamples.DeviceUse) {
		u.Device = gpu0
		r.store.(devicesamples.UseWriter).SetUses(
			devicesamples.UseOrigin{Owner: writerID, Kind: kind, HostName: "node1"}, []devicesamples.DeviceUse{u}, time.Minute)
	}
	other := nominal
	other.ID, other.HostName = "GPU-eeeeeeee-0000-0000-0000-000000000001", "node1"
	for name, x := range map[string]struct {
		span     func(resource, span pcommon.Map)
		known    func(r *rig) // before
		learn    func(r *rig) // 3 s after the spans
		lateOnly bool         // the device has samples before
		process  bool         // the first two spans are of one process
	}{
		"hw.id": {span: func(_, s pcommon.Map) { s.PutStr("hw.id", gpu0) }},
		"PCI address": {span: func(r, s pcommon.Map) {
			r.PutStr("host.name", "node1")
			s.PutStr("gpu.pci.bdf", "0000:17:00.0")
		}},
		"ordinal": {span: func(_, s pcommon.Map) { s.PutInt("gpu.device.ordinal", 7) }},
		"host":    {span: func(r, _ pcommon.Map) { r.PutStr("host.name", "node1") }},
		"pod, with its device": {
			span:  func(r, _ pcommon.Map) { r.PutStr("k8s.pod.name", "p") },
			learn: func(r *rig) { uses(r, devicesamples.UsesOfPods, devicesamples.DeviceUse{Pod: "p"}) },
		},
		"pod, of known devices": {
			span:     func(r, _ pcommon.Map) { r.PutStr("k8s.pod.name", "p") },
			known:    func(r *rig) { r.device(other) },
			learn:    func(r *rig) { uses(r, devicesamples.UsesOfPods, devicesamples.DeviceUse{Pod: "p"}) },
			lateOnly: true,
		},
		"process": {
			span: func(r, _ pcommon.Map) {
				r.PutStr("host.name", "node1")
				r.PutInt("process.pid", 77)
			},
			known:    func(r *rig) { r.device(other) },
			learn:    func(r *rig) { uses(r, devicesamples.UsesOfProcesses, devicesamples.DeviceUse{PID: 77}) },
			lateOnly: true,
			process:  true,
		},
		"process of a pod with two devices": {
			span: func(r, _ pcommon.Map) {
				r.PutStr("k8s.pod.name", "p")
				r.PutStr("k8s.pod.uid", "u")
				r.PutInt("process.pid", 7)
			},
			known: func(r *rig) {
				r.device(other)
				r.store.(devicesamples.UseWriter).SetUses(devicesamples.UseOrigin{Owner: writerID, HostName: "node1"},
					[]devicesamples.DeviceUse{{Device: gpu0, Pod: "p"}, {Device: other.ID, Pod: "p"}}, time.Minute)
			},
			learn: func(r *rig) {
				uses(r, devicesamples.UsesOfProcesses, devicesamples.DeviceUse{PID: 500, LocalPID: 7, PodUID: "u"})
			},
			lateOnly: true,
			process:  true,
		},
	} {
		for _, storage := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", storage"}[storage], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					zero := time.Now()
					r := newRig(t)
					edit := func(c *Config) { c.Ordinals = map[string]string{"7": gpu0} }
					if storage {
						r.kept(new(sinktest.Storage)).join(edit, stored)
					} else {
						r.join(edit)
					}
					defer r.close()
					d := nominal
					d.HostName, d.PCIBDF = "node1", "0000:17:00.0"
					device := func() {
						w := r.device(d)
						for at := zero; at.Before(time.Now()); at = at.Add(100 * time.Millisecond) {
							w.Write(one(at, zero))
						}
						r.run(w, steady(zero, 300))
					}
					if x.known != nil {
						x.known(r)
					}
					if x.lateOnly {
						device()
					}
					time.Sleep(2 * time.Second)
					for id := range uint64(2) {
						for range 2 {
							td := newTraces("")
							td.rs.Resource().Attributes().Clear()
							s := td.gpu(id+1, 0, zero.Add(time.Second), time.Now())
							s.Attributes().Remove("hw.id")
							td.host(id+10, 0, zero, time.Now())
							x.span(td.rs.Resource().Attributes(), s.Attributes())
							td.rs.Resource().Attributes().PutStr("service.name", string(rune('a'+id)))
							r.consume(td.Traces)
						}
					}
					time.Sleep(3 * time.Second)
					require.Zero(t, r.sink.SpanCount())
					if x.learn != nil {
						x.learn(r)
					}
					if !x.lateOnly {
						device()
					}
					td := newTraces("c")
					td.gpu(3, 0, zero.Add(time.Second), zero.Add(2*time.Second))
					time.Sleep(time.Second) // devices are searched with each tick
					r.consume(td.Traces)
					time.Sleep(r.maxWait())
					require.Equal(t, 5, r.sink.SpanCount())
					spans := r.spans()
					for id := range uint64(3) {
						at := spans[id+1].Attributes().AsRaw()
						want := 100.
						if x.process {
							want = []float64{75, 75, 150}[id]
						}
						assert.InDelta(t, want, at["gpu.energy"], 1e-6, "span %d", id+1)
						assert.NotContains(t, at, "gpu.join.late.duration")
						if _, ok := at["gpu.pci.bdf"]; !ok || at["hw.id"] != nil {
							assert.Equal(t, gpu0, at["hw.id"])
						}
					}
					assert.EqualValues(t, 4, r.count("repeated_spans", ""))
					assert.Zero(t, r.gauge("held_spans"))
					assert.EqualValues(t, 3, r.count("released_spans", ""))
				})
			})
		}
	}
}

// A span on a host whose first device is registered waits for the others.
func TestTheFirstDeviceOfAHostIsNotItsOnlyOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).join()
		defer r.close()
		zero := time.Now()
		time.Sleep(time.Second)
		first, second := nominal, nominal
		first.ID, second.ID = "GPU-00000000-0000-0000-0000-000000000001", "GPU-00000000-0000-0000-0000-000000000002"
		w := r.device(first)
		send := func(id uint64) {
			td := newTraces("a")
			td.gpu(id, 0, zero, time.Now()).Attributes().Remove("hw.id")
			r.consume(td.Traces)
		}
		send(1)
		r.device(second)
		r.run(w, steady(zero, 300))
		send(2)
		time.Sleep(r.maxWait() + time.Millisecond)
		for id, s := range r.spans() {
			assert.NotContains(t, s.Attributes().AsRaw(), "hw.id", "span %d", id)
		}
		assert.EqualValues(t, 2, r.count("uncovered_spans", "no_identity"))
	})
}

// A batch that was stored while a device was unknown is counted once, however late it leaves the
// queue.
func TestStoredSpansWithoutADeviceCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		down.Store(true)
		r := newRig(t).kept(new(sinktest.Storage))
		r.joinTo(&sinktest.Sink{Reject: func() error {
			if down.Load() {
				return sinktest.ErrRejected
			}
			return nil
		}}, stored)
		r.run(r.device(nominal), steady(time.Now(), 300))
		time.Sleep(time.Second)
		r.send(5)
		time.Sleep(time.Minute)
		assert.EqualValues(t, 15, r.gauge("held_spans"))
		down.Store(false)
		time.Sleep(time.Minute)
		assert.Zero(t, r.gauge("held_spans"))
		assert.EqualValues(t, 5, r.count("uncovered_spans", "unknown_device"))
		assert.EqualValues(t, 15, r.count("released_spans", ""))
		r.close()
	})
}

// Undecided spans leave no state behind.
func TestUndecidedSpansAreForgotten(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ time.Time) {
		for n := range uint64(100) {
			td := newTraces(string(rune('a' + n%3)))
			td.gpu(n+1, 0, time.Now().Add(-time.Second), time.Now()).Attributes().PutStr("hw.id", "GPU-unknown")
			r.consume(td.Traces)
			time.Sleep(150 * time.Millisecond)
		}
		time.Sleep(r.maxWait())
		u := &r.proc.(*joinProcessor).engine.undecided
		require.Equal(t, 100, r.sink.SpanCount())
		assert.Empty(t, u.batches)
		assert.Empty(t, u.spans)
	})
}
