// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

// programKinds are faults in programs that users of PyTorch report, as their frames and calls look.
// They were written after the rules were read.
func programKinds() []fresh {
	in := func(place string, f func(p *session)) at {
		return plant(place, func(p *session, _, _ int) { f(p) })
	}
	return []fresh{
		{
			name: "gradients are clipped by a number on the host", styles: pytorch, want: []string{"synchronization"},
			run: pretrain(6, 0.4, in("block", func(p *session) {
				p.py(func() { p.item(); p.cpu(140) }, "torch/nn/utils/clip_grad.py(34): _no_grad_wrapper", "torch/nn/utils/clip_grad.py(219): clip_grad_norm_")
			}), none),
		},
		{
			name: "a tensor is printed", styles: frames, want: []string{"host_work", "synchronization"}, who: "_tensor_str", run: pretrain(6, 1, in("loss", func(p *session) {
				p.py(func() {
					p.sync("cudaStreamSynchronize", 7)
					p.cpu(6000)
				}, "debug.py(12): show", "torch/_tensor.py(590): __repr__", "torch/_tensor_str.py(708): _str", "torch/_tensor_str.py(616): _str_intern")
			}), none),
		},
		{
			name: "texts are tokenized while batches are made", styles: frames, want: []string{"loader"}, run: pretrain(6, 1, in("start", func(p *session) {
				p.note("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", func() {
					p.spend(8000, "torch/utils/data/dataloader.py(733): __next__", "torch/utils/data/_utils/fetch.py(55): fetch", "collate.py(31): __call__",
						"transformers/tokenization_utils_fast.py(530): _batch_encode_plus")
				})
			}), none),
		},
		{
			name: "the program sleeps", styles: frames, want: []string{"host_work"}, who: "throttle_rate", run: vision(6, 40, 140, in("start", func(p *session) {
				p.spend(6000, "serve.py(70): throttle_rate", "<built-in function sleep>")
			})),
		},
		{
			name: "rewards are requested from a server", styles: frames, want: []string{"host_work"}, who: "score_remote", run: pretrain(6, 1, in("loss", func(p *session) {
				p.sync("cudaStreamSynchronize", 7)
				p.spend(12_000, "rewards.py(44): score_remote", "requests/api.py(103): post", "urllib3/connectionpool.py(534): _make_request",
					"http/client.py(1428): getresponse", "socket.py(720): readinto", "<method 'recv_into' of '_socket.socket' objects>")
			}), none),
		},
		{
			name: "each layer is timed by waiting", styles: every, want: []string{"synchronization"}, run: pretrain(6, 0.2, in("block", func(p *session) {
				p.py(func() { p.sync("cudaDeviceSynchronize", 0); p.cpu(70) }, "timing.py(9): stop", "torch/cuda/__init__.py(1040): synchronize")
			}), none),
		},
		{
			name: "an operator runs on the CPU", styles: pytorch, want: []string{"host_work"}, who: "aten::sort", run: pretrain(6, 1, in("loss", func(p *session) {
				p.sync("cudaStreamSynchronize", 7)
				p.op("aten::sort", "[[4000000],[],[]]", `["float","Scalar","Scalar"]`, func() { p.cpu(9000) })
			}), none),
		},
		{
			name: "results are copied out and averaged in NumPy", styles: frames, want: []string{"host_work", "pageable_copies"}, who: "", run: pretrain(6, 1, in("after", func(p *session) {
				p.op("aten::to", "", "", func() { p.copy("cudaMemcpyAsync", "Device", "Pageable", 8<<20, 5, 7) })
				p.spend(7000, "metrics.py(20): update", "numpy/core/_methods.py(101): _mean")
			}), none),
		},
		{
			name: "host memory is pinned in each step", styles: every, want: []string{"allocation"}, run: pretrain(6, 1, in("start", func(p *session) {
				p.op("aten::pin_memory", "", "", func() { p.runtime("cudaHostAlloc", p.vary(7000, 0.05)) })
			}), none),
		},
		{
			name: "graphs are instantiated in each step", styles: every, want: []string{"graph_capture", "slow_runtime_calls"}, run: decoding(12, in("between", func(p *session) {
				p.runtime("cudaGraphInstantiate", p.vary(2500, 0.05))
			})),
		},
		{
			name: "the optimizer loops over parameters", styles: pytorch, want: []string{"launch_bound"}, run: pretrain(5, 1, in("before optimizer", func(p *session) {
				p.py(func() {
					for range 400 {
						for _, n := range []string{"aten::mul_", "aten::lerp_", "aten::addcdiv_"} {
							p.op(n, "[[4096]]", `["float"]`, func() {
								p.cpu(6)
								p.k("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", 2, grid(8, 128))
							})
						}
					}
				}, "torch/optim/adam.py(350): _single_tensor_adam")
			}), none),
		},
		{
			name: "an empty queue of work in a trainer", styles: frames, want: []string{"loader", "no_load"}, run: pretrain(6, 0.5, in("start", func(p *session) {
				p.spend(9000, "learner.py(30): next_trajectories", "queue.py(171): get", "threading.py(355): wait")
			}), none),
		},
		{
			name: "weights are written by safetensors", styles: frames, want: []string{"checkpoint", "host_work"}, who: "save", run: pretrain(6, 1, plant("after", func(p *session, n, _ int) {
				if n == 3 {
					p.spend(70_000, "trainer/loop.py(190): save_model", "safetensors/torch.py(286): save_file", "<built-in function serialize_file>")
				}
			}), none),
		},
		{
			name: "shards of data are read from a network drive", styles: frames, want: []string{"loader", "host_work"}, who: "next_shard", run: pretrain(6, 1, in("start", func(p *session) {
				p.spend(8000, "data/stream.py(77): next_shard", "gzip.py(320): read", "<method 'read' of '_io.BufferedReader' objects>")
			}), none),
		},
		{
			name: "a lock of another thread", styles: frames, want: []string{"host_work"}, who: "update_weights", run: decoding(12, in("between", func(p *session) {
				p.spend(2500, "engine/weights.py(40): update_weights", "threading.py(327): __enter__", "<method 'acquire' of '_thread.lock' objects>")
			})),
		},
		{
			name: "modules in NVTX ranges, data in one of them", styles: nsight, want: []string{"loader"}, run: stencil(8, in("start", func(p *session) {
				p.note("data_loading", func() { p.cpu(2500) })
			})),
		},
		{
			name: "solver writes its output", styles: nsight, want: []string{"host_work", "checkpoint"}, who: "write_output", run: stencil(8, in("after", func(p *session) {
				p.note("write_output", func() { p.cpu(3000) })
			})),
		},
		{
			name: "host ranks exchange halos by MPI", styles: nsight, want: []string{"waiting_for_rank"}, run: stencil(8, in("after", func(p *session) {
				p.note("MPI_Waitall", func() { p.cpu(2500) })
			})),
		},
	}
}
