// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/gputrace/verdict"
	"github.com/otelgpu/otelgpu/internal/recorded"
)

// TestWorkIsThatOfTraceLens holds FLOPs and bytes of one call to the reports that TraceLens publishes beside these
// traces (unified_perf_summary.csv: GFLOPS, and data moved in MiB). There products stand below linear, which calls
// them.
func TestWorkIsThatOfTraceLens(t *testing.T) {
	type work struct {
		name, shapes string
		calls        int64
		gflop, mib   float64
	}
	for file, want := range map[string][]work{
		"tracelens/h100/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": {
			{"aten::linear", "bf16[16,559,1024] bf16[2816,1024]", 48, 51.581550592, 71.0078125},
			{"aten::linear", "bf16[16,559,1024] bf16[1024,1024] bf16[1024]", 72, 18.766086144, 36.939453125},
			{"aten::linear", "bf16[16,559,2816] bf16[1024,2816]", 24, 51.581550592, 71.0078125},
			{"aten::linear", "bf16[16,559,1024] bf16[1024,1024]", 24, 18.756927488, 36.9375},
			{"aten::mul", "bf16[16,16,559,64] bf16[1,1,559,64]", 96, 0.009158656, 35.0057373046875},
			{"aten::pow", "f32[16,559,1024]", 49, 0.009158656, 69.875},
			{"aten::mul", "bf16[16,559,2816] bf16[16,559,2816]", 24, 0.025186304, 144.1171875},
			{"aten::copy_", "f32[16,559,1024] bf16[16,559,1024]", 49, 0, 52.40625}, // TraceLens counts a copy as an operation
		},
		"tracelens/h100/gaunernst_bert-small-uncased__1016001.json.gz": {
			{"aten::linear", "bf16[1,141,512] bf16[30522,512] bf16[30522]", 1, 4.41119205, 38.211021423339844},
			{"aten::linear", "bf16[1,141,2048] bf16[512,2048] bf16[512]", 4, 0.295770624, 2.689453125},
		},
		"tracelens/mi300/gaunernst_bert-small-uncased__1016001.json.gz": {
			{"aten::linear", "bf16[1,141,512] bf16[2048,512] bf16[2048]", 4, 0.2959872, 2.6923828125},
		},
	} {
		_, st := read(t, recorded.Path(t, "kineto", file), Options{Detail: DetailSteps})
		require.Len(t, st.Devices, 1)
		for _, w := range want {
			found := false
			for _, o := range st.Devices[0].Operators {
				if o.Name != w.name || o.Shapes != w.shapes {
					continue
				}
				found = true
				assert.Equal(t, w.calls, o.Calls, w)
				assert.InDelta(t, w.gflop*1e9*float64(w.calls), o.FLOPs, 1e-6*w.gflop*1e9+1, w)
				assert.InDelta(t, w.mib*(1<<20)*float64(w.calls), o.Bytes, 1, w)
			}
			assert.True(t, found, w)
		}
	}
}

// TestTrafficOfOperators counts the elements by hand.
func TestTrafficOfOperators(t *testing.T) {
	for name, c := range map[string]struct {
		op, args     string
		flops, bytes float64
	}{
		"broadcast": {
			"aten::add", `"Input type":["float","float","Scalar"],"Input Dims":[[64,128],[128],[]]`,
			64 * 128, 4 * (64*128 + 128 + 64*128),
		},
		"widest type":  {"aten::mul", `"Input type":["c10::Half","float"],"Input Dims":[[10],[10]]`, 10, 20 + 40 + 40},
		"in place":     {"aten::add_", `"Input type":["float","float"],"Input Dims":[[10],[10]]`, 10, 120},
		"copy between": {"aten::copy_", `"Input type":["c10::Half","float","Scalar"],"Input Dims":[[10],[10],[]]`, 0, 60},
		"fill":         {"aten::fill_", `"Input type":["float","Scalar"],"Input Dims":[[10],[]]`, 0, 40},
		"rows": {
			"aten::sum",
			`"Input type":["float"],"Input Dims":[[8,100]],"Concrete Inputs":["","[-1]","False",""]`, 8 * 99, 3200 + 32,
		},
		"all":     {"aten::sum", `"Input type":["float"],"Input Dims":[[8,100]]`, 799, 3204},
		"softmax": {"aten::_softmax", `"Input type":["float"],"Input Dims":[[8,100]]`, 4000, 6400},
		"embedding": {
			"aten::embedding", `"Input type":["c10::Half","long int"],"Input Dims":[[50000,512],[2,7]]`, 0,
			14*8 + 2*14*512*2,
		},
		"gated": {
			"_C::silu_and_mul", `"Input type":["c10::Half","c10::Half"],"Input Dims":[[4,100],[4,200]]`,
			2400, 2 * (800 + 400),
		},
		"norm of vLLM": {
			"_C::rms_norm",
			`"Input type":["c10::Half","c10::Half","c10::Half"],"Input Dims":[[4,100],[4,100],[100]]`, 1600, 1600,
		},
		"cache": {
			"_C_cache_ops::reshape_and_cache_flash",
			`"Input type":["c10::Half","c10::Half"],"Input Dims":[[4,8,64],[4,8,64],[99,16,8,64],[99,16,8,64],[4]]`, 0,
			2 * 2 * 2 * 4 * 8 * 64,
		},
		"product of aiter": {
			"aiter::gemm_a8w8", `"Input type":["signed char","signed char"],"Input Dims":[[4,100],[30,100]]`,
			2 * 4 * 100 * 30, 400 + 3000 + 120,
		},
		"experts": { // 5 tokens with 2 of 8 experts each; three products of 16·32 for each pair
			"vllm::inplace_fused_experts",
			`"Input type":["c10::Half","c10::Half","c10::Half","float","int"],"Input Dims":[[5,16],[8,64,16],[8,16,32],[5,2],[5,2]]`,
			2 * 10 * 3 * 16 * 32, 2 * (8*3*16*32 + 80 + 80),
		},
		"flash": {
			"flash_attn::_flash_attn_forward",
			`"Input type":["c10::Half","c10::Half","c10::Half"],"Input Dims":[[2,100,8,64],[2,100,8,64],[2,100,8,64]],"Concrete Inputs":["","","","0.","0.1","True"]`,
			4 * 2 * 8 * 5050 * 64, 2 * 4 * 2 * 100 * 8 * 64,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, st := convert(t, "["+operator(c.op, 1, 20, c.args)+","+gpu(1, 5, 30, 40, 7, "k", "")+"]", Options{})
			o := st.Devices[0].Operators
			require.Len(t, o, 1)
			assert.Equal(t, c.op, o[0].Name)
			assert.InDelta(t, c.flops, o[0].FLOPs, 1e-9)
			assert.InDelta(t, c.bytes, o[0].Bytes, 1e-9)
			assert.InDelta(t, c.bytes/10e-6, o[0].ByteRate, 1)
		})
	}
}

// The evaluation cases of TraceLens: a strided addition at 36 % of the memory bandwidth, and a product with too few
// tiles. The second file does not name its device.
func TestLowEfficiencyIsNamed(t *testing.T) {
	_, st := read(t, recorded.Path(t, "kineto", "tracelens_evals/elem_01_add_poor_bw.json"), Options{Detail: DetailSteps})
	v := st.Devices[0].Verdicts[0]
	assert.Equal(t, verdict.KindEfficiency, v.Kind)
	assert.Contains(t, v.String(), "aten::add moves bytes slowly")
	assert.InDelta(t, 0.36, st.Devices[0].Efficiency.PeakShare, 0.01)

	path := recorded.Path(t, "kineto", "tracelens_evals/gemm_01_compute_few_tiles.json")
	_, st = read(t, path, Options{Detail: DetailSteps})
	assert.Equal(t, verdict.KindHealthy, st.Devices[0].Verdicts[0].Kind)
	assert.Contains(t, st.Devices[0].Verdicts[0].String(), "--device MODEL")
	_, st = read(t, path, Options{Detail: DetailSteps, Device: "AMD Instinct MI300X"})
	v = st.Devices[0].Verdicts[0]
	assert.Equal(t, verdict.KindEfficiency, v.Kind)
	assert.Contains(t, v.String(), "the result of aten::mm has 8 tiles of 128² for 304 multiprocessors")
	assert.Contains(t, v.String(), "of the peak FLOP/s")
}
