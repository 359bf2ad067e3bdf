// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"fmt"
	"strings"
)

func dims(ds ...int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(ds), " ", "x"), "[]")
}

// product returns the kernel of a matrix product at a good share of the peak.
func (s *sim) product(m, k, n int) kern {
	flop := 2 * float64(m) * float64(k) * float64(n)
	peak, name := s.dev.half, s.dev.gemm
	if !s.half {
		peak, name = s.dev.tf32, "cutlass_80_tensorop_s1688gemm_128x256_16x3_tn_align4"
		if s.dev.major == 7 {
			name = s.dev.gemm32
		}
	}
	dur := max(flop/(0.78*peak), (float64(m)*float64(k)+float64(k)*float64(n)+float64(m)*float64(n))*2/(0.85*s.dev.bytes))*1e6 + 2
	blocks := (m + 127) / 128 * ((n + 255) / 256)
	if s.dev.major >= 9 && !s.dev.amd {
		blocks = s.dev.sms // persistent
	}
	return kern{name: name, dur: dur, blocks: blocks, threads: 256, regs: 168, smem: 98304}
}

func (s *sim) mm(m, k, n int) {
	s.op("aten::mm", dims(m, k)+" "+dims(k, n), func() { s.launch(s.product(m, k, n)) })
}

func (s *sim) linear(m, k, n int) {
	s.op("aten::linear", dims(m, k)+" "+dims(n, k)+" _", func() {
		s.op("aten::t", dims(n, k), func() { s.op("aten::transpose", dims(n, k)+" _:s _:s", nil) })
		s.op("aten::matmul", dims(m, k)+" "+dims(k, n), func() { s.mm(m, k, n) })
	})
}

const vectorized = "void at::native::vectorized_elementwise_kernel<4, at::native::%s, std::array<char*, %dul> >(int, at::native::%s, std::array<char*, %dul>)"

// pointwise returns an elementwise kernel that moves its tensors at a good share of the bandwidth.
func (s *sim) pointwise(functor string, n, tensors int) kern {
	size := 2.0
	if !s.half {
		size = 4
	}
	return kern{
		name: fmt.Sprintf(vectorized, functor, tensors, functor, tensors), dur: 1.8 + float64(n*tensors)*size/(0.86*s.dev.bytes)*1e6,
		blocks: (n + 511) / 512, threads: 128, regs: 24,
	}
}

// elementwise is an operator with one elementwise kernel: of one input, or two.
func (s *sim) elementwise(op, functor string, rows, cols, inputs int) {
	d := strings.TrimSpace(strings.Repeat(dims(rows, cols)+" ", inputs))
	s.op("aten::"+op, d, func() { s.launch(s.pointwise(functor, rows*cols, inputs+1)) })
}

// compiled is a kernel of Inductor, which fuses a chain.
func (s *sim) compiled(name string, rows, cols, tensors int) {
	n := rows * cols
	s.op("triton_"+name, dims(rows, cols)+" "+dims(rows, cols), func() {
		s.launch(kern{name: "triton_" + name, dur: 2 + float64(n*tensors)*2/(0.86*s.dev.bytes)*1e6, blocks: max(rows, s.dev.sms*8), threads: 256, regs: 40})
	})
}

func (s *sim) attend(b, h, l, d int) {
	q := dims(b, h, l, d)
	s.op("aten::scaled_dot_product_attention", q+" "+q+" "+q, func() {
		s.op("aten::_scaled_dot_product_flash_attention", q+" "+q+" "+q, func() {
			s.op("aten::_flash_attention_forward", dims(b, l, h, d)+" "+dims(b, l, h, d)+" "+dims(b, l, h, d), func() {
				s.launch(kern{
					name: "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false, false, false, false, true, true, false>(pytorch_flash::Flash_fwd_params)",
					dur:  4*float64(b*h)*float64(l)*float64(l)*float64(d)/(0.62*s.dev.half)*1e6 + 3, blocks: b * h * (l / 128), threads: 128, regs: 255, smem: 81920,
				})
			})
		})
	})
}

func (s *sim) attendBackward(b, h, l, d int) {
	q := dims(b, h, l, d)
	s.grad("ScaledDotProductFlashAttentionBackward0", func() {
		s.op("aten::_scaled_dot_product_flash_attention_backward", q+" "+q+" "+q+" "+q+" "+q, func() {
			s.op("aten::_flash_attention_backward", dims(b, l, h, d)+" "+dims(b, l, h, d)+" "+dims(b, l, h, d)+" "+dims(b, l, h, d)+" "+dims(b, l, h, d), func() {
				s.launch(kern{
					name: "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<pytorch_flash::Flash_bwd_kernel_traits<128, 64, 128, 8, 2, 4, 2, false, false, cutlass::bfloat16_t>, false, false, false, false, true, true, false>(pytorch_flash::Flash_bwd_params)",
					dur:  10*float64(b*h)*float64(l)*float64(l)*float64(d)/(0.56*s.dev.half)*1e6 + 3, blocks: b * h * (l / 128), threads: 256, regs: 255, smem: 147456,
				})
			})
		})
	})
}

// grad is a node of the autograd engine.
func (s *sim) grad(node string, f func()) {
	s.op("autograd::engine::evaluate_function: "+node, "", func() { s.op(node, "", f) })
}

func (s *sim) module(name string, f func()) { s.frame("nn.Module: "+name, f) }

// size of a transformer.
type size struct{ batch, length, hidden, heads, layers int }

func (z size) tokens() int { return z.batch * z.length }

// layer is the forward pass of a compiled transformer layer.
func (s *sim) layer(z size, i int) {
	t := z.tokens()
	s.module(fmt.Sprintf("DecoderLayer_%d", i), func() {
		s.compiled("red_fused__to_copy_add_mean_mul_pow_rsqrt_0", t, z.hidden, 2)
		s.module(fmt.Sprintf("Attention_%d", i), func() {
			s.linear(t, z.hidden, 3*z.hidden)
			s.attend(z.batch, z.heads, z.length, z.hidden/z.heads)
			s.linear(t, z.hidden, z.hidden)
		})
		s.module(fmt.Sprintf("MLP_%d", i), func() {
			s.linear(t, z.hidden, 4*z.hidden)
			s.compiled("poi_fused_mul_silu_1", t, 2*z.hidden, 3)
			s.linear(t, 4*z.hidden, z.hidden)
		})
	})
}

func (s *sim) layerBackward(z size) {
	t := z.tokens()
	both := func(k, n int) {
		s.grad("MmBackward0", func() {
			s.mm(t, n, k)
			s.mm(k, t, n)
		})
	}
	both(4*z.hidden, z.hidden)
	s.grad("CompiledFunctionBackward", func() { s.compiled("poi_fused_mul_silu_backward_2", t, 2*z.hidden, 4) })
	both(z.hidden, 4*z.hidden)
	both(z.hidden, z.hidden)
	s.attendBackward(z.batch, z.heads, z.length, z.hidden/z.heads)
	both(z.hidden, 3*z.hidden)
	s.grad("CompiledFunctionBackward", func() { s.compiled("red_fused_add_mul_sum_3", t, z.hidden, 3) })
}

func (s *sim) forward(z size) {
	s.frame("model.py(214): forward", func() {
		s.module("Transformer_0", func() {
			for i := range z.layers {
				s.layer(z, i)
			}
		})
	})
}

func (s *sim) backward(z size, after func(layer int)) {
	s.frame("torch/_tensor.py(570): backward", func() {
		s.on(4290, func() {
			for i := range z.layers {
				s.layerBackward(z)
				if after != nil {
					after(i)
				}
			}
		})
	})
}

// adam is the fused optimizer.
func (s *sim) adam(params int) {
	s.note("Optimizer.step#AdamW.step", func() {
		s.op("aten::_fused_adamw_", "", func() {
			for range 2 {
				s.launch(kern{
					name: "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*, double, double, double, double, double, bool, float*, float*, at::native::ADAM_MODE>",
					dur:  float64(params) * 14 / 2 / (0.84 * s.dev.bytes) * 1e6, blocks: max(params/65536/2, s.dev.sms*4), threads: 512, regs: 40,
				})
			}
		})
	})
	s.note("Optimizer.zero_grad#AdamW.zero_grad", func() { s.host(20) })
}

func (z size) params() int { return z.layers * 12 * z.hidden * z.hidden }

// batch copies the input of a step from pinned memory.
func (s *sim) batch(bytes int64) {
	s.op("aten::to", "", func() {
		s.op("aten::_to_copy", "", func() { s.op("aten::copy_", "", func() { s.copyTo("HtoD", "Pinned", bytes, 7) }) })
	})
}

// nextBatch is a loader that delivers at once, or after us.
func (s *sim) nextBatch(iter string, us float64) {
	s.frame("torch/utils/data/dataloader.py(701): __next__", func() {
		s.note("enumerate(DataLoader)#"+iter+".__next__", func() {
			s.host(25)
			s.busyHost(us)
		})
	})
}

var medium = size{8, 1024, 2048, 16, 3}

// train is the step of a healthy training loop.
func (s *sim) train(z size) {
	s.batch(int64(z.tokens() * 16))
	s.forward(z)
	s.backward(z, nil)
	s.adam(z.params())
}

// conv is a convolution of a network in half precision and channels-last layout.
func (s *sim) conv(n, c, hw, k int) {
	in, w := dims(n, c, hw, hw), dims(k, c, 3, 3)
	s.op("aten::conv2d", in+" "+w+" _", func() {
		s.op("aten::convolution", in+" "+w+" _", func() {
			s.op("aten::_convolution", in+" "+w+" _", func() {
				s.op("aten::cudnn_convolution", in+" "+w, func() {
					flop := 2 * float64(n) * float64(c) * float64(k) * 9 * float64(hw*hw)
					s.launch(kern{
						name: "sm80_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn",
						dur:  flop/(0.7*s.dev.half)*1e6 + 3, blocks: max(n*hw*hw/128*((k+127)/128), s.dev.sms*6), threads: 128, regs: 168, smem: 65536,
					})
				})
			})
		})
	})
	s.op("aten::cudnn_batch_norm", in+" "+dims(k), func() {
		s.launch(kern{
			name: "void cudnn::bn_fw_tr_1C11_kernel_NHWC<__nv_bfloat16, float, 512, true, 1, true>(cudnnTensorStruct*, __nv_bfloat16 const*, cudnnTensorStruct*, __nv_bfloat16*)",
			dur:  float64(n*k*hw*hw)*2*2.2/(0.85*s.dev.bytes)*1e6 + 2, blocks: s.dev.sms * 4, threads: 512, regs: 40,
		})
	})
}

// cnn is a step of a convolutional network, whose backward pass is two products for each layer.
func (s *sim) cnn(n int) {
	s.module("ResNet_0", func() {
		for i, c := range []int{256, 256, 512, 512} {
			s.module(fmt.Sprintf("Bottleneck_%d", i), func() { s.conv(n, c, 28, c) })
		}
	})
	s.on(4290, func() {
		for range 4 {
			s.grad("ConvolutionBackward0", func() {
				d := dims(n, 512, 28, 28)
				s.op("aten::convolution_backward", d+" "+d+" "+dims(512, 512, 3, 3), func() {
					flop := 2 * float64(n) * 512 * 512 * 9 * 784
					for _, pass := range []string{"dgrad", "wgrad"} {
						s.launch(kern{
							name: "sm80_xmma_" + pass + "_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x32_stage4_warpsize2x2x1_g1_tensor16x8x16_execute_kernel__5x_cudnn",
							dur:  flop/(0.7*s.dev.half)*1e6 + 3, blocks: s.dev.sms * 12, threads: 128, regs: 200, smem: 65536,
						})
					}
				})
			})
		}
	})
	s.adam(25_000_000)
}

// collective is a collective of the process group; late is how long it waits for others.
func (s *sim) collective(name, kernel string, elements int, gbps, late float64, stream int, group string) int {
	size := s.world
	in, out := elements, elements
	ranks := group
	if ranks == "" {
		var all []string
		for r := range s.world {
			all = append(all, fmt.Sprint(r))
		}
		ranks = "[" + strings.Join(all, ", ") + "]"
	} else {
		size = strings.Count(group, ",") + 1
	}
	bus := 2 * float64(size-1) / float64(size)
	switch name {
	case "_allgather_base":
		out, bus = in*size, float64(size-1)
	case "_reduce_scatter_base":
		out, bus = in/size, float64(size-1)/float64(size)
	case "all_to_allv":
		bus = float64(size-1) / float64(size)
	}
	s.seq++
	more := fmt.Sprintf(`"Collective name": %q, "In msg nelems": %d, "Out msg nelems": %d, "Group size": %d, "dtype": "BFloat16", "In split size": "[]", "Out split size": "[]", "Process Group Name": "0", "Process Group Description": "default_pg", "Process Group Ranks": %q, "Seq": %d`, name, in, out, size, ranks, s.seq)
	if s.groupName != "" {
		more = strings.Replace(more, `"Process Group Name": "0", "Process Group Description": "default_pg"`, `"Process Group Name": "`+s.groupName+`", "Process Group Description": "mesh_tp"`, 1)
	}
	index := 0
	s.ext++
	i := s.put(record{kind: cpuOp, name: "record_param_comms", ts: s.now, ext: s.ext, members: more})
	s.opStack = append(s.opStack, s.ext)
	s.note("nccl:"+strings.Replace(name, "allreduce", "all_reduce", 1), func() {
		if stream != 7 {
			s.after(stream, 7)
		}
		index = s.launch(kern{
			name: kernel, dur: float64(elements)*2*bus/gbps/1e3 + 12 + late, blocks: 24, threads: 544, regs: 96, smem: 87568, stream: stream, collective: more,
		})
	})
	s.opStack = s.opStack[:len(s.opStack)-1]
	s.records[i].dur = s.now - s.records[i].ts
	return index
}

const (
	ringReduce  = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
	ringGather  = "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
	ringScatter = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
	sendRecv    = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"
)
