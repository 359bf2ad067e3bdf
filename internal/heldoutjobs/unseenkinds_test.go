// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// workload is a program of an area, with its own names for what programs of all areas do.
type workload struct {
	name    string
	step    func(p *program, plant func(place string), n int)
	steps   int
	profile bool // steps are annotated as PyTorch's profiler does

	loader, hostwork, checkpoint []string // frames from the outside
	loads                        string   // the annotation of the loader, if any
	saves                        []string // findings for the checkpoint
	reads                        []string // findings for the loader
	batch                        int64    // bytes
}

// planted is a cause. It acts at the places of a workload: data, layer, loss, and end of a step.
type planted struct {
	name   string
	want   []string
	sparse []string // without frames, if that differs
	gain   bool
	only   string // names of workloads, if not all
	plant  func(p *program, w *workload, place string, n int)
}

const elementwise = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::BFloat16>, " +
	"std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::BFloat16>, std::array<char*, 3ul>)"

// block is a layer: products, attention or a convolution, and elementwise work.
func block(p *program, plant func(string), module string, f func()) {
	p.in(func() {
		f()
		plant("layer")
	}, "nn.Module: "+module, "torch/nn/modules/module.py(1773): _call_impl")
}

func (p *program) backward(layers int, mid string, micros float64) {
	start, outer := p.now, p.parents
	p.thread, p.parents = 4999, nil
	for range layers {
		p.op("autograd::engine::evaluate_function: "+mid, "", func() {
			p.mm(micros)
			p.mm(micros)
			p.op("aten::add_", "", func() { p.kernel(elementwise, micros/8) })
		})
	}
	p.thread, p.parents = 4711, outer
	if !p.frames {
		return
	}
	p.emit("python_function", "<built-in method run_backward of torch._C._EngineBase object at 0x7f31c0>", 4000, p.thread, start,
		p.now, fmt.Sprintf(`"Python parent id":null,"Python id":%d`, p.id()))
}

func (p *program) optimizer() {
	p.note("Optimizer.step#AdamW.step", func() {
		for range 4 {
			p.op("aten::_fused_adamw_", "", func() {
				p.kernel("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedOptimizerTensorListMetadata<4>, "+
					"FusedAdamMathFunctor<float, 4, ADAM_MODE::ADAMW> >()", 190)
			})
		}
	})
}

func workloads() []workload {
	return []workload{
		{
			name: "fine-tuning", steps: 8, profile: true, batch: 60 << 20, loads: "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
			loader: []string{
				"torch/utils/data/dataloader.py(732): __next__", "torch/utils/data/dataloader.py(1482): _next_data",
				"torch/utils/data/dataloader.py(1446): _get_data", "queue.py(180): get", "threading.py(359): wait",
				"<built-in method acquire of _thread.lock object at 0x7f55aa>",
			},
			hostwork: []string{"trainer/loop.py(211): evaluate_batch", "trainer/metrics.py(51): perplexity_by_token"},
			checkpoint: []string{
				"transformers/trainer.py(3228): _save_checkpoint", "torch/serialization.py(943): save",
				"torch/serialization.py(1220): _save",
			},
			step: func(p *program, plant func(string), _ int) {
				plant("data")
				p.copy("HtoD (Pinned -> Device)", 1<<18, 24, 7)
				for i := range 12 {
					block(p, plant, fmt.Sprintf("Qwen3DecoderLayer_%d", i), func() {
						p.mm(240)
						p.op("aten::_scaled_dot_product_flash_attention", "", func() { p.kernel("void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128>>()", 140) })
						p.mm(330)
						p.op("aten::add", "", func() { p.kernel(elementwise, 24) })
					})
				}
				p.backward(12, "MmBackward0", 420)
				p.optimizer()
				p.item()
				plant("loss")
				plant("end")
			},
		},
		{
			name: "diffusion", steps: 9, profile: true, batch: 90 << 20, loads: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
			loader: []string{
				"torch/utils/data/dataloader.py(732): __next__", "torch/utils/data/dataloader.py(788): _next_data",
				"webdataset/pipeline.py(70): iterator", "webdataset/filters.py(307): _map", "PIL/ImageFile.py(160): load",
			},
			hostwork:   []string{"train_unet.py(402): main", "captions/encode.py(77): tokenize_prompts"},
			checkpoint: []string{"train_unet.py(430): save_ema", "safetensors/torch.py(286): save_file", "<built-in method serialize_file of PyCapsule object at 0x7f1>"},
			step: func(p *program, plant func(string), _ int) {
				plant("data")
				p.copy("HtoD (Pinned -> Device)", 4<<20, 24, 7)
				for i := range 10 {
					block(p, plant, fmt.Sprintf("ResnetBlock2D_%d", i), func() {
						p.op("aten::cudnn_convolution", "", func() {
							p.kernel("sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64", 410)
						})
						p.op("aten::native_group_norm", "", func() {
							p.kernel("void at::native::(anonymous namespace)::RowwiseMomentsCUDAKernel<c10::BFloat16>()", 45)
						})
						p.mm(210)
					})
				}
				p.backward(10, "ConvolutionBackward0", 480)
				p.optimizer()
				plant("loss")
				p.item()
				plant("end")
			},
		},
		{
			name: "graph network", steps: 14, profile: true, batch: 40 << 20, loads: "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
			loader: []string{
				"torch/utils/data/dataloader.py(732): __next__", "torch/utils/data/dataloader.py(788): _next_data",
				"torch_geometric/loader/node_loader.py(147): collate_fn", "torch_geometric/sampler/neighbor_sampler.py(320): _sample",
				"<built-in method neighbor_sample of PyCapsule object at 0x7f2>",
			},
			hostwork:   []string{"gnn/train.py(88): train_epoch", "gnn/partition.py(20): relabel_nodes"},
			checkpoint: []string{"lightning/pytorch/trainer/trainer.py(1372): save_checkpoint", "torch/serialization.py(943): save"},
			step: func(p *program, plant func(string), _ int) {
				plant("data")
				p.copy("HtoD (Pinned -> Device)", 2<<20, 24, 7)
				for i := range 6 {
					block(p, plant, fmt.Sprintf("SAGEConv_%d", i), func() {
						p.op("torch_sparse::spmm_sum", "", func() { p.kernel("void spmm_kernel<float, (ReductionType)0, true>(long const*, long const*)", 380) })
						p.mm(260)
					})
				}
				p.backward(6, "SpmmSumBackward0", 300)
				p.optimizer()
				p.item()
				plant("loss")
				plant("end")
			},
		},
		{
			name: "reinforcement", steps: 10, batch: 50 << 20, loads: "",
			loader:   []string{"agents/learner.py(120): update", "tianshou/data/buffer/base.py(311): sample", "tianshou/data/buffer/base.py(402): __getitem__"},
			hostwork: []string{"agents/actor.py(64): rollout", "envs/vector.py(60): step_physics"}, reads: []string{"host_work", "loader"},
			checkpoint: []string{
				"agents/learner.py(190): snapshot", "torch/distributed/checkpoint/state_dict_saver.py(176): save",
				"torch/distributed/checkpoint/filesystem.py(620): write_data",
			},
			step: func(p *program, plant func(string), n int) {
				p.note(fmt.Sprintf("iteration %d", n), func() {
					plant("data")
					p.copy("HtoD (Pinned -> Device)", 1<<20, 24, 7)
					for i := range 8 {
						block(p, plant, fmt.Sprintf("PolicyBlock_%d", i), func() {
							p.mm(300)
							p.op("aten::tanh", "", func() { p.kernel(elementwise, 30) })
							p.mm(300)
						})
					}
					p.backward(8, "TanhBackward0", 260)
					p.optimizer()
					p.item()
					plant("loss")
					plant("end")
				})
			},
		},
		{
			name: "solver", steps: 40, batch: 30 << 20,
			loader:     []string{"solver/forcing.py(41): next_snapshot", "h5py/_hl/dataset.py(841): __getitem__"},
			hostwork:   []string{"solver/run.py(10): advance", "solver/diagnostics.py(33): energy_spectrum"},
			checkpoint: []string{"solver/restart.py(12): write_restart", "h5py/_hl/group.py(183): create_dataset"},
			saves:      []string{"host_work", "checkpoint"}, reads: []string{"host_work", "loader"},
			step: func(p *program, plant func(string), _ int) {
				p.in(func() {
					plant("data")
					for range 6 {
						p.kernel("void stencil7<double>(double const*, double*, int, int, int)", 330)
						p.kernel("void axpby<double>(double, double const*, double, double*, long)", 120)
						plant("layer")
					}
					p.idle("cudaDeviceSynchronize")
					plant("loss")
					plant("end")
				}, "solver/run.py(30): step")
			},
		},
		{
			name: "serving", steps: 40, batch: 30 << 20,
			hostwork: []string{"vllm/v1/engine/core.py(231): step", "vllm/v1/core/sched/scheduler.py(198): schedule"},
			step: func(p *program, plant func(string), _ int) {
				plant("data")
				p.note("execute_context_0(0)_generation_64(64)", func() {
					for i := range 8 {
						block(p, plant, fmt.Sprintf("LlamaDecoderLayer_%d", i), func() {
							p.mm(110)
							p.op("vllm::unified_attention_with_output", "", func() { p.kernel("void flashinfer::BatchDecodeWithPagedKVCacheKernel<128u>()", 120) })
							p.mm(150)
						})
					}
				})
				p.note("sample_token", func() {
					p.copy("DtoH (Device -> Pinned)", 512, 0.2, 7)
					p.idle("cudaEventSynchronize")
				})
				plant("loss")
				plant("end")
			},
		},
		{
			name: "data parallel", steps: 8, profile: true, batch: 60 << 20, loads: "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__",
			loader: []string{
				"torch/utils/data/dataloader.py(732): __next__", "torch/utils/data/dataloader.py(1482): _next_data",
				"torch/utils/data/dataloader.py(1446): _get_data", "multiprocessing/queues.py(114): get",
				"multiprocessing/connection.py(1136): wait", "selectors.py(415): select",
			},
			hostwork: []string{"nanotron/trainer.py(520): train_step_logs", "nanotron/logging/timers.py(90): all_moments"},
			checkpoint: []string{
				"nanotron/trainer.py(900): save_checkpoint", "torch/distributed/checkpoint/state_dict_saver.py(176): save",
				"torch/distributed/checkpoint/filesystem.py(620): write_data",
			},
			step: func(p *program, plant func(string), n int) {
				p.groups = true
				plant("data")
				p.copy("HtoD (Pinned -> Device)", 1<<18, 24, 7)
				for i := range 10 {
					block(p, plant, fmt.Sprintf("DecoderLayer_%d", i), func() {
						p.mm(300)
						p.op("aten::add", "", func() { p.kernel(elementwise, 25) })
						p.mm(300)
					})
				}
				late := int64(0)
				if p.wait != nil {
					late = p.wait(n)
				}
				for i := range 5 {
					p.backward(2, "MmBackward0", 420)
					p.reduce("AllReduce_Sum_bf16", 90<<20, late*int64(min(1, max(0, 1-i))), false)
				}
				p.op("c10d::allreduce_", "", func() { p.free[7] = max(p.free[7], p.free[20]) })
				p.optimizer()
				p.item()
				plant("loss")
				plant("end")
			},
		},
	}
}

// plants are the causes, for all workloads unless limited.
func plants() []planted {
	at := func(place string, every int, f func(p *program, w *workload)) func(*program, *workload, string, int) {
		return func(p *program, w *workload, here string, n int) {
			if here == place && n%every == every-1 {
				f(p, w)
			}
		}
	}
	training := "fine-tuning, diffusion, graph network, reinforcement, data parallel"
	return []planted{
		{name: "nothing", want: []string{Healthy, "not_judged"}}, // without operators, the work cannot be judged
		{name: "slow loader", want: []string{"loader"}, gain: true, only: training + ", solver", plant: at("data", 1, func(p *program, w *workload) {
			load := func() { p.in(func() { p.host(2600) }, w.loader...) }
			if w.loads == "" {
				load()
				return
			}
			p.note(w.loads, load)
		})},
		{name: "a function of the user", want: []string{"host_work"}, gain: true, plant: at("end", 1, func(p *program, w *workload) {
			p.in(func() { p.host(3100) }, w.hostwork...)
		})},
		{name: "a function of the user now and then", want: []string{"host_work"}, gain: true, plant: at("end", 4, func(p *program, w *workload) {
			p.in(func() { p.host(7500) }, w.hostwork...)
		})},
		{
			name: "checkpoint", want: []string{"checkpoint"}, sparse: []string{"host_work"}, gain: true, only: training + ", solver",
			plant: at("end", 4, func(p *program, w *workload) { p.in(func() { p.host(15000) }, w.checkpoint...) }),
		},
		{name: "numbers read in layers", want: []string{"synchronization"}, plant: at("layer", 1, func(p *program, _ *workload) {
			p.item()
			p.host(120)
		})},
		{name: "device synchronized in layers", want: []string{"synchronization"}, plant: at("layer", 1, func(p *program, _ *workload) {
			p.idle("cudaDeviceSynchronize")
			p.host(110)
		})},
		{name: "pageable batch", want: []string{"pageable_copies"}, gain: true, plant: at("data", 1, func(p *program, w *workload) {
			p.op("aten::to", "", func() {
				p.op("aten::copy_", "", func() { p.copy("HtoD (Pageable -> Device)", w.batch, 7.5, 7) })
			})
		})},
		{name: "pinned batch on the stream of kernels", want: []string{"exposed_copies"}, gain: true, plant: at("data", 1, func(p *program, w *workload) {
			p.op("aten::copy_", "", func() { p.copy("HtoD (Pinned -> Device)", 2*w.batch, 23, 7) })
		})},
		{name: "allocations", want: []string{"allocation"}, gain: true, plant: at("data", 1, func(p *program, _ *workload) {
			for range 3 {
				p.idle("cudaFree")
				p.call("cudaMalloc", p.about(600, 0.1))
			}
		})},
		{name: "modules loaded", want: []string{"slow_runtime_calls"}, plant: at("end", 2, func(p *program, _ *workload) {
			p.call("cuModuleLoadData", p.about(6500, 0.1))
		})},
		{name: "lower clock", want: []string{"throttle"}, gain: true, plant: func(p *program, w *workload, place string, n int) {
			if place == "data" && n == w.steps/2 {
				p.slow = 1.4
			}
		}},
		{name: "compilation", want: []string{"compilation"}, sparse: []string{"host_work"}, gain: true, plant: at("data", 4, func(p *program, _ *workload) {
			p.in(func() { p.host(14000) }, "torch/_dynamo/convert_frame.py(1272): __call__", "torch/_inductor/compile_fx.py(1830): compile_fx",
				"torch/_inductor/codecache.py(1200): load")
		})},
		{name: "many tiny kernels", want: []string{"launch_bound"}, plant: at("layer", 1, func(p *program, _ *workload) {
			for range 110 {
				p.op("aten::mul", "", func() {
					p.host(6)
					p.kernel(elementwise, 1.6)
				})
			}
		})},
		{name: "layouts changed", want: []string{"data_movement"}, gain: true, only: training, plant: at("layer", 1, func(p *program, _ *workload) {
			p.op("aten::contiguous", "", func() {
				p.op("aten::clone", "", func() {
					p.op("aten::copy_", "[[64,1024,2048],[64,1024,2048]]", func() {
						p.kernel("void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda"+
							"(at::TensorIteratorBase&)::{lambda()#3}>>(int)", 300)
					})
				})
			})
		})},
		{name: "no requests", want: []string{"no_load"}, sparse: []string{"no_load", "host_work", "not_judged"}, only: "serving", plant: at("data", 5, func(p *program, _ *workload) {
			p.in(func() { p.host(24000) }, "vllm/v1/engine/core.py(700): _process_input_queue", "queue.py(180): get", "threading.py(359): wait",
				"<built-in method acquire of _thread.lock object at 0x7f55ab>")
		})},
		{name: "another rank is late", want: []string{"late_rank"}, gain: true, only: "data parallel", plant: func(p *program, _ *workload, _ string, n int) {
			if n == 0 {
				p.wait = func(step int) int64 { return []int64{9_000_000, 12_500_000, 300_000, 13_000_000}[step%4] }
			}
		}},
		{name: "gradients reduced at the end", want: []string{"exposed_communication"}, only: "data parallel", plant: at("loss", 1, func(p *program, _ *workload) {
			p.op("c10d::allreduce_", "", func() { p.reduce("AllReduce_Sum_bf16", 600<<20, 0, true) })
		})},
		{name: "parameters gathered", want: []string{"exposed_communication"}, only: "data parallel", plant: at("layer", 1, func(p *program, _ *workload) {
			p.op("c10d::_allgather_base_", "", func() { p.reduce("AllGather", 40<<20, 0, true) })
		})},
	}
}

// unseenKinds crosses workloads and causes. They were written without knowledge of the rules.
func unseenKinds() (list []Kind) {
	all := workloads()
	for i := range all {
		w := &all[i]
		for _, c := range plants() {
			if c.only != "" && !strings.Contains(c.only, w.name) {
				continue
			}
			switch {
			case c.name == "slow loader" && w.reads != nil:
				c.want = w.reads
			case c.name == "checkpoint" && w.saves != nil:
				c.want = w.saves
			}
			sparse := c.sparse
			if c.name == "slow loader" && w.loads == "" {
				sparse = []string{"host_work"}
			}
			list = append(list, Kind{
				Name: w.name + ": " + c.name, Gain: c.gain, want: c.want, ranks: []int{0},
				other: map[Style][]string{Sparse: sparse, Nsight: {}},
				unseen: func(style Style, seed uint64, caused bool) *program {
					p := newProgram(style, seedOf(seed, w.name+c.name), caused)
					for n := range w.steps {
						step := func() {
							w.step(p, func(place string) {
								if caused && c.plant != nil {
									c.plant(p, w, place, n)
								}
							}, n)
						}
						if w.profile {
							p.note(fmt.Sprintf("ProfilerStep#%d", n+5), step)
						} else {
							step()
						}
					}
					return p
				},
			})
		}
	}
	return list
}

func (k *Kind) runUnseen(dir string, style Style, seed uint64) (Job, error) {
	_, twin, busy := k.unseen(style, seed, false).text()
	text, window, _ := k.unseen(style, seed, true).text()
	j := Job{
		Path: filepath.Join(dir, "unseen.pt.trace.json"), Want: k.want, Ranks: 1, Loss: time.Duration(window - twin), Busy: busy,
	}
	if o := k.other[style]; o != nil {
		j.Want = o
	}
	return j, os.WriteFile(j.Path, []byte(text), 0o600)
}
