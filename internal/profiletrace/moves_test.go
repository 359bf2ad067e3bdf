// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package profiletrace

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/verdict"
)

// Names as libraries write them, and names that only look like moving.
func TestKernelsThatOnlyMoveBytesAreToldByTheirNames(t *testing.T) {
	for name, want := range map[string]verdict.Move{
		"void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(int)": verdict.MovesLayout,
		"batched_transpose_32x32_pack_4x4_ediv_edge_half":                                                    verdict.MovesLayout,
		"transpose_NCHW2CNHW": verdict.MovesLayout,
		"void transpose_readWrite_alignment_kernel<float2, float2, 1, false, 6, 4, 4>(cublasTransposeParams)": verdict.MovesLayout,
		"wrapped_transpose":                  verdict.MovesLayout,
		"SubTensorOpWithCastTensor1d":        verdict.MovesType,
		"triton_poi_fused__to_copy_1":        verdict.MovesType,
		"triton_poi_fused_clone_transpose_3": verdict.MovesLayout,
		"void at::native::unrolled_elementwise_kernel<at::native::copy_device_to_device(at::TensorIterator&, bool)>(int)":        verdict.MovesCopy,
		"void at::native::vectorized_elementwise_kernel<4, at::native::bfloat16tofloat32_copy_kernel_cuda(at::TensorIter)>(int)": verdict.MovesType,
		"void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)":        verdict.MovesFill,
		"void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::OpaqueType<2u> >(int)":         verdict.MovesJoin,
		"__amd_rocclr_copyBuffer.kd": verdict.MovesCopy,

		"void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 128, true, 1, true>(cudnnTensorStruct)": verdict.MovesNothing,
		"void at::native::(anonymous namespace)::max_pool_backward_nchw<float, float>(float const*)":      verdict.MovesNothing,
		"void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)":    verdict.MovesNothing,
		"triton_poi_fused__to_copy_add_mul_1":                                                                     verdict.MovesNothing,
		"triton_red_fused__to_copy_mean_pow_0":                                                                    verdict.MovesNothing,
		"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn":                                             verdict.MovesNothing,
		"void at::native::indexSelectLargeIndex<float, long, unsigned int, 2, 2, -2, true>(int)":                  verdict.MovesNothing,
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array>(int)":  verdict.MovesNothing,
		"std::enable_if<((8)>(0)), void>::type vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)": verdict.MovesNothing,
		"kernel": verdict.MovesNothing, "": verdict.MovesNothing,
	} {
		assert.Equal(t, want, moveOf(name), name)
	}
}

func TestRouterBetweenExpertsEndsAttention(t *testing.T) {
	for operator, want := range map[string]verdict.Role{
		"aten::bmm": verdict.RoleProduct, "aten::_softmax": verdict.RoleSoftmax, "aten::masked_fill_": verdict.RoleOther,
		"aten::mm": verdict.RoleEnds, "aten::addmm": verdict.RoleEnds, "aten::topk": verdict.RoleEnds,
		"aten::_scaled_dot_product_flash_attention": verdict.RoleEnds, "aten::_efficient_attention_forward": verdict.RoleEnds,
	} {
		assert.Equal(t, want, roleOf(operator, "kernel"), operator)
	}
	assert.Equal(t, verdict.RoleEnds, roleOf("", "fmha_cutlassF_bf16_aligned_64x64_rf_sm80"))
	assert.Equal(t, verdict.RoleSoftmax, roleOf("", "void softmax_warp_forward<float>"))
}
