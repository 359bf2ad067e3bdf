// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// Kernel names of cuDNN and PyTorch.
const (
	toNhwc = "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, (bool)0, (bool)1, (cudnnKernelDataType_t)0>(" +
		"cudnn::ops::nchw2nhwc_params_t<float>, const __half *, __half *)"
	toNchw = "void cudnn::ops::nhwcToNchwKernel<__half, __half, float, (bool)1, (bool)0, (cudnnKernelDataType_t)0>(" +
		"cudnn::ops::nhwc2nchw_params_t<float>, const __half *, __half *)"
	castKernel = "void at::native::unrolled_elementwise_kernel<at::native::bfloat16_copy_kernel_cuda(" +
		"at::TensorIteratorBase&)::{lambda(float)#1}, std::array<char*, 2ul>, 4>(int)"
	copyKernel = "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<" +
		"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#3}::operator()() const::" +
		"{lambda()#12}::operator()() const::{lambda(c10::BFloat16)#1}> >(int)"
	fullGrid = `,"grid":[16,27,2],"block":[256,1,1],"blocks per SM":8.0`
)

// moving returns jobs that spend much of their time in kernels that move bytes, and similar ones
// that do not.
func moving() map[string]program {
	const us = int64(1000)
	loss := func(s, _ facts.Report) time.Duration {
		var sum time.Duration
		for _, k := range s.ByKernel {
			if movingKernels[k.Name] {
				sum += k.Alone
			}
		}
		return sum
	}
	kernel := func(name string, length int64) work {
		return work{name: name, length: length, stream: 7, args: fullGrid}
	}
	nested := func(m *machine, operators []string, w work) {
		f := func() { m.launch(w) }
		for _, name := range slices.Backward(operators) {
			inner := f
			f = func() { m.within(m.style.operator, name, inner) }
		}
		f()
	}
	convolutions := func(m *machine, operator string, sick bool, n int) {
		for range n {
			m.within(m.style.operator, operator, func() {
				if sick {
					m.launch(kernel(toNhwc, m.about(180*us)))
				}
				m.launch(kernel("sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32_nhwckrsc_nhwc", m.about(220*us)))
				if sick {
					m.launch(kernel(toNchw, m.about(160*us)))
				}
			})
		}
	}
	return map[string]program{
		"a model in NCHW with kernels for NHWC": {
			kind: semconv.GPUFindingKindDataMovement, says: "tensors are brought into another layout in aten::cudnn_convolution", loss: loss,
			run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					convolutions(m, "aten::cudnn_convolution", sick, 20)
					m.layers(10, 150*us)
				})
			},
		},
		"inputs that are made contiguous before every product": {
			kind: semconv.GPUFindingKindDataMovement, says: "aten::contiguous in attention", loss: loss,
			run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					m.within("user_annotation", "attention", func() {
						for range 24 {
							if sick {
								nested(m, []string{"aten::contiguous", "aten::clone", "aten::copy_"}, kernel(copyKernel, m.about(90*us)))
							}
							m.layers(2, 120*us)
						}
					})
				})
			},
		},
		"weights that autocast casts in every layer": {
			kind: semconv.GPUFindingKindDataMovement, says: "tensors are cast to another type in aten::linear", loss: loss,
			run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					for range 30 {
						m.within(m.style.operator, "aten::linear", func() {
							if sick {
								nested(m, []string{"aten::to", "aten::_to_copy", "aten::copy_"}, kernel(castKernel, m.about(130*us)))
							}
							m.layers(1, 150*us)
						})
					}
				})
			},
		},
		"a cache that is joined again for every token": {
			kind: semconv.GPUFindingKindDataMovement, says: "tensors are joined or padded in decode", loss: loss,
			run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					m.within("user_annotation", "decode", func() {
						for range 24 {
							if sick {
								m.operator("aten::cat", kernel("void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::"+
									"(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::OpaqueType<2u>*)", m.about(150*us)))
							}
							m.layers(1, 250*us)
						}
					})
				})
			},
		},
		"some copies among products": { // 5 % of the kernel time
			run: func(m *machine, _ bool) {
				m.steps(8, func(int) {
					for i := range 60 {
						m.layers(1, 200*us)
						if i%6 == 0 {
							m.operator("aten::copy_", kernel(castKernel, 60*us))
						}
					}
				})
			},
		},
		"elementwise kernels that compute and are bound by memory": {
			run: func(m *machine, _ bool) {
				m.style.model = "NVIDIA A100-SXM4-80GB"
				m.steps(6, func(int) {
					for range 30 {
						m.layers(1, 100*us)
						m.shaped("aten::native_layer_norm", `[8192,8192]`, `"c10::BFloat16"`, work{
							name: "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>", length: 180 * us,
							stream: 7, args: fullGrid,
						})
					}
				})
			},
		},
		"lookups in tables": { // an index selects what is moved, which is their purpose
			run: func(m *machine, _ bool) {
				m.steps(8, func(int) {
					for range 20 {
						m.operator("aten::embedding", kernel("void at::native::(anonymous namespace)::indexSelectLargeIndex<float, long, "+
							"unsigned int, 2, 2, -2, true>(float*)", m.about(300*us)))
						m.layers(1, 100*us)
					}
				})
			},
		},
	}
}

// movingKernels has the short names of the above kernels that move bytes.
var movingKernels = map[string]bool{
	"nchwToNhwcKernel": true, "nhwcToNchwKernel": true, "CatArrayBatchedCopy": true, "elementwise_kernel": true,
	"unrolled_elementwise_kernel": true,
}

func TestCausesAndLossesOfJobsThatMoveBytes(t *testing.T) { testPrograms(t, moving()) }

// Time of copies is not charged again to the enclosing operators: convolutions at 60 % of the peak
// do not count as slower because their tensors are converted, and the rate of copies is reported.
func TestMovedBytesAreTakenOffTheOperatorsAround(t *testing.T) {
	m := newMachine(3, styles()[0])
	m.steps(8, func(int) {
		for range 20 { // [8192,8192] in bf16: read and written 268 MB, in 200 µs 1342 GB/s
			m.shaped("aten::copy_", `[8192,8192],[8192,8192]`, `"c10::BFloat16","c10::BFloat16"`,
				work{name: copyKernel, length: 200_000, stream: 7, args: fullGrid})
			start := m.now // 2·4096³ are 0.137 PFLOP: 734 µs at 60 % of 312 TFLOP/s
			for _, w := range []work{{name: "gemm_transpose_free", length: 734_000}, {name: "transpose_kernel", length: 734_000}} {
				w.stream, w.args = 7, fullGrid
				m.launch(w)
			}
			m.now += 3000
			m.host("cpu_op", "aten::mm", start, m.now,
				`"Input Dims":[[4096,4096],[4096,4096]],"Input type":["c10::BFloat16","c10::BFloat16"]`)
		}
	})
	_, st := convert(t, m.text(1), Options{Detail: DetailSteps})
	d := st.Devices[0]
	checkReport(t, d)
	assert.Len(t, d.Findings, 1, "%s", d.Findings)
	v := d.Findings[0]
	assert.Equal(t, semconv.GPUFindingKindDataMovement, v.Kind)
	assert.Equal(t, 8*20*934*time.Microsecond, v.Gain, "each kernel whole: they run one by one")
	assert.Contains(t, v.Evidence, "at 1.34 TB/s (65.8 % of the peak)")
	assert.Contains(t, v.Evidence, "320 kernels (40 a step), most in transpose_kernel in aten::mm (117.44ms)")
}
