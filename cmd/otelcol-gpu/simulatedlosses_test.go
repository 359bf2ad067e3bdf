// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"
)

// Job is one kind of job with its known cause.
type Job struct {
	Name  string
	Style Style
	Ranks int
	Want  []string // expected kinds of the first finding; the best is first
	Gain  bool     // whether the loss is a gain in wall time that the healthy twin shows
	run   func(s *sim, sick bool)
}

// Profiles holds the files of a job and the planted loss.
type Profiles struct {
	Files []string // by rank
	Loss  time.Duration
}

// Healthy is the kind of jobs without a planted loss.
const Healthy = "healthy"

// Run simulates the job and its healthy twin.
func (j *Job) Run() Profiles {
	sick, healthy := newSim(j.Style, j.Ranks, 7), newSim(j.Style, j.Ranks, 7)
	j.run(sick, true)
	j.run(healthy, false)
	p := Profiles{Loss: time.Duration(sick.window() - healthy.window())}
	for _, r := range sick.ranks {
		p.Files = append(p.Files, r.file(j.Ranks))
	}
	return p
}

// window returns the time from the first to the last activity of the first device.
func (s *sim) window() int64 { return s.ranks[0].last - s.ranks[0].first }

// cause is a planted loss.
type cause struct {
	name  string
	want  []string
	ranks int
	only  Style // empty: every style
	gain  bool
	run   func(s *sim, sick bool)
}

// Jobs returns all jobs: every cause in every style that has it, mixed causes, and healthy jobs.
func Jobs() (list []Job) {
	for _, c := range append(causes(), append(mixed(), healthy()...)...) {
		for _, style := range Styles() {
			if c.only != "" && c.only != style {
				continue
			}
			want := c.want
			if want[0] == Healthy && style == Captured { // nothing shows what kernels of graphs compute
				want = []string{Healthy, "not_judged"}
			}
			list = append(list, Job{
				Name: fmt.Sprintf("%s, %s", c.name, style), Style: style, Ranks: max(1, c.ranks), Want: want, Gain: c.gain,
				run: c.run,
			})
		}
	}
	return list
}

// train returns a loop whose host runs ahead of the device, with f in each step before its layers.
func train(f func(r *rank)) func(s *sim, sick bool) {
	return func(s *sim, sick bool) {
		s.steps(10, func(int) {
			s.each(func(r *rank) {
				if sick {
					f(r)
				}
				r.layers(12)
			})
		})
	}
}

// logged returns a loop that reads its loss once in a step, after the first layers, as loops that
// log do.
func logged(f func(r *rank)) func(s *sim, sick bool) {
	return func(s *sim, sick bool) {
		s.steps(10, func(int) {
			s.each(func(r *rank) {
				r.layers(12)
				r.item()
				if sick {
					f(r)
				}
			})
		})
	}
}

func load(r *rank, d int64) {
	r.annotate("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", func() { r.now += r.about(d) })
}

func causes() []cause {
	return []cause{
		{name: "slow loader", want: []string{"loader"}, gain: true, run: logged(func(r *rank) { load(r, 4*ms) })},
		{name: "slow loader in frames", want: []string{"loader"}, gain: true, only: Eager, run: logged(func(r *rank) {
			r.frame("train.py(40): epoch", func() {
				r.frame("torch/utils/data/dataloader.py(733): __next__", func() { r.now += r.about(3 * ms) })
			})
		})},
		{name: "evaluation of metrics on the host", want: []string{"host_work"}, gain: true, run: logged(func(r *rank) {
			r.frame("train.py(88): train_step", func() {
				r.frame("metrics.py(12): confusion_matrix", func() { r.now += r.about(4 * ms) })
			})
		})},
		{name: "logging in an annotation", want: []string{"host_work"}, gain: true, run: logged(func(r *rank) {
			r.annotate("write_summary", func() { r.now += r.about(3 * ms) })
		})},
		{name: "reads of single numbers", want: []string{"synchronization"}, gain: true, run: func(s *sim, sick bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 12 {
						r.layers(1)
						if sick {
							r.item()
							r.now += r.about(150 * us)
						}
					}
				})
			})
		}},
		{name: "small kernels", want: []string{"launch_bound"}, only: Eager, run: func(s *sim, _ bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 400 {
						r.operator("aten::add_", `"Input Dims":[[4096],[4096]],"Input type":["float","float"]`, kernel{
							name: "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", duration: 3 * us,
							blocks: 8,
						})
					}
				})
			})
		}},
		{name: "memory allocated in each step", want: []string{"allocation"}, gain: true, run: logged(func(r *rank) {
			r.call("cudaFree", r.about(1*ms))
			r.call("cudaMalloc", r.about(2*ms))
		})},
		{name: "pageable batches", want: []string{"pageable_copies"}, gain: true, run: logged(func(r *rank) {
			r.copyIn(40_000_000, 6, true, computing)
		})},
		{name: "pinned batches in the way", want: []string{"exposed_copies"}, gain: true, run: train(func(r *rank) {
			r.copyIn(100_000_000, 22, false, computing)
		})},
		{
			name: "gradients after the backward pass", want: []string{"exposed_communication"}, ranks: 2, gain: true,
			run: func(s *sim, sick bool) {
				s.steps(10, func(int) {
					s.each(func(r *rank) { r.layers(12) })
					if sick {
						for range 4 {
							s.collective(s.everybody(), "allreduce", 50_000_000, 1200*us, talking)
						}
						s.join(upTo(len(s.ranks)), talking)
					}
				})
			},
		},
		{name: "other rank late", want: []string{"late_rank"}, ranks: 4, gain: true, run: func(s *sim, sick bool) {
			s.steps(12, func(step int) {
				s.each(func(r *rank) {
					r.layers(8)
					if sick && r.number == 2 && step%3 != 0 {
						r.layers(4)
					}
				})
				s.collective(s.everybody(), "allreduce", 4_000_000, 120*us, talking)
				s.join(upTo(len(s.ranks)), talking)
			})
		}},
		{name: "small products", want: []string{"low_efficiency"}, gain: true, run: func(s *sim, sick bool) {
			share := 0.7
			if sick {
				share = 0.25
			}
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					r.layers(6)
					for range 12 {
						r.matmul(2048, 4096, share)
					}
				})
			})
		}, only: Eager},
		{name: "products in FP32", want: []string{"single_precision"}, only: Eager, run: func(s *sim, _ bool) {
			const flops = 2.0 * 2048 * 4096 * 4096
			s.steps(6, func(int) {
				s.each(func(r *rank) {
					for range 12 {
						r.norm()
						r.operator("aten::mm", `"Input Dims":[[2048,4096],[4096,4096]],"Input type":["float","float"]`, kernel{
							name: "ampere_sgemm_128x128_nn", duration: nanoseconds(flops / (0.85 * peakFP32)), blocks: 512,
						})
					}
				})
			})
		}},
		{name: "few blocks", want: []string{"low_parallelism"}, only: Eager, run: func(s *sim, _ bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 40 {
						r.operator("custom::selective_scan", "", kernel{
							name: "selective_scan_fwd_kernel", duration: 300 * us, blocks: 16,
						})
					}
				})
			})
		}},
		{name: "lower clock for a while", want: []string{"throttle"}, gain: true, run: func(s *sim, sick bool) {
			s.steps(24, func(step int) {
				s.each(func(r *rank) {
					r.slow = 1
					if sick && step >= 10 && step < 20 {
						r.slow = 1.4
					}
					r.layers(8)
				})
			})
		}},
		{name: "changes of layout", want: []string{"data_movement"}, gain: true, only: Eager, run: func(s *sim, sick bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 12 {
						r.layer()
						if sick {
							for range 2 {
								r.elementwise("aten::copy_", "void at::native::elementwise_kernel<128, 4, "+
									"at::native::direct_copy_kernel_cuda>", 64<<20, 0.8)
							}
						}
					}
				})
			})
		}},
		{name: "attention in parts", want: []string{"unfused_attention"}, only: Eager, run: func(s *sim, _ bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 12 {
						r.norm()
						r.matmul(2048, 12288, 0.74)
						r.unfused()
						r.matmul(2048, 4096, 0.72)
					}
				})
			})
		}},
		{name: "chains of elementwise operators", want: []string{"fusion"}, only: Eager, run: func(s *sim, _ bool) {
			s.steps(10, func(int) {
				s.each(func(r *rank) {
					for range 8 {
						r.layer()
						for _, op := range []string{"mul", "add", "sigmoid", "sub", "tanh"} {
							r.elementwise("aten::"+op, fmt.Sprintf("void at::native::vectorized_elementwise_kernel<4, "+
								"at::native::%s_kernel_cuda>", op), 64<<20, 0.8)
						}
					}
				})
			})
		}},
		{
			name: "compute waits for a copy by an event", want: []string{"exposed_copies"}, gain: true,
			run: logged(func(r *rank) {
				end := r.copyIn(80_000_000, 22, false, copying)
				r.after(computing, end)
			}),
		},
		{name: "modules loaded at first use", want: []string{"slow_runtime_calls"}, gain: true, run: func(s *sim, sick bool) {
			s.steps(6, func(step int) {
				s.each(func(r *rank) {
					r.layers(6)
					if sick && step < 4 {
						r.item()
						r.call("cudaFuncGetAttributes", r.about(9*ms))
					}
				})
			})
		}},
		{
			name: "barrier on the host", want: []string{"waiting_for_rank"}, ranks: 2, gain: true,
			run: logged(func(r *rank) { r.host("cpu_op", "gloo:barrier", "", func() { r.now += r.about(4 * ms) }) }),
		},
		{name: "buffers of the profiler", want: []string{"profiler_overhead"}, gain: true, run: logged(func(r *rank) {
			r.host("overhead", "Activity Buffer Request", "", func() { r.now += r.about(3 * ms) })
		})},
	}
}

// two causes; the larger is first.
func mixed() []cause {
	small := func(d int64) func(r *rank) { return func(r *rank) { load(r, d) } }
	return []cause{
		{name: "loader before some logging", want: []string{"loader"}, run: logged(func(r *rank) {
			load(r, 5*ms)
			r.annotate("write_summary", func() { r.now += r.about(1500 * us) })
		})},
		{name: "logging before a little loading", want: []string{"host_work"}, run: logged(func(r *rank) {
			small(1 * ms)(r)
			r.annotate("write_summary", func() { r.now += r.about(5 * ms) })
		})},
		{name: "allocation and pageable copies", want: []string{"allocation"}, run: logged(func(r *rank) {
			r.call("cudaMalloc", r.about(6*ms))
			r.copyIn(12_000_000, 6, true, computing)
		})},
		{name: "pageable copies and allocation", want: []string{"pageable_copies"}, run: logged(func(r *rank) {
			r.call("cudaMalloc", r.about(1200*us))
			r.copyIn(40_000_000, 6, true, computing)
		})},
		{name: "communication and loading", want: []string{"exposed_communication"}, ranks: 8, run: func(s *sim, _ bool) {
			s.steps(8, func(int) {
				s.each(func(r *rank) {
					r.layers(8)
					r.item()
					small(1 * ms)(r)
				})
				for range 3 {
					s.collective(s.everybody(), "allreduce", 80_000_000, 2*ms, talking)
				}
				s.join(upTo(len(s.ranks)), talking)
			})
		}},
	}
}

func healthy() []cause {
	return []cause{
		{name: "host ahead of the device", want: []string{Healthy}, run: train(func(*rank) {})},
		{name: "loader hidden by the queue", want: []string{Healthy}, run: train(func(r *rank) { load(r, 300*us) })},
		{name: "hidden communication", want: []string{Healthy}, ranks: 8, run: func(s *sim, _ bool) {
			s.steps(8, func(int) {
				s.each(func(r *rank) { r.layers(2) })
				for range 4 {
					s.collective(s.everybody(), "allreduce", 10_000_000, 400*us, talking)
					s.each(func(r *rank) { r.layers(4) })
				}
				s.join(upTo(len(s.ranks)), talking)
			})
		}},
		{name: "prefetched pinned batches", want: []string{Healthy}, run: train(func(r *rank) {
			r.copyIn(20_000_000, 22, false, copying)
		})},
	}
}

// unfused adds the attention of [rank.attention] in parts that write their scores.
func (r *rank) unfused() {
	const flops, scores = 2.0 * 2048 * 2048 * 128 * 32, 32.0 * 2048 * 2048
	product := func(a, b string) {
		r.operator("aten::bmm", fmt.Sprintf(`"Input Dims":[%s,%s],"Input type":["c10::BFloat16","c10::BFloat16"]`, a, b),
			kernel{
				name:     "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_tn",
				duration: nanoseconds(flops / (0.6 * peakBF16)), blocks: 4096,
			})
	}
	pass := nanoseconds(2 * scores * 2 / (0.8 * bandwidth))
	product("[32,2048,128]", "[32,128,2048]")
	r.operator("aten::mul", `"Input Dims":[[32,2048,2048],[]],"Input type":["c10::BFloat16","double"]`, kernel{
		name:     "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>>",
		duration: pass, blocks: 65536,
	})
	r.operator("aten::_softmax", `"Input Dims":[[32,2048,2048],[],[]],"Input type":["c10::BFloat16","Scalar","Scalar"]`,
		kernel{
			name:     "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11>",
			duration: pass, blocks: 16384,
		})
	product("[32,2048,2048]", "[32,2048,128]")
}
