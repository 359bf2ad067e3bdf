// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuderiveprocessor

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/otelgpu/otelgpu/internal/conformance"
)

func TestDerivedValuesEqualTheClosedForms(t *testing.T) {
	for name, tt := range map[string]struct{ in, want attrs }{
		"memory bound at half of the roof": {
			with(h100, attrs{"gpu.io.size": 3_350_000_000, "gpu.flop.count": 16.75e9, "gpu.flop.precision": "bf16"}),
			attrs{
				"gpu.io.rate": 1.675e12, "gpu.io.utilization": 0.5, "gpu.flop.rate": 8.375e12,
				"gpu.flop.utilization":     0.008463870641738,
				"gpu.arithmetic_intensity": 5.0, "gpu.roofline.bound": "memory", "gpu.roofline.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"compute bound at half of the roof": {
			with(h100, attrs{"gpu.io.size": 1_000_000, "gpu.flop.count": 989.5e9, "gpu.flop.precision": "bf16"}),
			attrs{
				"gpu.io.rate": 5e8, "gpu.io.utilization": 1.492537313432836e-4, "gpu.flop.rate": 494.75e12,
				"gpu.flop.utilization":     0.5,
				"gpu.arithmetic_intensity": 989500.0, "gpu.roofline.bound": "compute", "gpu.roofline.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"on the ridge it is compute": {
			with(h100, attrs{"gpu.io.size": 3_350_000_000, "gpu.flop.count": 989.5e9, "gpu.flop.precision": "bf16"}),
			attrs{
				"gpu.io.rate": 1.675e12, "gpu.io.utilization": 0.5, "gpu.flop.rate": 494.75e12, "gpu.flop.utilization": 0.5,
				"gpu.arithmetic_intensity": 295.3731343283582, "gpu.roofline.bound": "compute", "gpu.roofline.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"reads, writes and items": {
			with(h100, attrs{"gpu.io.read.size": 2_000_000, "gpu.io.write.size": 1_000_000, "gpu.operation.items": 4096}),
			attrs{
				"gpu.io.rate": 1.5e9, "gpu.io.read.rate": 1e9, "gpu.io.write.rate": 5e8, "gpu.operation.item.rate": 2.048e6,
				"gpu.io.utilization": 4.477611940298507e-4, "gpu.peak.source": "table", "gpu.declaration.status": "ok",
				"gpu.rate.status": "ok",
			},
		},
		"a copy within the device reads and writes": {
			with(h100, attrs{
				"gpu.operation.type": "copy", "gpu.copy.direction": "device_to_device",
				"gpu.io.size": 1_675_000_000,
			}),
			attrs{
				"gpu.io.rate": 0.8375e12, "gpu.io.utilization": 0.5, "gpu.io.basis": "read_and_write",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"a copy to the host takes one direction of PCIe": {
			with(h100, attrs{"gpu.operation.type": "copy", "gpu.copy.direction": "device_to_host", "gpu.io.size": 64_000_000}),
			attrs{
				"gpu.io.rate": 32e9, "gpu.io.utilization": 0.5078125, // 32 ÷ (64 × 128/130)
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"the path between peers is unknown": {
			with(h100, attrs{"gpu.operation.type": "copy", "gpu.copy.direction": "peer_to_peer", "gpu.io.size": 1_000_000}),
			attrs{"gpu.io.rate": 5e8, "gpu.rate.status": "ok"},
		},
		"a copy that names no direction": {
			with(h100, attrs{"gpu.operation.type": "copy", "gpu.io.size": 1_000_000}),
			attrs{"gpu.io.rate": 5e8, "gpu.rate.status": "ok"},
		},
		"all_reduce of 8 ranks": { // 0.2 GB in 2 ms, × 2·7/8
			with(h100, attrs{
				"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce",
				"gpu.collective.group.size": 8, "gpu.io.size": 200_000_000,
			}),
			attrs{
				"gpu.io.rate": 1e11, "gpu.collective.bus.rate": 1.75e11, "gpu.io.utilization": 0.388888888888889,
				"gpu.io.basis":    "bus_bandwidth",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"a collective behind which the queue ran empty has no roofline": {
			with(h100, attrs{
				"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce",
				"gpu.collective.group.size": 8, "gpu.io.size": 20_000_000, "gpu.end.delay": 0.0001,
			}),
			attrs{
				"gpu.io.rate": 1e10, "gpu.collective.bus.rate": 1.75e10, "gpu.io.utilization": 0.0388888888888889,
				"gpu.io.basis":    "bus_bandwidth",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"all_gather of 4 ranks": {
			with(h100, attrs{
				"gpu.operation.type": "collective", "gpu.collective.name": "all_gather",
				"gpu.collective.group.size": 4, "gpu.io.size": 200_000_000,
			}),
			attrs{
				"gpu.io.rate": 1e11, "gpu.collective.bus.rate": 0.75e11, "gpu.io.utilization": 0.166666666666667,
				"gpu.io.basis":    "bus_bandwidth",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"a collective over more ranks than NVLink joins": {
			with(h100, attrs{
				"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce",
				"gpu.collective.group.size": 16, "gpu.io.size": 200_000_000,
			}),
			attrs{"gpu.io.rate": 1e11, "gpu.collective.bus.rate": 1.875e11, "gpu.rate.status": "ok"},
		},
		"a collective of an unknown group": {
			with(h100, attrs{
				"gpu.operation.type": "collective", "gpu.collective.name": "all_reduce",
				"gpu.io.size": 200_000_000,
			}),
			attrs{"gpu.io.rate": 1e11, "gpu.rate.status": "ok"},
		},
		"hits of L2 are not DRAM traffic": { // DRAM: 3.35e9 of 6.7e9; intensity stays the declared one
			with(h100, attrs{
				"gpu.io.size": 6_700_000_000, "gpu.cache.l2.hit_ratio": 0.5, "gpu.flop.count": 67e9,
				"gpu.flop.precision": "fp32",
			}),
			attrs{
				"gpu.io.rate": 3.35e12, "gpu.io.utilization": 0.5, "gpu.io.basis": "l2_misses", "gpu.flop.rate": 33.5e12,
				"gpu.flop.utilization":     0.5,
				"gpu.arithmetic_intensity": 10.0, "gpu.roofline.bound": "compute", "gpu.roofline.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"all hits of L2 are no DRAM traffic at all": {
			with(h100, attrs{"gpu.io.size": 1_000_000, "gpu.cache.l2.hit_ratio": 1.0}),
			attrs{
				"gpu.io.rate": 5e8, "gpu.io.utilization": 0.0, "gpu.io.basis": "l2_misses",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"more than the device can do": {
			with(h100, attrs{"gpu.io.size": 13_400_000_000}),
			attrs{
				"gpu.io.rate": 6.7e12, "gpu.io.utilization": 2.0,
				"gpu.peak.source": "table", "gpu.declaration.status": "exceeds_peak", "gpu.rate.status": "ok",
			},
		},
		"a memset has intensity 0": {
			with(h100, attrs{"gpu.operation.type": "memset", "gpu.io.size": 3_350_000_000}),
			attrs{
				"gpu.io.rate": 1.675e12, "gpu.io.utilization": 0.5, "gpu.roofline.bound": "memory",
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"far below the roof with a full queue": {
			with(h100, attrs{
				"gpu.io.size": 33_500_000, "gpu.flop.count": 67e6, "gpu.flop.precision": "fp32",
				"gpu.end.delay": 0.0019,
			}),
			attrs{
				"gpu.io.rate": 1.675e10, "gpu.io.utilization": 0.005, "gpu.flop.rate": 33.5e9, "gpu.flop.utilization": 5e-4,
				"gpu.arithmetic_intensity": 2.0, "gpu.roofline.bound": "latency", "gpu.roofline.utilization": 0.005,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"the queue ran empty": {
			with(h100, attrs{
				"gpu.io.size": 1_005_000_000, "gpu.flop.count": 67e6, "gpu.flop.precision": "fp32",
				"gpu.end.delay": 0.0001,
			}),
			attrs{
				"gpu.io.rate": 5.025e11, "gpu.io.utilization": 0.15, "gpu.flop.rate": 33.5e9, "gpu.flop.utilization": 5e-4,
				"gpu.arithmetic_intensity": 0.0666666666666667, "gpu.roofline.bound": "launch", "gpu.roofline.utilization": 0.15,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"an instance of 1g.10gb": { // 16 of 132 SMs, 1 of 8 slices
			with(h100, attrs{
				"hw.model": "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "gpu.io.size": 418_750_000,
				"gpu.flop.count": 119.939393939393939e9, "gpu.flop.precision": "bf16",
			}),
			attrs{
				"gpu.io.rate": 2.09375e11, "gpu.io.utilization": 0.5, "gpu.flop.rate": 59.96969696969697e12,
				"gpu.flop.utilization":     0.5,
				"gpu.arithmetic_intensity": 286.4224332881049, "gpu.roofline.bound": "compute", "gpu.roofline.utilization": 0.5,
				"gpu.peak.source": "table", "gpu.declaration.status": "ok", "gpu.rate.status": "ok",
			},
		},
		"an instance of unknown shape has no peaks": {
			with(h100, attrs{"hw.id": "MIG-1", "gpu.io.size": 1_000_000}),
			attrs{"gpu.io.rate": 5e8, "gpu.rate.status": "ok"},
		},
		"an unknown model": {
			with(h100, attrs{
				"hw.model": "Voodoo 2", "gpu.io.size": 1_000_000, "gpu.flop.count": 2e6,
				"gpu.flop.precision": "fp32",
			}),
			attrs{"gpu.io.rate": 5e8, "gpu.flop.rate": 1e9, "gpu.arithmetic_intensity": 2.0, "gpu.rate.status": "ok"},
		},
		"FLOPs of no precision have no peak": {
			with(h100, attrs{"gpu.flop.count": 2e6}),
			attrs{"gpu.flop.rate": 1e9, "gpu.rate.status": "ok"},
		},
		"a profiler's kernel is timed by its record": {
			attrs{
				"gpu.operation.type": "kernel", "gpu.timing.source": "cupti", "hw.model": "NVIDIA H100 80GB HBM3",
				"gpu.io.size": 3_350_000_000,
			},
			attrs{
				"gpu.io.rate": 1.675e12, "gpu.io.utilization": 0.5, "gpu.peak.source": "table", "gpu.declaration.status": "ok",
				"gpu.rate.status": "ok",
			},
		},
		"times of the host give no rate": {
			attrs{"gpu.operation.type": "section", "gpu.timing.source": "host", "gpu.io.size": 1_000_000, "gpu.flop.count": 2e6},
			attrs{"gpu.arithmetic_intensity": 2.0},
		},
		"a section that was not read gives no rate": {
			with(h100, attrs{"gpu.timing.status": "timeout", "gpu.io.size": 1_000_000}),
			attrs{},
		},
		"nothing declared": {h100, attrs{}},
		"a step": { // model: 4 devices × 989.5e12 × 0.25 s = 989.5e12 FLOP; this process: a quarter
			attrs{
				"gpu.operation.type": "step", "hw.model": "NVIDIA H200", "gpu.step.duration": 0.25, "gpu.step.items": 512,
				"gpu.step.device.count":     4,
				"gpu.step.model.flop.count": 395.8e12, "gpu.flop.count": 123.6875e12, "gpu.flop.precision": "bf16",
			},
			attrs{"gpu.step.item.rate": 2048.0, "gpu.step.mfu": 0.4, "gpu.step.hfu": 0.5, "gpu.peak.source": "table"},
		},
		"a step of whose sections only some declare FLOPs": {
			attrs{
				"gpu.operation.type": "step", "hw.model": "NVIDIA H200", "gpu.step.duration": 0.25,
				"gpu.step.model.flop.count": 98.95e12, "gpu.flop.count": 1e9, "gpu.flop.precision": "bf16",
			},
			attrs{"gpu.step.mfu": 0.4, "gpu.peak.source": "table"},
		},
		"a step without a duration takes the span's": {
			attrs{"gpu.operation.type": "step", "gpu.step.items": 4},
			attrs{"gpu.step.item.rate": 2000.0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			td, s := oneSpan(t, tt.in)
			d := newTestDeriver(t, nil)
			process(t, d, td)
			assertGained(t, tt.want, gained(s, tt.in))
			require.NoError(t, conformance.Traces(td))

			once := ptrace.NewTraces()
			td.CopyTo(once)
			process(t, d, td)
			assert.Equal(t, once, td, "a second pass changes nothing")
		})
	}
}

func TestBelowFloorNoRateIsDerived(t *testing.T) {
	for _, tt := range []struct {
		duration float64
		floor    any // scope attribute
		span     any // span attribute
		config   time.Duration
		source   string
		want     string
	}{
		{19.9e-6, nil, nil, 2 * time.Microsecond, "cuda_event", "below_floor"},
		{20e-6, nil, nil, 2 * time.Microsecond, "cuda_event", "ok"},
		{20e-6, 2.5e-6, nil, 2 * time.Microsecond, "cuda_event", "below_floor"},
		{19.9e-6, 1.9e-6, nil, 2 * time.Microsecond, "cuda_event", "ok"},
		{19.9e-6, "text", nil, 2 * time.Microsecond, "cuda_event", "below_floor"},
		{1e-6, nil, nil, 2 * time.Microsecond, "cupti", "ok"},
		{1e-6, nil, nil, 0, "cuda_event", "ok"},
		{1e-6, 0.0, nil, 2 * time.Microsecond, "cuda_event", "ok"},
		{19.9e-6, 1e-6, 2e-6, 0, "cuda_event", "below_floor"},
		{20e-6, 9e-6, 2e-6, 0, "cuda_event", "ok"},
	} {
		td, s := oneSpan(t, attrs{
			"gpu.operation.type": "section", "gpu.duration": tt.duration, "gpu.io.size": 1000,
			"gpu.timing.source": tt.source,
		})
		if v, ok := tt.span.(float64); ok {
			s.Attributes().PutDouble("gpu.floor.duration", v)
		}
		if tt.floor != nil {
			require.NoError(t, td.ResourceSpans().At(0).ScopeSpans().At(0).Scope().Attributes().FromRaw(
				attrs{"gpu.floor.duration": tt.floor}))
		}
		process(t, newTestDeriver(t, func(c *Config) { c.Floor = tt.config }), td)
		status, _ := s.Attributes().Get("gpu.rate.status")
		assert.Equal(t, tt.want, status.Str(), "%+v", tt)
		_, rated := s.Attributes().Get("gpu.io.rate")
		assert.Equal(t, tt.want == "ok", rated, "%+v", tt)
	}
}

func TestLaunchBoundOnlyWithPreciseDelays(t *testing.T) {
	// a tenth of the roof
	base := with(h100, attrs{"gpu.io.size": 670_000_000, "gpu.flop.count": 1e6, "gpu.flop.precision": "fp32"})
	for name, tt := range map[string]struct {
		more attrs
		want string
	}{
		"delay of less than a tenth":           {attrs{"gpu.end.delay": 0.00019}, "launch"},
		"negative by the clock's error":        {attrs{"gpu.end.delay": -0.000001}, "launch"},
		"delay of a tenth":                     {attrs{"gpu.end.delay": 0.0002}, "memory"},
		"error as large as the limit":          {attrs{"gpu.end.delay": 0.0, "gpu.timing.error": 0.0002}, "memory"},
		"no delay stated":                      {nil, "memory"},
		"half of the roof with a synchronised": {attrs{"gpu.end.delay": 0.0, "gpu.io.size": 3_350_000_000}, "memory"},
	} {
		t.Run(name, func(t *testing.T) {
			td, s := oneSpan(t, with(base, tt.more))
			process(t, newTestDeriver(t, nil), td)
			bound, _ := s.Attributes().Get("gpu.roofline.bound")
			assert.Equal(t, tt.want, bound.Str())
		})
	}
}

func TestWithoutFLOPsOnlyALaunchBoundIsKnown(t *testing.T) {
	td, s := oneSpan(t, with(h100, attrs{"gpu.io.size": 1_000_000, "gpu.end.delay": 0.0}))
	process(t, newTestDeriver(t, nil), td)
	bound, _ := s.Attributes().Get("gpu.roofline.bound")
	assert.Equal(t, "launch", bound.Str())
	td, s = oneSpan(t, with(h100, attrs{"gpu.io.size": 1_000_000, "gpu.end.delay": 0.0019}))
	process(t, newTestDeriver(t, nil), td)
	_, known := s.Attributes().Get("gpu.roofline.bound")
	assert.False(t, known)
}

func TestInvalidNumbersAreIgnored(t *testing.T) {
	for name, a := range map[string]attrs{
		"negative size":     {"gpu.io.size": -1},
		"NaN FLOPs":         {"gpu.flop.count": nan, "gpu.flop.precision": "bf16"},
		"infinite FLOPs":    {"gpu.flop.count": inf, "gpu.flop.precision": "bf16"},
		"size as text":      {"gpu.io.size": "1000"},
		"negative duration": {"gpu.duration": -0.002},
		"ratio above 1":     {"gpu.cache.l2.hit_ratio": 7.0, "gpu.io.size": 1000},
		"a tiny duration": {
			"gpu.duration": 5e-324, "gpu.io.size": 1000, "gpu.timing.source": "cupti",
			"gpu.operation.items": 1 << 62,
		},
		"everything is large": {
			"gpu.flop.count": 1e308, "gpu.duration": 1e-300, "gpu.flop.precision": "fp4",
			"gpu.timing.source": "cupti", "gpu.io.size": int64(1),
		},
		"a step of nothing": {
			"gpu.operation.type": "step", "gpu.step.items": 3, "gpu.step.duration": nan,
			"gpu.step.device.count": -4, "gpu.step.model.flop.count": 1e9, "gpu.flop.precision": "bf16",
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := with(h100, a)
			td, s := oneSpan(t, in)
			process(t, newTestDeriver(t, nil), td)
			for k, v := range gained(s, in) {
				if f, ok := v.(float64); ok {
					assert.True(t, f >= 0 && f <= math.MaxFloat64, "%s is %v", k, f)
				}
			}
		})
	}
}

func TestSpansOfOthersAreUnchanged(t *testing.T) {
	in := attrs{"http.request.method": "GET", "gpu.io.size": 5}
	td, s := oneSpan(t, in)
	process(t, newTestDeriver(t, func(c *Config) { c.Presets = []string{"vllm", "obi", "pytorch", "gen_ai"} }), td)
	assert.Empty(t, gained(s, in))
}
