// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import "fmt"

// layers returns a job in which each layer also runs f, in both runs; f can distinguish them.
func layers(f func(p *process)) func(w *world) {
	return func(w *world) {
		w.train(hooks{layer: func(p *process, _, _ int) { f(p) }})
	}
}

// attentionInParts computes attention with scores in memory.
func (p *process) attentionInParts() {
	w := p.w
	m := w.model
	s, d := m.tokens/batch, m.hidden/heads
	n := int64(batch * heads)
	flops, scores := w.attentionFLOPs()/2, float64(n*s*s)
	product := func(a, b string) {
		p.op(operation{
			name: "aten::bmm", outer: []string{"aten::matmul"}, dims: "[" + a + "," + b + "]", types: types(2, half),
		}, work{
			kind: kernel, name: w.dev.gemm, length: ns(flops / (m.product * w.dev.bf16)), stream: computing,
			blocks: n * max(1, s/128), threads: 256, registers: 168, pace: true,
		})
	}
	pass := func(name, functor string, passes float64) {
		p.op(operation{
			name: name, dims: fmt.Sprintf("[[%d,%d,%d,%d]]", batch, heads, s, s), types: types(1, half),
		}, work{
			kind: kernel, name: functor, length: ns(scores * 2 * passes / (m.memory * w.dev.rate)), stream: computing,
			blocks: max(1, n*s*s/1024), threads: 128, registers: 32, pace: true,
		})
	}
	product(fmt.Sprintf("[%d,%d,%d]", n, s, d), fmt.Sprintf("[%d,%d,%d]", n, d, s))
	pass("aten::div", "void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<c10::BFloat16, "+
		"at::native::binary_internal::MulFunctor<float> >, std::array<char*, 2ul> >", 2)
	pass("aten::_softmax", "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 10, false, false>", 2)
	product(fmt.Sprintf("[%d,%d,%d]", n, s, s), fmt.Sprintf("[%d,%d,%d]", n, s, d))
}

func kernelKinds() []Kind {
	blind := unnamed("not_judged")
	return []Kind{
		{Name: "products far below the peak", Gain: true, want: []string{"low_efficiency"}, other: blind, run: func(w *world) {
			part := w.between(0.15, 0.3)
			if !w.sick {
				part = 0.7
			}
			layers(func(p *process) {
				o, x := w.product(w.model.tokens, 8*w.model.hidden, w.model.hidden, part)
				p.op(o, x)
			})(w)
		}},
		{Name: "strided additions", Gain: true, want: []string{"low_efficiency"}, other: blind, run: func(w *world) {
			part := w.between(0.12, 0.3)
			if !w.sick {
				part = 0.7
			}
			n := w.model.tokens * w.model.hidden * 16
			layers(func(p *process) {
				p.pointwise("aten::add", "CUDAFunctor_add<c10::BFloat16>", n, 2, part)
			})(w)
		}},
		{Name: "products with one row", want: []string{"low_efficiency", "low_parallelism"}, other: blind, run: layers(func(p *process) {
			w := p.w
			if !w.sick {
				return
			}
			x := ns(2 * float64(w.model.hidden*w.model.hidden) / (0.2 * w.dev.rate))
			for range w.stepTime() / 2 / int64(w.model.layers) / x {
				o, x := w.product(16, w.model.hidden, w.model.hidden, 1)
				x.length = ns(2 * float64(w.model.hidden*w.model.hidden) / (0.2 * w.dev.rate))
				x.blocks = 2 * w.dev.processors
				p.op(o, x)
			}
		})},
		{Name: "products in single precision", Gain: true, want: []string{"single_precision"}, run: func(w *world) {
			share := w.between(0.75, 0.9)
			layers(func(p *process) {
				m, h := w.model.tokens, w.model.hidden
				o, x := w.product(m, h, h, 0.7)
				o.types = types(2, "float")
				flops := 2 * float64(m*h) * float64(h)
				x.name, x.length = "void cutlass::Kernel2<cutlass_80_simt_sgemm_256x128_8x4_nn_align1>", ns(flops/(share*w.dev.fp32))
				if !w.sick {
					x.name, x.length = "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_256x128_16x3_nn_align4>", ns(flops/(0.7*w.dev.tf32))
				}
				p.op(o, x)
			})(w)
		}},
		{Name: "scans with few blocks", want: []string{"low_parallelism"}, run: func(w *world) {
			d := w.share(0.6, 1.2) / int64(w.model.layers)
			blocks := 8 + w.draw.Int64N(24)
			layers(func(p *process) {
				if w.sick {
					p.op(operation{name: "mamba_ssm::selective_scan"}, work{
						kind: kernel, name: "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, false>>(SSMParamsBase)",
						length: d, stream: computing, blocks: blocks, threads: 128, registers: 168, pace: true,
					})
				}
			})(w)
		}},
		{Name: "layouts changed around each layer", Gain: true, want: []string{"data_movement"}, run: func(w *world) {
			d := w.share(0.3, 0.7) / int64(w.model.layers)
			layers(func(p *process) {
				if w.sick {
					p.op(operation{name: "aten::cudnn_convolution"}, work{
						kind: kernel, name: "void cudnn::ops::nchwToNhwcKernel<__nv_bfloat16, __nv_bfloat16, float, false, true, " +
							"(cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>)",
						length: d, stream: computing, blocks: 8192, threads: 256, registers: 32, pace: true,
					})
				}
			})(w)
		}},
		{Name: "caches joined for each token", Gain: true, want: []string{"data_movement"}, run: func(w *world) {
			d := w.share(0.3, 0.7) / int64(w.model.layers)
			layers(func(p *process) {
				if w.sick {
					p.op(operation{name: "aten::cat", dims: "[[]]", types: `["TensorList"]`}, work{
						kind: kernel, name: "void at::native::(anonymous namespace)::CatArrayBatchedCopy_aligned16_contig<" +
							"at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>",
						length: d, stream: computing, blocks: 4096, threads: 256, registers: 40, pace: true,
					})
				}
			})(w)
		}},
		{Name: "weights cast in each layer", Gain: true, want: []string{"data_movement"}, run: func(w *world) {
			d := w.share(0.3, 0.7) / int64(w.model.layers)
			layers(func(p *process) {
				if w.sick {
					p.op(operation{name: "aten::copy_", outer: []string{"aten::to", "aten::_to_copy"}}, work{
						kind: kernel, name: "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(" +
							"at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>, 4>",
						length: d, stream: computing, blocks: 32768, threads: 128, registers: 32, pace: true,
					})
				}
			})(w)
		}},
		{
			Name: "attention in parts", want: []string{"unfused_attention"},
			other: map[Style][]string{Sparse: {"unfused_attention", "not_judged"}, Nsight: {"not_judged"}}, run: func(w *world) {
				w.model.tokens = 8192
				w.model.hidden = 2048
				layers(func(p *process) {
					for range 4 {
						if w.sick {
							p.attentionInParts()
						} else {
							p.flash(false)
						}
					}
				})(w)
			},
		},
		{Name: "chains of elementwise operators", want: []string{"fusion"}, run: func(w *world) {
			one := ns(float64(w.model.tokens*w.model.hidden*8) * 4 / (w.model.memory * w.dev.rate))
			n := int(w.share(0.6, 1) / int64(w.model.layers) / one)
			layers(func(p *process) {
				if !w.sick {
					return
				}
				for i := range n {
					o := []string{"mul", "sigmoid", "sub", "tanh", "exp", "neg"}[i%6]
					p.pointwise("aten::"+o, o+"_kernel_cuda", w.model.tokens*w.model.hidden*8, 1, w.model.memory)
				}
			})(w)
		}},
		{Name: "lower clock for a while", Gain: true, want: []string{"throttle"}, run: func(w *world) {
			w.steps = 16 + w.draw.IntN(8)
			slow, from := w.between(1.3, 1.7), 4+w.draw.IntN(3)
			w.train(hooks{start: func(p *process, step int) {
				p.slow = 1
				if w.sick && step >= from && step < from+w.steps/3 {
					p.slow = slow
				}
			}})
		}},
	}
}

func otherKinds() []Kind {
	return []Kind{
		{
			Name: "buffers of the profiler", Gain: true, want: []string{"profiler_overhead"},
			other: map[Style][]string{Sparse: {}}, run: delayed(0.2, 0.5, func(p *process, d int64) {
				p.in(overhead, "Activity Buffer Request", func() { p.spend(d) })
			}),
		},
		{Name: "server without load", want: []string{"no_load"}, other: map[Style][]string{Sparse: {}, Nsight: {}}, run: func(w *world) {
			d := w.stepTime() * 2
			w.decode(10, func(p *process) {
				for range w.model.layers {
					p.layer(false)
				}
				p.item()
			}, func(p *process, _ int) {
				if w.sick {
					p.inFrames([]string{"asyncio/base_events.py(1922): _run_once", "selectors.py(468): select"}, func() { p.spend(d) })
				}
			})
		}},
		{Name: "server that waits in an annotation", want: []string{"no_load"}, run: func(w *world) {
			d := w.stepTime() * 2
			name := w.one("wait for requests", "wait_for_request", "waiting for requests")
			w.decode(10, func(p *process) {
				for range w.model.layers {
					p.layer(false)
				}
				p.item()
			}, func(p *process, _ int) {
				if w.sick {
					load(p, name, d)
				}
			})
		}},
		{Name: "kernels compared with each other", want: []string{"autotuning"}, other: map[Style][]string{Nsight: {}}, run: func(w *world) {
			trials := 12 + w.draw.IntN(10)
			length := w.share(0.5, 0.8) / int64(trials)
			w.train(hooks{layer: func(p *process, step, l int) {
				o := operation{name: "aten::cudnn_convolution"}
				one := work{
					kind: kernel, name: "sm80_xmma_fprop_implicit_gemm_bf16bf16_tilesize0", length: length / 10, stream: computing,
					blocks: 1024, threads: 256, registers: 128, pace: true,
				}
				list := []work{one}
				if w.sick && l == 0 && step%4 == 0 {
					for i := range trials {
						x := one
						x.name, x.length = fmt.Sprintf("sm80_xmma_fprop_implicit_gemm_bf16bf16_tilesize%d", i+1), length
						list = append(list, x)
					}
				}
				p.op(o, list...)
			}})
		}},
		{Name: "work that waits for something unseen", Gain: true, want: []string{"dependency"}, run: func(w *world) {
			d := w.share(0.3, 0.6)
			w.waits = false
			w.train(hooks{finish: func(p *process, _ int) {
				if w.sick {
					p.call("cudaStreamWaitEvent", 1500)
					p.streams[computing] = max(p.now, p.streams[computing]) + d
				}
			}})
		}},
	}
}

// mixed plants two causes in each step, of which the first is larger.
func mixed(name string, first, second func(w *world, p *process, d int64), want ...string) Kind {
	return Kind{Name: name, want: want, run: func(w *world) {
		a := w.share(0.4, 0.7)
		b := int64(float64(a) * w.between(0.2, 0.55))
		w.train(hooks{after: func(p *process, _ int) {
			if w.sick {
				first(w, p, a)
				p.layer(false)
				p.item()
				second(w, p, b)
			}
		}})
	}}
}

func mixedKinds() []Kind {
	loader := func(_ *world, p *process, d int64) { load(p, multi, d) }
	logs := func(_ *world, p *process, d int64) { p.in(annotation, "log_metrics", func() { p.spend(d) }) }
	allocation := func(_ *world, p *process, d int64) {
		p.call("cudaFree", d/2)
		p.call("cudaMalloc", d/2)
	}
	pageable := func(_ *world, p *process, d int64) {
		p.copy("Pageable", "Device", int64(float64(d)/1e9*6e9), 6e9, computing, false)
	}
	pinned := func(_ *world, p *process, d int64) {
		p.copy("Pinned", "Device", int64(float64(d)/1e9*2.2e10), 2.2e10, computing, false)
	}
	modules := func(_ *world, p *process, d int64) { p.call("cuModuleLoadData", d) }
	barrier := func(_ *world, p *process, d int64) { p.in(annotation, "barrier", func() { p.spend(d) }) }
	movement := func(_ *world, p *process, d int64) {
		p.op(operation{name: "aten::copy_", outer: []string{"aten::contiguous", "aten::clone"}}, work{
			kind:   kernel,
			name:   "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>>",
			length: d, stream: computing, blocks: 65536, threads: 128, registers: 32, pace: true,
		})
	}
	single := func(w *world, p *process, d int64) {
		flops := 0.85 * w.dev.fp32 * float64(d) / 1e9
		m := max(1, int64(flops/2/4096/4096))
		o, x := w.product(m, 4096, 4096, 0.7)
		o.types = types(2, "float")
		x.name, x.length, x.blocks = "ampere_sgemm_128x128_nn", d, max(x.blocks, 1024)
		p.op(o, x)
	}
	return []Kind{
		mixed("loader before logging", loader, logs, "loader"),
		mixed("logging before loader", logs, loader, "host_work"),
		mixed("allocation before loader", allocation, loader, "allocation"),
		mixed("loader before allocation", loader, allocation, "loader"),
		mixed("pageable copies before logging", pageable, logs, "pageable_copies"),
		mixed("logging before pageable copies", logs, pageable, "host_work"),
		mixed("pinned copies before allocation", pinned, allocation, "exposed_copies"),
		mixed("modules before pinned copies", modules, pinned, "slow_runtime_calls"),
		mixed("barrier before loader", barrier, loader, "waiting_for_rank"),
		mixed("loader before layouts", loader, movement, "loader"),
		mixed("layouts before logging", movement, logs, "data_movement"),
		mixed("single precision before loader", single, loader, "single_precision"),
		mixed("pageable copies before modules", pageable, modules, "pageable_copies"),
	}
}

func healthyKinds() []Kind {
	well := []string{Healthy}
	blind := unnamed(Healthy, "not_judged")
	return []Kind{
		{Name: "training that waits for nothing", want: well, other: blind, run: func(w *world) {
			w.waits = false
			w.train(hooks{})
		}},
		{Name: "training that reads its loss", want: well, other: blind, run: func(w *world) { w.train(hooks{}) }},
		{Name: "loader hidden by the queue", want: well, other: blind, run: func(w *world) {
			w.waits = false
			d := w.stepTime() / 3
			w.train(hooks{start: func(p *process, _ int) { load(p, multi, d) }})
		}},
		{Name: "a little of the loader", want: well, other: blind, run: func(w *world) {
			d := w.share(0.005, 0.03)
			w.train(hooks{after: func(p *process, _ int) { load(p, multi, d) }})
		}},
		{Name: "a little of everything", want: well, other: blind, run: func(w *world) {
			d := w.share(0.003, 0.01)
			w.train(hooks{after: func(p *process, _ int) {
				load(p, multi, d)
				p.in(annotation, "log_metrics", func() { p.spend(d) })
				p.call("cudaMalloc", d)
			}})
		}},
		{Name: "gradients reduced beside the backward pass", want: well, other: blind, ranks: []int{2, 8, 64}, run: func(w *world) {
			d := w.stepTime() / int64(3*w.model.layers)
			w.train(hooks{
				gradient: func(_, l int) {
					if l < w.model.layers-1 {
						w.collective("allreduce", 64<<20, d, w.all())
					}
				},
				backward: func(int) { w.join(w.all()) },
			})
		}},
		{Name: "copies ahead of time", want: well, other: blind, run: func(w *world) {
			bytes := int64(0.3 * float64(w.stepTime()) / 1e9 * 2.2e10)
			w.train(hooks{start: func(p *process, _ int) { p.copy("Pinned", "Device", bytes, 2.2e10, copying, false) }})
		}},
		{Name: "offloading beside the backward pass", want: well, other: blind, run: func(w *world) {
			bytes := int64(0.2 * float64(w.stepTime()) / 1e9 * 2.2e10)
			w.train(hooks{layer: func(p *process, _, l int) {
				if l == 0 {
					p.copy("Device", "Pinned", bytes, 2.2e10, copying, false)
				}
			}})
		}},
		{Name: "checkpoint in the background", want: well, other: blind, run: func(w *world) {
			w.train(hooks{after: func(p *process, step int) {
				if step%4 == 1 {
					p.frames++
					p.emit(event{
						kind: frame, name: "torch/distributed/checkpoint/state_dict_saver.py(301): _async_save", thread: helper,
						start: p.now, end: p.now + w.stepTime(), frameID: p.frames,
					})
				}
			}})
		}},
		{Name: "the first batch takes long", want: well, other: blind, run: func(w *world) {
			d := w.share(0.5, 1.5)
			w.train(hooks{start: func(p *process, step int) {
				if step == 0 {
					load(p, multi, d)
				}
			}})
		}},
		{Name: "annotations around everything", want: well, other: blind, run: func(w *world) {
			w.each(func(p *process) { p.begin(annotation, "epoch 3: load data, train, save checkpoint", nil) })
			w.train(hooks{})
			w.each(func(p *process) { p.end() })
		}},
		{Name: "activation checkpointing", want: well, other: blind, run: func(w *world) {
			w.train(hooks{layer: func(p *process, _, _ int) {
				p.inFrames([]string{"torch/utils/checkpoint.py(489): checkpoint", "torch/autograd/function.py(575): apply"},
					func() { p.layer(false) })
			}})
		}},
		{Name: "decoding by graphs", want: []string{Healthy, "not_judged"}, run: func(w *world) {
			w.decode(30, func(p *process) {
				p.replay(func() {
					for range w.model.layers {
						p.layer(false)
					}
				})
			}, nil)
		}},
		{Name: "experts in balance", want: well, other: blind, ranks: []int{8, 64}, run: func(w *world) {
			d := w.stepTime() / int64(100*w.model.layers)
			w.train(hooks{gradient: func(int, int) {
				w.collective("all_to_allv", 4<<20, d, w.all())
				w.join(w.all())
			}})
		}},
	}
}
