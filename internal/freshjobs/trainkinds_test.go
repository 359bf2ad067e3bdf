// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"fmt"
)

// kind is a job that people have, with the first findings that are right: the cause whose removal
// saves most, and close synonyms. The build function gets the cause as s.x, the microseconds that
// it costs a step; x of 0 is the job without the cause.
type kind struct {
	name   string
	accept string // kinds of findings, separated by spaces
	format string // kineto if empty
	also   string // kinds that are right, too, in the last variant, where the host is the limit even if it never waits
	fixed  bool   // the cause has a fixed size, or there is none
	models []model
	build  func(s *sim)
}

var big = []model{h100, a100, b200}

// syncs are n reads of small values with tiny kernels between, which cost about us.
func (s *sim) syncs(us float64, op string) {
	for range int(us / 42) {
		s.op(op, "8192", func() {
			s.launch(kern{name: "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<bool, at::native::func_wrapper_t<bool, at::native::or_kernel_cuda(at::TensorIterator&)::{lambda()#1}> > >", dur: 4, blocks: 132})
			s.copyTo("DtoH", "Pinned", 8, 7)
			s.wait("cudaStreamSynchronize", 7)
		})
		s.host(14)
	}
}

var trainKinds = []kind{
	{name: "pretraining compiled", accept: "healthy", fixed: true, models: big, build: func(s *sim) {
		s.secondary = 0
		s.steps(5, func(int) { s.nextBatch("_MultiProcessingDataLoaderIter", 0); s.train(medium) })
	}},
	{name: "pretraining compiled with stacks", accept: "healthy", fixed: true, models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) { s.nextBatch("_MultiProcessingDataLoaderIter", 0); s.train(medium) })
	}},
	{name: "images decoded in the training process", accept: "loader", models: []model{a100, l40s}, build: func(s *sim) {
		s.steps(5, func(int) { s.nextBatch("_SingleProcessDataLoaderIter", s.x); s.batch(1 << 20); s.cnn(64) })
	}},
	{name: "too few loader workers", accept: "loader", models: big, build: func(s *sim) {
		s.stacks = s.IntN(2) == 0
		s.steps(6, func(i int) {
			late := 0.0
			if i%2 == 1 {
				late = 2 * s.x
			}
			s.nextBatch("_MultiProcessingDataLoaderIter", late)
			s.train(medium)
		})
	}},
	{name: "loader of PyTorch 1.8", accept: "loader", format: "kineto2021", models: []model{v100}, build: func(s *sim) {
		s.steps(5, func(int) { s.nextBatch("_SingleProcessDataLoaderIter", s.x); s.batch(1 << 20); s.cnn(32) })
	}},
	{name: "tokenizing in the loop", accept: "host_work loader", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(int) {
			s.frame("finetune.py(61): collate", func() {
				for range 4 {
					s.frame("transformers/tokenization_utils_fast.py(532): _batch_encode_plus", func() { s.busyHost(s.x / 4) })
				}
			})
			s.train(medium)
		})
	}},
	{name: "streaming data set of Hugging Face", accept: "loader", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(int) {
			s.frame("datasets/iterable_dataset.py(2270): __iter__", func() {
				s.frame("datasets/iterable_dataset.py(1119): _iter_pytorch", func() { s.busyHost(s.x) })
			})
			s.train(medium)
		})
	}},
	{name: "neighbor sampling of a graph network", accept: "loader host_work", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(6, func(int) {
			s.frame("torch_geometric/loader/node_loader.py(147): filter_fn", func() {
				s.frame("torch_geometric/sampler/neighbor_sampler.py(191): sample_from_nodes", func() { s.busyHost(s.x) })
			})
			s.batch(8 << 20)
			s.train(size{8, 512, 2048, 16, 3})
		})
	}},
	{name: "video decoding in the main process", accept: "loader host_work", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(int) {
			s.nextBatch("_SingleProcessDataLoaderIter", 20)
			s.frame("dataset/clips.py(40): __getitem__", func() {
				s.frame("decord/video_reader.py(165): get_batch", func() { s.busyHost(s.x) })
			})
			s.train(medium)
		})
	}},
	{name: "augmentation on the CPU between steps", accept: "host_work loader", models: []model{a100, l40s}, build: func(s *sim) {
		s.steps(5, func(int) {
			s.note("augment", func() {
				for range 8 {
					s.op("torchvision::_cpu_resize", "3x640x480:float", func() { s.busyHost(s.x / 8) })
				}
			})
			s.cnn(64)
		})
	}},
	{name: "metrics of the validation on the CPU", accept: "host_work", models: big, build: func(s *sim) {
		s.stacks = true
		s.noSteps = true
		s.steps(7, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.op("aten::to", "8192x32000", func() {
				s.op("aten::_to_copy", "8192x32000", func() {
					s.op("aten::copy_", "8192x32000 8192x32000", func() { s.copyTo("DtoH", "Pinned", 1<<18, 7); s.wait("cudaStreamSynchronize", 7) })
				})
			})
			s.frame("sklearn/metrics/_ranking.py(560): roc_auc_score", func() {
				s.frame("numpy/core/fromnumeric.py(1025): argsort", func() { s.busyHost(s.x) })
			})
		})
	}},
	{name: "loss checked for NaN in each expert", accept: "synchronization", also: "launch_bound", models: big, build: func(s *sim) {
		s.steps(4, func(int) { s.train(size{4, 1024, 2048, 16, 2}); s.syncs(s.x, "aten::nonzero") })
	}},
	{name: "expert loop that reads counts", accept: "synchronization", also: "launch_bound host_work", models: []model{h100, mi300x}, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			s.frame("models/mixtral.py(88): forward", func() {
				for range int(s.x / 110) {
					s.host(40)
					s.op("aten::item", "1", func() {
						s.op("aten::_local_scalar_dense", "1", func() { s.copyTo("DtoH", "Pinned", 4, 7); s.wait("cudaStreamSynchronize", 7) })
					})
					s.op("aten::index", "8192x2048 64:int", func() { s.launch(s.pointwise("index_kernel", 64*2048, 2)) })
					s.mm(512, 2048, 1024)
				}
			})
		})
	}},
	{name: "time measured by a synchronization after each layer", accept: "synchronization", also: "launch_bound", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			for range int(s.x / 55) {
				s.elementwise("mul", "MulFunctor<c10::BFloat16>", 4096, 2048, 1)
				s.wait("cudaDeviceSynchronize")
				s.frame("utils/timers.py(64): elapsed", func() { s.host(20) })
			}
		})
	}},
	{name: "small model without fusion", accept: "launch_bound", models: []model{h100, a100, l40s, mi300x}, build: func(s *sim) {
		s.steps(5, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			s.hostScale = 3
			defer func() { s.hostScale = 1 }()
			for range int(s.x / 25) {
				s.elementwise("add", "CUDAFunctor_add<c10::BFloat16>", 64, 128, 2)
			}
		})
	}},
	{name: "optimizer that loops over tensors", accept: "launch_bound", models: big, build: func(s *sim) {
		s.stacks = s.IntN(2) == 0
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			s.note("Optimizer.step#Adam.step", func() {
				s.frame("torch/optim/adam.py(345): _single_tensor_adam", func() {
					for range int(s.x / 52) {
						for _, op := range []string{"lerp_", "mul_", "addcmul_", "addcdiv_"} {
							s.elementwise(op, "MulFunctor<float>", 32, 64, 2)
						}
					}
				})
			})
		})
	}},
	{name: "adapters of LoRA", accept: "launch_bound", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			for i := range int(s.x / 44) {
				s.module(fmt.Sprintf("lora.Linear_%d", i), func() {
					s.linear(64, 2048, 16)
					s.linear(64, 16, 2048)
					s.elementwise("add", "CUDAFunctor_add<c10::BFloat16>", 64, 2048, 2)
				})
			}
		})
	}},
	{name: "small network on an AMD device", accept: "launch_bound", models: []model{mi300x}, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			s.hostScale = 3
			defer func() { s.hostScale = 1 }()
			for range int(s.x / 25) {
				s.elementwise("mul", "BinaryFunctor<float, float, float, MulFunctor<float>>", 64, 64, 2)
			}
		})
	}},
	{name: "batches copied from pageable memory", accept: "pageable_copies", models: big, build: func(s *sim) {
		s.steps(5, func(int) {
			s.op("aten::to", "64x3x512x512:float", func() {
				s.op("aten::_to_copy", "64x3x512x512:float", func() {
					s.op("aten::copy_", "64x3x512x512:float 64x3x512x512:float", func() {
						s.copyTo("HtoD", "Pageable", int64(s.x*7500)+4096, 7)
						s.wait("cudaStreamSynchronize", 7)
					})
				})
			})
			s.forward(medium)
			s.backward(medium, nil)
			s.adam(medium.params())
		})
	}},
	{name: "pinned batches on the stream that computes", accept: "exposed_copies", models: big, build: func(s *sim) {
		s.steps(5, func(int) { s.batch(int64(s.x * 25000)); s.train(medium) })
	}},
	{name: "activations offloaded to the host", accept: "exposed_copies", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.frame("torch/autograd/graph.py(334): pack_to_cpu", func() {
				for range 4 {
					s.op("aten::copy_", "8192x2048 8192x2048", func() { s.copyTo("DtoH", "Pinned", int64(s.x*25000/8), 7) })
				}
			})
			s.backward(medium, nil)
			s.frame("torch/autograd/graph.py(345): unpack_from_cpu", func() {
				for range 4 {
					s.op("aten::copy_", "8192x2048 8192x2048", func() { s.copyTo("HtoD", "Pinned", int64(s.x*25000/8), 7) })
				}
			})
			s.adam(medium.params())
		})
	}},
	{name: "prefetch on a second stream that is not early enough", accept: "exposed_copies", models: big, build: func(s *sim) {
		s.steps(5, func(int) {
			s.op("aten::copy_", "64x3x512x512:float 64x3x512x512:float", func() { s.copyTo("HtoD", "Pinned", int64(s.x*25000)+1000, 20) })
			s.after(7, 20)
			s.after(20, 7)
			s.forward(medium)
			s.backward(medium, nil)
			s.adam(medium.params())
			s.after(20, 7)
		})
	}},
	{name: "checkpoint within the loop", accept: "checkpoint", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(6, func(i int) {
			s.train(medium)
			if i%3 == 2 {
				s.frame("trainer.py(410): save", func() {
					s.frame("torch/serialization.py(943): save", func() {
						s.frame("torch/serialization.py(1190): _save", func() {
							s.op("aten::copy_", "2048x2048 2048x2048", func() { s.copyTo("DtoH", "Pageable", 1<<22, 7); s.wait("cudaStreamSynchronize", 7) })
							s.frame("<built-in method write_record of PyCapsule object at 0x7f11>", func() { s.busyHost(3 * s.x) })
						})
					})
				})
			}
		})
	}},
	{name: "distributed checkpoint, annotated", accept: "checkpoint", models: big, build: func(s *sim) {
		s.steps(6, func(i int) {
			s.train(medium)
			if i == 3 {
				s.note("save_checkpoint", func() {
					s.op("aten::copy_", "2048x2048 2048x2048", func() { s.copyTo("DtoH", "Pinned", 1<<24, 7); s.wait("cudaStreamSynchronize", 7) })
					s.busyHost(6 * s.x)
				})
			}
		})
	}},
	{name: "memory allocated and freed in each step", accept: "allocation", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(medium)
			n := int(s.x / 700)
			s.wait("cudaDeviceSynchronize")
			for range max(n, 0) {
				s.op("aten::empty", "", func() { s.call("cudaMalloc", 450) })
				s.elementwise("fill_", "FillFunctor<float>", 64, 1024, 1)
				s.call("cudaFree", 250)
			}
		})
	}},
	{name: "cache emptied after each step", accept: "allocation", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.train(medium)
			if s.x > 0 {
				s.frame("torch/cuda/memory.py(222): empty_cache", func() {
					s.frame("<built-in function _cuda_emptyCache>", func() {
						s.wait("cudaDeviceSynchronize")
						for range 8 {
							s.call("cudaFree", s.x/16)
						}
					})
				})
				for range 8 {
					s.op("aten::empty", "", func() { s.call("cudaMalloc", s.x/16) })
				}
			}
		})
	}},
	{name: "recompilation for a new length", accept: "compilation", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(i int) {
			if i == 2 {
				s.frame("torch/_dynamo/convert_frame.py(1371): __call__", func() {
					s.note("_compile.compile_inner (dynamo_timed)", func() {
						s.frame("torch/_inductor/compile_fx.py(1550): compile_fx", func() {
							s.note("compile_fx_inner (dynamo_timed)", func() { s.busyHost(5 * s.x * 0.7) })
							s.frame("torch/_inductor/async_compile.py(346): wait", func() { s.busyHost(5 * s.x * 0.3) })
						})
					})
				})
			}
			s.train(medium)
		})
	}},
	{name: "Triton kernels compiled at first use", accept: "compilation warm_up", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(i int) {
			if i == 1 {
				s.frame("triton/runtime/jit.py(330): <lambda>", func() {
					for range 3 {
						s.frame("triton/compiler/compiler.py(226): compile", func() {
							s.busyHost(5 * s.x / 3)
							s.call("cuModuleLoadData", 200)
						})
					}
				})
			}
			s.train(medium)
		})
	}},
	{name: "Triton configurations tried out", accept: "autotuning", models: []model{h100, a100}, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(i int) {
			if i == 1 && s.x > 0 {
				s.frame("triton/runtime/autotuner.py(186): run", func() {
					for c := range 12 {
						s.frame("triton/testing.py(96): do_bench", func() {
							for range 6 {
								s.launch(kern{name: fmt.Sprintf("triton_mm_kernel_%d", c), dur: 5 * s.x / 12 / 6 * (0.7 + 0.05*float64(c)), blocks: 512, threads: 128})
							}
							s.wait("cudaDeviceSynchronize")
						})
					}
				})
			}
			s.train(medium)
		})
	}},
}
