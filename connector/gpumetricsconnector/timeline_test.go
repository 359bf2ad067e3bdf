// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpumetricsconnector

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

const noGap = 1 << 60

func TestSettleReturnsTheStatesOfATimeline(t *testing.T) {
	// ns:  0    10   20   30   40   50   60   70   80   90
	// compute   ████████████        ████           ████      10-30, 50-60, 80-90
	// comm           ███████████████                         25-45
	// copy                                ████               65-70
	tl := timeline{edges: new([]edge)}
	for _, x := range []activity{
		{10, 30, 5, classCompute},
		{25, 45, 20, classComm},
		{50, 60, 40, classCompute}, // launched while communication ran
		{65, 70, 62, classCopy},    // launched after the device became idle
		{80, 90, 0, classCompute},  // launch unknown
	} {
		require.True(t, tl.add(x, 0))
	}
	spent := tl.settle(90, noGap)
	want := [stateStarved + 1]uint64{}
	want[classCompute] = 15 + 10 + 10
	want[classCompute|classComm] = 5
	want[classComm] = 15
	want[classCopy] = 5
	want[0] = 5 + 10 // 45-50, 70-80
	want[stateStarved] = 5
	assert.Equal(t, want, spent)
	var sum uint64
	for _, d := range spent {
		sum += d
	}
	assert.EqualValues(t, 80, sum, "the states sum to the observed time")
	assert.Empty(t, tl.pending)
}

func TestOverlappingActivitiesOfAClassWaitAsOne(t *testing.T) {
	tl := timeline{edges: new([]edge)}
	for _, x := range []activity{
		{20, 30, 15, classCompute},
		{30, 40, 29, classCompute}, // touches
		{10, 50, 5, classCompute},  // around
		{12, 14, 11, classCompute}, // inside
	} {
		require.True(t, tl.add(x, 0))
	}
	assert.Equal(t, []activity{{10, 50, 5, classCompute}}, tl.pending)
	require.True(t, tl.add(activity{15, 55, 0, classComm}, 0))
	require.True(t, tl.add(activity{57, 60, 0, classComm}, 0))
	assert.Len(t, tl.pending, 3)
}

func TestALongGapIsNotIdle(t *testing.T) {
	tl := timeline{edges: new([]edge)}
	tl.add(activity{10, 20, 0, classCompute}, 0)
	tl.add(activity{1000, 1010, 0, classCompute}, 0)
	spent := tl.settle(2000, 500)
	assert.EqualValues(t, 20, spent[classCompute])
	assert.Zero(t, spent[0])
}

func TestLateActivitiesAreRejectedOrTruncated(t *testing.T) {
	tl := timeline{edges: new([]edge)}
	tl.add(activity{10, 20, 0, classCompute}, 0)
	tl.settle(20, noGap)
	assert.False(t, tl.add(activity{12, 20, 0, classComm}, 0))
	require.True(t, tl.add(activity{15, 30, 0, classComm}, 0))
	assert.EqualValues(t, 10, tl.settle(30, noGap)[classComm])
}

// The reference marks each nanosecond. Settling in pieces at random times must give the same
// result.
func TestSettlingInPiecesEqualsPainting(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 3))
		const length = 400
		var classes [length + 1]int
		launchOf := map[int]uint64{} // launch by start time: of the first activity that starts then
		var all []activity
		for range 1 + r.IntN(25) {
			start := 1 + r.Uint64N(length-40)
			x := activity{start: start, end: start + 1 + r.Uint64N(30), class: uint8(1 << r.IntN(3))}
			if r.IntN(2) == 0 {
				x.launch = start - min(start, r.Uint64N(20))
			}
			if l, taken := launchOf[int(start)]; taken {
				x.launch = l // activities that start together are launched together, so their order does not matter
			}
			launchOf[int(start)] = x.launch
			all = append(all, x)
			for i := x.start; i < x.end; i++ {
				classes[i] |= int(x.class)
			}
		}
		var want [stateStarved + 1]uint64
		first, last := -1, 0
		for i, c := range classes {
			if c != 0 {
				if first < 0 {
					first = i
				}
				last = i
			}
		}
		for i := first; i <= last; i++ {
			if classes[i] != 0 {
				want[classes[i]]++
				continue
			}
			gap := i
			for classes[i] == 0 {
				i++
			}
			state := 0
			if launchOf[i] > uint64(gap) {
				state = stateStarved
			}
			want[state] += uint64(i - gap)
			i--
		}
		tl := timeline{edges: new([]edge)}
		var got [stateStarved + 1]uint64
		to := uint64(0)
		for len(all) > 0 {
			to += r.Uint64N(150)
			rest := all[:0]
			for _, x := range all { // activities that start before the next time have arrived by then
				if x.start < to+1 {
					require.True(t, tl.add(x, 0))
				} else {
					rest = append(rest, x)
				}
			}
			all = rest
			for state, d := range tl.settle(to, noGap) {
				got[state] += d
			}
		}
		for state, d := range tl.settle(length+100, noGap) {
			got[state] += d
		}
		require.Equal(t, want, got, "seed %d", seed)
	}
}

func TestActivityOfADeviceIsWritten(t *testing.T) {
	a := newTest(t, nil)
	clock := clock + int64(time.Hour)
	kernel := attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti", "gpu.device.ordinal": 1}
	a.take(batch(t, nil,
		span{"gemm", 100, 300, kernel, 1, 0, ""},
		span{"nccl", 250, 450, with(kernel, attrs{"gpu.operation.type": "collective"}), 2, 0, ""},
		span{"gemm", 500, 600, with(kernel, attrs{"gpu.start.delay": 0.00001}), 3, 0, ""},
		span{"far", 900_000_000, 900_000_001, kernel, 4, 0, ""}, // settles the others
		span{"section", 0, 5000, attrs{"gpu.operation.type": "section", "gpu.timing.source": "cuda_event"}, 5, 0, ""}), clock)
	got := values(t, output(t, a, clock))
	want := map[string]float64{
		"compute": 250e-6, "compute_communication": 50e-6, "communication": 150e-6,
		"starved": 50e-6,
	}
	for state, s := range want {
		assert.InEpsilon(t, s, got["gpu.activity.time[gpu.activity.state:"+state+" gpu.device.ordinal:1]"], 1e-9, state)
	}
	assert.Equal(t, 2, a.activities, "the last, and the section, wait for earlier activities")
	a.output(clock+int64(time.Minute), false)
	assert.Zero(t, a.activities)
}

// Devices are distinguished even if only their addresses differ.
func TestDevicesNamedByAddressAreDistinguished(t *testing.T) {
	a := newTest(t, nil)
	for i, bdf := range []string{"0000:17:00.0", "0000:65:00.0"} {
		a.take(batch(t, nil, span{"gemm", 100, 300, attrs{
			"gpu.operation.type": "kernel", "gpu.timing.source": "cupti", "gpu.pci.bdf": bdf,
		}, byte(i + 1), 0, ""}), clock)
	}
	got := values(t, a.output(clock, true))
	assert.InEpsilon(t, 400e-6, got["gpu.activity.time[gpu.activity.state:compute]"], 1e-9)
}

func TestPendingActivitiesAreLimited(t *testing.T) {
	a := newTest(t, func(c *Config) { c.Activity.Get().MaxActivities = 100 })
	kernel := attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti", "gpu.device.ordinal": 1}
	for i := range uint64(1000) {
		a.take(batch(t, attrs{"n": i % 3}, span{"k", 10 * i, 10*i + 5, kernel, 1, 0, ""}), clock)
		require.Less(t, a.activities, 100)
	}
	md := a.output(clock, true)
	var sum float64
	for k, v := range values(t, onlyActivity(md)) {
		if k != "" {
			sum += v.(float64)
		}
	}
	assert.InEpsilon(t, 1000*5e-6, sum, 1e-9, "early is not lost")
}

// onlyActivity keeps only gpu.activity.time in the state compute, with the resource as an attribute
// so that keys differ.
func onlyActivity(md pmetric.Metrics) pmetric.Metrics {
	for i, rm := range md.ResourceMetrics().All() {
		rm.ScopeMetrics().At(0).Metrics().RemoveIf(func(m pmetric.Metric) bool { return m.Name() != "gpu.activity.time" })
		for _, m := range rm.ScopeMetrics().At(0).Metrics().All() {
			m.Sum().DataPoints().RemoveIf(func(p pmetric.NumberDataPoint) bool {
				state, _ := p.Attributes().Get("gpu.activity.state")
				p.Attributes().PutInt("resource", int64(i))
				return state.Str() != "compute"
			})
		}
	}
	return md
}

func TestActivitiesOfBrokenClocksAreDroppedAndCounted(t *testing.T) {
	kernel := attrs{"gpu.operation.type": "kernel", "gpu.timing.source": "cupti"}
	a := newTest(t, nil)
	td := batch(t, nil, span{"good", 0, 100, kernel, 1, 0, ""}, span{"unset", 0, 100, kernel, 2, 0, ""},
		span{"backwards", 0, 100, kernel, 3, 0, ""},
		span{"future", 0, 100, kernel, 4, 0, ""}, span{"empty", 50, 50, kernel, 5, 0, ""})
	spans := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans()
	spans.At(1).SetStartTimestamp(0)
	spans.At(2).SetStartTimestamp(spans.At(2).EndTimestamp() + 1)
	spans.At(3).SetEndTimestamp(1 << 62)
	a.take(td, clock)
	assert.EqualValues(t, 3, a.stats.activityTime)
	a.take(batch(t, nil, span{"later", 200, 300, kernel, 6, 0, ""}), clock)
	assert.Zero(t, a.stats.activityLate, "the future has settled nothing")
	got := values(t, a.output(clock, true))
	assert.InEpsilon(t, 200e-6, got["gpu.activity.time[gpu.activity.state:compute]"], 1e-9)
	for k, v := range got {
		if strings.HasPrefix(k, "gpu.operation.duration[gpu.operation.name:unset") {
			t.Errorf("%s: %v, of a start that was not set", k, v)
		}
	}
}

func TestAnIndexMustBeAWholeNumber(t *testing.T) {
	a := newTest(t, nil)
	a.take(batch(t, nil, span{"k", 0, 100, attrs{
		"gpu.operation.type": "kernel", "gpu.timing.source": "cupti",
		"gpu.device.ordinal": "3",
	}, 1, 0, ""}), clock)
	assert.Contains(t, values(t, a.output(clock, true)), "gpu.activity.time[gpu.activity.state:compute]",
		"not device 0")
}

// Nested sections on two streams cover 0 to 40 and 60 to 100 ms. The gap before 60 ms is the
// host's, because the launch began at 55 ms. From 100 to 110 ms, the next section, launched at 90
// ms, had not started.
func TestStatesOfADeviceBySections(t *testing.T) {
	a := newTest(t, nil)
	section := func(stream int, more attrs) attrs {
		return with(attrs{
			"gpu.operation.type": "section", "gpu.timing.source": "cuda_event", "hw.id": "GPU-a",
			"gpu.stream.id": stream,
		}, more)
	}
	a.take(batch(t, nil,
		span{"outer", 0, 30_000, section(1, nil), 1, 0, ""}, span{"inner", 5000, 20_000, section(1, nil), 2, 1, ""},
		span{"other", 20_000, 40_000, section(2, nil), 3, 0, ""},
		span{"after", 60_000, 100_000, section(1, attrs{"gpu.start.delay": 0.005}), 4, 0, ""},
		// the device's clock measures more than the span's length
		span{"last", 110_000, 120_000, section(1, attrs{"gpu.start.delay": 0.020, "gpu.duration": 1.0}), 5, 0, ""},
		span{"much later", 5_000_000, 5_010_000, section(1, nil), 6, 0, ""}, // nothing was launched
		span{"host", 40_000, 60_000, section(1, attrs{"gpu.timing.source": "host"}), 7, 0, ""},
		span{"sampled", 40_000, 60_000, section(1, nil), 8, 0, "ot=th:8"}), clock+int64(6*time.Second))
	md := a.output(clock+int64(6*time.Second), true)
	got := values(t, md)
	assert.InDelta(t, 0.040+0.040+0.010+0.010, got["gpu.section.time[gpu.section.state:covered hw.id:GPU-a]"], 1e-9)
	assert.InDelta(t, 0.020, got["gpu.section.time[gpu.section.state:starved hw.id:GPU-a]"], 1e-9)
	assert.InDelta(t, 0.010, got["gpu.section.time[gpu.section.state:gap hw.id:GPU-a]"], 1e-9)
	for k := range got {
		assert.NotContains(t, k, "gpu.activity.time")
	}
}
