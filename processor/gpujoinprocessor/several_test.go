// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
	"github.com/otelgpu/otelgpu/internal/spanfacts"
)

// node runs f with a rig that has n devices with 100 W, 200 W and so on.
func node(t *testing.T, n int, f func(r *rig, zero time.Time, ids []string)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var core zapcore.Core
		core, r.warnings = observer.New(zap.WarnLevel)
		r.logger = zap.New(core)
		zero := time.Now()
		var ids []string
		for i := range n {
			id := fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i)
			ids = append(ids, id)
			w := r.device(devicesamples.Device{ID: id, HostName: "node1", Source: "replay"})
			r.run(w, func(at time.Time, s *devicesamples.Sample) {
				s.Set(devicesamples.Energy, 100*float64(i+1)*at.Sub(zero).Seconds())
				s.Set(devicesamples.Power, 100*float64(i+1))
				s.Set(devicesamples.Utilization, 0.1*float64(i+1))
				s.Set(devicesamples.MemoryUsed, 1e9)
				s.Set(devicesamples.Temperature, 50+float64(i))
			})
		}
		r.join()
		defer r.close()
		f(r, zero, ids)
	})
}

// request adds a span of an engine's request, without a device identity.
func (t *traces) request(id uint64, start, end time.Time) ptrace.Span {
	s := t.host(id, 0, start, end)
	s.Attributes().PutStr("gpu.operation.type", "request")
	return s
}

func (r *rig) uses(uses ...devicesamples.DeviceUse) {
	r.store.(devicesamples.UseWriter).SetUses(devicesamples.UseOrigin{
		Owner: writerID, Kind: devicesamples.UsesOfPods, HostName: "node1",
	}, uses, time.Minute)
}

// A model that uses all devices of its pod: energy is the sum, means are over all devices.
func TestARequestIsOnAllDevicesOfItsPod(t *testing.T) {
	node(t, 3, func(r *rig, zero time.Time, ids []string) {
		r.uses(
			devicesamples.DeviceUse{Device: ids[0], Namespace: "ml", Pod: "vllm-0"},
			devicesamples.DeviceUse{Device: ids[1], Namespace: "ml", Pod: "vllm-0"},
			devicesamples.DeviceUse{Device: ids[2], Namespace: "ml", Pod: "other"},
		)
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.rs.Resource().Attributes().PutStr("k8s.namespace.name", "ml")
		td.rs.Resource().Attributes().PutStr("k8s.pod.name", "vllm-0")
		td.request(1, zero.Add(time.Second), zero.Add(3*time.Second))
		td.request(2, zero.Add(2*time.Second), zero.Add(3*time.Second))
		td.gpu(3, 0, zero.Add(time.Second), zero.Add(2*time.Second)).Attributes().Remove("hw.id")
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()
		require.Len(t, got, 3)
		one := got[1].Attributes().AsRaw()
		assert.EqualValues(t, 2, one["gpu.device.count"])
		assert.InDelta(t, 300+150, one["gpu.energy"], 1e-6, "one second alone, one second shared")
		assert.InDelta(t, 150, energy(t, got[2]), 1e-6)
		assert.InDelta(t, 0.15, one["gpu.utilization"], 1e-9)
		assert.InDelta(t, 150, one["gpu.power"], 1e-9)
		assert.EqualValues(t, 2e9, one["gpu.memory.usage"])
		assert.Equal(t, 51.0, one["gpu.temperature.max"])
		assert.NotContains(t, one, "hw.id")
		assert.NotContains(t, got[3].Attributes().AsRaw(), "gpu.energy", "which of the two ran the section is not known")
		assert.EqualValues(t, 1, r.count("uncovered_spans", "several_devices"))
		require.Equal(t, 1, r.warnings.Len())
		assert.Contains(t, r.warnings.All()[0].Message, "say which one by hw.id")
	})
}

func TestTheOnlyDeviceOfAHostNeedsNoIdentity(t *testing.T) {
	node(t, 1, func(r *rig, zero time.Time, ids []string) {
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.request(1, zero, zero.Add(time.Second))
		td.resource("b").rs.Resource().Attributes().PutStr("host.name", "node2")
		td.request(2, zero, zero.Add(time.Second))
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()
		assert.InDelta(t, 100, energy(t, got[1]), 1e-6)
		assert.Equal(t, ids[0], got[1].Attributes().AsRaw()["hw.id"])
		assert.NotContains(t, got[1].Attributes().AsRaw(), "gpu.device.count")
		assert.NotContains(t, got[2].Attributes().AsRaw(), "gpu.energy", "it is on another host")
	})
}

func TestAListOfDevicesIsUsed(t *testing.T) {
	node(t, 8, func(r *rig, zero time.Time, ids []string) {
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.rs.Resource().Attributes().PutStr("hw.id", ids[0]+", "+ids[7]+",")
		td.request(1, zero, zero.Add(time.Second))
		td.resource("b").rs.Resource().Attributes().PutStr("hw.id", ids[0]+",GPU-unknown")
		td.request(2, zero, zero.Add(time.Second))
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()
		assert.InDelta(t, 900, energy(t, got[1]), 1e-6)
		assert.NotContains(t, got[2].Attributes().AsRaw(), "gpu.energy", "a sum over some of them would pass for the whole")
		assert.EqualValues(t, 1, r.count("uncovered_spans", "unknown_device"))
	})
}

// Two instances of one physical GPU are two devices with one counter: its energy and events count
// once.
func TestARequestOnInstancesOfOneBoardHasTheBoardsEnergyOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(func(c *Config) { c.EnergyOnMIG = true })
		defer r.close()
		board := r.device(nominal)
		r.run(board, steady(zero, 300))
		board.WriteEvents([]devicesamples.Event{
			{Time: zero.Add(time.Second).UnixNano(), Kind: devicesamples.EventXID, Code: 63},
		})
		ids := []string{"MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000"}
		for i, id := range ids {
			w := r.device(devicesamples.Device{ID: id, Parent: gpu0, Interval: 100 * time.Millisecond, Source: "replay"})
			r.run(w, func(_ time.Time, s *devicesamples.Sample) {
				s.Set(devicesamples.Utilization, 0.2+0.4*float64(i))
				s.Set(devicesamples.MemoryUsed, 1e9*float64(1+i))
			})
		}
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.rs.Resource().Attributes().PutStr("hw.id", ids[0]+","+ids[1]+","+ids[0])
		td.request(1, zero, zero.Add(2*time.Second))
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()[1].Attributes().AsRaw()
		assert.EqualValues(t, 2, got["gpu.device.count"])
		assert.InDelta(t, 0.4, got["gpu.utilization"], 1e-9)
		assert.EqualValues(t, 3e9, got["gpu.memory.usage"])
		assert.InDelta(t, 300, got["gpu.power"], 1e-9, "the board's")
		assert.InDelta(t, 600, got["gpu.energy"], 1e-6)
		assert.NotContains(t, got, "gpu.join.late.duration")
		assert.Equal(t, []any{int64(63)}, got["gpu.xid"])
	})
}

// Time in the engine's queue is not device time.
func TestAWaitingRequestTakesNothing(t *testing.T) {
	node(t, 1, func(r *rig, zero time.Time, _ []string) {
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.request(1, zero, zero.Add(2*time.Second))
		td.request(2, zero, zero.Add(3*time.Second)).Attributes().PutDouble("gpu.request.queue.duration", 2)
		absurd := td.request(3, zero.Add(3*time.Second), zero.Add(4*time.Second))
		absurd.Attributes().PutDouble("gpu.request.queue.duration", 1e300)
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()
		assert.InDelta(t, 200, energy(t, got[1]), 1e-6)
		assert.InDelta(t, 100, energy(t, got[2]), 1e-6)
		assert.InDelta(t, 100, energy(t, got[3]), 1e-6, "a queue that is longer than the request is not believed")
		assert.Equal(t, zero.UnixNano(), int64(got[2].StartTimestamp()), "the span's own time is its producer's")
	})
}

// If the process times its work on the device, that work has the energy.
func TestDeviceTimedWorkPrecedesItsRequests(t *testing.T) {
	node(t, 1, func(r *rig, zero time.Time, ids []string) {
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.request(1, zero, zero.Add(3*time.Second))
		td.gpu(2, 0, zero.Add(time.Second), zero.Add(2*time.Second)).Attributes().PutStr("hw.id", ids[0])
		r.consume(td.Traces)
		time.Sleep(r.maxWait())
		got := r.spans()
		assert.InDelta(t, 200, energy(t, got[1]), 1e-6)
		assert.InDelta(t, 100, energy(t, got[2]), 1e-6)
	})
}

// Events of any of the devices apply to the request, and to a late request.
func TestEventsOnAnyOfSeveralDevicesAreReported(t *testing.T) {
	for _, level := range []spanfacts.Level{spanfacts.Lean, spanfacts.Full} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			zero := time.Now()
			var ids []string
			for i := range 2 {
				ids = append(ids, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))
				w := r.device(devicesamples.Device{ID: ids[i], Interval: 100 * time.Millisecond})
				r.run(w, func(at time.Time, s *devicesamples.Sample) {
					steady(zero, 100)(at, s)
					if x := at.Sub(zero).Seconds(); i == 1 && x > 1.45 && x < 1.95 {
						s.Set(devicesamples.Throttle, float64(devicesamples.ThrottleHWThermal))
					}
				})
				w.WriteEvents([]devicesamples.Event{
					{Time: zero.Add(1100 * time.Millisecond).UnixNano(), Kind: devicesamples.EventXID, Code: int64(60 + i)},
					{Time: zero.Add(1200 * time.Millisecond).UnixNano(), Kind: devicesamples.EventECCCorrected, Count: 2},
				})
			}
			r.join(func(c *Config) { c.Attributes = level })
			defer r.close()
			time.Sleep(30 * time.Second)
			td := newTraces("a")
			td.rs.Resource().Attributes().PutStr("hw.id", ids[0]+","+ids[1])
			td.request(1, zero.Add(time.Second), zero.Add(2*time.Second))
			td.request(2, zero.Add(3*time.Second), zero.Add(4*time.Second))
			td.request(3, zero.Add(5*time.Second), zero.Add(5*time.Second+50*time.Millisecond))
			r.consume(td.Traces)
			time.Sleep(r.maxWait())
			one, two := r.spans()[1].Attributes().AsRaw(), r.spans()[2].Attributes().AsRaw()
			three := r.spans()[3].Attributes().AsRaw()
			for _, a := range []map[string]any{one, two, three} {
				assert.NotContains(t, a, "gpu.memory.usage", "it is not measured")
			}
			assert.InDelta(t, 1, one["gpu.join.late.duration"], 1e-9)
			assert.Equal(t, []any{int64(60), int64(61)}, one["gpu.xid"])
			assert.EqualValues(t, 4, one["gpu.ecc.errors"])
			assert.InDelta(t, 0.5, one["gpu.throttle.time"], 1e-9)
			assert.Equal(t, []any{"hw_thermal_slowdown"}, one["gpu.throttle.reasons"])
			if level == spanfacts.Lean {
				assert.NotContains(t, two, "gpu.throttle.time")
				assert.NotContains(t, two, "gpu.temperature.max")
			} else {
				assert.Zero(t, two["gpu.throttle.time"])
				assert.Equal(t, 60.0, two["gpu.temperature.max"])
				assert.Equal(t, "interval", two["gpu.join.method"])
				assert.Equal(t, "cell", three["gpu.join.method"], "shorter than the time between samples")
			}
		})
	}
}

// A request with different late times on its devices states the longest.
func TestALateRequestOnSeveralDevicesStatesTheLongestTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		zero := time.Now()
		var ids []string
		for i := range 2 {
			ids = append(ids, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))
			r.run(r.device(devicesamples.Device{ID: ids[i], Interval: 100 * time.Millisecond}),
				func(at time.Time, s *devicesamples.Sample) {
					if i == 0 || at.Sub(zero) <= 1500*time.Millisecond { // the second one stops
						steady(zero, 100)(at, s)
					}
				})
		}
		r.join(settleIn6s)
		defer r.close()
		time.Sleep(9 * time.Second)
		td := newTraces("a")
		td.rs.Resource().Attributes().PutStr("hw.id", ids[0]+","+ids[1])
		td.request(1, zero.Add(time.Second), zero.Add(2*time.Second))
		r.consume(td.Traces)
		time.Sleep(12 * time.Second)
		assert.InDelta(t, 1, attr(t, r.spans()[1], "gpu.join.late.duration"), 1e-9)
	})
}

// A step has the energy of its children on other devices, in any order of arrival.
func TestStepIncludesItsChildrenOnOtherDevicesInAnyOrder(t *testing.T) {
	for _, first := range []string{"step", "child"} {
		t.Run(first+" first", func(t *testing.T) {
			node(t, 3, func(r *rig, zero time.Time, ids []string) {
				time.Sleep(3450 * time.Millisecond) // its release is between ticks, which would settle all devices
				step := newTraces("a")
				s := step.gpu(1, 0, zero.Add(time.Second), zero.Add(3400*time.Millisecond))
				s.Attributes().PutStr("gpu.operation.type", "step")
				s.Attributes().PutStr("hw.id", ids[0])
				child := newTraces("a")
				child.gpu(2, 1, zero.Add(time.Second), zero.Add(3390*time.Millisecond)).Attributes().PutStr("hw.id", ids[1])
				requests := []ptrace.Traces{step.Traces, child.Traces}
				if first == "child" {
					requests[0], requests[1] = requests[1], requests[0]
				}
				r.consume(requests[0])
				time.Sleep(10 * time.Millisecond)
				r.consume(requests[1])
				time.Sleep(r.maxWait())
				got := r.spans()
				require.Len(t, got, 2)
				assert.InDelta(t, 200*2.39, energy(t, got[2]), 1e-6)
				assert.InDelta(t, 100*2.4+200*2.39, energy(t, got[1]), 1e-6)
				assert.InDelta(t, 100*2.4, attr(t, got[1], "gpu.self_energy"), 1e-6)
			})
		})
	}
}

// The number of samples for several devices is the smallest one, at any position in the list.
func TestSeveralDevicesHaveTheFewestSamplesOfAny(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		zero := time.Now()
		var ids []string
		for i, every := range []int{1, 5, 2} { // tenths of a second
			ids = append(ids, fmt.Sprintf("GPU-00000000-0000-0000-0000-%012d", i))
			w := r.device(devicesamples.Device{ID: ids[i], Interval: time.Duration(every) * 100 * time.Millisecond})
			r.run(w, func(at time.Time, s *devicesamples.Sample) {
				if at.Sub(zero)/(100*time.Millisecond)%time.Duration(every) == 0 {
					steady(zero, 100)(at, s)
				}
			})
		}
		r.join()
		defer r.close()
		time.Sleep(4 * time.Second)
		for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}} {
			td := newTraces("a")
			td.rs.Resource().Attributes().PutStr("hw.id", ids[order[0]]+","+ids[order[1]]+","+ids[order[2]])
			id := uint64(1 + 100*order[0] + 10*order[1] + order[2])
			td.request(id, zero.Add(1050*time.Millisecond), zero.Add(3050*time.Millisecond))
			r.consume(td.Traces)
		}
		time.Sleep(r.maxWait())
		require.Len(t, r.spans(), 4)
		for id, s := range r.spans() {
			assert.EqualValues(t, 4, s.Attributes().AsRaw()["gpu.join.samples"], "%d", id)
		}
	})
}
