// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

// Names as libraries write them, and names that only look like moving.
func TestKernelsThatOnlyMoveBytesAreRecognizedByTheirNames(t *testing.T) {
	for name, want := range map[string]timeline.Move{
		"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)": timeline.MovesLayout,
		"batched_transpose_32x32_pack_4x4_ediv_edge_half":                                                    timeline.MovesLayout,
		"transpose_NCHW2CNHW": timeline.MovesLayout,
		"void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(cublasTransposeParams)": timeline.MovesLayout,
		"wrapped_transpose":                  timeline.MovesLayout,
		"input_transpose_fusion_1":           timeline.MovesLayout,
		"loop_copy_fusion.kd":                timeline.MovesCopy,
		"loop_convert_fusion_3":              timeline.MovesNothing,
		"loop_concatenate_fusion":            timeline.MovesNothing,
		"loop_add_transpose_fusion":          timeline.MovesNothing,
		"SubTensorOpWithCastTensor1d":        timeline.MovesType,
		"triton_poi_fused__to_copy_1":        timeline.MovesType,
		"triton_poi_fused_clone_transpose_3": timeline.MovesLayout,
		"void at::native::unrolled_elementwise_kernel<at::native::copy_device_to_device(at::TensorIterator&, bool)>(int)":        timeline.MovesCopy,
		"void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIter)>(int)": timeline.MovesType,
		"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)":        timeline.MovesFill,
		"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::OpaqueType<2u> >(int)":         timeline.MovesJoin,
		"__amd_rocclr_copyBuffer.kd": timeline.MovesCopy,

		"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct)": timeline.MovesNothing,
		"void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)":      timeline.MovesNothing,
		"void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)":    timeline.MovesNothing,
		"triton_poi_fused__to_copy_add_mul_1":                                                                     timeline.MovesNothing,
		"triton_red_fused__to_copy_mean_pow_0":                                                                    timeline.MovesNothing,
		"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn":                                             timeline.MovesNothing,
		"void at::native::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)":                  timeline.MovesNothing,
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array>(int)":  timeline.MovesNothing,
		"std::enable_if<((8)>(0)), void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)": timeline.MovesNothing,
		"void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 8u, 8u, 16u, 4u>": timeline.MovesNothing,
		"void vllm::paged_attention_v2_kernel<unsigned short, unsigned short, 128, 16, 128>(float*)":              timeline.MovesNothing,
		"kernel": timeline.MovesNothing, "": timeline.MovesNothing,
	} {
		assert.Equal(t, want, MoveOf(name), name)
	}
}

func TestRouterBetweenExpertsEndsAttention(t *testing.T) {
	for operator, want := range map[string]timeline.Role{
		"aten::bmm": timeline.RoleProduct, "aten::_softmax": timeline.RoleSoftmax, "aten::masked_fill_": timeline.RoleOther,
		"aten::mm": timeline.RoleEnds, "aten::addmm": timeline.RoleEnds, "aten::topk": timeline.RoleEnds,
		"aten::_scaled_dot_product_flash_attention": timeline.RoleEnds, "aten::_efficient_attention_forward": timeline.RoleEnds,
	} {
		assert.Equal(t, want, RoleOf(operator, "kernel"), operator)
	}
	assert.Equal(t, timeline.RoleEnds, RoleOf("", "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"))
	assert.Equal(t, timeline.RoleSoftmax, RoleOf("", "void softmax_warp_forward<float>"))
}
