// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/consumer"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

var nominal = devicesamples.Device{ID: gpu0, Interval: 100 * time.Millisecond, Source: "simulated"}

// bubble runs f in a synctest bubble with a steady device of 300 W.
func bubble(t *testing.T, f func(t *testing.T, r *rig, zero time.Time), edit ...func(*Config)) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(edit...)
		defer r.close()
		r.w = r.device(nominal)
		r.run(r.w, steady(zero, 300))
		f(t, r, zero)
	})
}

// settle waits until spans that end now are joined, by the default configuration.
func settle() { time.Sleep(createDefaultConfig().(*Config).Settle + time.Second) }

// settleIn6s is for tests whose times follow from a settle delay of 6 s, whatever the default.
func settleIn6s(c *Config) { c.Settle = 6 * time.Second }

func attr(t *testing.T, s ptrace.Span, key string) any {
	t.Helper()
	v, ok := s.Attributes().Get(key)
	require.True(t, ok, "%s is absent", key)
	return v.AsRaw()
}

func energy(t *testing.T, s ptrace.Span) float64 {
	t.Helper()
	return attr(t, s, "gpu.energy").(float64)
}

// text returns a request as OTLP JSON.
func text(t *testing.T, td ptrace.Traces) string {
	t.Helper()
	var m ptrace.JSONMarshaler
	b, err := m.MarshalTraces(td)
	require.NoError(t, err)
	return string(b)
}

func sec(x float64) time.Duration { return time.Duration(x * float64(time.Second)) }

func TestInterleavedBatchesOfTwoSendersShareTheDevice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(3 * time.Second)
		// Sender a: a step of [1, 3] with sections [1, 1.5] and [2, 2.5]. Sender b: [1, 3].
		a1 := newTraces("a")
		a1.gpu(11, 10, at(1), at(1.5))
		b1 := newTraces("b")
		b1.gpu(20, 0, at(1), at(2))
		a2 := newTraces("a")
		a2.gpu(12, 10, at(2), at(2.5))
		b2 := newTraces("b")
		b2.gpu(21, 0, at(2), at(3))
		a3 := newTraces("a")
		a3.gpu(10, 0, at(1), at(3))
		r.consume(a1.Traces)
		r.consume(b1.Traces)
		time.Sleep(sec(1.5))
		r.consume(a2.Traces)
		r.consume(b2.Traces)
		time.Sleep(sec(2)) // at 6.5 s, before 1 s + settle
		r.consume(a3.Traces)
		time.Sleep(4 * time.Second)
		s := r.spans()
		require.Len(t, s, 5)
		for id, want := range map[uint64]float64{11: 75, 12: 75, 10: 300, 20: 150, 21: 150} {
			assert.InDelta(t, want, energy(t, s[id]), 1e-6, "span %d", id)
		}
		assert.NotContains(t, s[10].Attributes().AsRaw(), "gpu.join.late.duration")
	})
}

func TestShortSpansBetweenSamplesAreCoveredWhole(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		const spans = 300
		for i := range uint64(spans) { // 200 ns to 500 ns long, anywhere between samples
			start := zero.Add(time.Second + time.Duration(i)*3_333_337)
			td.gpu(i+1, 0, start, start.Add(time.Duration(200+i)))
		}
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		require.Len(t, s, spans)
		for id := range s {
			assert.Equal(t, 1.0, attr(t, s[id], "gpu.join.coverage"), "span %d", id)
		}
	})
}

func TestPresentHostSpansCauseNoWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(2, 1, zero, time.Now())
		td.scope("http").host(1, 0, zero, time.Now())
		r.consume(td.Traces)
		assert.EqualValues(t, 1, r.gauge("known_spans"), "no entry is kept for the handler")
	})
}

func TestBatchesWithoutGPUSpansPassAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		td := newTraces("a")
		td.host(1, 0, zero, zero.Add(time.Second))
		r.consume(td.Traces)
		assert.Equal(t, 1, r.sink.SpanCount())
	})
}

func TestSpansWithUnknownOperationTypeAreNotGPUSpans(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now()).Attributes().PutStr("gpu.operation.type", "")
		td.gpu(2, 0, zero, time.Now()).Attributes().PutInt("gpu.operation.type", 5)
		want := ptrace.NewTraces()
		td.CopyTo(want)
		r.consume(td.Traces)
		require.Equal(t, 2, r.sink.SpanCount())
		assert.Equal(t, text(t, want), text(t, r.sink.AllTraces()[0]))
	})
}

func TestSpansOfUnknownDevicesWaitOnceAndPassUntouched(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		r.device(devicesamples.Device{ID: "GPU-00000000-0000-0000-0000-000000000001"}) // so it may be either
		time.Sleep(time.Second)
		for n := uint64(1); n <= 2; n++ {
			td := newTraces("a")
			td.gpu(2*n, 0, zero, time.Now()).Attributes().PutStr("hw.id", "GPU-ffffffff-0000-0000-0000-000000000000")
			s := td.gpu(2*n+1, 0, zero, time.Now())
			s.Attributes().Remove("hw.id")
			s.Attributes().PutInt("gpu.device.ordinal", 0)
			want := ptrace.NewTraces()
			td.CopyTo(want)
			r.consume(td.Traces)
			if n == 1 {
				require.Zero(t, r.sink.SpanCount(), "their device may become known")
				assert.EqualValues(t, 2, r.gauge("held_spans"))
				time.Sleep(r.maxWait() + time.Millisecond)
			}
			require.EqualValues(t, 2*n, r.sink.SpanCount())
			assert.Equal(t, text(t, want), text(t, r.sink.AllTraces()[n-1]))
			assert.EqualValues(t, n, r.count("uncovered_spans", "unknown_device"))
			assert.EqualValues(t, n, r.count("uncovered_spans", "no_identity"), "an ordinal is no identity")
			assert.Zero(t, r.gauge("held_spans"))
		}
	})
}

func TestMixedRequestsAreQueuedCompletely(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		now := time.Now()
		td := newTraces("a")
		td.gpu(1, 0, zero, now)
		td.host(2, 0, zero, now)
		td.scope("http").host(3, 0, zero, now)
		td.resource("b").host(4, 0, zero, now)
		td.resource("c").gpu(5, 0, zero, now)
		r.consume(td.Traces)
		require.Empty(t, r.spans())
		settle()
		require.Len(t, r.spans(), 5)
		assert.Len(t, r.sink.AllTraces(), 1)
		for _, td := range r.sink.AllTraces() {
			for _, rs := range td.ResourceSpans().All() {
				assert.Positive(t, rs.ScopeSpans().Len())
				v, _ := rs.Resource().Attributes().Get("service.name")
				assert.Equal(t, "test", v.Str())
			}
		}
		for id, joined := range map[uint64]bool{1: true, 2: false, 3: false, 4: false, 5: true} {
			_, ok := r.spans()[id].Attributes().Get("gpu.energy")
			assert.Equal(t, joined, ok, "span %d", id)
		}
	})
}

// A fan-out to several consumers marks its data as read-only, while the GPU part of the same
// request must still be modified.
func TestTheRestMayBecomeReadOnlyWhileTheGPUPartWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		var joined atomic.Int32
		next, err := consumer.NewTraces(func(_ context.Context, td ptrace.Traces) error {
			for s := range spansOf(td) {
				if _, ok := s.Attributes().Get("gpu.energy"); ok {
					joined.Add(1)
				}
			}
			td.MarkReadOnly()
			return nil
		})
		require.NoError(t, err)
		r := newRig(t).joinTo(next)
		defer r.close()
		r.run(r.device(nominal), steady(zero, 300))
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		td.scope("http").host(2, 0, zero, time.Now())
		r.consume(td.Traces)
		settle()
		assert.Equal(t, int32(1), joined.Load())
	})
}

func TestBadSpansPassAtOnceAndAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ time.Time) {
		time.Sleep(2 * time.Second)
		now := time.Now()
		td := newTraces("a")
		td.gpu(1, 0, now, now.Add(-time.Second))
		td.gpu(2, 0, now, now)
		td.gpu(3, 0, time.Unix(0, 0), now)
		td.gpu(4, 0, now, now.AddDate(100, 0, 0))
		td.gpu(5, 0, now, now).SetEndTimestamp(1 << 63)
		td.gpu(0, 0, now.Add(-time.Second), now)
		r.consume(td.Traces)
		assert.Equal(t, 6, r.sink.SpanCount())
		for reason, n := range map[string]int64{
			"end_before_start": 1, "zero_length": 1, "epoch": 1, "future": 2,
			"no_id": 1,
		} {
			assert.Equal(t, n, r.count("bad_spans", reason), reason)
		}
		for s := range spansOf(r.sink.AllTraces()[0]) {
			assert.Equal(t, 2, s.Attributes().Len(), "nothing is written on them")
		}
	})
}

// A sender's clock may be ahead by up to max_wait, because its span can wait that long.
func TestTimesBeyondMaxWaitAreRejected(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ time.Time) {
		time.Sleep(2 * time.Second)
		now := time.Now()
		td := newTraces("a")
		td.gpu(1, 0, now, now.Add(r.maxWait()))
		r.consume(td.Traces)
		td = newTraces("a")
		td.gpu(2, 0, now, now.Add(r.maxWait()+1))
		r.consume(td.Traces)
		assert.EqualValues(t, 1, r.count("bad_spans", "future"))
		require.Len(t, r.spans(), 1)
		assert.Contains(t, r.spans(), uint64(2))
		time.Sleep(20 * time.Second)
		assert.Len(t, r.spans(), 2)
	})
}

func TestJoinedSpansPassUntouched(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		r.consume(td.Traces)
		settle()
		once := ptrace.NewTraces()
		r.sink.AllTraces()[0].CopyTo(once)
		r.sink.Reset()
		again := ptrace.NewTraces()
		once.CopyTo(again)
		r.consume(again)
		require.Equal(t, 1, r.sink.SpanCount(), "at once")
		assert.Equal(t, text(t, once), text(t, r.sink.AllTraces()[0]))
	})
}

func TestTheSameRequestTwiceLeavesOnce(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		td.gpu(2, 1, zero, zero.Add(sec(0.3)))
		other := ptrace.NewTraces()
		td.CopyTo(other)
		r.consume(td.Traces)
		time.Sleep(sec(3)) // a sender that missed the response retries
		r.consume(other)
		settle()
		require.Len(t, r.sink.AllTraces(), 1)
		assert.EqualValues(t, 2, r.count("repeated_spans", ""))
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
	})
}

// A host section concurrent with a kernel, or a server's request around a device step: the energy
// belongs to the device-timed span, and to the others only while it was idle.
func TestHostTimedSpansTakeNothingFromDeviceTimedOnes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(sec(4))
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		td.gpu(2, 0, zero, zero.Add(sec(3))).Attributes().PutStr("gpu.timing.source", "host")
		td.gpu(3, 0, zero, zero.Add(sec(3))).Attributes().PutStr("gpu.operation.type", "request")
		td.gpu(4, 0, zero, zero.Add(sec(3))).Attributes().PutStr("gpu.operation.type", "host")
		seen := td.gpu(5, 0, zero.Add(sec(1)), zero.Add(sec(2))) // of the work of span 1
		seen.Attributes().PutStr("gpu.operation.type", "kernel")
		seen.Links().AppendEmpty().Attributes().PutStr("gpu.link.type", "window")
		r.consume(td.Traces)
		other := newTraces("b") // another process, which has half of the energy
		other.gpu(11, 0, zero.Add(sec(2)), zero.Add(sec(3))).Attributes().PutStr("gpu.timing.source", "host")
		r.consume(other.Traces)
		time.Sleep(sec(8))
		s := r.spans()
		require.Len(t, s, 6)
		assert.InDelta(t, 300, energy(t, s[1]), 1e-6)
		assert.Zero(t, energy(t, s[5]), "a window's kernel")
		assert.InDelta(t, 150+75, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 150+75, energy(t, s[3]), 1e-6)
		assert.NotContains(t, s[4].Attributes().AsRaw(), "gpu.energy", "work on the host")
		assert.InDelta(t, 150, energy(t, s[11]), 1e-6)
	})
}

func TestMemoryUsageOfTheProducerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(_ time.Time, s *devicesamples.Sample) {
			s.Set(devicesamples.MemoryUsed, 1<<30)
		})
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now()).Attributes().PutInt("gpu.memory.usage", 77)
		td.gpu(2, 0, zero, time.Now())
		r.consume(td.Traces)
		settle()
		assert.EqualValues(t, 77, attr(t, r.spans()[1], "gpu.memory.usage"))
		assert.EqualValues(t, 1<<30, attr(t, r.spans()[2], "gpu.memory.usage"))
	})
}

func TestSpanEventsByOption(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(2 * time.Second)
		r.w.WriteEvents([]devicesamples.Event{
			{Time: zero.Add(sec(1.2)).UnixNano(), Kind: devicesamples.EventXID, Code: 63},
			{Time: zero.Add(sec(1.3)).UnixNano(), Kind: devicesamples.EventECCUncorrected, Count: 1},
			{
				Time: zero.Add(sec(1.4)).UnixNano(), Kind: devicesamples.EventThrottleStart,
				Code: int64(devicesamples.ThrottleHWThermal),
			},
			{Time: zero.Add(sec(1.5)).UnixNano(), Kind: devicesamples.EventECCCorrected, Count: 1},
			{
				Time: zero.Add(sec(1.6)).UnixNano(), Kind: devicesamples.EventFault, Code: 5, Count: 1,
				Fault: devicesamples.Fault{Module: "GPU-NVLINK", Category: 3, Code: 5, Severity: 40},
			},
			{
				Time: zero.Add(sec(1.7)).UnixNano(), Kind: devicesamples.EventFault, Code: 0x1234, Count: 1,
				Fault: devicesamples.Fault{Category: 0x99, Code: 0x1234, Severity: 77},
			},
		})
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		r.consume(td.Traces)
		settle()
		s := r.spans()[1]
		require.Equal(t, 6, s.Events().Len())
		assert.Equal(t, []any{"GPU-NVLINK 0x0005", "0x1234"}, s.Attributes().AsRaw()["gpu.faults"])
		for i, want := range []struct {
			name  string
			attrs map[string]any
		}{
			{"gpu.xid", map[string]any{"gpu.event.code": int64(63)}},
			{"gpu.ecc", map[string]any{"error.type": "ecc_uncorrected"}},
			{"gpu.throttle", map[string]any{"gpu.throttle.reason": "hw_thermal_slowdown"}},
			{"gpu.ecc", map[string]any{"error.type": "ecc_corrected"}},
			{"gpu.fault", map[string]any{
				"gpu.fault.module": "GPU-NVLINK", "gpu.fault.category": "interconnect_error", "gpu.fault.code": "0x0005",
			}},
			{"gpu.fault", map[string]any{"gpu.fault.category": "0x0099", "gpu.fault.code": "0x1234"}},
		} {
			assert.Equal(t, want.name, s.Events().At(i).Name())
			assert.Equal(t, want.attrs, s.Events().At(i).Attributes().AsRaw())
			assert.Equal(t, zero.Add(sec(1.2+0.1*float64(i))).UnixNano(), s.Events().At(i).Timestamp().AsTime().UnixNano())
		}
	}, func(c *Config) { c.Events = true })
}

func TestRareSamplesAreWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.join()
		defer r.close()
		w := r.device(devicesamples.Device{ID: gpu0, Interval: 15 * time.Second})
		zero := time.Now()
		w.Write(one(zero, zero))
		time.Sleep(15 * time.Second)
		w.Write(one(time.Now(), zero))
		time.Sleep(5 * time.Second)
		synctest.Wait()
		require.Equal(t, 1, logs.Len())
		assert.Contains(t, logs.All()[0].Message, "`max_wait`")
	})
}

func TestBatchesThatEndInTheFutureNeverWaitOneAfterTheOther(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, _ time.Time) {
		time.Sleep(2 * time.Second)
		for i := range uint64(50) {
			td := newTraces("a")
			td.gpu(i+1, 0, time.Now(), time.Now().Add(9*time.Second)) // a sender whose clock runs 9 s ahead
			r.consume(td.Traces)
		}
		time.Sleep(11 * time.Second)
		assert.Len(t, r.spans(), 50)
		for _, s := range r.spans() {
			assert.NotContains(t, s.Attributes().AsRaw(), "gpu.energy", "not all of it is settled")
		}
		assert.EqualValues(t, 50, r.count("released_spans", "deadline"))
	})
}

func TestOldFilesDoNotWait(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(20 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(-time.Hour), zero.Add(-time.Hour+time.Second))
		td.gpu(2, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		td.gpu(3, 0, zero.Add(sec(3)), zero.Add(sec(3)+100*time.Microsecond))
		r.consume(td.Traces)
		synctest.Wait()
		s := r.spans()
		require.Len(t, s, 3)
		assert.EqualValues(t, 3, r.count("late_spans", ""), "also a short one")
		assert.InDelta(t, 0., attr(t, s[1], "gpu.join.coverage"), 0)
		assert.InDelta(t, 300, energy(t, s[2]), 1e-6, "free time in the ring is still there to take")
		assert.InDelta(t, 1., attr(t, s[2], "gpu.join.late.duration"), 1e-9)
	})
}

// A meter lags 2 s behind: its sample of 3.2 s describes 1.2 s.
func TestSpanEventsAreOnTheClockOfSpans(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(5 * time.Second)
		r.w.WriteEvents([]devicesamples.Event{{
			Time: zero.Add(sec(3.2)).UnixNano(), Kind: devicesamples.EventXID,
			Code: 79,
		}})
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		r.consume(td.Traces)
		time.Sleep(sec(12))
		s := r.spans()[1]
		require.Equal(t, 1, s.Events().Len())
		assert.Equal(t, zero.Add(sec(1.2)).UnixNano(), s.Events().At(0).Timestamp().AsTime().UnixNano())
	}, func(c *Config) { c.Events = true; c.Shift = 2 * time.Second })
}

// A span that is shorter than the update period of the counter uses method cell, although samples
// are closer.
func TestTheMethodIsCellBelowTheCountersUpdatePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		// refreshed each second, read each 100 ms
		r.run(r.device(nominal), func(now time.Time, s *devicesamples.Sample) {
			s.Set(devicesamples.Energy, 300*math.Floor(now.Sub(zero).Seconds()+1e-6))
		})
		time.Sleep(20 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(15.1)), zero.Add(sec(15.5)))
		td.gpu(2, 0, zero.Add(sec(16)), zero.Add(sec(19.5)))
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		assert.Equal(t, "cell", attr(t, s[1], "gpu.join.method"),
			"longer than the time between samples, shorter than an update")
		if v, ok := s[2].Attributes().Get("gpu.join.method"); ok {
			assert.Equal(t, "interval", v.Str())
		}
	})
}
