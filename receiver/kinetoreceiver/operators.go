// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"strings"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/gpuspan/flops"
)

// rule returns the work of an operator from its inputs. FLOPs follow the definition (package
// flops): a multiply-add is two, every other operation of arithmetic and elementary function is
// one. Bytes are the compulsory traffic: each operand once, in its own type, and each result once.
type rule func(*inputs) gpuspan.Work

// operators are those whose work is determined by the inputs that the profiler records, by their
// schemas. Some call each other (linear calls addmm): a sum counts only the outermost of nested
// ones. Omitted are operators with insufficient records: einsum (its equation is not recorded; the
// products that it calls are), attention over pages and gathers by lists of indices (lengths are on
// the device), scaled_dot_product_attention itself (the kernel it chooses decides whether masked
// pairs are computed).
var operators = operatorTable()

// elementwise operators by operations for each element of the result, and how many tensors they
// take: the next one is the result's own. A name that ends in _ works in place.
var elementwiseOperators = []struct {
	ops     float64
	tensors int
	names   string
}{
	{0, 1, "clone fill_ zero_ normal_ uniform_ random_ bernoulli_ exponential_ log_normal_ roll flip"},
	{0, 2, "copy_"},
	{1, 3, "where"},
	{1, 1, "neg neg_ abs abs_ exp exp_ exp2 log log_ log2 log10 log1p sqrt sqrt_ rsqrt rsqrt_ tanh tanh_ " +
		"erf erfinv relu relu_ " +
		"cos sin tan acos asin atan floor floor_ ceil round trunc sign sgn isnan isinf isfinite " +
		"reciprocal reciprocal_ logical_not bitwise_not"},
	{1, 2, "add add_ sub sub_ rsub mul mul_ div div_ pow pow_ maximum minimum fmod remainder atan2 " +
		"eq ne lt le gt ge eq_ ne_ lt_ " +
		"le_ gt_ ge_ bitwise_and bitwise_or bitwise_xor logical_and logical_or logical_xor " +
		"threshold threshold_backward masked_fill " +
		"masked_fill_ clamp_min clamp_min_ clamp_max clamp_max_"},
	{2, 2, "leaky_relu leaky_relu_ leaky_relu_backward hardtanh hardtanh_ hardtanh_backward native_dropout_backward"},
	{2, 3, "clamp clamp_"},
	{3, 2, "sigmoid_backward tanh_backward elu elu_"},
	{3, 3, "addcmul addcmul_ addcdiv addcdiv_ lerp lerp_"},
	{4, 1, "sigmoid sigmoid_ hardsigmoid hardsigmoid_"},
	{5, 1, "silu silu_ gelu gelu_ hardswish hardswish_ softplus logit"},
	{8, 2, "silu_backward"},
	{10, 2, "gelu_backward"},
}

// norms by names, with operations for each element, without the parameters, each of which is one
// more, and for each row.
var norms = map[string]norm{
	"aten::native_layer_norm": {ops: 5, row: 2, parameters: []int{2, 3}, over: 1},
	"aten::native_group_norm": {ops: 5, row: 2, parameters: []int{1, 2}, rows: func(in *inputs, _ []int) int {
		return times(in.number(3), in.number(6))
	}},
	"aten::native_batch_norm aten::cudnn_batch_norm aten::miopen_batch_norm": {
		ops: 5, row: 2, parameters: []int{1, 2}, rows: func(_ *inputs, shape []int) int {
			return shape[min(1, len(shape)-1)]
		},
	},
	"aten::_fused_rms_norm": {ops: 3, row: 2, parameters: []int{2}, over: 1},

	"_C::rms_norm sgl_kernel::rmsnorm flashinfer::rmsnorm aiter::rmsnorm": {
		ops: 3, row: 2, at: 1, parameters: []int{2},
	},
	"_C::fused_add_rms_norm sgl_kernel::fused_add_rmsnorm flashinfer::fused_add_rmsnorm": {
		ops: 4, row: 2, parameters: []int{2}, added: true,
	},
	// with a scale behind the weight, the result is of 8 bits
	"_C::rms_norm_static_fp8_quant":           {ops: 4, row: 2, at: 1, parameters: []int{2}, into: 1},
	"_C::fused_add_rms_norm_static_fp8_quant": {ops: 5, row: 2, at: 1, parameters: []int{3}, added: true, into: 1},

	"aiter::rms_norm aiter::rmsnorm2d_fwd": {ops: 3, row: 2, parameters: []int{1}},
	"aiter::add_rmsnorm aiter::rmsnorm2d_fwd_with_add aiter::rmsnorm2d_fwd_with_add_ck": {
		ops: 4, row: 2, at: 1, parameters: []int{4}, added: true,
	},
	"aiter::layernorm2d_fwd": {ops: 5, row: 2, parameters: []int{1, 2}},

	"aiter::_groupnorm_run": {ops: 5, row: 2, parameters: []int{2, 3}, rows: func(in *inputs, shape []int) int {
		return times(shape[0], in.number(1))
	}},
}

// table contains rules by names of operators.
type table map[string]rule

// put adds a rule for each name in each library. It is not inlined: its iterators, inlined into
// each call, made the compiler take 17 s of CPU for this package instead of 2.
//
//go:noinline
func (m table) put(libraries, names string, r rule) {
	for library := range strings.FieldsSeq(libraries) {
		for name := range strings.FieldsSeq(names) {
			m[library+"::"+name] = r
		}
	}
}

func operatorTable() table {
	m := table{}
	m.put("aten", "mm bmm matmul mv dot _int_mm _scaled_mm", product(0, -1))
	m.put("aten", "addmm _addmm_activation addbmm baddbmm addmv", product(1, 0))
	m.put("aten", "linear", linear)
	m.put("aten", "_grouped_mm _scaled_grouped_mm", grouped(0))
	m.put("_C", "cutlass_scaled_mm cutlass_scaled_mm_azp", product(1, -1))
	m.put("_C", "cutlass_moe_mm", grouped(1))
	m.put("sgl_kernel", "fp8_scaled_mm int8_scaled_mm fp8_blockwise_scaled_mm bmm_fp8", product(0, -1))
	m.put("aiter", "gemm_a8w8 gemm_a8w8_CK gemm_a8w8_ck gemm_a8w8_bpreshuffle gemm_a8w8_blockscale "+
		"gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_bpreshuffle gemm_a16w16 gemm_a16w16_asm", linear)
	m.put("aiter", "hipb_mm", product(0, -1))
	m.put("vllm", "rocm_unquantized_gemm apply_w8a8_block_fp8_linear", linear)
	m.put("_rocm_C", "wvSplitK wvSplitKQ LLMM1", linear)

	m.put("aten", "convolution _convolution", convolution)
	m.put("aten", "convolution_backward", convolutionBackward)

	m.put("aten", "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu", attention(4))
	m.put("aten", "_scaled_dot_product_fused_attention_overrideable", attention(5))
	m.put("aten", "_scaled_dot_product_efficient_attention _scaled_dot_product_cudnn_attention", attention(6))
	m.put("aten", "_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward",
		attentionBackward(11))
	m.put("aten", "_scaled_dot_product_cudnn_attention_backward", attentionBackward(14))
	m.put("aten", "_flash_attention_forward", packed(8))
	m.put("flash_attn aiter", "_flash_attn_forward", flashAttention(0, 5, false))
	m.put("aiter", "mha_fwd fmha_v3_fwd", flashAttention(0, 5, false))
	m.put("flash_attn aiter", "_flash_attn_backward", flashAttention(1, 11, true))
	m.put("flash_attn", "_flash_attn_varlen_forward", packed(9))
	m.put("aiter", "_flash_attn_varlen_forward", packed(10))

	for _, e := range elementwiseOperators {
		for name := range strings.FieldsSeq(e.names) {
			m.put("aten", name, elementwise(e.ops, e.tensors, strings.HasSuffix(name, "_")))
			base := strings.TrimSuffix(name, "_")
			m.put("aten", "_foreach_"+base+" _foreach_"+base+"_", foreach(e.ops, base == "copy", base == "zero"))
		}
	}
	m.put("aten", "_foreach_norm", foreach(2, false, false))
	m.put("aten", "_amp_foreach_non_finite_check_and_unscale_", foreach(2, false, false))
	// Adam (Kingma and Ba 2015): m ← m + (1−β₁)(g−m) 3, v ← β₂v + (1−β₂)g·g 4, d = √v/c + ε 3, p −
	// s·m/d 3; AdamW (Loshchilov and Hutter 2019): p·(1−λη) 1. Lists: parameters, gradients, m, v.
	m.put("aten", "_fused_adam_", optimizer(13, 4, 3))
	m.put("aten", "_fused_adamw_", optimizer(14, 4, 3))
	m.put("aten", "_fused_sgd_", optimizer(4, 3, 2))     // μ·b + g 2, p − η·b 2
	m.put("aten", "_fused_adagrad_", optimizer(7, 3, 2)) // s + g·g 2, p − η·g/(√s + ε) 5

	for name, r := range map[string]flops.Reduction{
		"sum": flops.ReduceSum, "mean": flops.ReduceMean, "max amax min amin argmax argmin all any": flops.ReduceMax,
		"norm linalg_vector_norm": flops.ReduceNorm, "var std": flops.ReduceVar,
	} {
		m.put("aten", name, reduce(r))
	}
	m.put("aten", "cumsum cumprod logcumsumexp", rowwise(0, 1, 2))
	m.put("aten", "_softmax _log_softmax", rowwise(0, 5, 2))
	m.put("_moe_C", "topk_softmax", rowwise(3, 5, 1)) // of weights, experts and rows only the probabilities matter
	m.put("aten", "_softmax_backward_data _log_softmax_backward_data", rowwise(0, 4, 3))
	m.put("aten", "native_layer_norm_backward native_group_norm_backward native_batch_norm_backward "+
		"cudnn_batch_norm_backward miopen_batch_norm_backward", rowwise(0, 14, 3))
	m.put("aten", "_fused_rms_norm_backward", rowwise(0, 10, 3))
	for names, n := range norms {
		for name := range strings.FieldsSeq(names) {
			m[name] = n.work
		}
	}

	// results are the first input, and operations are for each element of it
	m.put("_C aiter sgl_kernel", "silu_and_mul gelu_and_mul gelu_tanh_and_mul", moves(6, 0, 1))
	m.put("_C", "mul_and_silu", moves(6, 0, 1))
	m.put("_C", "silu_and_mul_quant", moves(7, 0, 1))
	m.put("_C", "gelu_new gelu_fast gelu_quick", moves(5, 0, 1))
	m.put("_C", "static_scaled_fp8_quant", moves(1, 0, 1))
	m.put("_C", "dynamic_scaled_fp8_quant dynamic_per_token_scaled_fp8_quant", moves(2, 0, 1)) // and the maximum
	m.put("aten", "mse_loss", moves(3, -1, 0, 1))                                              // difference, square, sum
	m.put("aten", "nll_loss_forward nll_loss2d_forward", likelihood)
	m.put("aten", "mse_loss_backward", moves(3, 1, 1, 2))
	m.put("aten", "nll_loss_backward nll_loss2d_backward", moves(0, 1, 2))
	m.put("aten", "native_dropout", dropout)

	m.put("_C sgl_kernel", "rotary_embedding", rotary)
	m.put("_C_cache_ops", "reshape_and_cache_flash reshape_and_cache", stored)
	m.put("sglang", "store_cache", stored)

	m.put("aten", "cat stack", concatenation)
	m.put("aten", "embedding", rows(0, 1))
	m.put("aten", "index_select", rows(0, 2))
	m.put("aten", "embedding_dense_backward", embeddingBackward)
	m.put("aten", "gather", picked(2))
	m.put("aten", "scatter scatter_", scattered(0, 2))
	m.put("aten", "scatter_add scatter_add_ scatter_reduce scatter_reduce_", scattered(1, 2))
	m.put("aten", "index_copy index_copy_", scattered(0, 3))
	m.put("aten", "index_add index_add_", scattered(1, 3))
	m.put("aten", "sort", sorted)
	m.put("aten", "topk", topK)
	m.put("aten", "upsample_nearest1d upsample_nearest2d upsample_nearest3d "+
		"_upsample_nearest_exact1d _upsample_nearest_exact2d _upsample_nearest_exact3d", upsampled)
	m.put("aten", "max_pool2d_with_indices", pooled(-1, indexSize, 5))
	m.put("aten", "avg_pool2d", pooled(0, 0, 4))

	m.put("vllm", "inplace_fused_experts outplace_fused_experts", experts)
	m.put("aiter", "fused_moe_ fused_moe", experts)
	return m
}
