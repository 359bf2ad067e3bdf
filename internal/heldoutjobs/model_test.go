// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"fmt"
	"strings"
)

// model is a transformer and how well its kernels use the device.
type model struct {
	layers          int
	hidden, tokens  int64
	product, memory float64 // fractions of the peak
	attention       float64
}

const heads, batch = 32, 4

func ns(seconds float64) int64 { return int64(seconds * 1e9) }

func types(n int, name string) string {
	return "[" + strings.TrimSuffix(strings.Repeat(`"`+name+`",`, n), ",") + "]"
}

const half = "c10::BFloat16"

// product returns a matrix product m×k by k×n in BF16 at a fraction of the peak.
func (w *world) product(m, n, k int64, part float64) (operation, work) {
	o := operation{
		name: "aten::mm", dims: fmt.Sprintf("[[%d,%d],[%d,%d]]", m, k, k, n), types: types(2, half),
	}
	return o, work{
		kind: kernel, name: w.dev.gemm, length: ns(2 * float64(m) * float64(n) * float64(k) / (part * w.dev.bf16)),
		stream: computing, blocks: max(w.dev.processors, m/128*n/128), threads: 256, registers: 168, pace: true,
	}
}

func (p *process) linear(m, n, k int64) {
	o, x := p.w.product(m, n, k, p.w.model.product)
	o.outer = []string{"aten::linear", "aten::matmul"}
	p.op(o, x)
}

func (p *process) mm(m, n, k int64) {
	o, x := p.w.product(m, n, k, p.w.model.product)
	p.op(o, x)
}

// pointwise runs an elementwise operator with the given inputs.
func (p *process) pointwise(name, functor string, elements int64, inputs int, part float64) {
	bytes := float64(elements) * 2 * float64(inputs+1)
	p.op(operation{
		name: name, dims: "[" + strings.TrimSuffix(strings.Repeat(fmt.Sprintf("[%d],", elements), inputs), ",") + "]",
		types: types(inputs, half),
	}, work{
		kind:   kernel,
		name:   "void at::native::vectorized_elementwise_kernel<4, at::native::" + functor + ", std::array<char*, 3ul> >(int, at::native::" + functor + ", std::array<char*, 3ul>)",
		length: ns(bytes / (part * p.w.dev.rate)), stream: computing, blocks: max(1, elements/1024), threads: 128,
		registers: 32, pace: true,
	})
}

func (p *process) norm() {
	m := p.w.model
	dims := fmt.Sprintf("[[%d,%d],[],[%d],[%d],[]]", m.tokens, m.hidden, m.hidden, m.hidden)
	p.op(operation{
		name: "aten::native_layer_norm", outer: []string{"aten::layer_norm"}, dims: dims,
		types: `["c10::BFloat16","ScalarList","c10::BFloat16","c10::BFloat16","Scalar"]`,
	}, work{
		kind: kernel, name: "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>" +
			"(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)",
		length: ns(float64(m.tokens*m.hidden) * 4 / (m.memory * p.w.dev.rate)), stream: computing, blocks: m.tokens,
		threads: 128, registers: 40, pace: true,
	})
}

func (w *world) attentionFLOPs() float64 {
	sequence := float64(w.model.tokens) / batch
	return 4 * batch * sequence * sequence * float64(w.model.hidden)
}

func (w *world) heads() string {
	return fmt.Sprintf("[%d,%d,%d,%d]", batch, heads, w.model.tokens/batch, w.model.hidden/heads)
}

func (p *process) flash(backward bool) {
	w, d := p.w, p.w.heads()
	o := operation{
		name:  "aten::_scaled_dot_product_flash_attention",
		outer: []string{"aten::scaled_dot_product_attention"},
		dims:  "[" + d + "," + d + "," + d + ",[],[],[],[]]", types: `["c10::BFloat16","c10::BFloat16","c10::BFloat16","Scalar","Scalar","Scalar",""]`,
		concrete: `["","","","0.","False","False",""]`, inner: []string{"aten::_flash_attention_forward"},
	}
	x := work{
		kind: kernel, name: "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, " +
			"false, false, cutlass::bfloat16_t> >(pytorch_flash::Flash_fwd_params)",
		length: ns(w.attentionFLOPs() / (w.model.attention * w.dev.bf16)), stream: computing,
		blocks: batch * heads * max(1, w.model.tokens/batch/128), threads: 128, registers: 255, pace: true,
	}
	if backward {
		o.name, o.outer, o.inner = "aten::_scaled_dot_product_flash_attention_backward", nil, []string{"aten::_flash_attention_backward"}
		o.dims = "[" + strings.Repeat(d+",", 5) + fmt.Sprintf("[%d,%d,%d]]", batch, heads, w.model.tokens/batch)
		o.types, o.concrete = `["c10::BFloat16","c10::BFloat16","c10::BFloat16","c10::BFloat16","c10::BFloat16","float"]`, ""
		x.name = strings.Replace(x.name, "flash_fwd_kernel", "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", 1)
		x.length = x.length * 5 / 2
	}
	p.op(o, x)
}

// layer runs a layer of the forward or backward pass.
func (p *process) layer(backward bool) {
	m := p.w.model
	t, h := m.tokens, m.hidden
	if backward {
		for _, n := range []int64{4 * h, 4 * h} {
			p.mm(t, h, n)
			p.mm(h, n, t)
		}
		p.pointwise("aten::gelu_backward", "GeluBackwardCUDAKernelImpl", t*4*h, 2, m.memory)
		p.mm(t, h, h)
		p.mm(h, h, t)
		p.flash(true)
		p.mm(t, h, 3*h)
		p.mm(3*h, h, t)
		p.norm()
		return
	}
	p.norm()
	p.linear(t, 3*h, h)
	p.flash(false)
	p.linear(t, h, h)
	p.pointwise("aten::add", "CUDAFunctor_add<c10::BFloat16>", t*h, 2, m.memory)
	p.norm()
	p.linear(t, 4*h, h)
	p.pointwise("aten::gelu", "GeluCUDAKernelImpl", t*4*h, 1, m.memory)
	p.linear(t, h, 4*h)
}

// stepTime returns the device time of a healthy step.
func (w *world) stepTime() int64 {
	m := w.model
	t, h := float64(m.tokens), float64(m.hidden)
	flops := 3 * float64(m.layers) * 24 * t * h * h
	attention := 3.5 * float64(m.layers) * w.attentionFLOPs()
	bytes := float64(m.layers) * t * h * (12 + 6 + 16 + 24)
	return ns(flops/(m.product*w.dev.bf16) + attention/(m.attention*w.dev.bf16) + bytes/(m.memory*w.dev.rate) + 2e-4)
}

func (p *process) optimizer() {
	p.in(annotation, "Optimizer.step#AdamW.step", func() {
		m := p.w.model
		bytes := float64(m.layers) * 12 * float64(m.hidden*m.hidden) * 28 / 64
		for range 2 {
			p.op(operation{name: "aten::_fused_adamw_"}, work{
				kind: kernel, name: "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous " +
					"namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float, 4>>",
				length: ns(bytes / 2 / (m.memory * p.w.dev.rate)), stream: computing, blocks: 2560, threads: 512, registers: 40,
				pace: true,
			})
		}
	})
}

// hooks is what a job does in addition to its model, on each rank.
type hooks struct {
	start    func(p *process, step int) // before the batch
	layer    func(p *process, step, layer int)
	forward  func(step int) // after the forward passes of all ranks
	gradient func(step, layer int)
	backward func(step int)
	finish   func(p *process, step int)
	after    func(p *process, step int) // after the step's wait
	between  func(p *process, step int) // between steps
}

func (w *world) train(h hooks) {
	w.each(func(p *process) {
		p.begin(frame, "train.py(214): <module>", nil)
		p.begin(frame, "train.py(131): main", nil)
	})
	for step := range w.steps {
		w.each(func(p *process) {
			p.begin(annotation, fmt.Sprintf("ProfilerStep#%d", 3+step), nil)
			p.begin(frame, "train.py(88): train_step", nil)
			if h.start != nil {
				h.start(p, step)
			}
			p.copy("Pinned", "Device", p.w.model.tokens*8, 2e10, computing, false)
			p.begin(frame, "nn.Module: Transformer_0", nil)
			for l := range w.model.layers {
				p.begin(frame, fmt.Sprintf("nn.Module: Block_%d", l), nil)
				if h.layer != nil {
					h.layer(p, step, l)
				}
				p.layer(false)
				p.end()
			}
			p.end()
		})
		if h.forward != nil {
			h.forward(step)
		}
		w.each(func(p *process) { p.begin(frame, "torch/autograd/__init__.py(270): backward", nil) })
		for l := range w.model.layers {
			w.each(func(p *process) {
				p.onAutograd = true
				p.layer(true)
				p.onAutograd = false
			})
			if h.gradient != nil {
				h.gradient(step, l)
			}
		}
		w.each(func(p *process) { p.end() })
		if h.backward != nil {
			h.backward(step)
		}
		w.each(func(p *process) {
			p.optimizer()
			if h.finish != nil {
				h.finish(p, step)
			}
			if w.waits {
				p.item()
			}
			if h.after != nil {
				h.after(p, step)
			}
			p.end()
			p.end()
			if h.between != nil {
				h.between(p, step)
			}
		})
	}
	w.each(func(p *process) {
		p.wait("cudaDeviceSynchronize", 0)
		p.end()
		p.end()
	})
}
