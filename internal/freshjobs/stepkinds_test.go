// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import "math"

// stepKinds are training jobs whose devices are busy with the wrong work, or whose steps differ.
var stepKinds = []kind{
	{name: "float32 without TF32", accept: "single_precision", models: []model{a100, h100}, build: func(s *sim) {
		s.half = false
		s.steps(4, func(int) {
			s.batch(1 << 16)
			for range 6 {
				s.linear(8192, 2048, 4096)
			}
			const m, k = 4096, 2048
			n := 512
			full := 2 * float64(m) * k * float64(n) / (0.8 * s.dev.single) * 1e6
			for range int(math.Round(s.x / full)) {
				s.op("aten::addmm", dims(n)+" "+dims(m, k)+" "+dims(k, n), func() {
					s.launch(kern{name: s.dev.gemm32, dur: full, blocks: s.dev.sms * 5, threads: 128, regs: 128, smem: 32768})
				})
			}
		})
	}},
	{name: "attention in parts", accept: "unfused_attention fusion", models: big, build: func(s *sim) {
		z := size{4, 1024, 2048, 16, 2}
		s.steps(4, func(int) {
			s.train(z)
			b, h, l, d := z.batch, z.heads, 2048, 128
			one := 4 * s.pointwise("x", b*h*l*l, 2).dur
			for range int(math.Ceil(s.x / one)) {
				q, sc := dims(b*h, l, d), dims(b, h, l, l)
				s.op("aten::matmul", q+" "+dims(b*h, d, l), func() {
					s.op("aten::bmm", q+" "+dims(b*h, d, l), func() {
						k := s.product(b*h*l, d, l)
						k.dur = max(k.dur, s.pointwise("x", b*h*l*l, 1).dur)
						s.launch(k)
					})
				})
				s.op("aten::mul", sc+" _", func() {
					s.launch(s.pointwise("AUnaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, MulFunctor<float>>", b*h*l*l, 2))
				})
				s.op("aten::masked_fill", sc+" "+dims(1, 1, l, l)+":bool _", func() {
					s.launch(s.pointwise("masked_fill_kernel(at::TensorIterator&, c10::Scalar const&)::{lambda()#1}", b*h*l*l, 2))
				})
				s.op("aten::softmax", sc+" _ _", func() {
					s.op("aten::_softmax", sc+" _ _", func() {
						k := s.pointwise("x", b*h*l*l, 2)
						k.name = "void (anonymous namespace)::softmax_warp_forward<c10::BFloat16, c10::BFloat16, float, 11, false, false>(c10::BFloat16*, c10::BFloat16 const*, int, int, int, bool const*, int, bool)"
						s.launch(k)
					})
				})
				s.op("aten::matmul", dims(b*h, l, l)+" "+q, func() {
					s.op("aten::bmm", dims(b*h, l, l)+" "+q, func() {
						k := s.product(b*h*l, l, d)
						k.dur = max(k.dur, s.pointwise("x", b*h*l*l, 1).dur)
						s.launch(k)
					})
				})
			}
		})
	}},
	{name: "activation function in many operators", accept: "fusion", models: big, build: func(s *sim) {
		s.stacks = s.IntN(2) == 0
		s.steps(4, func(int) {
			z := size{4, 1024, 2048, 16, 2}
			s.train(z)
			one := s.pointwise("x", 4096*8192, 2).dur
			ops := []string{"pow", "mul", "add", "mul", "tanh", "add", "mul", "mul"}
			functors := []string{"pow_tensor_scalar_kernel_impl", "MulFunctor", "CUDAFunctor_add", "MulFunctor", "tanh_kernel_cuda", "CUDAFunctor_add", "MulFunctor", "MulFunctor"}
			for i := range int(math.Ceil(s.x / one)) {
				s.elementwise(ops[i%8], functors[i%8]+"<c10::BFloat16>", 4096, 8192, 1)
			}
		})
	}},
	{name: "tensors made contiguous again and again", accept: "data_movement", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			z := size{4, 1024, 2048, 16, 2}
			s.train(z)
			one := s.pointwise("x", 4096*8192, 2).dur
			for range int(math.Ceil(s.x / one)) {
				s.op("aten::contiguous", dims(4, 1024, 8192), func() {
					s.op("aten::clone", dims(4, 1024, 8192)+" _", func() {
						s.op("aten::copy_", dims(4, 1024, 8192)+" "+dims(4, 1024, 8192)+" _", func() {
							k := s.pointwise("direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}", 4096*8192, 2)
							k.name = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&)>"
							s.launch(k)
						})
					})
				})
			}
		})
	}},
	{name: "layout changed before each convolution", accept: "data_movement", models: []model{a100}, build: func(s *sim) {
		s.steps(4, func(int) {
			s.cnn(64)
			one := s.pointwise("x", 64*512*784, 2).dur * 1.3
			for range int(math.Ceil(s.x / one)) {
				d := dims(64, 512, 28, 28)
				s.op("aten::cudnn_convolution", d+" "+dims(512, 512, 1, 1), func() {
					s.launch(kern{name: "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>, __half const*, __half*)", dur: one, blocks: 6272, threads: 256})
					k := s.product(64*784, 512, 128)
					k.name = "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn"
					s.launch(k)
				})
			}
		})
	}},
	{name: "sum over a stride", accept: "low_efficiency", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			k := s.pointwise("x", 16384*4096, 1)
			full := k.dur * 6
			for range int(math.Round(s.x / full / 5 * 6)) {
				s.op("aten::sum", dims(16384, 4096)+" _ _", func() {
					s.launch(kern{name: "void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, c10::BFloat16>::operator()(at::TensorIterator&)::{lambda(float, float)#1}>, unsigned int, c10::BFloat16, 4, 4> >", dur: full, blocks: s.dev.sms * 8, threads: 256})
				})
			}
		})
	}},
	{name: "matrix product with odd sizes", accept: "low_efficiency", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			k := s.product(8191, 2047, 4095)
			k.name = "void cutlass::Kernel2<cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align2>(cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_16x16_128x2_tn_align2::Params)"
			k.blocks = s.dev.sms * 40
			gain := k.dur * 6
			k.dur *= 7
			for range int(math.Round(s.x / gain)) {
				s.op("aten::mm", dims(8191, 2047)+" "+dims(2047, 4095), func() { s.launch(k) })
			}
		})
	}},
	{name: "one long block for each sample", accept: "low_parallelism low_efficiency", models: big, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			for range int(math.Round(s.x / 250)) {
				s.op("custom::selective_scan_fwd", "8x16x4096", func() {
					s.launch(kern{name: "void selective_scan_fwd_kernel<Selective_Scan_fwd_kernel_traits<128, 16, 1, false, true, true, true, c10::BFloat16, float> >(SSMParamsBase)", dur: 260, blocks: 8, threads: 128, regs: 96})
				})
			}
		})
	}},
	{name: "one block too many", accept: "tail_wave low_efficiency", models: []model{a100}, build: func(s *sim) {
		s.steps(4, func(int) {
			s.train(size{4, 1024, 2048, 16, 2})
			const m, k, n = 128 * 112, 8192, 256 // 112 blocks on 108 multiprocessors: two waves
			p := s.product(m, k, n)
			p.blocks, p.threads, p.smem, p.regs = 112, 256, 98304, 230
			gain := p.dur * 0.85
			p.dur *= 1.9
			for range int(math.Round(s.x / gain)) {
				s.op("aten::mm", dims(m, k)+" "+dims(k, n), func() { s.launch(p) })
			}
		})
	}},
	{name: "gradients reduced after the backward pass", accept: "exposed_communication", models: []model{h100, a100}, build: func(s *sim) {
		s.world = 8
		s.steps(4, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.backward(medium, nil)
			for range 3 {
				s.collective("allreduce", ringReduce, int(s.x/3*180e3/2/1.75), 180, 0, 24, "")
			}
			s.after(7, 24)
			s.adam(medium.params())
		})
	}},
	{name: "parameters gathered without prefetching", accept: "exposed_communication", models: []model{h100, a100}, build: func(s *sim) {
		s.world = 8
		s.stacks = s.IntN(2) == 0
		s.steps(3, func(int) {
			for i := range medium.layers {
				s.frame("torch/distributed/fsdp/_runtime_utils.py(440): _pre_forward", func() {
					s.collective("_allgather_base", ringGather, int(s.x/3*180e3/2/7), 180, 0, 24, "")
				})
				s.after(7, 24)
				s.layer(medium, i)
				s.after(24, 7)
			}
			s.backward(medium, nil)
			s.collective("_reduce_scatter_base", ringScatter, 1<<20, 180, 0, 24, "")
			s.after(7, 24)
			s.adam(medium.params() / 8)
		})
	}},
	{name: "gradients reduced behind the backward pass", accept: "healthy", fixed: true, models: []model{h100}, build: func(s *sim) {
		s.world = 8
		s.steps(4, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.backward(medium, func(int) { s.collective("allreduce", ringReduce, 50_000_000, 300, 0, 24, "") })
			s.after(7, 24)
			s.adam(medium.params())
		})
	}},
	{name: "collectives that wait for another rank", accept: "late_rank waiting_for_rank", models: []model{h100, a100}, build: func(s *sim) {
		s.world = 8
		s.steps(6, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.backward(medium, nil)
			for range 4 {
				s.collective("allreduce", ringReduce, 4<<20, 250, s.x/4*s.ExpFloat64(), 24, "")
			}
			s.after(7, 24)
			s.adam(medium.params())
		})
	}},
	{name: "garbage collection of Python", accept: "host_work unexplained_idle uneven_steps", models: big, build: func(s *sim) {
		s.steps(8, func(i int) {
			s.train(size{8, 1024, 2048, 16, 2})
			if i%4 == 2 {
				s.busyHost(4 * s.x)
			}
		})
	}},
	{name: "images logged every few steps", accept: "host_work uneven_steps", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(8, func(i int) {
			s.train(size{8, 1024, 2048, 16, 2})
			if i%4 == 1 {
				s.frame("torch/utils/tensorboard/writer.py(600): add_image", func() {
					s.frame("PIL/Image.py(2531): save", func() { s.busyHost(4 * s.x) })
				})
			}
		})
	}},
	{name: "optimizer on the CPU", accept: "host_work", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.batch(1 << 16)
			s.forward(medium)
			s.backward(medium, nil)
			s.op("aten::copy_", "1048576 1048576", func() { s.copyTo("DtoH", "Pinned", 1<<22, 7); s.wait("cudaStreamSynchronize", 7) })
			s.frame("deepspeed/ops/adam/cpu_adam.py(143): step", func() { s.busyHost(s.x) })
			s.op("aten::copy_", "1048576 1048576", func() { s.copyTo("HtoD", "Pinned", 1<<22, 7) })
		})
	}},
	{name: "callback of a progress bar", accept: "host_work synchronization", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(5, func(int) {
			s.train(medium)
			s.frame("lightning/pytorch/trainer/call.py(218): _call_callback_hooks", func() {
				s.frame("callbacks/monitor.py(31): on_train_batch_end", func() {
					s.read()
					s.frame("rich/progress.py(1480): update", func() { s.busyHost(s.x) })
				})
			})
		})
	}},
	{name: "a device that gets slower", accept: "throttle", models: big, build: func(s *sim) {
		s.secondary = 0
		s.steps(8, func(i int) {
			s.kernelScale = 1
			if i >= 3 {
				s.kernelScale = 1 + s.x*8/5/9000
			}
			s.train(size{8, 1024, 2048, 16, 2})
		})
	}},
	{name: "buffers of the profiler that overflow", accept: "not_recorded", fixed: true, models: big, build: func(s *sim) {
		share := 3 + s.IntN(4)
		s.dropEvery = func(n int) bool { return n > 80 && n/40%share == 1 || n > 80 && n/40%share == 2 }
		s.steps(5, func(int) { s.train(medium) })
	}},
	{name: "busy without shapes", accept: "healthy not_judged", fixed: true, models: big, build: func(s *sim) {
		s.shapes = false
		s.steps(4, func(int) { s.nextBatch("_MultiProcessingDataLoaderIter", 0); s.train(medium) })
	}},
	{name: "profiler that costs more than the program", accept: "profiler_overhead", models: big, build: func(s *sim) {
		s.stacks = true
		s.steps(4, func(int) {
			s.train(medium)
			if s.x > 0 {
				for range 4 {
					s.wait("cudaDeviceSynchronize")
					at := s.now
					s.busyHost(s.x / 4)
					s.put(record{kind: overhead, name: "Activity Buffer Request", ts: at, dur: s.now - at})
				}
			}
		})
	}},
}
