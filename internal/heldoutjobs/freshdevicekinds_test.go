// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"fmt"
	"slices"
)

func freshMemory() []fresh {
	const mb = 1 << 20
	return []fresh{
		{
			name: "batches from memory that is not pinned", styles: every, want: []string{"pageable_copies"}, run: vision(6, 40, 140,
				plant("start", func(p *session, _, _ int) {
					p.op("aten::to", "", "", func() {
						p.op("aten::copy_", "", "", func() {
							p.copy("cudaMemcpyAsync", "Pageable", "Device", 24*mb, 5.5, 7)
							p.sync("cudaStreamSynchronize", 7)
						})
					})
				})),
		},
		{
			name: "a solver copies its field out synchronously", styles: nsight, want: []string{"pageable_copies", "exposed_copies"}, run: stencil(8,
				plant("end", func(p *session, _, _ int) { p.copy("cudaMemcpy", "Device", "Pageable", 12*mb, 6, 7) })),
		},
		{
			name: "pinned copies in the stream of computation", styles: every, want: []string{"exposed_copies"}, run: pretrain(6, 1,
				plant("data", func(p *session, _, _ int) {
					p.op("aten::to", "", "", func() { p.copy("cudaMemcpyAsync", "Pinned", "Device", 180*mb, 24, 7) })
				}), none),
		},
		{
			name: "offloaded activations are waited for", styles: pytorch, want: []string{"exposed_copies"}, run: pretrain(5, 0.5,
				plant("block", func(p *session, _, _ int) {
					p.op("aten::copy_", "", "", func() {
						p.follow(side, 7)
						p.copy("cudaMemcpyAsync", "Device", "Pinned", 20*mb, 23, side)
						p.follow(7, side)
					})
				}), none),
		},
		{
			name: "buffers allocated in each time step", styles: nsight, want: []string{"allocation"}, run: stencil(8,
				plant("start", func(p *session, _, _ int) {
					for range 6 {
						p.runtime("cudaMalloc", p.vary(320, 0.1))
					}
					p.runtime("cudaFree", p.vary(400, 0.1))
				})),
		},
		{
			name: "allocator at the limit of the memory", styles: pytorch, want: []string{"allocation"}, run: pretrain(6, 1,
				plant("attention", func(p *session, _, l int) {
					if l%2 == 0 {
						p.op("aten::empty", "", "", func() {
							p.sync("cudaDeviceSynchronize", 0)
							for range 8 {
								p.runtime("cudaFree", p.vary(240, 0.1))
							}
							p.runtime("cudaMalloc", p.vary(500, 0.1))
						})
					}
				}), none),
		},
		{
			name: "cache emptied in each step", styles: frames, want: []string{"allocation"}, run: vision(6, 40, 140,
				plant("start", func(p *session, _, _ int) {
					p.py(func() {
						p.sync("cudaDeviceSynchronize", 0)
						for range 20 {
							p.runtime("cudaFree", p.vary(110, 0.1))
						}
					}, "torch/cuda/memory.py(224): empty_cache")
					for range 20 {
						p.runtime("cudaMalloc", p.vary(130, 0.1))
					}
				})),
		},
	}
}

func freshDevice() []fresh {
	return []fresh{
		{
			name: "products in single precision", styles: pytorch, want: []string{"single_precision"}, alone: true, run: pretrain(4, 1,
				func(p *session, place string, _, _ int) {
					if place == "block" {
						p.op("aten::addmm", "[[4096],[4096,4096],[4096,4096]]", `["float","float","float"]`, func() {
							p.k("sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas", 2700)
						})
					}
				}, none),
		},
		{
			name: "products in double precision", styles: pytorch, want: []string{"single_precision"}, alone: true, run: pretrain(4, 1,
				func(p *session, place string, _, _ int) {
					if place == "block" {
						p.op("aten::mm", "[[4096,2048],[2048,4096]]", `["double","double"]`, func() {
							p.k("void cutlass::Kernel2<cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1>(cutlass_80_tensorop_d884gemm_64x64_16x4_tn_align1::Params)", 1300)
						})
					}
				}, none),
		},
		{
			name: "attention in parts", styles: pytorch, want: []string{"unfused_attention"}, alone: true, run: pretrain(4, 0.5,
				func(p *session, place string, _, _ int) {
					if place != "attention" {
						return
					}
					p.op("aten::bmm", "[[128,2048,128],[128,128,2048]]", bf16s, func() { p.k(gemm, 330) })
					p.op("aten::div", "[[4,32,2048,2048],[]]", `["c10::BFloat16","Scalar"]`, func() {
						p.k("void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<MulFunctor>>", 800)
					})
					p.op("aten::add", "[[4,32,2048,2048],[4,1,2048,2048],[]]", `["c10::BFloat16","c10::BFloat16","Scalar"]`, func() { p.k("void at::native::elementwise_kernel<128, 4, CUDAFunctor_add>", 850) })
					p.op("aten::_softmax", "[[4,32,2048,2048],[],[]]", `["c10::BFloat16","Scalar","Scalar"]`, func() {
						p.k("void (anonymous namespace)::cunn_SoftMaxForwardReg<c10::BFloat16, float, c10::BFloat16>", 790)
					})
					p.op("aten::bmm", "[[128,2048,2048],[128,2048,128]]", bf16s, func() { p.k(gemm, 340) })
				}, none),
		},
		{
			name: "chain of elementwise operators", styles: pytorch, want: []string{"fusion"}, alone: true, run: pretrain(4, 0.5,
				func(p *session, place string, _, _ int) {
					if place == "block" {
						for _, n := range [][2]string{
							{"aten::mul", "MulFunctor<c10::BFloat16>"},
							{"aten::tanh", "tanh_kernel_functor"},
							{"aten::add", "CUDAFunctor_add<c10::BFloat16>"},
							{"aten::sigmoid", "sigmoid_kernel_functor"},
							{"aten::mul", "MulFunctor<c10::BFloat16>"},
							{"aten::pow", "pow_functor"},
						} {
							p.map1(n[0], n[1], 160)
						}
					}
				}, none),
		},
		{
			name: "tensors made contiguous", styles: pytorch, want: []string{"data_movement"}, alone: true, run: pretrain(4, 0.5,
				func(p *session, place string, _, _ int) {
					if place == "attention" {
						for range 3 {
							p.op("aten::contiguous", "[[4,32,4096,128]]", `["c10::BFloat16"]`, func() {
								p.op("aten::clone", "[[4,32,4096,128]]", `["c10::BFloat16"]`, func() {
									p.op("aten::copy_", "[[4,32,4096,128],[4,32,4096,128]]", bf16s, func() {
										p.k("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda>>", 190)
									})
								})
							})
						}
					}
				}, none),
		},
		{
			name: "product far below the peak", styles: pytorch, want: []string{"low_efficiency"}, alone: true, run: pretrain(5, 0.5,
				func(p *session, place string, _, _ int) {
					if place == "block" {
						p.op("aten::mm", mmDims(1500, 0.12*989e12), bf16s, func() { p.k("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn", 1500) })
					}
				}, none),
		},
		{
			name: "scan with eight blocks", styles: every, want: []string{"low_parallelism"}, alone: true, run: pretrain(5, 0.5,
				func(p *session, place string, _, _ int) {
					if place == "block" {
						p.op("aten::selective_scan", "", "", func() { p.k("selective_scan_fwd_kernel(SSMParamsBase)", 1100, grid(8, 128)) })
					}
				}, none),
		},
		{
			name: "the clock falls after a while", styles: every, want: []string{"throttle"}, run: pretrain(8, 1,
				plant("start", func(p *session, step, _ int) {
					if step >= 4 {
						p.slow = 1.45
					}
				}), none),
		},
		{
			name: "algorithms are tried out", styles: pytorch, want: []string{"autotuning"}, run: vision(5, 30, 140, plant("conv",
				func(p *session, n, c int) {
					if n == 0 && c < 6 {
						p.py(func() {
							p.op("aten::cudnn_convolution", "", "", func() {
								for i := range 14 {
									p.k(fmt.Sprintf("sm90_xmma_fprop_implicit_gemm_bf16bf16_tilesize%dx%dx32_cudnn", 32*(i+1), 64+i), 260)
								}
							})
						}, "torch/nn/modules/conv.py(549): _conv_forward")
					}
				})),
		},
		{
			name: "one longer sequence in a while", styles: pytorch, want: []string{"uneven_steps"}, run: pretrain(9, 0.6,
				plant("loss", func(p *session, step, _ int) {
					if step == 5 {
						for l := range 4 * freshLayers {
							p.block(l, ignore, 1.2)
						}
					}
				}), none),
		},
		{
			name: "work waits for an event of another process", styles: []Style{Unstacked}, want: []string{"dependency"}, run: vision(6, 40, 120,
				plant("start", func(p *session, _, _ int) {
					p.runtime("cudaStreamWaitEvent", 2*us)
					p.free[7] = max(p.free[7], p.now+4*ms)
				})),
		},
		{name: "healthy training", styles: every, want: []string{"healthy"}, other: map[Style][]string{Nsight: {"not_judged"}}, run: pretrain(6, 1, ignore, none)},
		{name: "healthy convolutions", styles: nsight, want: []string{"not_judged"}, alone: true, run: vision(6, 50, 140, ignore)},
		{name: "healthy replays", styles: every, want: []string{"not_judged"}, alone: true, run: decoding(20, ignore)},
		{name: "healthy solver", styles: nsight, want: []string{"not_judged"}, alone: true, run: stencil(10, ignore)},
	}
}

func freshRanks() []fresh {
	const a2a = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
	sickOnly := func(f func(ps []*session)) func(ps []*session, l int) {
		return func(ps []*session, l int) {
			ddp(40<<20)(ps, l)
			if ps[0].sick {
				f(ps)
			}
		}
	}
	return []fresh{
		{name: "healthy data parallelism, one of four ranks", styles: pytorch, ranks: 4, want: []string{"healthy"}, run: pretrain(6, 1, ignore, ddp(60<<20))},
		{
			name: "experts over a slow network", styles: pytorch, ranks: 4, want: []string{"exposed_communication"}, run: pretrain(5, 1, ignore,
				sickOnly(func(ps []*session) {
					collective(ps, "all_to_allv", a2a, []int64{30 << 20}, 25, true)
				})),
		},
		{
			name: "weights gathered before each layer", styles: pytorch, ranks: 4, want: []string{"exposed_communication"}, run: pretrain(5, 1, ignore,
				sickOnly(func(ps []*session) {
					collective(ps, "_allgather_base", "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", []int64{200 << 20}, 180, true)
				})),
		},
		{
			name: "one rank loads slowly, seen from another one", styles: pytorch, ranks: 4, want: []string{"late_rank"}, run: pretrain(6, 1,
				func(p *session, place string, _, _ int) {
					if p.sick && p.rank == 3 && place == "data" {
						p.cpu(9000)
					}
				}, ddp(60<<20)),
		},
		{
			name: "the host waits at a barrier", styles: frames, want: []string{"waiting_for_rank"}, run: pretrain(6, 1,
				plant("start", func(p *session, _, _ int) {
					p.spend(9000, "trainer/loop.py(120): sync_ranks", "torch/distributed/c10d_logger.py(81): wrapper",
						"torch/distributed/distributed_c10d.py(4800): barrier", "<method 'wait' of 'torch._C._distributed_c10d.Work' objects>")
				}), none),
		},
		{
			name: "folder: one rank loads slowly", styles: pytorch, ranks: 4, job: true, late: 3, want: []string{"late_rank"}, run: pretrain(10, 1,
				func(p *session, place string, _, _ int) {
					if p.sick && p.rank == 3 && place == "data" {
						p.cpu(6000)
					}
				}, ddp(60<<20)),
		},
		{
			name: "folder: one device is slower", styles: pytorch, ranks: 6, job: true, late: 4, want: []string{"late_rank"}, run: pretrain(10, 1,
				func(p *session, place string, step, _ int) {
					if p.sick && p.rank == 4 && place == "start" && step == 0 {
						p.slow = 1.3
					}
				}, ddp(60<<20)),
		},
		{
			name: "folder: one rank logs", styles: []Style{Unstacked}, ranks: 4, job: true, late: 0, want: []string{"late_rank"}, run: pretrain(10, 1,
				func(p *session, place string, _, _ int) {
					if p.sick && p.rank == 0 && place == "after" {
						p.cpu(5000)
					}
				}, ddp(60<<20)),
		},
		{name: "folder: healthy", styles: []Style{Unstacked}, ranks: 4, job: true, late: -1, want: []string{"none"}, run: pretrain(10, 1, ignore, ddp(60<<20))},
		{
			name: "merged: one rank loads slowly", styles: []Style{Unstacked}, ranks: 4, job: true, merged: true, late: 2, want: []string{"late_rank"}, run: pretrain(10, 1,
				func(p *session, place string, _, _ int) {
					if p.sick && p.rank == 2 && place == "data" {
						p.cpu(6000)
					}
				}, ddp(60<<20)),
		},
		{
			name: "folder: experts of one rank get more tokens", styles: []Style{Unstacked}, ranks: 4, job: true, late: 1, want: []string{"late_rank"},
			run: pretrain(8, 0.6, func(p *session, place string, _, _ int) {
				if place == "loss" || place == "ranks" {
					return
				}
				if p.sick && p.rank == 1 && place == "block" {
					p.k("grouped_gemm_moe_bf16", 600)
				}
			}, func(ps []*session, _ int) {
				collective(ps, "all_to_allv", a2a, []int64{6 << 20}, 200, true)
			}),
		},
	}
}

func freshRecordings() []fresh {
	return []fresh{
		{
			name: "graph launches whose kernels are lost", styles: every, want: []string{"not_recorded"}, alone: true,
			run: func(ps []*session) {
				decoding(24, func(p *session, place string, i, _ int) {
					if place == "start" {
						p.lost = func(c int) bool { return i > 3 && i < 20 && c == p.graph }
					}
				})(ps)
			},
		},
		{
			name: "launches without kernels in the middle", styles: pytorch, want: []string{"not_recorded"}, alone: true,
			run: func(ps []*session) {
				vision(12, 40, 140, func(p *session, place string, n, _ int) {
					if place == "start" {
						p.lost = func(int) bool { return n > 2 && n < 9 }
					}
				})(ps)
			},
		},
		{
			name: "truncated file of a job with a slow loader", styles: pytorch, want: []string{"loader"}, run: pretrain(8, 1, plant("start",
				func(p *session, _, _ int) {
					p.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", func() { p.cpu(9000) })
				}), none), edit: func(p *session) { p.truncated = true },
		},
		{
			name: "kernels without calls, with gaps", styles: []Style{Unstacked}, want: []string{"unexplained_idle", "not_judged"}, alone: true, run: func(ps []*session) {
				p := ps[0]
				for range 60 {
					p.k("matmul_kernel", 180)
					p.now = p.free[7] + 160*us
				}
			}, edit: func(p *session) {
				p.events = slices.DeleteFunc(p.events, func(e event) bool { return e.kind == call })
			},
		},
		{
			name: "kernels of a program without shapes, back to back", styles: []Style{Unstacked}, want: []string{"not_judged", "healthy"}, alone: true, run: func(ps []*session) {
				p := ps[0]
				for range 60 {
					p.k("my_fused_kernel_v7(float*, float*)", 400)
				}
				p.sync("cudaDeviceSynchronize", 0)
			},
		},
	}
}
