// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"context"
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

	"github.com/otelgpu/otelgpu/extension/gpusamplesextension"
	"github.com/otelgpu/otelgpu/semconv"
)

var nominal = gpusamplesextension.Device{ID: gpu0, Interval: 100 * time.Millisecond, Source: "simulated"}

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

// text is a request as OTLP JSON.
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
		// Sender a: a step of [1, 3] with sections [1, 1.5] and [2, 2.5]. Sender b: [1, 3] all the time.
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

func TestStepAfterItsChildrenHoldsTheirEnergy(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(2, 1, at(1), at(2))
		r.consume(td.Traces)
		time.Sleep(8050 * time.Millisecond)
		require.Contains(t, r.spans(), uint64(2))
		// A step of 10 s ends now: 9 s of it are over, 1 s is a child's.
		td = newTraces("a")
		td.gpu(1, 0, at(0.5), at(10))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 2850, energy(t, s[1]), 1e-6, "all that was free, and its child")
		late := attr(t, s[1], "gpu.join.late.duration").(float64)
		assert.InDelta(t, 3.5-1, late, 0.2, "settled before it arrived at 10 s: 4 s; from 0.5 s on, less the child's second")
	})
}

func TestHostSpanBetweenStepAndKernelIsSeenThrough(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(3))
		td.host(2, 1, at(1.1), at(2))
		td.host(3, 2, at(1.1), at(1.9))
		td.gpu(4, 3, at(1.2), at(2.2))
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[4]), 1e-6)
		assert.InDelta(t, 600, energy(t, s[1]), 1e-6)
		assert.Equal(t, 4, r.sink.SpanCount())
	})
}

// A loop opens a phase and calls the model with the step's context, as the library's documentation does: the sections of the model hang
// below the step, beside the phase that encloses them on the stream.
func TestSectionsWithinAPhaseOnItsStreamHoldThePhasesEnergy(t *testing.T) {
	for name, batches := range map[string][][]uint64{"one batch": {{3, 4, 2, 5, 1}}, "the step later": {{3, 4, 2, 5}, {1}}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				time.Sleep(4 * time.Second)
				for _, ids := range batches {
					td := newTraces("a")
					for _, id := range ids {
						var s ptrace.Span
						switch id {
						case 1:
							s = td.gpu(1, 0, at(1), at(3.5))
							s.Attributes().PutStr("gpu.operation.type", "step")
						case 2:
							s = td.gpu(2, 1, at(1), at(3)) // the phase
						case 3:
							s = td.gpu(3, 1, at(1.2), at(2)) // within it
						case 4:
							s = td.gpu(4, 1, at(2), at(2.8)) // likewise
						case 5:
							s = td.gpu(5, 1, at(3), at(3.5)) // the next phase
						}
						s.Attributes().PutInt("gpu.stream.id", 1)
					}
					r.consume(td.Traces)
				}
				time.Sleep(8 * time.Second)
				s := r.spans()
				for id, want := range map[uint64]float64{3: 240, 4: 240, 2: 600, 5: 150, 1: 750} {
					assert.InDelta(t, want, energy(t, s[id]), 1e-6, "span %d", id)
				}
				assert.InDelta(t, 120, attr(t, s[2], "gpu.self_energy"), 1e-6)
				assert.Equal(t, spanID(1), s[3].ParentSpanID(), "the trace itself is left as it is")
			})
		})
	}
}

func TestSpansOfTwoDevicesOnStreamsOfOneNumberStayApart(t *testing.T) {
	const gpu1 = "GPU-00000000-86f3-7a43-b711-4771313afc50"
	for name, ordinals := range map[string]bool{"by ordinal": true, "by identity alone": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				second := nominal
				second.ID = gpu1
				r.run(r.device(second), steady(zero, 100))
				time.Sleep(4 * time.Second)
				td := newTraces("a")
				inner, outer := td.gpu(2, 1, at(1.5), at(2)), td.gpu(3, 1, at(1), at(3))
				for i, s := range []ptrace.Span{inner, outer} {
					s.Attributes().PutInt("gpu.stream.id", 7)
					if ordinals {
						s.Attributes().PutInt("gpu.device.ordinal", int64(i))
					}
				}
				inner.Attributes().PutStr("hw.id", gpu1)
				r.consume(td.Traces)
				time.Sleep(8 * time.Second)
				s := r.spans()
				assert.InDelta(t, 50, energy(t, s[2]), 1e-6)
				assert.InDelta(t, 600, energy(t, s[3]), 1e-6)
				_, err := r.tel.GetMetric("otelcol_processor_gpu_join_orphans")
				assert.ErrorContains(t, err, "not found")
				assert.EqualValues(t, 4, r.gauge("known_spans"), "the two, and their parent on both devices")
			})
		})
	}
}

func TestAStepOverSeveralDevicesHoldsItsChildrensEnergyOnAll(t *testing.T) {
	const gpu1 = "GPU-00000000-86f3-7a43-b711-4771313afc50"
	for name, together := range map[string]bool{"one batch": true, "the step later": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				second := nominal
				second.ID = gpu1
				r.run(r.device(second), steady(zero, 100))
				time.Sleep(4 * time.Second)
				td := newTraces("a")
				td.gpu(2, 1, at(1), at(2))
				comm := td.gpu(3, 1, at(1.5), at(2.5))
				comm.Attributes().PutStr("hw.id", gpu1)
				neighbour := td.resource("b").gpu(9, 0, at(2), at(3))
				neighbour.Attributes().PutStr("hw.id", gpu1)
				td.resource("a")
				if !together {
					r.consume(td.Traces)
					time.Sleep(sec(0.5))
					td = newTraces("a")
				}
				td.gpu(1, 0, at(1), at(3)).Attributes().PutStr("gpu.operation.type", "step")
				r.consume(td.Traces)
				time.Sleep(8 * time.Second)
				s := r.spans()
				assert.InDelta(t, 300, energy(t, s[2]), 1e-6)
				assert.InDelta(t, 50+25, energy(t, s[3]), 1e-6)
				assert.InDelta(t, 600+75, energy(t, s[1]), 1e-6)
				assert.InDelta(t, 300, attr(t, s[1], "gpu.self_energy"), 1e-6, "on its own device, so that own parts add up by device")
				time.Sleep(5 * time.Minute)
				_, err := r.tel.GetMetric("otelcol_processor_gpu_join_orphans")
				assert.ErrorContains(t, err, "not found", "the sum on the other device met its step")
			})
		})
	}
}

func TestNobodyWaitsForAHostSpanThatIsThere(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(2, 1, zero, time.Now())
		td.scope("http").host(1, 0, zero, time.Now())
		r.consume(td.Traces)
		assert.EqualValues(t, 1, r.gauge("known_spans"), "no place is kept for the handler")
	})
}

func TestHostSpanThatComesAfterItsKernelIsSeenThrough(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(4, 2, at(1), at(2))
		r.consume(td.Traces)
		time.Sleep(time.Second)
		td = newTraces("a")
		td.host(2, 1, at(1), at(3))
		td.gpu(1, 0, at(1), at(3))
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[4]), 1e-6)
		assert.InDelta(t, 600, energy(t, s[1]), 1e-6)
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

func TestSpansOfUnknownDevicesPassAtOnceAndUntouched(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now()).Attributes().PutStr("hw.id", "GPU-ffffffff-0000-0000-0000-000000000000")
		s := td.gpu(2, 0, zero, time.Now())
		s.Attributes().Remove("hw.id")
		s.Attributes().PutInt("gpu.device.ordinal", 0)
		want := ptrace.NewTraces()
		td.CopyTo(want)
		r.consume(td.Traces)
		require.Equal(t, 2, r.sink.SpanCount())
		assert.Equal(t, text(t, want), text(t, r.sink.AllTraces()[0]))
		assert.EqualValues(t, 1, r.count("uncovered_spans", "unknown_device"))
		assert.EqualValues(t, 1, r.count("uncovered_spans", "no_identity"), "an ordinal is no identity")
	})
}

func TestMixedBatchesMoveWholeScopes(t *testing.T) {
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
		require.Len(t, r.spans(), 2)
		assert.Contains(t, r.spans(), uint64(3))
		assert.Contains(t, r.spans(), uint64(4))
		time.Sleep(7 * time.Second)
		require.Len(t, r.spans(), 5)
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

// A fan-out with several readers makes what it gets read-only, while the GPU part of the same request is still to be
// written to.
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
		time.Sleep(7 * time.Second)
		assert.Equal(t, int32(1), joined.Load())
	})
}

func TestIdentityFindsTheDevice(t *testing.T) {
	bdf := nominal
	bdf.PCIBDF, bdf.HostName = "00000000:17:00.0", "node1"
	for name, tt := range map[string]struct {
		edit func(*Config)
		span func(s ptrace.Span, td *traces)
	}{
		"bare UUID": {span: func(s ptrace.Span, _ *traces) { s.Attributes().PutStr("hw.id", gpu0[4:]) }},
		"host and PCI address": {span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			s.Attributes().PutStr("gpu.pci.bdf", "0000:17:00.0")
			td.rs.Resource().Attributes().PutStr("host.name", "node1")
		}},
		"hw.id on the resource": {span: func(s ptrace.Span, td *traces) {
			s.Attributes().Remove("hw.id")
			td.rs.Resource().Attributes().PutStr("hw.id", gpu0)
		}},
		"mapped ordinal": {
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
				time.Sleep(7 * time.Second)
				assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
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
		assert.NotContains(t, r.spans()[1].Attributes().AsRaw(), "gpu.join.coverage")
	})
}

func TestMIGInstancesHaveRatiosOfTheirOwnAndShareTheBoard(t *testing.T) {
	const mig1, mig2 = "MIG-11111111-0000-0000-0000-000000000000", "MIG-22222222-0000-0000-0000-000000000000"
	for _, withEnergy := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			zero := time.Now()
			r := newRig(t).join(func(c *Config) { c.EnergyOnMIG = withEnergy })
			defer r.close()
			r.run(r.device(nominal), func(now time.Time, s *gpusamplesextension.Sample) {
				steady(zero, 300)(now, s)
				s.Known &^= 1 << gpusamplesextension.Utilization
			})
			for id, util := range map[string]float64{mig1: 0.2, mig2: 0.9} {
				r.run(r.device(gpusamplesextension.Device{ID: id, Parent: gpu0, Interval: 100 * time.Millisecond, Source: "simulated"}),
					func(_ time.Time, s *gpusamplesextension.Sample) { s.Set(gpusamplesextension.Utilization, util) })
			}
			time.Sleep(2 * time.Second)
			td := newTraces("a")
			td.gpu(1, 0, zero.Add(time.Second), time.Now()).Attributes().PutStr("hw.id", mig1)
			td.resource("b").gpu(2, 0, zero.Add(time.Second), time.Now()).Attributes().PutStr("hw.id", mig2[4:])
			r.consume(td.Traces)
			time.Sleep(7 * time.Second)
			s := r.spans()
			assert.InDelta(t, 0.2, attr(t, s[1], "gpu.utilization"), 1e-9)
			assert.InDelta(t, 0.9, attr(t, s[2], "gpu.utilization"), 1e-9)
			assert.InDelta(t, 300, attr(t, s[1], "gpu.power"), 1e-9, "the board's")
			if withEnergy {
				assert.InDelta(t, 150, energy(t, s[1]), 1e-6)
				assert.InDelta(t, 150, energy(t, s[2]), 1e-6)
			} else {
				assert.NotContains(t, s[1].Attributes().AsRaw(), "gpu.energy")
			}
		})
	}
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
		for reason, n := range map[string]int64{"end_before_start": 1, "zero_length": 1, "epoch": 1, "future": 2, "no_id": 1} {
			assert.Equal(t, n, r.count("bad_spans", reason), reason)
		}
		for s := range spansOf(r.sink.AllTraces()[0]) {
			assert.Equal(t, 2, s.Attributes().Len(), "nothing is written on them")
		}
	})
}

func TestJoinedSpansPassUntouched(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
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

func TestTheSameBatchTwiceGetsTheSameValues(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now())
		td.gpu(2, 1, zero, zero.Add(sec(0.3)))
		other := ptrace.NewTraces()
		td.CopyTo(other)
		r.consume(td.Traces)
		time.Sleep(sec(3)) // a sender that did not get the answer tries again
		r.consume(other)
		time.Sleep(7 * time.Second)
		require.Len(t, r.sink.AllTraces(), 2)
		assert.Equal(t, text(t, r.sink.AllTraces()[0]), text(t, r.sink.AllTraces()[1]))
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
	})
}

func TestSamplesThatStopReleaseAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		base := steady(zero, 300)
		r.run(r.device(nominal), func(now time.Time, s *gpusamplesextension.Sample) {
			if d := now.Sub(zero); d <= sec(2) || d > sec(20) { // silent in (2, 20]
				base(now, s)
			}
		})
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(5 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(1.9)) // covered
		td.gpu(2, 0, at(1), at(4))   // covered to 2
		td.gpu(3, 0, at(3), at(4))   // not covered
		r.consume(td.Traces)
		time.Sleep(sec(8.9))
		assert.Empty(t, r.spans())
		time.Sleep(sec(0.2))
		s := r.spans()
		require.Len(t, s, 3)
		// 300 J in [1, 2]: 1 and 2 share [1, 1.9], 2 has the rest.
		assert.InDelta(t, 135, energy(t, s[1]), 1e-6)
		assert.InDelta(t, 165, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 1., attr(t, s[1], "gpu.join.coverage"), 1e-9)
		assert.InDelta(t, 1./3, attr(t, s[2], "gpu.join.coverage"), 1e-9)
		assert.InDelta(t, 0., attr(t, s[3], "gpu.join.coverage"), 1e-9)
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.energy")
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.utilization")
		assert.NotContains(t, s[3].Attributes().AsRaw(), "gpu.join.method")
		assert.EqualValues(t, 1, r.count("uncovered_spans", "no_samples"))

		time.Sleep(sec(15)) // 29 s: the source is back
		td = newTraces("a")
		td.gpu(4, 0, at(27), at(28))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		assert.InDelta(t, 300, energy(t, r.spans()[4]), 1e-6)
		// The counter went on across the gap: 18 s of 300 W that nobody can be given.
		assert.InDelta(t, 300*18, r.energy("uncovered"), 35)
		assert.InDelta(t, 600, r.energy("attributed"), 1e-6)
	})
}

// A sample that comes after its time was settled tells of utilisation all the same, but the energy was not dealt out: a
// batch that is sent again then must not claim that it was.
func TestSamplesAfterTheirTimeWasSettledBringNoEnergy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		r := newRig(t).join(func(c *Config) { c.Settle, c.MaxWait = time.Second, 2*time.Second })
		defer r.close()
		w := r.device(gpusamplesextension.Device{ID: gpu0, Interval: 2 * time.Second})
		w.Write(one(at(0), zero))
		time.Sleep(sec(2))
		w.Write(one(at(2), zero))
		time.Sleep(sec(2.5))
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(4))
		td.gpu(2, 0, at(3), at(4))
		again := ptrace.NewTraces()
		td.CopyTo(again)
		r.consume(td.Traces)
		time.Sleep(sec(2))
		require.Len(t, r.spans(), 2)
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
		w.Write(one(at(6), zero))
		time.Sleep(sec(0.5))
		r.consume(again)
		synctest.Wait()
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[1]), 1e-6)
		assert.InDelta(t, 1./3, attr(t, s[1], "gpu.join.coverage"), 1e-9, "that of the energy")
		assert.NotContains(t, s[2].Attributes().AsRaw(), "gpu.energy")
		assert.InDelta(t, 0.75, attr(t, s[2], "gpu.utilization"), 1e-9)
		assert.InDelta(t, 1., attr(t, s[2], "gpu.join.coverage"), 1e-9)
	})
}

func TestMemoryUsageOfTheProducerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(_ time.Time, s *gpusamplesextension.Sample) {
			s.Set(gpusamplesextension.MemoryUsed, 1<<30)
		})
		time.Sleep(time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero, time.Now()).Attributes().PutInt("gpu.memory.usage", 77)
		td.gpu(2, 0, zero, time.Now())
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		assert.EqualValues(t, 77, attr(t, r.spans()[1], "gpu.memory.usage"))
		assert.EqualValues(t, 1<<30, attr(t, r.spans()[2], "gpu.memory.usage"))
	})
}

func TestCounterResetLosesOnlyTheGapAcrossIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(now time.Time, s *gpusamplesextension.Sample) {
			at := now.Sub(zero).Seconds()
			if at >= 2 { // the driver was reloaded
				at -= 2
			}
			s.Set(gpusamplesextension.Energy, 300*at)
		})
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(3)))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		s := r.spans()[1]
		assert.InDelta(t, 570, energy(t, s), 1e-6)
		assert.InDelta(t, 0.95, attr(t, s, "gpu.join.coverage"), 1e-6)
	})
}

func TestShiftMovesTheSamples(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join(func(c *Config) { c.Shift = 500 * time.Millisecond })
		defer r.close()
		// The device works in [2, 3]; its meter shows that half a second later.
		r.run(r.device(nominal), func(now time.Time, s *gpusamplesextension.Sample) {
			at := now.Sub(zero).Seconds()
			s.Set(gpusamplesextension.Energy, 300*min(max(at-2.5, 0), 1))
		})
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(2)), zero.Add(sec(3)))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		assert.InDelta(t, 300, energy(t, r.spans()[1]), 1e-6)
	})
}

func TestShiftMakesUpForTheClockOfTheServices(t *testing.T) {
	for _, skew := range []time.Duration{30 * time.Second, -30 * time.Second} {
		t.Run(skew.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, _ time.Time) {
				time.Sleep(40 * time.Second)
				end := time.Now().Add(skew) // as the services see it
				td := newTraces("a")
				td.gpu(1, 0, end.Add(-time.Second), end)
				r.consume(td.Traces)
				time.Sleep(3 * time.Second)
				td = newTraces("b")
				td.gpu(2, 0, end.Add(-time.Second), end)
				r.consume(td.Traces)
				time.Sleep(2900 * time.Millisecond)
				assert.Empty(t, r.spans(), "settle is the same")
				time.Sleep(200 * time.Millisecond)
				s := r.spans()
				require.Len(t, s, 2)
				for id := range s {
					assert.InDelta(t, 150, energy(t, s[id]), 1e-6)
					assert.NotContains(t, s[id].Attributes().AsRaw(), "gpu.join.late.duration")
				}
			}, func(c *Config) { c.Shift = -skew })
		})
	}
}

func TestShortSpansAreCells(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1.01)), zero.Add(sec(1.05)))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		s := r.spans()[1]
		assert.Equal(t, semconv.GPUJoinMethodCell, attr(t, s, "gpu.join.method"))
		assert.InDelta(t, 12, energy(t, s), 1e-6)
		assert.InDelta(t, 0.75, attr(t, s, "gpu.utilization"), 1e-9)
		assert.EqualValues(t, 0, attr(t, s, "gpu.join.samples"))
	})
}

func TestPowerIsIntegratedWhereThereIsNoEnergyCounter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zero := time.Now()
		r := newRig(t).join()
		defer r.close()
		r.run(r.device(nominal), func(now time.Time, s *gpusamplesextension.Sample) {
			s.Set(gpusamplesextension.Power, 200)
		})
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		assert.InDelta(t, 200, energy(t, r.spans()[1]), 1e-6)
	})
}

func TestSpanEventsByOption(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(2 * time.Second)
		r.w.WriteEvents([]gpusamplesextension.Event{
			{Time: zero.Add(sec(1.2)).UnixNano(), Kind: gpusamplesextension.EventXID, Code: 63},
			{Time: zero.Add(sec(1.3)).UnixNano(), Kind: gpusamplesextension.EventECCUncorrected, Count: 1},
			{Time: zero.Add(sec(1.4)).UnixNano(), Kind: gpusamplesextension.EventThrottleStart, Code: int64(gpusamplesextension.ThrottleHWThermal)},
		})
		td := newTraces("a")
		td.gpu(1, 0, zero.Add(sec(1)), zero.Add(sec(2)))
		r.consume(td.Traces)
		time.Sleep(7 * time.Second)
		s := r.spans()[1]
		require.Equal(t, 3, s.Events().Len())
		for i, want := range []string{"gpu.xid", "gpu.ecc", "gpu.throttle"} {
			assert.Equal(t, want, s.Events().At(i).Name())
			assert.Equal(t, zero.Add(sec(1.2+0.1*float64(i))).UnixNano(), s.Events().At(i).Timestamp().AsTime().UnixNano())
		}
		assert.Equal(t, map[string]any{"gpu.throttle.reason": "hw_thermal_slowdown"}, s.Events().At(2).Attributes().AsRaw())
	}, func(c *Config) { c.Events = true })
}

func TestRareSamplesAreWarnedOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.WarnLevel)
		r := newRig(t)
		r.logger = zap.New(core)
		r.join()
		defer r.close()
		w := r.device(gpusamplesextension.Device{ID: gpu0, Interval: 15 * time.Second})
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
		r.consume(td.Traces)
		synctest.Wait()
		s := r.spans()
		require.Len(t, s, 2)
		assert.InDelta(t, 0., attr(t, s[1], "gpu.join.coverage"), 0)
		assert.InDelta(t, 300, energy(t, s[2]), 1e-6, "free time in the ring is still there to take")
		assert.InDelta(t, 1., attr(t, s[2], "gpu.join.late.duration"), 1e-9)
	})
}
