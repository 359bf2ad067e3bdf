// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"fmt"
	"math"
	"slices"
)

// decodeKernels is one token of a transformer for a batch of requests, which reads all weights.
func (s *sim) decodeKernels(layers, batch int) []kern {
	var ks []kern
	for range layers {
		for _, k := range []int{4096 * 6144, 4096 * 4096, 4096 * 22016, 11008 * 4096} {
			p := kern{name: s.dev.gemm, blocks: s.dev.sms, threads: 256, regs: 168, smem: 98304, dur: float64(k)*2/(0.84*s.dev.bytes)*1e6 + 1.5}
			ks = append(ks, p)
		}
		ks = append(
			ks,
			kern{name: "void flashinfer::BatchDecodeWithPagedKVCacheKernel<(flashinfer::PosEncodingMode)0, 2u, 8u, 8u, 16u, 4u>", blocks: batch * 32, threads: 128, dur: 22},
			kern{name: "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, float, int, int)", blocks: max(batch, s.dev.sms), threads: 512, dur: 2.5},
			kern{name: "void vllm::act_and_mul_kernel<c10::BFloat16>(c10::BFloat16*, c10::BFloat16 const*, int)", blocks: max(batch, s.dev.sms), threads: 512, dur: 2.8},
		)
	}
	return ks
}

// token is a step of a server that decodes by replaying a graph.
func (s *sim) token(layers, batch int) {
	s.note(fmt.Sprintf("execute_new_0(0)_generation_%d(%d)", batch, batch), func() {
		s.frame("vllm/v1/worker/gpu_model_runner.py(1389): execute_model", func() {
			s.op("aten::copy_", "256:int 256:int", func() { s.copyTo("HtoD", "Pinned", 2048, 7) })
			s.graph(s.decodeKernels(layers, batch))
			s.op("aten::argmax", dims(batch, 32000), func() {
				s.launch(kern{name: "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int, long, 4, 4> >", blocks: 256, threads: 512, dur: 9})
			})
			s.op("aten::_to_copy", dims(batch)+":int", func() { s.copyTo("DtoH", "Pinned", int64(batch*8), 7); s.wait("cudaEventSynchronize", 7) })
		})
	})
}

// eagerToken launches the same kernels one by one.
func (s *sim) eagerToken(layers, batch int) {
	ks := s.decodeKernels(layers, batch)
	names := []string{"aten::mm", "aten::mm", "aten::mm", "aten::mm", "vllm::unified_attention", "vllm::rms_norm", "vllm::silu_and_mul"}
	for i, k := range ks {
		s.op(names[i%len(names)], "", func() { s.launch(k) })
	}
}

var serverKinds = []kind{
	{name: "server decoding with graphs under load", accept: "healthy not_judged", fixed: true, models: []model{h100, b200}, build: func(s *sim) {
		s.noSteps, s.secondary = true, 0
		s.steps(20, func(int) { s.token(16, 128) })
	}},
	{name: "scheduler between tokens", accept: "host_work synchronization", models: []model{h100, b200, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(14, func(int) {
			s.frame("vllm/v1/core/sched/scheduler.py(165): schedule", func() { s.busyHost(s.x * 0.6) })
			s.token(12, 64)
			s.frame("vllm/v1/core/sched/scheduler.py(720): update_from_output", func() { s.busyHost(s.x * 0.4) })
		})
	}},
	{name: "detokenizing in the engine's loop", accept: "host_work", models: []model{h100, mi300x}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(14, func(int) {
			s.token(12, 64)
			s.frame("sglang/srt/managers/scheduler_output_processor_mixin.py(202): process_batch_result_decode", func() {
				s.frame("transformers/tokenization_utils_base.py(3785): batch_decode", func() { s.busyHost(s.x) })
			})
		})
	}},
	{name: "eager decoding", accept: "launch_bound", models: []model{h100, b200}, build: func(s *sim) {
		s.noSteps = true
		s.steps(8, func(int) {
			s.hostScale = 0.5 + s.x/420
			s.eagerToken(6, 8)
		})
	}},
	{name: "generate of Hugging Face", accept: "launch_bound synchronization", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(6, func(int) {
			s.frame("transformers/generation/utils.py(2745): _sample", func() {
				s.hostScale = 0.5 + s.x/700
				for i := range 6 {
					s.module(fmt.Sprintf("LlamaDecoderLayer_%d", i), func() { s.eagerToken(1, 1) })
				}
				s.hostScale = 1
				s.op("aten::any", "1:bool", func() { s.copyTo("DtoH", "Pinned", 1, 7); s.wait("cudaStreamSynchronize", 7) })
			})
		})
	}},
	{name: "draft tokens accepted on the host", accept: "synchronization launch_bound host_work", models: []model{h100, b200}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(8, func(int) {
			s.graph(s.decodeKernels(6, 16))
			s.frame("spec_decode/rejection_sampler.py(77): forward", func() { s.syncs(s.x, "aten::item") })
		})
	}},
	{name: "server without requests", accept: "no_load", models: []model{h100, l40s}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.secondary = 0
		s.steps(5, func(int) {
			s.frame("asyncio/base_events.py(1922): _run_once", func() {
				s.frame("selectors.py(451): select", func() {
					s.frame("<built-in method poll of select.epoll object at 0x7f3c>", func() { s.busyHost(s.x) })
				})
			})
			s.token(8, 2)
		})
	}},
	{name: "worker that waits for its queue", accept: "no_load", models: []model{a100, l40s}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.secondary = 0
		s.steps(5, func(int) {
			s.frame("queue.py(154): get", func() {
				s.frame("threading.py(295): wait", func() {
					s.frame("<built-in method acquire of _thread.lock object at 0x7f0e>", func() { s.busyHost(s.x) })
				})
			})
			s.batch(1 << 16)
			s.forward(size{2, 1024, 2048, 16, 2})
			s.wait("cudaDeviceSynchronize")
		})
	}},
	{name: "graphs captured while it is recorded", accept: "graph_capture", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(8, func(i int) {
			if i == 3 && s.x > 0 {
				s.frame("vllm/v1/worker/gpu_model_runner.py(2265): capture_model", func() {
					for range 5 {
						s.frame("torch/cuda/graphs.py(175): __enter__", func() { s.wait("cudaDeviceSynchronize"); s.call("cudaStreamBeginCapture", 12) })
						n := int(8 * s.x / 5 / 24)
						for range n {
							s.op("aten::mm", "64x4096 4096x4096", func() { s.host(6); s.call("cudaLaunchKernel", 9) })
						}
						s.frame("torch/cuda/graphs.py(181): __exit__", func() { s.call("cudaStreamEndCapture", 60); s.call("cudaGraphInstantiate", 400) })
					}
				})
			}
			s.token(12, 64)
		})
	}},
	{name: "request of a new kind loads kernels", accept: "slow_runtime_calls warm_up", models: []model{h100, l40s}, build: func(s *sim) {
		s.noSteps = true
		s.steps(8, func(i int) {
			if i == 2 {
				s.op("aten::mm", "64x4096 4096x4096", func() {
					s.call("cuModuleLoadData", 8*s.x*0.5)
					s.call("cudaFuncGetAttributes", 8*s.x*0.3)
					s.launch(kern{name: s.dev.gemm, dur: 40, blocks: s.dev.sms})
				})
				s.op("aten::mul", "64x4096", func() { s.call("cudaLaunchKernel", 8*s.x*0.2) })
			}
			s.token(12, 64)
		})
	}},
	{name: "image generation with graphs", accept: "healthy", fixed: true, models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps = true
		s.secondary = 0
		s.steps(8, func(int) {
			s.frame("diffusers/schedulers/scheduling_euler_discrete.py(574): step", func() { s.host(60) })
			s.note("UNet2DConditionModel", func() {
				for range 3 {
					for _, n := range []int{1280, 5120, 1280} {
						s.linear(8192, 1280*2, n*2)
					}
					s.attend(8, 16, 1024, 128)
				}
			})
		})
		s.wait("cudaDeviceSynchronize")
	}},
	{name: "images encoded after each batch", accept: "host_work", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(5, func(int) {
			s.forward(size{8, 1024, 2048, 16, 3})
			s.op("aten::copy_", "8x3x512x512 8x3x512x512", func() { s.copyTo("DtoH", "Pinned", 1<<18, 7); s.wait("cudaStreamSynchronize", 7) })
			s.frame("diffusers/image_processor.py(736): postprocess", func() {
				for range 8 {
					s.frame("PIL/Image.py(3142): fromarray", func() { s.busyHost(s.x / 16) })
					s.frame("PIL/PngImagePlugin.py(1291): _save", func() { s.busyHost(s.x / 16) })
				}
			})
		})
	}},
	{name: "rollouts that step an environment", accept: "host_work", models: []model{l40s, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(12, func(int) {
			s.note("policy", func() {
				s.batch(1 << 14)
				for range 4 {
					s.linear(32768, 1024, 1024)
				}
				s.op("aten::copy_", "4096x8 4096x8", func() { s.copyTo("DtoH", "Pinned", 1<<15, 7); s.wait("cudaStreamSynchronize", 7) })
			})
			s.frame("gymnasium/vector/sync_vector_env.py(247): step", func() {
				for range 4 {
					s.frame("envs/walker.py(112): step", func() { s.busyHost(s.x / 4) })
				}
			})
		})
	}},
	{name: "embeddings with features computed by librosa", accept: "host_work loader", models: []model{l40s, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(6, func(int) {
			s.frame("transcribe.py(30): features", func() {
				s.frame("librosa/feature/spectral.py(1998): melspectrogram", func() { s.busyHost(s.x) })
			})
			s.batch(1 << 18)
			s.forward(size{8, 512, 2048, 16, 3})
		})
	}},
	{name: "boxes filtered with nonzero", accept: "synchronization", also: "launch_bound", models: []model{l40s, a100}, build: func(s *sim) {
		s.noSteps = true
		s.steps(5, func(int) {
			s.batch(1 << 20)
			s.forward(size{4, 1024, 2048, 16, 2})
			s.note("postprocess", func() { s.syncs(s.x, "aten::nonzero") })
		})
	}},
	{name: "cache grown by concatenation", accept: "data_movement", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.stacks = true, true
		s.steps(6, func(int) {
			s.forward(size{4, 1024, 2048, 16, 2})
			n := 64 << 20
			one := s.pointwise("x", n, 2).dur
			for range int(math.Ceil(s.x / one)) {
				s.op("aten::cat", "", func() {
					s.launch(kern{name: "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::(anonymous namespace)::OpaqueType<2u>*, at::native::(anonymous namespace)::CatArrInputTensorMetadata<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 64, 64>, at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)", dur: one, blocks: s.dev.sms * 16, threads: 256})
				})
			}
		})
	}},
	{name: "tensor parallel inference without overlap", accept: "exposed_communication", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps, s.world = true, 4
		s.steps(5, func(int) {
			z := size{4, 1024, 2048, 16, 3}
			for i := range z.layers {
				s.layer(z, i)
				for range 2 {
					s.collective("allreduce", ringReduce, int(s.x/6*150e3/2/1.5), 150, 0, 7, "")
				}
			}
		})
	}},
	{name: "attention of one long request", accept: "low_parallelism", models: []model{h100, a100}, build: func(s *sim) {
		s.noSteps = true
		s.steps(6, func(int) {
			ks := s.decodeKernels(4, 1)
			for range int(math.Round(s.x / 150)) {
				ks = append(ks, kern{name: "void vllm::paged_attention_v1_kernel<c10::BFloat16, c10::BFloat16, 128, 16, 128>(c10::BFloat16*, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, int, float, int const*, int const*, int, float const*, int, int, int)", blocks: 32, threads: 128, dur: 200})
			}
			s.graph(ks)
			s.read()
		})
	}},
	{name: "collation of requests with pageable copies", accept: "pageable_copies", models: []model{l40s, a100}, build: func(s *sim) {
		s.noSteps = true
		s.steps(6, func(int) {
			s.op("aten::to", "32x3x224x224:float", func() {
				s.op("aten::_to_copy", "32x3x224x224:float", func() {
					s.op("aten::copy_", "32x3x224x224:float 32x3x224x224:float", func() {
						s.copyTo("HtoD", "Pageable", int64(s.x*7500)+1024, 7)
						s.wait("cudaStreamSynchronize", 7)
					})
				})
			})
			s.forward(size{4, 512, 2048, 16, 2})
		})
	}},
	{name: "lookup of embeddings on the CPU", accept: "host_work", models: []model{a100, h100}, build: func(s *sim) {
		s.noSteps = true
		s.steps(8, func(int) {
			s.note("sparse_lookup", func() {
				for range 6 {
					s.op("aten::embedding_bag", "1000000x128:float 65536:int 4096:int", func() { s.busyHost(s.x / 6) })
				}
			})
			s.batch(1 << 18)
			for range 5 {
				s.linear(8192, 4096, 4096)
			}
			s.op("aten::copy_", "4096 4096", func() { s.copyTo("DtoH", "Pinned", 1<<14, 7); s.wait("cudaStreamSynchronize", 7) })
		})
	}},
	{name: "session of ONNX Runtime", accept: "healthy not_judged", format: "onnx", fixed: true, models: []model{a100}, build: func(s *sim) {
		s.secondary = 0
		s.steps(4, func(int) {
			for range 12 {
				s.mm(8192, 2048, 2048)
			}
		})
	}},
	{name: "kernels of Proton without gaps", accept: "healthy not_judged", format: "proton", fixed: true, models: []model{h100}, build: func(s *sim) {
		s.secondary = 0
		s.steps(4, func(int) { s.forward(medium) })
	}},
	{name: "kernels of Proton with gaps", accept: "unexplained_idle", format: "proton", models: []model{h100}, build: func(s *sim) {
		s.secondary = 0
		s.steps(8, func(int) { s.forward(medium); s.wait("cudaDeviceSynchronize"); s.busyHost(s.x) })
	}},
	{name: "profile of the CPU only", accept: "no_device", fixed: true, models: []model{h100}, build: func(s *sim) {
		s.dropEvery = func(int) bool { return true }
		s.steps(4, func(int) { s.nextBatch("_SingleProcessDataLoaderIter", 4000); s.train(size{2, 128, 256, 4, 2}) })
		s.records = slices.DeleteFunc(s.records, func(r record) bool { return r.kind == runtime || r.kind == driver || r.kind == deviceAnnotation })
	}},
}
