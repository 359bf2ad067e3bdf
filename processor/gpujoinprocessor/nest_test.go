// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpujoinprocessor

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/devicesamples"
)

func TestStepAfterItsChildrenHoldsTheirEnergy(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(2 * time.Second)
		td := newTraces("a")
		td.gpu(2, 1, at(1), at(2))
		r.consume(td.Traces)
		time.Sleep(8050 * time.Millisecond)
		require.Contains(t, r.spans(), uint64(2))
		// A step of 10 s ends now: 9 s of it are settled, 1 s belongs to a child.
		td = newTraces("a")
		td.gpu(1, 0, at(0.5), at(10))
		r.consume(td.Traces)
		settle()
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 2850, energy(t, s[1]), 1e-6, "all that was free, and its child")
		late := attr(t, s[1], "gpu.join.late.duration").(float64)
		assert.InDelta(t, 3.5-1, late, 0.2, "settled before it arrived at 10 s: 4 s; from 0.5 s on, less the child's second")
	}, settleIn6s)
}

func TestHostSpansBetweenStepAndKernelAreFollowed(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		td.gpu(1, 0, at(1), at(3))
		for id := range uint64(128) {
			td.host(id+2, id+1, at(1.1), at(2))
		}
		td.gpu(1000, 129, at(1.2), at(2.2))
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		assert.InDelta(t, 300, energy(t, s[1000]), 1e-6)
		assert.InDelta(t, 600, energy(t, s[1]), 1e-6)
		assert.Equal(t, 130, r.sink.SpanCount())
	})
}

// A loop opens a phase and calls the model with the step's context, as the library's documentation
// does: the sections of the model are children of the step and siblings of the phase that encloses
// them on the stream.
func TestPhaseEnergyIncludesSectionsOnItsStream(t *testing.T) {
	for name, batches := range map[string][][]uint64{
		"one batch":      {{3, 4, 2, 5, 1}},
		"the step later": {{3, 4, 2, 5}, {1}},
	} {
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

// Another exporter of the process may send the host span between a step and its kernel, in requests
// without GPU spans.
func TestHostSpansMayArriveInRequestsOfTheirOwn(t *testing.T) {
	for _, order := range [][]uint64{{4, 2, 3, 1}, {2, 3, 4, 1}, {3, 4, 1, 2}, {4, 3, 2, 1}, {1, 2, 3, 4}, {3, 1, 4, 2}, {1, 4, 3, 2}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				time.Sleep(4 * time.Second)
				for _, id := range order {
					td := newTraces("a")
					switch id {
					case 1:
						td.gpu(1, 0, at(1), at(3)).Attributes().PutStr("gpu.operation.type", "step")
					case 2, 3:
						td.host(id, id-1, at(1), at(2))
					case 4:
						td.gpu(4, 3, at(1), at(2))
					}
					r.consume(td.Traces)
				}
				time.Sleep(8 * time.Second)
				s := r.spans()
				assert.InDelta(t, 300, energy(t, s[4]), 1e-6)
				assert.InDelta(t, 600, energy(t, s[1]), 1e-6)
			})
		})
	}
}

const gpu1 = "GPU-00000000-86f3-7a43-b711-4771313afc50"

// secondDevice returns a device like the first, with another identity.
func secondDevice() devicesamples.Device {
	d := nominal
	d.ID = gpu1
	return d
}

func TestSpansOfTwoDevicesOnStreamsOfOneNumberStayApart(t *testing.T) {
	for name, ordinals := range map[string]bool{"by ordinal": true, "by identity alone": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				r.run(r.device(secondDevice()), steady(zero, 100))
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

// The other device's span, on a stream with the same number, starts before both and ends between
// them.
func TestSpanOnAnotherDeviceDoesNotHideSpansInside(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		at := func(x float64) time.Time { return zero.Add(sec(x)) }
		r.run(r.device(secondDevice()), steady(zero, 100))
		time.Sleep(4 * time.Second)
		td := newTraces("a")
		td.gpu(2, 1, at(1.5), at(2))
		td.gpu(3, 1, at(0.5), at(2.5)).Attributes().PutStr("hw.id", gpu1)
		td.gpu(4, 1, at(1), at(3))
		for _, s := range td.ss.Spans().All() {
			s.Attributes().PutInt("gpu.stream.id", 7)
		}
		r.consume(td.Traces)
		time.Sleep(8 * time.Second)
		s := r.spans()
		assert.InDelta(t, 150, energy(t, s[2]), 1e-6)
		assert.InDelta(t, 200, energy(t, s[3]), 1e-6)
		assert.InDelta(t, 600, energy(t, s[4]), 1e-6)
	})
}

func TestAStepOverSeveralDevicesHoldsItsChildrensEnergyOnAll(t *testing.T) {
	for name, together := range map[string]bool{"one batch": true, "the step later": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, r *rig, zero time.Time) {
				at := func(x float64) time.Time { return zero.Add(sec(x)) }
				r.run(r.device(secondDevice()), steady(zero, 100))
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
				assert.InDelta(t, 300, attr(t, s[1], "gpu.self_energy"), 1e-6,
					"on its own device, so that own parts add up by device")
				time.Sleep(5 * time.Minute)
				_, err := r.tel.GetMetric("otelcol_processor_gpu_join_orphans")
				assert.ErrorContains(t, err, "not found", "the sum on the other device met its step")
			})
		})
	}
}

func TestHostSpanArrivingAfterItsKernelIsBridged(t *testing.T) {
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

// A span that states the PCI address of its device in addition to its ID is on the same device as
// one that does not.
func TestSpansOfOneDeviceNestWhetherOrNotTheyStateItsAddress(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig, zero time.Time) {
		time.Sleep(3 * time.Second)
		td := newTraces("a")
		inner := td.gpu(2, 9, zero.Add(time.Second), zero.Add(1500*time.Millisecond)) // ends first, so it is sent first
		inner.Attributes().PutInt("gpu.stream.id", 1)
		outer := td.gpu(1, 9, zero, zero.Add(2*time.Second))
		outer.Attributes().PutInt("gpu.stream.id", 1)
		outer.Attributes().PutStr("gpu.pci.bdf", "0000:17:00.0")
		r.consume(td.Traces)
		settle()
		assert.InDelta(t, 600, energy(t, r.spans()[1]), 1e-6)
		assert.InDelta(t, 150, energy(t, r.spans()[2]), 1e-6)
	})
}
