// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// TestWorkEqualsTraceLens compares FLOPs and bytes of one call with the reports that TraceLens
// publishes with these traces (unified_perf_summary.csv: GFLOPS, and data moved in MiB), in which
// products belong to the linear operator that calls them.
func TestWorkEqualsTraceLens(t *testing.T) {
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
		"result given": {
			"aten::mul",
			`"Input type":["c10::BFloat16","double","c10::BFloat16"],"Input Dims":[[64],[],[64]]`, 64, 2 * (64 + 64),
		},
		"one number":    {"aten::add_", `"Input type":["float","float","Scalar"],"Input Dims":[[],[],[]]`, 1, 8},
		"larger of two": {"aten::max", `"Input type":["float","float"],"Input Dims":[[8,100],[8,100]]`, 800, 3 * 3200},
		"complex": {
			"aten::mul", `"Input type":["c10::complex<double>","c10::complex<double>"],"Input Dims":[[8],[8]]`,
			8, 3 * 128,
		},
		"product of vLLM": { // 8 bits, scaled
			"_C::cutlass_scaled_mm",
			`"Input type":["c10::BFloat16","c10::Float8_e4m3fn","c10::Float8_e4m3fn","float","float",""],` +
				`"Input Dims":[[4,30],[4,100],[100,30],[4,1],[30,1],[]]`, 2 * 4 * 100 * 30, 400 + 3000 + 120,
		},
		"groups": { // 6 rows of 16, each by one of 4 matrices of 16 × 8
			"aten::_grouped_mm", `"Input type":["c10::BFloat16","c10::BFloat16","int"],"Input Dims":[[6,16],[4,16,8],[4]]`,
			2 * 6 * 16 * 8, 2 * (6*16 + 4*16*8 + 6*8),
		},
		"sum and norm of vLLM": {
			"_C::fused_add_rms_norm",
			`"Input type":["c10::Half","c10::Half","c10::Half"],"Input Dims":[[4,100],[4,100],[100]]`,
			4 * (5*100 + 2), 2 * (4*400 + 100),
		},
		"norm and quantisation": {
			"_C::rms_norm_static_fp8_quant", `"Input type":["c10::Float8_e4m3fn","c10::Half","c10::Half","float","Scalar"],` +
				`"Input Dims":[[4,100],[4,100],[100],[1],[]]`, 4 * (5*100 + 2), 2*(400+100) + 400,
		},
		"layer norm over two dimensions": {
			"aten::native_layer_norm", `"Input type":["float","ScalarList","float","float","Scalar"],` +
				`"Input Dims":[[8,10,20],[],[10,20],[10,20],[]],"Concrete Inputs":["","[10, 20]","","","1e-05"]`,
			8 * (7*200 + 2), 4 * (2*1600 + 400),
		},
		"rotary embedding": { // 16 of the 64 elements of a head are rotated: 3 each, read and written
			"_C::rotary_embedding", `"Input type":["long int","c10::Half","c10::Half","Scalar","c10::Half","Scalar"],` +
				`"Input Dims":[[4],[4,512],[4,128],[],[999,16],[]],"Concrete Inputs":["","","","64","","True"]`,
			3 * 4 * (128 + 32), 2 * 2 * 4 * (128 + 32),
		},
		"cache of 8 bits": {
			"_C_cache_ops::reshape_and_cache_flash", `"Input type":["c10::Half","c10::Half","unsigned char","unsigned char"],` +
				`"Input Dims":[[4,8,64],[4,8,64],[99,16,8,64],[99,16,8,64]]`, 0, 3 * 2 * 4 * 8 * 64,
		},
		"sequences of one length": { // two of 50 queries and keys, causal
			"flash_attn::_flash_attn_varlen_forward",
			`"Input type":["c10::Half","c10::Half","c10::Half","int","int","Scalar","Scalar"],` +
				`"Input Dims":[[100,8,64],[100,2,64],[100,2,64],[3],[3],[],[]],` +
				`"Concrete Inputs":["","","","","","50","50","0.","0.125","True"]`,
			4 * 2 * 8 * 1275 * 64, 2 * 100 * 64 * (8 + 2 + 2 + 8),
		},
		"gather": {
			"aten::gather", `"Input type":["float","Scalar","long int","Scalar"],"Input Dims":[[10,100],[],[10,3],[]]`, 0,
			30*8 + 2*30*4,
		},
		"scatter and add": { // the destination is read, too
			"aten::scatter_add_", `"Input type":["float","Scalar","long int","float"],"Input Dims":[[10,100],[],[10,3],[10,3]]`,
			30, 30*8 + 3*30*4,
		},
		"copy by indices": {
			"aten::index_copy_", `"Input type":["float","Scalar","long int","float"],"Input Dims":[[10,100],[],[3],[3,100]]`, 0,
			3*8 + 2*300*4,
		},
		"gradient of an embedding": {
			"aten::embedding_dense_backward",
			`"Input type":["c10::Half","long int"],"Input Dims":[[7,512],[7]],"Concrete Inputs":["","","1000","-1","False"]`,
			7 * 512, 7*512*2 + 7*8 + 1000*512*2,
		},
		"top 5": {
			"aten::topk",
			`"Input type":["float"],"Input Dims":[[8,100]],"Concrete Inputs":["","5","-1","True","True"]`, 0, 3200 + 40*(4+8),
		},
		"loss": {
			"aten::nll_loss_forward", `"Input type":["float","long int"],"Input Dims":[[8,100],[8]]`, 8, 8*4 + 8*8 + 4,
		},
		"dropout": {"aten::native_dropout", `"Input type":["float"],"Input Dims":[[8,100]]`, 1600, 3200 + 3200 + 800},
		"pooling": { // 3 × 3 with a stride of 2 and a border: 56²
			"aten::max_pool2d_with_indices", `"Input type":["c10::Half"],"Input Dims":[[10,64,112,112]],` +
				`"Concrete Inputs":["","[3, 3]","[2, 2]","[1, 1]","[1, 1]","False"]`,
			8 * 10 * 64 * 56 * 56, 2*10*64*112*112 + 10*64*56*56*(2+8),
		},
		"upsampling by a factor": {
			"aten::upsample_nearest2d",
			`"Input type":["float","","ScalarList"],"Input Dims":[[1,2,8,8],[],[]],"Concrete Inputs":["","","[2., 3.]"]`, 0,
			4 * (128 + 6*128),
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
			`"Input type":["c10::Half","c10::Half","c10::Half"],"Input Dims":[[4,100],[4,100],[100]]`,
			4 * (4*100 + 2), 2 * (400 + 400 + 100),
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

// TestListsOfTensorsHaveTheTypeOfTheirKernel counts 30 and 12 elements.
func TestListsOfTensorsHaveTheTypeOfTheirKernel(t *testing.T) {
	lists := func(n int) string {
		list := strings.TrimSuffix(strings.Repeat("[[3,10],[12]],", n), ",")
		types := strings.TrimSuffix(strings.Repeat(`"TensorList",`, n), ",")
		return fmt.Sprintf(`"Input type":[%s,"Scalar"],"Input Dims":[%s,[]]`, types, list)
	}
	for name, c := range map[string]struct {
		op, args, kernel string
		flops, bytes     float64
	}{
		"cat": {
			"aten::cat", lists(1), "void CatArrayBatchedCopy<OpaqueType<2u>, unsigned int, 2, 64, 64>(OpaqueType<2u>*)", 0,
			2 * 42 * 2,
		},
		"sum": {
			"aten::_foreach_add_", lists(2),
			"void multi_tensor_apply_kernel<TensorListMetadata<2>, BinaryOpListAlphaFunctor<float, 2, 2, 0>, std::plus<float>, float>()",
			42, 3 * 42 * 4,
		},
		"product with a number": {
			"aten::_foreach_mul_", lists(1),
			"void multi_tensor_apply_kernel<TensorListMetadata<1>, BinaryOpScalarFunctor<c10::BFloat16, 1, 1, 0> >()", 42,
			2 * 42 * 2,
		},
		"copy": {
			"aten::_foreach_copy_", lists(2),
			"void multi_tensor_apply_kernel<TensorListMetadata<2>, UnaryOpFunctor<long, 2, 1, 1> >()",
			0, 2 * 42 * 8,
		},
		"zeroes": {
			"aten::_foreach_zero_", lists(1),
			"void multi_tensor_apply_kernel<TensorListMetadata<1>, ZeroFunctor<double, 1, 1, 0> >()",
			0, 42 * 8,
		},
		"AdamW": { // reads four and writes three
			"aten::_fused_adamw_", lists(4),
			"void multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, FusedAdamMathFunctor<float, 4, 1, false> >()",
			14 * 42, 7 * 42 * 4,
		},
		"SGD without momentum": {
			"aten::_fused_sgd_", lists(2),
			"void multi_tensor_apply_kernel<TensorListMetadata<2>, FusedSgdMathFunctor<float, 2> >()", 4 * 42, 3 * 42 * 4,
		},
		"a kernel that does not say": {"aten::cat", lists(1), "cat_kernel", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			_, st := convert(t, "["+operator(c.op, 1, 20, c.args)+","+gpu(1, 5, 30, 40, 7, c.kernel, "")+"]", Options{})
			o := st.Devices[0].Operators
			require.Len(t, o, 1)
			assert.InDelta(t, c.flops, o[0].FLOPs, 1e-9)
			assert.InDelta(t, c.bytes, o[0].Bytes, 1e-9)
		})
	}
}

// The evaluation cases of TraceLens: a strided addition at 36 % of the memory bandwidth, and a
// product with too few tiles. The second file does not name its device.
func TestLowEfficiencyIsNamed(t *testing.T) {
	_, st := read(t, recorded.Path(t, "kineto", "tracelens_evals/elem_01_add_poor_bw.json"), Options{Detail: DetailSteps})
	v := st.Devices[0].Findings[0]
	assert.Equal(t, semconv.GPUFindingKindLowEfficiency, v.Kind)
	assert.Contains(t, v.String(), "aten::add moves bytes slowly")
	assert.InDelta(t, 0.36, st.Devices[0].Efficiency.PeakShare, 0.01)

	path := recorded.Path(t, "kineto", "tracelens_evals/gemm_01_compute_few_tiles.json")
	_, st = read(t, path, Options{Detail: DetailSteps})
	assert.Equal(t, semconv.GPUFindingKindNotJudged, st.Devices[0].Findings[0].Kind)
	assert.Contains(t, st.Devices[0].Findings[0].String(), "--device MODEL")
	_, st = read(t, path, Options{Detail: DetailSteps, Device: "AMD Instinct MI300X"})
	v = st.Devices[0].Findings[0]
	assert.Equal(t, semconv.GPUFindingKindLowEfficiency, v.Kind)
	assert.Contains(t, v.String(), "the result of aten::mm has 8 tiles of 128² for 304 multiprocessors")
	assert.Contains(t, v.String(), "of the peak FLOP/s")
}
