// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"fmt"
	"slices"
)

// fresh is a kind of recording that was written before its author had read the rules.
type fresh struct {
	name   string
	styles []Style
	want   []string // accepted kinds of the first finding
	who    string   // part of the first finding's text, if Python frames or ranges record it
	other  map[Style][]string
	ranks  int
	job    bool // all ranks are profiled; want is of the job
	merged bool // in one file
	late   int  // the rank that a job names; -1: none
	alone  bool // there is no twin
	run    func(ps []*session)
	edit   func(p *session)
}

var (
	pytorch = []Style{Full, Unstacked}
	frames  = []Style{Full}
	every   = []Style{Full, Unstacked, Nsight}
	nsight  = []Style{Nsight}
)

type at func(p *session, place string, step, layer int)

func ignore(*session, string, int, int) {}

// plant runs f at a place of sick sessions.
func plant(place string, f func(p *session, step, layer int)) at {
	return func(p *session, x string, step, layer int) {
		if p.sick && x == place {
			f(p, step, layer)
		}
	}
}

const freshLayers = 5

func (p *session) block(l int, a at, scale float64) {
	p.py(func() {
		a(p, "layer", 0, l)
		p.op("aten::rms_norm", "[[4096,4096],[],[4096]]", `["c10::BFloat16","ScalarList","c10::BFloat16"]`, func() {
			p.k("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float, true>(int, float, "+
				"c10::BFloat16 const*, c10::BFloat16 const*, float*, c10::BFloat16*)", 27*scale, grid(4096, 128))
		})
		p.mm(190 * scale)
		a(p, "attention", 0, l)
		p.flash(95 * scale)
		p.mm(85 * scale)
		p.map1("aten::add_", "CUDAFunctorOnSelf_add<c10::BFloat16>", 26*scale)
		p.mm(230 * scale)
		p.map1("aten::silu", "silu_kernel_functor", 38*scale)
		p.mm(230 * scale)
		a(p, "block", 0, l)
	}, fmt.Sprintf("nn.Module: DecoderLayer_%d", l), "llama/model.py(311): forward")
}

func (p *session) backward(scale float64, after func(l int)) {
	p.py(func() {
		p.thread += backThread
		for l := range freshLayers {
			for range 2 {
				p.mm(190 * scale)
				p.mm(230 * scale)
				p.mm(230 * scale)
			}
			p.map1("aten::silu_backward", "silu_backward_functor", 40*scale)
			p.flash(230 * scale)
			after(l)
		}
		p.thread -= backThread
	}, "torch/_tensor.py(600): backward", "torch/autograd/graph.py(815): _engine_run_backward",
		"<built-in method run_backward of torch._C._EngineBase object at 0x7f1>")
}

// pretrain is training of a language model whose steps end by reading the loss.
func pretrain(steps int, scale float64, a at, grads func(ps []*session, l int)) func(ps []*session) {
	return func(ps []*session) {
		outer := []string{"pretrain.py(402): <module>", "pretrain.py(377): main", "trainer/loop.py(145): run_epoch"}
		for n := range steps {
			each := func(name string, f func(p *session)) {
				for _, p := range ps {
					p.py(func() {
						if name != "" {
							p.note(name, func() { f(p) })
						} else {
							f(p)
						}
					}, outer...)
				}
			}
			step := fmt.Sprintf("ProfilerStep#%d", n+10)
			body := func(p *session, between func(l int)) {
				a(p, "start", n, 0)
				p.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", func() {
					p.spend(45, "torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/dataloader.py(1448): _next_data")
				})
				a(p, "data", n, 0)
				p.op("aten::to", "", "", func() { p.copy("cudaMemcpyAsync", "Pinned", "Device", 1<<18, 22, 7) })
				for l := range freshLayers {
					p.block(l, func(p *session, place string, _, l int) { a(p, place, n, l) }, scale)
				}
				a(p, "loss", n, 0)
				p.backward(scale, between)
				a(p, "before optimizer", n, 0)
				p.note("Optimizer.step#AdamW.step", func() {
					for range 4 {
						p.op("aten::_fused_adamw_", "", "", func() {
							p.k("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"+
								"FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<c10::BFloat16, 4>>",
								140*scale, grid(3000, 512))
						})
					}
				})
				a(p, "end", n, 0)
				p.py(p.item, "trainer/loop.py(171): log_loss", "<method 'item' of 'torch._C.TensorBase' objects>")
				a(p, "after", n, 0)
			}
			if len(ps) == 1 {
				each(step, func(p *session) { body(p, func(l int) { grads(ps, l) }) })
				continue
			}
			// The ranks run one after the other up to each collective, without frames.
			for _, p := range ps {
				a(p, "start", n, 0)
				p.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", func() {
					p.cpu(45)
					a(p, "data", n, 0)
				})
				for l := range freshLayers {
					p.block(l, func(p *session, place string, _, l int) { a(p, place, n, l) }, scale)
				}
			}
			a(ps[0], "ranks", n, 0)
			for l := range freshLayers {
				for _, p := range ps {
					for range 2 {
						p.mm(190 * scale)
						p.mm(460 * scale)
					}
					p.flash(230 * scale)
				}
				grads(ps, l)
			}
			for _, p := range ps {
				a(p, "before optimizer", n, 0)
				p.follow(7, comm)
				p.note("Optimizer.step#AdamW.step", func() {
					p.op("aten::_fused_adamw_", "", "", func() { p.k("multi_tensor_apply_kernel_adamw", 500*scale, grid(3000, 512)) })
				})
				p.item()
				a(p, "after", n, 0)
			}
		}
	}
}

func none([]*session, int) {}

// ddp reduces the gradients of a layer beside the backward pass.
func ddp(bytes int64) func(ps []*session, l int) {
	return func(ps []*session, _ int) {
		collective(ps, "allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", []int64{bytes}, 260, false)
	}
}

// decoding replays a graph for each token.
func decoding(n int, a at) func(ps []*session) {
	return func(ps []*session) {
		p := ps[0]
		for i := range n {
			p.py(func() {
				p.note("execute_model", func() {
					a(p, "start", i, 0)
					p.graph = p.runtime("cudaGraphLaunch", p.vary(24, 0.1))
					for range 30 {
						p.k(gemm, 62)
						p.k("void flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<128, 64, 128, 4>, true>(Flash_fwd_params)", 33)
						p.k("triton_red_fused_add_rms_norm_0", 9)
					}
					p.graph = 0
					a(p, "sample", i, 0)
					p.op("aten::argmax", "[[256,128256],[],[]]", `["float","Scalar","Scalar"]`, func() { p.k("void at::native::reduce_kernel<512, 1, ArgMaxOps>", 60) })
					p.py(func() {
						p.copy("cudaMemcpyAsync", "Device", "Pinned", 2048, 3, 7)
						p.sync("cudaEventSynchronize", 7)
					}, "engine/model_runner.py(950): _bookkeeping_sync")
					a(p, "after", i, 0)
				})
				a(p, "between", i, 0)
			}, "engine/core.py(690): run_busy_loop", "engine/core.py(255): step")
		}
	}
}

// stencil is a solver in CUDA C++ with NVTX ranges.
func stencil(n int, a at) func(ps []*session) {
	return func(ps []*session) {
		p := ps[0]
		for i := range n {
			p.note("timestep", func() {
				a(p, "start", i, 0)
				for k := range 12 {
					p.k([]string{"advect(double*, double const*, int, int, int)", "jacobi_sweep(float const*, float*, int)", "apply_bc(float*, int)"}[k%3],
						[]float64{420, 350, 60}[k%3], grid(8000, 128))
					a(p, "kernel", i, k)
				}
				a(p, "end", i, 0)
				p.sync("cudaDeviceSynchronize", 0)
				a(p, "after", i, 0)
			})
		}
	}
}

// vision is a convolutional network in channels_last without annotations of steps.
func vision(steps, convs int, micros float64, a at) func(ps []*session) {
	return func(ps []*session) {
		p := ps[0]
		for n := range steps {
			p.py(func() {
				a(p, "start", n, 0)
				p.py(func() {
					for c := range convs {
						a(p, "conv", n, c)
						p.op("aten::cudnn_convolution", "", "", func() {
							p.k("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_off_"+
								"kernel__5x_cudnn", micros)
						})
						p.op("aten::cudnn_batch_norm", "", "", func() {
							p.k("void cudnn::bn_fw_tr_1C11_kernel_NHWC<__nv_bfloat16, float, 512, true, 1>", micros/3)
						})
					}
				}, "nn.Module: ResNet_0", "torchvision/models/resnet.py(266): _forward_impl")
				a(p, "end", n, 0)
				p.item()
				a(p, "after", n, 0)
			}, "classify.py(88): <module>", "classify.py(51): train")
		}
	}
}

func freshKinds() []fresh {
	return slices.Concat(freshHost(), freshMemory(), freshDevice(), freshRanks(), freshRecordings())
}

func freshHost() []fresh {
	host := func(place string, micros float64, names ...string) at {
		return plant(place, func(p *session, _, _ int) { p.spend(micros, names...) })
	}
	return []fresh{
		{
			name: "loader behind a queue of workers", styles: every, want: []string{"loader"}, run: pretrain(6, 1, plant("start",
				func(p *session, _, _ int) {
					p.note("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", func() {
						p.spend(9000, "torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/dataloader.py(1448): _next_data",
							"torch/utils/data/dataloader.py(1297): _try_get_data", "multiprocessing/queues.py(113): get",
							"multiprocessing/connection.py(257): poll", "selectors.py(398): select", "<method 'poll' of 'select.poll' objects>")
					})
				}), none),
		},
		{
			name: "own prefetcher waits for its thread", styles: frames, want: []string{"loader", "host_work"}, who: "prefetch",
			run: pretrain(6, 1, host("start", 8000, "data/prefetch.py(58): next_batch", "queue.py(171): get", "threading.py(355): wait",
				"<method 'acquire' of '_thread.lock' objects>"), none),
		},
		{
			name: "a worker died once and is started again", styles: frames, want: []string{"loader", "uneven_steps"}, run: pretrain(7, 1,
				plant("start", func(p *session, step, _ int) {
					if step == 4 {
						p.spend(90_000, "torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/dataloader.py(1297): _try_get_data")
					}
				}), none),
		},
		{
			name: "images decoded in the training process", styles: frames, want: []string{"loader"}, run: vision(6, 50, 140,
				host("start", 6000, "torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/dataloader.py(788): _next_data",
					"torch/utils/data/_utils/fetch.py(52): fetch", "imagefolder.py(40): __getitem__", "PIL/Image.py(992): convert",
					"<method 'decode' of 'ImagingDecoder' objects>")),
		},
		{
			name: "garbage is collected in each step", styles: frames, want: []string{"host_work"}, who: "collect", run: pretrain(6, 1,
				host("start", 7000, "trainer/memory.py(21): tidy", "<built-in function collect>"), none),
		},
		{
			name: "metrics are sent in each step", styles: frames, want: []string{"host_work"}, who: "log", run: pretrain(6, 1,
				host("after", 7500, "trainer/loop.py(180): report", "wandb/sdk/wandb_run.py(1650): log", "wandb/sdk/wandb_run.py(1400): _log"), none),
		},
		{
			name: "evaluation on the host", styles: frames, want: []string{"host_work"}, who: "accuracy", run: vision(6, 50, 140,
				host("after", 9000, "classify.py(60): accuracy", "sklearn/metrics/_classification.py(220): accuracy_score",
					"numpy/lib/arraysetops.py(138): unique")),
		},
		{
			name: "environment of reinforcement learning", styles: frames, want: []string{"host_work"}, who: "rollout", run: vision(8, 30, 120,
				host("start", 5000, "ppo.py(210): rollout", "gymnasium/wrappers/common.py(125): step", "gymnasium/envs/mujoco/mujoco_env.py(150): do_simulation")),
		},
		{
			name: "tokenizer between batches", styles: frames, want: []string{"host_work"}, who: "tokeniz", run: decoding(12,
				host("between", 2500, "engine/processor.py(71): tokenize_prompts", "transformers/tokenization_utils_base.py(2867): __call__",
					"<method 'encode_batch' of 'tokenizers.Tokenizer' objects>")),
		},
		{
			name: "sampling on the host between replays", styles: frames, want: []string{"host_work"}, who: "sample", run: decoding(12,
				host("after", 2400, "engine/sampler.py(44): sample_with_grammar", "xgrammar/matcher.py(210): fill_next_token_bitmask")),
		},
		{
			name: "range with a name of its own", styles: nsight, want: []string{"loader", "host_work"}, who: "read_shard", run: stencil(8,
				plant("start", func(p *session, _, _ int) { p.note("read_shard", func() { p.cpu(2500) }) })),
		},
		{
			name: "optimizer on the CPU", styles: frames, want: []string{"host_work"}, who: "adam", run: pretrain(5, 1,
				plant("before optimizer", func(p *session, _, _ int) {
					p.copy("cudaMemcpyAsync", "Device", "Pinned", 20<<20, 24, 7)
					p.sync("cudaStreamSynchronize", 7)
					p.spend(14_000, "deepspeed/runtime/zero/stage_1_and_2.py(1890): step", "deepspeed/ops/adam/cpu_adam.py(110): step")
					p.copy("cudaMemcpyAsync", "Pinned", "Device", 20<<20, 24, 7)
				}), none),
		},
		{
			name: "small kernels of a large model in eager mode", styles: every, want: []string{"launch_bound"}, alone: true,
			run: pretrain(8, 0.03, ignore, none),
		},
		{
			name: "batch of one image", styles: every, want: []string{"launch_bound"}, alone: true, run: vision(10, 50, 4, ignore),
		},
		{
			name: "another thread keeps the interpreter", styles: pytorch, want: []string{"launch_bound", "host_work"}, run: vision(6, 50, 30,
				plant("conv", func(p *session, _, _ int) { p.cpu(60) })),
		},
		{
			name: "a number is read in each layer", styles: every, want: []string{"synchronization"}, run: pretrain(6, 0.25,
				plant("block", func(p *session, _, _ int) { p.item(); p.cpu(60) }), none),
		},
		{
			name: "boolean mask", styles: pytorch, want: []string{"synchronization"}, run: vision(6, 40, 60, plant("conv",
				func(p *session, _, c int) {
					if c%2 == 0 {
						p.op("aten::index", "", "", func() {
							p.op("aten::nonzero", "[[262144]]", `["bool"]`, func() {
								p.k("void at_cuda_detail::cub::DeviceReduceKernel<NonZeroOp<bool>>", 4)
								p.copy("cudaMemcpyAsync", "Device", "Pinned", 4, 0.01, 7)
								p.sync("cudaStreamSynchronize", 7)
								p.cpu(12)
							})
						})
						p.cpu(20)
					}
				})),
		},
		{
			name: "a solver waits after each kernel", styles: nsight, want: []string{"synchronization", "launch_bound"}, alone: true, run: func(ps []*session) {
				p := ps[0]
				for range 15 {
					p.note("timestep", func() {
						for range 20 {
							p.k("spmv_csr(int, int const*, float const*, float*)", 22)
							p.sync("cudaDeviceSynchronize", 0)
							p.cpu(9)
						}
					})
				}
			},
		},
		{
			name: "recompilation", styles: frames, want: []string{"compilation"}, run: pretrain(6, 1, plant("start",
				func(p *session, step, _ int) {
					if step == 2 || step == 4 {
						p.spend(60_000, "torch/_dynamo/eval_frame.py(655): _fn", "torch/_dynamo/convert_frame.py(1190): __call__",
							"torch/_dynamo/convert_frame.py(635): _compile", "torch/_inductor/compile_fx.py(760): compile_fx_inner")
					}
				}), none),
		},
		{
			name: "a kernel of Triton is compiled", styles: frames, want: []string{"compilation"}, run: vision(6, 50, 140,
				plant("start", func(p *session, step, _ int) {
					if step == 1 || step == 3 {
						p.spend(30_000, "triton/runtime/jit.py(340): <lambda>", "triton/runtime/jit.py(580): run", "triton/compiler/compiler.py(226): compile",
							"triton/backends/nvidia/compiler.py(310): make_cubin", "subprocess.py(1201): wait")
					}
				})),
		},
		{
			name: "weights saved every second step", styles: frames, want: []string{"checkpoint"}, run: pretrain(6, 1, plant("after",
				func(p *session, step, _ int) {
					if step%2 == 1 {
						p.spend(30_000, "trainer/loop.py(190): save", "torch/serialization.py(850): save", "torch/serialization.py(1100): _save")
					}
				}), none),
		},
		{
			name: "weights saved once, without frames", styles: []Style{Unstacked}, want: []string{"host_work", "uneven_steps", "checkpoint", "exposed_copies", "pageable_copies"},
			run: pretrain(6, 1, plant("after", func(p *session, step, _ int) {
				if step == 3 {
					for range 5 {
						p.copy("cudaMemcpyAsync", "Device", "Pageable", 4<<20, 4, 7)
						p.cpu(14_000)
					}
				}
			}), none),
		},
		{
			name: "server without requests", styles: frames, want: []string{"no_load"}, run: decoding(8,
				host("between", 12_000, "engine/core.py(670): _process_input_queue", "queue.py(171): get", "threading.py(355): wait")),
		},
		{
			name: "asynchronous server without requests", styles: frames, want: []string{"no_load"}, run: func(ps []*session) {
				decoding(8, host("between", 14_000, "asyncio/runners.py(118): run", "asyncio/base_events.py(1961): _run_once", "selectors.py(468): select",
					"<method 'poll' of 'select.epoll' objects>"))(ps)
			},
		},
		{
			name: "graphs are captured", styles: pytorch, want: []string{"graph_capture"}, run: decoding(10, plant("start",
				func(p *session, i, _ int) {
					if i == 3 || i == 6 {
						p.py(func() {
							p.runtime("cudaStreamBeginCapture", 8*us)
							for range 90 {
								p.op("aten::mm", "", "", func() { p.runtime("cudaLaunchKernel", p.vary(4, 0.1)); p.cpu(90) })
							}
							p.runtime("cudaStreamEndCapture", 90*us)
							p.runtime("cudaGraphInstantiate", 4*ms)
						}, "engine/cudagraph.py(160): capture", "torch/cuda/graphs.py(90): capture_begin")
					}
				})),
		},
		{
			name: "first launches load modules", styles: every, want: []string{"slow_runtime_calls", "warm_up"}, run: vision(6, 40, 140,
				plant("conv", func(p *session, n, c int) {
					if n == 0 && c%2 == 0 {
						p.runtime("cuModuleLoadData", 1100*us)
						p.runtime("cudaFuncGetAttributes", 900*us)
					}
				})),
		},
	}
}
