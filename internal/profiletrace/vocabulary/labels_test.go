// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package vocabulary

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestStepsBelongToLoops(t *testing.T) {
	for step, want := range map[string][2]string{
		"ProfilerStep#7": {"ProfilerStep", "ProfilerStep"},
		"train #12":      {"train", "train"},
		"#12":            {"#12", "#12"},
		"step 12":        {"step 12", "step"},
		"v2":             {"v2", "v"},
		"12":             {"12", "12"},
		"train":          {"train", "train"},
	} {
		assert.Equal(t, want, [2]string{LoopOf(step, false), LoopOf(step, true)}, step)
	}
}

func TestShortName(t *testing.T) {
	for name, want := range map[string]string{
		"void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3> >(int, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>)": "vectorized_elementwise_kernel",
		"void at::native::(anonymous namespace)::layer_norm<c10::BFloat16, float>(int, float)":                                                                                                      "layer_norm",
		"void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2>(cutlass_80::Params)":                                                                                "cutlass_80_tensorop_bf16_s16816gemm_bf16_256x128_64x3_tn_align2",
		"void cutlass::device_kernel<flash::FlashAttnFwdSm90<flash::Mainloop<2>, 5> >(flash::Params)":                                                                                               "FlashAttnFwdSm90",
		"std::enable_if<(((8)>(0)))&&vllm::_typeConvert<c10::BFloat16>::exists, void>::type vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, float)":                                         "rms_norm_kernel",
		"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)":                                                                                                                 "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
		"_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfEEEEvT1_":                                                                                                                            "reduce_kernel",
		"_ZN19cutlass_cudnn_train6KernelINS_4gemm6kernel13ImplicitGemmAEEEvNT_6ParamsE":                                                                                                             "ImplicitGemmA",
		"_ZN7cutlass6KernelI43cutlass_80_tensorop_s1688gemm_64x64_nn_algnEEvNT_6ParamsE":                                                                                                            "cutlass_80_tensorop_s1688gemm_64x64_nn_algn",
		"_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassEEEEvT_":                                                                                                          "Rmsnorm2dFwd",
		"void ck_tile::kentry<1, ck_tile::BatchedGemmKernel<ck_tile::Partitioner<8, 4> >, ck_tile::Args>(ck_tile::Args)":                                                                            "BatchedGemmKernel",
		"void ck_tile::kentry<ck_tile::gfx9_t, 2, true, ck_tile::FmhaFwd<1>, void>(ck_tile::Args)":                                                                                                  "FmhaFwd",
		"void ck_tile::kentry<1>(int)":      "kentry",
		"_Z5saxpyifPfS_":                    "saxpy",
		"_ZN12_GLOBAL__N_13addEv":           "add",
		"_Z":                                "_Z",
		"_ZN99999999999999999999x":          "_ZN99999999999999999999x",
		"triton_poi_fused_add_0":            "triton_poi_fused_add_0",
		"Cijk_Alik_Bljk_BBS.kd":             "Cijk_Alik_Bljk_BBS",
		"saxpy(int, float, float*, float*)": "saxpy",
		"Memcpy HtoD (Pageable -> Device)":  "Memcpy HtoD (Pageable -> Device)",
		"":                                  "",
		"kernel":                            "kernel",
		"<unknown>":                         "<unknown>",
		"void a<b<c>":                       "a",
		"void f<g<int>(h), {lambda(int)#1}::operator()() const>(x)": "f",
		"((((": "((((",
		"a::":  "a::",
	} {
		assert.Equal(t, want, ShortName(name), name)
	}
}

func FuzzShortName(f *testing.F) {
	for _, s := range []string{"void a::b<c>(d)", "<", ">", "(", "a<b,c>::d e", "Kernel2<Kernel2<", "->"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got := ShortName(s); s != "" && got == "" {
			t.Fatalf("%q has no short name", s)
		}
	})
}

func TestFindTraceParent(t *testing.T) {
	const p = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, want := range map[string][2]string{
		"request traceparent=" + p: {"request", p},
		"request (" + p + ")":      {"request", p},
		p:                          {"annotation", p},
		"traceparent: " + p:        {"annotation", p},
		"a " + p + " b":            {"a b", p},
		"nothing":                  {"nothing", ""},
		"00-short-01":              {"00-short-01", ""},
	} {
		rest, parent := FindTraceParent(name)
		assert.Equal(t, want, [2]string{rest, parent}, name)
	}
}

func TestCopyKind(t *testing.T) {
	for name, want := range map[string][2]string{
		"Memcpy HtoD (Pageable -> Device)": {"host_to_device", "pageable"},
		"Memcpy DtoH (Device -> Pinned)":   {"device_to_host", "pinned"},
		"Memcpy DtoD (Device -> Device)":   {"device_to_device", ""},
		"Memcpy PtoP (Device -> Device)":   {"peer_to_peer", ""},
		"Memcpy HtoD (Host -> Device)":     {"host_to_device", ""},
		"CopyDeviceToHost":                 {"device_to_host", ""},
		"Memcpy M2D (Memory -> Device)":    {"host_to_device", "pageable"},
		"Memcpy D2M (Device -> Memory)":    {"device_to_host", "pageable"},
		"Memcpy H2D (Host -> Device)":      {"host_to_device", ""},
		"Memcpy M2M (Memory -> Memory)":    {"host_to_host", ""},
		"Memcpy AtoH (Array -> Pageable)":  {"device_to_host", "pageable"},
		"something":                        {"", ""},
	} {
		d, m := CopyKind(name)
		assert.Equal(t, want, [2]string{d, m}, name)
	}
}

// The numbers are from cupti_activity.h, the names from libkineto's memcpyName.
func TestCopyName(t *testing.T) {
	for numbers, want := range map[[3]int64]string{
		{1, 1, 3}:  "Memcpy HtoD (Pageable -> Device)",
		{2, 3, 2}:  "Memcpy DtoH (Device -> Pinned)",
		{3, 2, 4}:  "Memcpy HtoA (Pinned -> Array)",
		{8, 3, 5}:  "Memcpy DtoD (Device -> Managed)",
		{10, 3, 3}: "Memcpy PtoP (Device -> Device)",
		{1, 0, 99}: "Memcpy HtoD (Host -> Device)",
		{4, 0, 0}:  "Memcpy AtoH (Array -> Host)",
		{0, 1, 3}:  "Memcpy",
		{11, 1, 3}: "Memcpy",
	} {
		assert.Equal(t, want, CopyName(numbers[0], numbers[1], numbers[2]))
	}
}

func TestCollectiveNameAndSize(t *testing.T) {
	for name, want := range map[string]string{
		"ncclDevKernel_AllReduce_Sum_f32_RING_LL": "all_reduce", "ncclKernel_AllGather_RING_LL_Sum_int8_t": "all_gather",
		"_allgather_base": "all_gather",
		"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
		"all_to_allv":            "all_to_all",
		"ncclDevKernel_SendRecv": "", "broadcast": "broadcast", "ncclDevKernel_Generic_4": "", "reduce": "reduce",
		"send": "send",
	} {
		assert.Equal(t, want, CollectiveName(name), name)
	}
	assert.Equal(t, int64(800), CollectiveSize("all_gather", 100, 400, 2), "the gathered whole")
	assert.Equal(t, int64(800), CollectiveSize("reduce_scatter", 400, 100, 2), "the whole before it is scattered")
	assert.Equal(t, int64(200), CollectiveSize("all_reduce", 100, 100, 2))
	assert.Zero(t, CollectiveSize("", 100, 100, 2))
}

func TestKernelsThatCommunicate(t *testing.T) {
	for name, want := range map[string]bool{
		"ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)":                                true,
		"void multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)":                        true,
		"void (anonymous namespace)::multimem_one_shot_all_reduce_kernel<float, 4>(float*)":                        true,
		"void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)":              true,
		"void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(tensorrt_llm::kernels::AllReduceParams)":    true,
		"void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<0, __nv_bfloat16>(int)": true,
		"void deep_ep::internode::dispatch<true, 4>(int4*, float*)":                                                true,
		"void dpsk::ep::intranode::notify_combine<8>(void**)":                                                      true,
		"void dpsk::ep::internode::combine<4, true>(int4*)":                                                        true,
		"nvshmemi_transfer_put_signal":                                             true,
		"void cutlass::Kernel<cutlass_80_tensorop_f16>(int)":                       false,
		"void softmax_warp_forward<WarpAllReduce<float>>(float*)":                  false,
		"void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float>>(int)": false,
		"void at::native::vectorized_gather_kernel<16, long>(char*)":               false,
		"void moe_dispatch_kernel(int*)":                                           false,
	} {
		assert.Equal(t, want, IsCommunication(name), name)
	}
}

func TestNumbersOfModulesAreTakenOff(t *testing.T) {
	for name, want := range map[string]struct {
		class    string
		instance int64
		ok       bool
	}{
		"nn.Module: Linear_83":              {"nn.Module: Linear", 83, true},
		"nn.Module: Conv2d_0":               {"nn.Module: Conv2d", 0, true},
		"nn.Module: my_net":                 {"nn.Module: my_net", 0, false},
		"nn.Module: Linear":                 {"nn.Module: Linear", 0, false},
		"nn.Module: X_":                     {"nn.Module: X_", 0, false},
		"nn.Module: X_99999999999999999999": {"nn.Module: X_99999999999999999999", 0, false},
	} {
		class, instance, ok := SplitInstance(name)
		if ok != want.ok || class != want.class || instance != want.instance {
			t.Errorf("%s: %q %d %v", name, class, instance, ok)
		}
	}
}

// Names of runtime functions in CUPTI, roctracer, Unified Runtime and MTIA.
func TestCallsThatLaunchAndCallsThatWait(t *testing.T) {
	for kind, names := range map[string][]string{
		"launches": {
			"cudaLaunchKernel", "cudaLaunchKernelExC_v11060", "cuLaunchKernel", "cudaGraphLaunch", "cudaMemcpyAsync",
			"cudaMemsetAsync", "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyWithStream", "urEnqueueKernelLaunch",
		},
		"waits": {
			"cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cuCtxSynchronize",
			"hipStreamSynchronize", "urQueueFinish", "urEventWait", "synchronizeStream", "synchronize",
		},
		"": {
			"cudaDeviceGetAttribute", "cudaFuncGetAttributes", "cudaPointerGetAttributes", "cuStreamSetAttribute",
			"cudaStreamWaitEvent", "cudaEventQuery", "cudaEventRecord", "cudaMalloc", "hipDeviceGetAttribute", "cudaSetDevice",
		},
	} {
		for _, name := range names {
			assert.Equal(t, kind == "launches", LaunchesWork(name), name)
			assert.Equal(t, kind == "waits", timeline.WaitsForDevice(name), name)
		}
	}
}
