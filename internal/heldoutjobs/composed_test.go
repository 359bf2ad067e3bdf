// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// composed is a job of the development set: a program, a cause of a share, a second cause that
// costs less, and a format, all drawn from one seed. Its truth is what the program without the
// cause would save.
type composed struct {
	seed          uint64
	format        format
	program       composedProgram
	cause, second *cause
	size, small   float64 // microseconds of a step
	noted         bool
}

type format struct {
	name   string
	style  Style // of the session
	frames bool
	amd    bool
	merged bool
	ranges bool
	shapes bool
}

func formats() []format {
	return []format{
		{name: "PyTorch with frames", style: Full, frames: true, ranges: true, shapes: true},
		{name: "PyTorch with shapes", style: Unstacked, ranges: true, shapes: true},
		{name: "PyTorch without shapes", style: Unstacked, ranges: true},
		{name: "older PyTorch", style: Sparse, ranges: true},
		{name: "PyTorch on ROCm", style: Full, frames: true, amd: true, ranges: true, shapes: true},
		{name: "merged SGLang", style: Full, frames: true, merged: true, ranges: true, shapes: true},
		{name: "Nsight with ranges", style: Nsight, ranges: true},
		{name: "Nsight", style: Nsight},
		{name: "rocprofv3 with ranges", style: Rocprof, amd: true, ranges: true},
		{name: "rocprofv3", style: Rocprof, amd: true},
	}
}

// cause costs about size microseconds of a step at a place where the device has nothing queued, or
// on the device.
type cause struct {
	name  string
	want  func(f format) []string
	only  func(f format) bool
	plant func(p *session, size float64, step int)
	place string // "host": after a wait, before new work; "device": in the middle of the work
	long  bool   // the size is of single steps
}

func always(kinds ...string) func(format) []string { return func(format) []string { return kinds } }

// framed wants kinds from frames, and host_work if the file has none.
func framed(kinds ...string) func(format) []string {
	return func(f format) []string {
		if f.frames {
			return kinds
		}
		return []string{"host_work"}
	}
}

// named wants kinds from frames or ranges.
func named(kinds ...string) func(format) []string {
	return func(f format) []string {
		if f.frames || f.ranges {
			return kinds
		}
		return []string{"host_work"}
	}
}

func (p *session) pick(lists ...[]string) []string { return lists[int(p.salt%uint64(len(lists)))] }

// inFrames lets the host work in one of several chains of frames.
func inFrames(lists ...[]string) func(p *session, size float64, step int) {
	return func(p *session, size float64, _ int) { p.spend(size, p.pick(lists...)...) }
}

// ranged also has a range around it.
func ranged(names []string, lists ...[]string) func(p *session, size float64, step int) {
	return func(p *session, size float64, _ int) {
		note := p.note
		if p.style == Full && p.salt/64%2 == 0 {
			note = func(_ string, f func()) { f() }
		}
		note(names[p.salt%uint64(len(names))], func() { p.spend(size, p.pick(lists...)...) })
	}
}

func pieces(size, each float64, f func()) {
	for range max(1, int(size/each)) {
		f()
	}
}

func causes() []cause {
	frames := func(f format) bool { return f.frames }
	ops := func(f format) bool { return f.style != Nsight && f.style != Rocprof }
	shapes := func(f format) bool { return f.shapes && !f.amd }
	nvidia := func(f format) bool { return !f.amd }
	l := func(s ...string) []string { return s }
	elementwise := "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}> >(int, at::native::gpu_kernel_impl)"
	list := []cause{
		{name: "loader", place: "host", want: named("loader"), plant: ranged(
			l("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "data loading", "dataloader", "load_batch", "next_batch", "fetch data"),
			l("torch/utils/data/dataloader.py(708): __next__", "torch/utils/data/dataloader.py(1458): _next_data", "torch/utils/data/dataloader.py(1410): _get_data", "queue.py(154): get", "threading.py(327): wait", "<method 'acquire' of '_thread.lock' objects>"),
			l("webdataset/pipeline.py(64): iterator", "webdataset/tariterators.py(140): tar_file_expander", "tarfile.py(2600): next"),
			l("datasets/arrow_dataset.py(2720): __getitem__", "datasets/formatting/formatting.py(590): query_table", "<built-in method take of pyarrow>"),
			l("torch/utils/data/_utils/fetch.py(54): fetch", "my_data.py(88): __getitem__", "PIL/Image.py(2200): resize"),
			l("nvidia/dali/plugin/pytorch.py(220): __next__", "nvidia/dali/pipeline.py(1050): share_outputs"),
			l("ffcv/loader/epoch_iterator.py(150): __next__", "queue.py(154): get"),
			l("streaming/base/dataset.py(1400): __iter__", "streaming/base/dataset.py(1300): _each_sample_id"),
		)},
		{name: "host work in a function", place: "host", want: always("host_work"), plant: inFrames(
			l("train.py(220): shuffle_targets", "numpy/lib/function_base.py(300): percentile"), l("engine/scheduler.py(90): schedule", "engine/scheduler.py(130): sort_waiting"),
			l("rl/env.py(44): step", "<built-in method step of sim>"), l("tokenization.py(900): batch_decode", "tokenization.py(640): decode"),
			l("metrics.py(12): compute_bleu", "collections/__init__.py(600): update"), l("<built-in function collect>"),
			l("sampler.py(33): sample_neighbors", "scipy/sparse/csr.py(80): __getitem__"), l("wandb/sdk/wandb_run.py(1800): log", "json/encoder.py(180): encode"),
			l("requests/sessions.py(500): request", "<method 'recv' of '_socket.socket' objects>"), l("viz.py(8): plot_losses", "matplotlib/figure.py(3300): savefig"),
		)},
		{name: "host work in pieces", place: "device", want: always("host_work", "launch_bound"), only: frames, plant: func(p *session, size float64, _ int) {
			p.spend(size, p.pick(l("router.py(50): plan_experts"), l("kv_cache.py(70): allocate_blocks"), l("masks.py(21): build_mask"))...)
			p.mm(20)
		}},
		{name: "pageable input", place: "host", want: func(f format) []string {
			if f.style == Rocprof || f.amd {
				return l("exposed_copies", "pageable_copies")
			}
			return l("pageable_copies")
		}, plant: func(p *session, size float64, _ int) {
			p.op("aten::to", "", "", func() { p.copy("cudaMemcpyAsync", "Pageable", "Device", int64(size*1000*6), 6, 7) })
		}},
		{name: "pageable results", place: "host", want: func(f format) []string {
			if f.style == Rocprof || f.amd {
				return l("exposed_copies", "pageable_copies")
			}
			return l("pageable_copies")
		}, plant: func(p *session, size float64, _ int) {
			p.op("aten::copy_", "", "", func() { p.copy("cudaMemcpyAsync", "Device", "Pageable", int64(size*1000*5), 5, 7) })
		}},
		{name: "pinned copies", place: "device", want: always("exposed_copies"), plant: func(p *session, size float64, _ int) {
			p.op("aten::copy_", "", "", func() { p.copy("cudaMemcpyAsync", "Pinned", "Device", int64(size*1000*24), 24, 7) })
		}},
		{name: "offloading", place: "device", want: always("exposed_copies"), plant: func(p *session, size float64, _ int) {
			for range 6 {
				p.follow(side, 7)
				p.copy("cudaMemcpyAsync", "Device", "Pinned", int64(size*1000*22/6), 22, side)
				p.follow(7, side)
			}
		}},
		{name: "numbers read", place: "device", want: always("synchronization"), plant: func(p *session, size float64, _ int) {
			pieces(size, 60, func() {
				p.mm(12)
				p.py(p.item, "<method 'item' of 'torch._C.TensorBase' objects>")
				p.spend(25, "train.py(90): check")
			})
		}},
		{name: "device synchronized", place: "device", want: always("synchronization", "launch_bound"), plant: func(p *session, size float64, _ int) {
			pieces(size, 40, func() {
				p.mm(15)
				p.py(func() { p.sync("cudaDeviceSynchronize", 0) }, "torch/cuda/__init__.py(985): synchronize")
				p.cpu(18)
			})
		}},
		{name: "small kernels", place: "device", want: always("launch_bound"), plant: func(p *session, size float64, _ int) {
			p.sync("cudaStreamSynchronize", 7)
			pieces(size, 8, func() { p.map1("aten::add", "CUDAFunctor_add<float>", 2.2); p.cpu(3) })
		}},
		{name: "allocation", place: "host", want: always("allocation"), plant: func(p *session, size float64, _ int) {
			p.op("aten::empty", "", "", func() {
				for _, name := range p.pick(l("cudaFree", "cudaMalloc"), l("cudaMalloc"), l("cudaHostAlloc"), l("cudaMalloc", "cudaFree", "cudaMalloc")) {
					p.runtime(name, p.vary(size/2, 0.2))
				}
			})
		}},
		{name: "compilation", place: "host", want: framed("compilation"), only: frames, plant: inFrames(
			l("torch/_dynamo/convert_frame.py(1180): __call__", "torch/_dynamo/convert_frame.py(700): compile_inner", "torch/_inductor/graph.py(2100): compile_to_module", "torch/_inductor/codecache.py(2800): load"),
			l("torch/_inductor/async_compile.py(400): wait", "concurrent/futures/_base.py(430): result"),
			l("triton/runtime/jit.py(600): run", "triton/compiler/compiler.py(280): compile", "subprocess.py(1100): run"),
			l("torch/utils/cpp_extension.py(1700): load", "subprocess.py(550): run"), l("numba/cuda/dispatcher.py(500): compile", "numba/core/compiler.py(300): compile_extra"),
			l("jax/_src/compiler.py(300): backend_compile"), l("cupy/cuda/compiler.py(340): compile_using_nvrtc"),
			l("flashinfer/jit/core.py(150): build_and_load", "flashinfer/jit/cpp_ext.py(200): run_ninja"),
			l("tilelang/jit/__init__.py(200): compile"), l("deep_gemm/jit/compiler.py(90): build"),
		)},
		{name: "checkpoint", place: "host", want: named("checkpoint"), plant: ranged(l("save checkpoint", "checkpoint", "save_model", "Checkpointing"),
			l("torch/serialization.py(950): save", "torch/serialization.py(1200): _save", "<method 'write_record' of 'torch._C.PyTorchFileWriter' objects>"),
			l("torch/distributed/checkpoint/state_dict_saver.py(150): save", "torch/distributed/checkpoint/filesystem.py(600): write_data"),
			l("safetensors/torch.py(280): save_file"), l("transformers/trainer.py(3100): _save_checkpoint", "json/__init__.py(120): dump"),
			l("lightning/pytorch/trainer/trainer.py(1400): save_checkpoint", "fsspec/core.py(100): open"),
			l("megatron/training/checkpointing.py(420): save_checkpoint", "zipfile.py(1800): write"), l("orbax/checkpoint/checkpointer.py(200): save"),
			l("my/utils.py(10): save_checkpoint", "pickle.py(1): dump"))},
		{name: "collective", place: "device", want: always("exposed_communication"), plant: func(p *session, size float64, _ int) {
			for range 4 {
				collective([]*session{p}, "allreduce", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", []int64{int64(size * 1000 * 200 / 4)}, 200, true)
			}
		}},
		{name: "throttle", place: "throttle", want: always("throttle"), long: true},
		{name: "one slow step", place: "host", long: true, want: always("host_work", "uneven_steps"), plant: inFrames(
			l("train.py(300): rebalance"), l("callbacks.py(77): on_step"), l("<built-in method gc.collect>"))},
		{name: "first launches", place: "host", long: true, want: always("slow_runtime_calls", "warm_up"), plant: func(p *session, size float64, _ int) {
			pieces(size, size/4, func() {
				p.op("aten::mul_", "", "", func() {
					c := p.runtime("cudaLaunchKernel", p.vary(size/4, 0.1))
					p.place(work{kind: kernel, name: "void scale_kernel<float>(float*)", stream: 7, blocks: 1320, threads: 256, registers: 64}, c, p.now+1800, p.now+9000)
				})
			})
		}},
		{name: "no requests", place: "host", want: always("no_load"), only: frames, plant: inFrames(
			l("asyncio/base_events.py(1900): _run_once", "selectors.py(450): select", "<method 'poll' of 'select.epoll' objects>"),
			l("vllm/v1/engine/core.py(700): _process_input_queue", "queue.py(170): get", "threading.py(320): wait"),
			l("sglang/srt/managers/scheduler.py(900): recv_requests", "zmq/sugar/socket.py(980): recv_pyobj"),
			l("uvicorn/server.py(70): run", "asyncio/runners.py(100): run", "asyncio/base_events.py(640): run_until_complete", "selectors.py(450): select", "<method 'poll' of 'select.epoll' objects>"))},
		{name: "layout", place: "device", want: always("data_movement"), only: ops, plant: func(p *session, size float64, _ int) {
			for range 5 {
				p.op("aten::contiguous", "[[4096,8192]]", `["c10::BFloat16"]`, func() {
					p.op("aten::copy_", fmt.Sprintf("[[%d],[%d],[]]", int(size/5*0.8*3.35e6/4), int(size/5*0.8*3.35e6/4)), `["c10::BFloat16","c10::BFloat16","Scalar"]`, func() { p.k(elementwise, size/5) })
				})
			}
		}},
		{name: "elementwise chain", place: "device", want: always("fusion"), only: shapes, plant: func(p *session, size float64, _ int) {
			for _, s := range [][2]string{{"aten::mul", "MulFunctor<float>"}, {"aten::add", "CUDAFunctor_add<float>"}, {"aten::gelu", "GeluCUDAKernelImpl"}, {"aten::mul", "MulFunctor<float>"}, {"aten::add", "CUDAFunctor_add<float>"}, {"aten::sigmoid", "sigmoid_kernel_cuda"}} {
				p.map1(s[0], s[1], size/6)
			}
		}},
		{name: "single precision", place: "device", want: always("single_precision"), only: shapes, plant: func(p *session, size float64, _ int) {
			p.op("aten::mm", mmDims(size, 46e12), `["float","float"]`, func() {
				p.k("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x256_8x4_nn_align1>(cutlass_80_simt_sgemm_128x256_8x4_nn_align1::Params)", size)
			})
		}},
		{name: "slow product", place: "device", want: always("low_efficiency"), only: shapes, plant: func(p *session, size float64, _ int) {
			p.op("aten::bmm", fmt.Sprintf("[[16,%d,1024],[16,1024,1024]]", max(1, int(size*1e-6*200e12/(2*16*1024*1024)))), bf16s, func() { p.k(gemm, size) })
		}},
		{name: "few blocks", place: "device", want: always("low_parallelism", "low_efficiency"), only: func(f format) bool { return !f.amd && f.style != Sparse }, plant: func(p *session, size float64, _ int) {
			for range 4 {
				p.op("aten::cumsum", "[[8,200000],[],[]]", `["float","Scalar",""]`, func() {
					p.k("void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*, unsigned int, unsigned int, unsigned int, float, std::plus<float>)", size/4, grid(8, 512))
				})
			}
		}},
		{name: "unfused attention", place: "device", want: always("unfused_attention"), only: shapes, plant: func(p *session, size float64, _ int) {
			n := 2048
			s := fmt.Sprintf("[64,%d,%d]", n, n)
			for range 4 {
				p.op("aten::bmm", fmt.Sprintf("[[64,%d,128],[64,128,%d]]", n, n), bf16s, func() { p.k(gemm, size/16) })
				p.op("aten::div", "["+s+"]", `["c10::BFloat16"]`, func() {
					p.k("void at::native::vectorized_elementwise_kernel<4, at::native::BUnaryFunctor<at::native::DivFunctor>, std::array<char*, 2ul> >", size/16)
				})
				p.op("aten::_softmax", "["+s+",[],[]]", `["c10::BFloat16","Scalar","Scalar"]`, func() {
					p.k("void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, c10::BFloat16>", size/16, grid(131072, 256))
				})
				p.op("aten::bmm", fmt.Sprintf("[%s,[64,%d,128]]", s, n), bf16s, func() { p.k(gemm, size/16) })
			}
		}},
		{name: "waits for another rank", place: "host", want: always("waiting_for_rank"), only: frames, plant: inFrames(
			l("torch/distributed/distributed_c10d.py(4700): barrier", "<built-in method barrier>"), l("torch/distributed/distributed_c10d.py(3100): all_gather_object"),
			l("torch/distributed/distributed_c10d.py(4600): monitored_barrier"), l("megatron/core/utils.py(10): barrier", "torch/distributed/distributed_c10d.py(4700): barrier"),
			l("deepspeed/comm/comm.py(400): barrier"), l("mpi4py/MPI.py(100): Barrier"))},
		{name: "graphs captured", place: "host", want: always("graph_capture"), only: frames, plant: func(p *session, size float64, _ int) {
			p.py(func() {
				p.runtime("cudaStreamBeginCapture", p.vary(20, 0.1))
				p.cpu(size * 0.7)
				p.runtime("cudaStreamEndCapture", p.vary(30, 0.1))
				p.runtime("cudaGraphInstantiate", p.vary(size*0.3, 0.1))
			}, "vllm/compilation/cuda_graph.py(200): __call__", "torch/cuda/graphs.py(180): __enter__")
		}},
		{name: "modules loaded", place: "host", want: always("slow_runtime_calls", "compilation"), plant: func(p *session, size float64, _ int) {
			name := p.pick(l("cuModuleLoadData"), l("cuLibraryLoadData"), l("cuModuleLoadDataEx"))[0]
			pieces(size, size/3, func() { p.runtime(name, p.vary(size/3, 0.1)) })
		}},
		{name: "logging reads the loss", place: "device", want: always("synchronization", "host_work"), only: frames, plant: func(p *session, size float64, _ int) {
			p.py(func() {
				p.item()
				p.spend(size, "torch/utils/tensorboard/writer.py(380): add_scalar", "tensorboard/summary/writer/event_file_writer.py(100): add_event")
			}, "train.py(120): log_metrics")
		}},
		{name: "lock", place: "host", want: always("host_work"), only: frames, plant: inFrames(
			l("engine/pool.py(60): submit", "threading.py(300): __enter__", "<method 'acquire' of '_thread.lock' objects>"), l("cache.py(31): get_entry", "threading.py(115): acquire"))},
		{name: "page faults", place: "device", want: always("page_migrations"), only: func(f format) bool { return f.style == Nsight }, plant: func(p *session, size float64, _ int) {
			x := work{kind: memcpy, managed: true, name: "Memcpy HtoD", bytes: int64(size * 12000), stream: 7, from: "Managed", to: "Device"}
			start := max(p.now+1500, p.free[7]+700)
			p.place(x, 0, start, start+int64(size*1000))
		}},
		{name: "peer copies", place: "device", want: always("exposed_copies", "exposed_communication"), only: nvidia, plant: func(p *session, size float64, _ int) {
			x := work{kind: memcpy, name: "Memcpy PtoP (Device -> Device)", bytes: int64(size * 1000 * 150), stream: 7, from: "Device", to: "Device"}
			c := p.runtime("cudaMemcpyPeerAsync", 5000)
			start := max(p.now+1500, p.free[7]+700)
			p.place(x, c, start, start+int64(size*1000))
		}},
	}
	return list
}

type composedProgram struct {
	name  string
	drain bool
	run   func(p *session, c *composed, f func(place string, step int))
}

func programs() []composedProgram {
	layers := func(p *session, n int, scale float64, at func()) {
		for l := range n {
			p.block(l, ignore, scale)
			if l == n/2 {
				at()
			}
		}
	}
	return []composedProgram{
		{"training", true, func(p *session, c *composed, f func(string, int)) {
			for n := range 7 {
				step := func() {
					f("host", n)
					p.op("aten::to", "", "", func() { p.copy("cudaMemcpyAsync", "Pinned", "Device", 1<<18, 22, 7) })
					layers(p, freshLayers, 0.8, func() { f("device", n) })
					p.backward(0.8, func(int) {})
					p.py(p.item, "train.py(171): log_loss", "<method 'item' of 'torch._C.TensorBase' objects>")
				}
				p.py(func() {
					if c.noted {
						p.note(fmt.Sprintf("ProfilerStep#%d", n+3), step)
					} else {
						step()
					}
				}, "train.py(402): <module>", "train.py(377): main")
			}
		}},
		{"convolutions", true, func(p *session, c *composed, f func(string, int)) {
			for n := range 12 {
				step := func() {
					f("host", n)
					for l := range 20 {
						p.py(func() {
							p.op("aten::cudnn_convolution", "[[64,128,56,56],[128,128,3,3],[],[],[],[],[],[],[]]", `["c10::Half","c10::Half"]`, func() {
								p.k("sm90_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x64_warpgroupsize1x1x1_g1_execute_segment_k_off_kernel__5x_cudnn", 95)
							})
							p.map1("aten::relu_", "launch_clamp_scalar", 25)
						}, fmt.Sprintf("nn.Module: Conv2d_%d", l), "torch/nn/modules/conv.py(550): forward")
						if l == 10 {
							f("device", n)
						}
					}
					p.py(func() { p.sync("cudaStreamSynchronize", 7) }, "torch/cuda/streams.py(105): synchronize")
				}
				p.py(func() {
					if c.noted {
						p.note(fmt.Sprintf("train_step %d", n), step)
					} else {
						step()
					}
				}, "main.py(90): <module>", "main.py(60): train_one_epoch")
			}
		}},
		{"decoding with graphs", true, func(p *session, c *composed, f func(string, int)) {
			for n := range 20 {
				p.py(func() {
					f("host", n)
					graph := p.runtime("cudaGraphLaunch", p.vary(30, 0.1))
					p.graph = graph
					for range 24 {
						p.k(gemm, 70)
						p.k("void vllm::rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16 const*, c10::BFloat16 const*, float, int, int)", 6)
					}
					p.graph = 0
					f("device", n)
					p.py(func() {
						p.copy("cudaMemcpyAsync", "Device", "Pinned", 512, 0.2, 7)
						p.sync("cudaEventSynchronize", 7)
					}, "vllm/v1/worker/gpu_model_runner.py(2500): _bookkeeping_sync")
				}, "vllm/v1/engine/core.py(900): run_busy_loop", "vllm/v1/worker/gpu_model_runner.py(2100): execute_model")
			}
		}},
		{"stencil", true, func(p *session, c *composed, f func(string, int)) {
			for n := range 15 {
				step := func() {
					f("host", n)
					for k := range 12 {
						p.k("void stencil3d<double, 8>(double const*, double*, int, int, int)", 140, grid(4096, 256))
						if k == 6 {
							f("device", n)
						}
					}
					p.sync("cudaDeviceSynchronize", 0)
				}
				if c.noted {
					p.note("timestep", step)
				} else {
					step()
				}
			}
		}},
	}
}

const longStep = 3

// simulate runs the job with its causes or without them.
func (c *composed) simulate(first, second bool) *session {
	style := c.format.style
	switch style {
	case Sparse:
		style = Unstacked
	case Rocprof:
		style = Nsight
	}
	p := newSession(style, c.seed, true, 0, 1)
	p.salt = c.seed
	p.unranged = !c.format.ranges
	at := func(x *cause, size float64, place string, step int) {
		switch {
		case x == nil || x.long && x.place == place && step != longStep:
		case x.place == "throttle" && place == "host":
			if p.slow = 1; step >= longStep {
				p.slow = 1 + size
			}
		case x.place == place:
			x.plant(p, size, step)
		}
	}
	c.program.run(p, c, func(place string, step int) {
		if first {
			at(c.cause, c.size, place, step)
		}
		if second {
			at(c.second, c.small, place, step)
		}
	})
	return p
}

// window returns the time from the first to the last work of the device.
func (p *session) window() float64 {
	start, end := int64(1)<<62, int64(0)
	for i := range p.events {
		if p.events[i].work != nil {
			start, end = min(start, p.events[i].start), max(end, p.events[i].end)
		}
	}
	return float64(end - start)
}

// fit finds the size of a cause that costs a share of the window.
func (c *composed) fit(first bool, target float64) bool {
	size := &c.size
	if !first {
		size = &c.small
	}
	healthy := c.simulate(false, false).window()
	low, high := 0.0, 4*healthy/1000
	if (first && c.cause.place == "throttle") || (!first && c.second.place == "throttle") {
		high = 8
	}
	for range 14 {
		*size = (low + high) / 2
		if w := c.simulate(first, !first).window(); (w-healthy)/w < target {
			low = *size
		} else {
			high = *size
		}
	}
	w := c.simulate(first, !first).window()
	got := (w - healthy) / w
	return got > target*0.8 && got < target*1.25
}

// compose draws a job.
func compose(seed uint64) *composed {
	r := rand.New(rand.NewPCG(seed, 4242))
	for {
		c := &composed{seed: r.Uint64() >> 1, noted: r.IntN(2) == 0}
		c.format = formats()[r.IntN(len(formats()))]
		list := programs()
		c.program = list[r.IntN(len(list))]
		if c.program.name == "stencil" && c.format.style != Nsight && c.format.style != Rocprof {
			continue
		}
		if c.format.amd && (c.program.name == "convolutions" || c.program.name == "decoding with graphs" && c.format.style == Rocprof) {
			continue
		}
		all := causes()
		if r.IntN(12) == 0 {
			return c
		}
		pick := func() *cause {
			for {
				x := &all[r.IntN(len(all))]
				if x.only == nil || x.only(c.format) {
					return x
				}
			}
		}
		c.cause = pick()
		share := 0.15 + 0.5*r.Float64()*r.Float64()
		if c.cause.name == "no requests" {
			share = 0.55 + 0.25*r.Float64()
		}
		if !c.fit(true, share) {
			continue
		}
		if r.IntN(2) == 0 {
			c.second = pick()
			if c.second.name == c.cause.name || c.second.long || slices.Contains(c.cause.want(c.format), c.second.want(c.format)[0]) || !c.fit(false, 0.05+0.03*r.Float64()) {
				c.second = nil
			}
		}
		return c
	}
}

func (c *composed) String() string {
	s := "healthy"
	if c.cause != nil {
		s = c.cause.name
	}
	if c.second != nil {
		s += " + " + c.second.name
	}
	return fmt.Sprintf("%s, %s, %s, noted %v", s, c.program.name, c.format.name, c.noted)
}

func (c *composed) write(ctx context.Context, dir string) (string, error) {
	p := c.simulate(true, true)
	slices.SortStableFunc(p.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	q := process{w: &world{dev: devices()[1], style: c.format.style}, events: p.events}
	if c.format.amd {
		q.w.hip()
	}
	switch {
	case c.format.style == Nsight:
		path := filepath.Join(dir, "report.sqlite")
		return path, q.nsight(ctx, path)
	case c.format.style == Rocprof:
		path := filepath.Join(dir, "run_results.json")
		return path, os.WriteFile(path, []byte(q.rocprofv3()), 0o600)
	case c.format.style == Sparse:
		path := filepath.Join(dir, "old.pt.trace.json")
		q.w.ranks = []*process{&q}
		return path, os.WriteFile(path, []byte(q.sparse()), 0o600)
	case c.format.merged:
		path := filepath.Join(dir, "merged-1.trace.json")
		return path, os.WriteFile(path, []byte(p.head()+strings.Join(p.lines("TP00"), ",\n")+"\n]}\n"), 0o600)
	}
	if !c.format.shapes || c.format.amd {
		for i := range p.events {
			p.events[i].operation = nil
		}
	}
	text := p.kineto("")
	if c.format.amd {
		text = strings.NewReplacer("cudaLaunchKernelExC", "hipExtLaunchKernel", `"cuda`, `"hip`, `"cuda_runtime"`, `"cuda_runtime"`, "cuModule", "hipModule", "NVIDIA H100 80GB HBM3",
			"AMD Instinct MI300X", `"warpSize": 32`, `"warpSize": 64`, `"computeMajor": 9, "computeMinor": 0`, `"computeMajor": 9, "computeMinor": 4`,
			`"numSms": 132`, `"numSms": 304`, "nvjet_tst_256x128_64x4_1x2_h_bz_coopB_TNN", "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN",
			"(Pinned ->", "(Host ->", "(Pageable ->", "(Host ->", "-> Pinned)", "-> Host)", "-> Pageable)", "-> Host)").Replace(text)
	}
	path := filepath.Join(dir, "rank0.pt.trace.json")
	return path, os.WriteFile(path, []byte(text), 0o600)
}
