// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/profiletracetest"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/internal/recorded"
	"github.com/otelgpu/otelgpu/semconv"
)

// shaped launches one kernel from an operator whose inputs are recorded.
func (m *machine) shaped(name, inputs, types string, w work) {
	start := m.now
	m.now += m.about(3000)
	m.launch(w)
	m.now += m.about(2000)
	m.host(m.style.operator, name, start, m.now, fmt.Sprintf(`"Input Dims":[%s],"Input type":[%s]`, inputs, types))
}

// own records overhead of the profiler itself as Kineto does: on a row without a process.
func (m *machine) own(name string, length int64) {
	m.event("overhead", name, "-1", "0", m.now, m.now+length, "")
	m.now += length
}

// heldBack launches kernels in groups that start together, long after their launches.
func heldBack(m *machine) {
	m.steps(8, func(int) {
		for range 10 {
			held := m.now + 900_000
			for range 8 {
				m.operator("aten::addmm", work{name: "ampere_sgemm_128x64_tn", length: 20_000, stream: 7, after: held, args: fullGrid})
			}
			m.now += 300_000
		}
	})
}

// faults returns other programs with a fault.
func faults() map[string]program {
	const us, ms = int64(1000), int64(1_000_000)
	elementwise := func(m *machine, name string, n int) {
		// 8192² of bf16 are 134 MB: read and written in 165 µs at 80 % of 2.04 TB/s
		for i := range n {
			m.shaped(name, `[8192,8192],[8192,8192]`, `"c10::BFloat16","c10::BFloat16"`, work{
				name:   fmt.Sprintf("void at::native::vectorized_elementwise_kernel<4, at::native::Functor%d>", i),
				length: 247 * us, stream: 7, args: `,"grid":[131072,1,1],"block":[128,1,1]`,
			})
		}
	}
	return map[string]program{
		"convolutions that are tried out in the first step": {kind: semconv.GPUFindingKindAutotuning, says: "12 of 96 calls of aten::cudnn_convolution launch 9 kernels of different names each, the others 1", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				for layer := range 12 {
					m.within(m.style.operator, "aten::cudnn_convolution", func() {
						if sick && i == 0 {
							for k := range 8 {
								m.call(m.style.malloc, m.about(900*us))
								m.launch(work{name: fmt.Sprintf("trial%d_of_%d", k, layer%3), length: m.about(3 * ms), stream: 7})
								m.wait("")
								m.call(m.style.free, m.about(400*us))
							}
						}
						m.launch(work{name: fmt.Sprintf("xmma_fprop_%d", layer%3), length: m.about(600 * us), stream: 7})
					})
				}
				m.wait("aten::item")
			})
		}},
		"elementwise operators that nothing fuses": {kind: semconv.GPUFindingKindFusion, says: "96 results go to the next", run: func(m *machine, _ bool) {
			m.style.model = "NVIDIA A100-SXM4-80GB"
			m.steps(6, func(int) {
				for range 4 {
					m.layers(2, 300*us)
					elementwise(m, "aten::mul", 5)
				}
			})
		}, loss: func(s, _ facts.Report) time.Duration { return time.Duration(6 * 4 * 4 * 2 * 247 / 3 * us) }},
		"launcher that waits for a thread of Python": {kind: semconv.GPUFindingKindHostWork, says: "augment", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.frame("train.py(50): train_step", func() {
					for range 4 {
						m.layers(6, 150*us)
						if sick {
							m.now = m.busy(0)
							m.beside(5001, func() { m.frame("augment.py(12): augment", func() { m.now += 3 * ms }) })
							m.now += 3 * ms
						}
					}
				})
			})
		}},
		"a loss that is read in every step": {kind: semconv.GPUFindingKindSynchronization, says: "_local_scalar_dense", run: func(m *machine, sick bool) {
			m.steps(12, func(int) {
				m.now += 100 * us
				m.layers(40, 150*us)
				if sick {
					m.within(m.style.operator, "aten::item", func() { m.wait("aten::_local_scalar_dense") })
					m.now += m.about(1500 * us)
				}
			})
		}},
		"a wait at the end of the step, and a loader without records": {
			kind: semconv.GPUFindingKindHostWork, says: "then did something in no named range", run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					m.layers(60, 150*us)
					if sick {
						m.wait("")
						m.now += m.about(5 * ms)
					}
				})
			},
		},
		"a result that is read, and long Python without records": {
			kind: semconv.GPUFindingKindHostWork, says: "if that does not need what was waited for", run: func(m *machine, sick bool) {
				m.steps(8, func(int) {
					for range 3 {
						m.layers(40, 150*us)
						if sick {
							m.within(m.style.operator, "aten::item", func() { m.wait("aten::_local_scalar_dense") })
							m.now += m.about(4 * ms)
						}
					}
				})
			},
		},
		"launches that Windows hands over in batches": {
			kind: semconv.GPUFindingKindDependency, says: "WDDM", run: func(m *machine, _ bool) {
				m.head = `"traceName":"C:\\runs\\trace.json",`
				heldBack(m)
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.Idle },
		},
		"launches that wait together on another system": {
			kind: semconv.GPUFindingKindDependency, says: "something that the file does not show", run: func(m *machine, _ bool) { heldBack(m) },
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.Idle },
		},
		"a loader on Windows": {kind: semconv.GPUFindingKindLoader, says: "dataloader.py(631): __next__", run: func(m *machine, sick bool) {
			m.steps(12, func(int) {
				m.layers(60, 200*us)
				m.wait("aten::item")
				if sick {
					m.within("python_function", `torch\utils\data\dataloader.py(631): __next__`, func() {
						m.within("python_function", `torch\utils\data\dataloader.py(1329): _next_data`, func() { m.now += 3 * ms })
					})
				}
			})
		}},
		"memory near its limit": {kind: semconv.GPUFindingKindAllocation, says: "at the limit of the device's memory", run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				for range 3 {
					m.layers(10, 200*us)
					if sick {
						m.within(m.style.operator, "aten::empty", func() {
							m.call(m.style.malloc, m.about(300*us))
							m.wait("")
							for range 6 {
								m.call(m.style.free, m.about(400*us))
							}
							m.call(m.style.malloc, m.about(600*us))
						})
					}
				}
			})
		}},
		"copies between devices over PCIe": {kind: semconv.GPUFindingKindExposedCopies, says: "PCIe", run: func(m *machine, sick bool) {
			if m.style.name == "xpu" { // the table of peaks has no link for it
				m.style.model = "NVIDIA A100-SXM4-80GB"
			}
			m.steps(10, func(int) {
				m.layers(30, 150*us)
				length := 100 * us
				if sick {
					length = 3 * ms
				}
				m.copies("PtoP (Device -> Device)", 50_000_000, length, 7)
			})
		}},
		"validation among steps, with a separate loader": {kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
			m.steps(10, func(i int) {
				m.layers(60, 150*us)
				if i%4 == 3 {
					m.within("user_annotation", "validation", func() {
						for range 6 {
							if sick {
								m.load(8 * ms)
							}
							m.layers(10, 100*us)
							m.wait("aten::item")
						}
					})
				}
			})
		}},
		"shapes that change, compiled again": {kind: semconv.GPUFindingKindCompilation, says: "the host compiled, in torch/_dynamo/convert_frame.py(1085): __call__", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				m.layers(40, 150*us)
				if sick && i%2 == 1 {
					m.frame("train.py(20): main", func() {
						m.frame("torch/_dynamo/convert_frame.py(1085): __call__", func() {
							m.frame("torch/_dynamo/symbolic_convert.py(2500): run", func() { m.now += m.busy(0) - m.now + 4*ms })
							m.frame("torch/_inductor/graph.py(1600): codegen", func() {
								m.frame("torch/_inductor/scheduler.py(1600): fuse_nodes", func() { m.now += 4 * ms })
								m.frame("subprocess.py(1100): communicate", func() { m.now += 5 * ms })
							})
						})
					})
				}
				m.wait("")
			})
		}, loss: func(_, _ facts.Report) time.Duration { return 3 * 13 * time.Millisecond }},
		"experts that some ranks have more of": {kind: semconv.GPUFindingKindExposedCommunication, says: "or wait for a late rank", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				for k := range 4 {
					m.layers(10, 150*us)
					length := 200 * us
					if sick {
						length = m.about(3 * ms)
					}
					n := 1000 * (i*4 + k + 1) // each of a different size
					end := m.reduce("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", n, length)
					m.free[[2]int64{0, 7}] = end
				}
			})
		}},
		"experts with fewer tokens than others": {kind: semconv.GPUFindingKindExpertImbalance, says: "differ by 66.7 %", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				for k := range 4 {
					m.layers(10, 150*us)
					n := 1000 * (i*4 + k + 1) // one of each size
					for side, sizes := range [][2]int{{2 * n, n}, {n, 2 * n}} {
						length := int64(n) * us / 50
						if sick && side == 1 && i+k > 0 { // these experts finish early
							length += m.about(3 * ms)
						}
						m.free[[2]int64{0, 7}] = m.launch(work{
							name: "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", length: length, stream: 20, after: m.free[[2]int64{0, 7}],
							args: fmt.Sprintf(`,"Collective name":"all_to_allv","In msg nelems":%d,"Out msg nelems":%d,"dtype":"BFloat16","Group size":8`,
								sizes[0], sizes[1]),
						})
					}
				}
			})
		}},
		"a late rank among even experts": {kind: semconv.GPUFindingKindLateRank, run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				for range 4 {
					m.layers(10, 150*us)
					length := 200 * us
					if sick && i != 3 {
						length += m.about(3 * ms)
					}
					m.free[[2]int64{0, 7}] = m.reduce("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "all_to_allv", 1000, length)
				}
			})
		}},
		"attention in parts": {kind: semconv.GPUFindingKindUnfusedAttention, says: "48 times; most in aten::bmm", run: func(m *machine, sick bool) {
			m.style.model = "NVIDIA A100-SXM4-80GB"
			const half, query, scores = `"c10::BFloat16","c10::BFloat16"`, `[128,2048,64]`, `[128,2048,2048]`
			part := func(name, inputs string, length int64, kernel string) {
				m.shaped(name, inputs, half, work{name: kernel, length: length, stream: 7, args: fullGrid})
			}
			m.steps(4, func(int) {
				for range 12 {
					m.layers(4, 170*us)
					if sick {
						part("aten::bmm", query+`,[128,64,2048]`, 900*us, "ampere_bf16_s16816gemm_bf16_128x64")
						part("aten::mul", scores+`,[]`, 620*us, "void at::native::vectorized_elementwise_kernel<4, at::native::Mul>")
						part("aten::_softmax", scores+`,[]`, 650*us, "softmax_warp_forward")
						part("aten::bmm", scores+`,[128,2048,64]`, 800*us, "ampere_bf16_s16816gemm_bf16_64x64")
					} else { // 2 · 2 · 128 · 2048² · 64 FLOP at 70 % of 312 TFLOP/s
						part("aten::_scaled_dot_product_flash_attention", "", 629*us, "flash_fwd_kernel")
					}
				}
			})
		}},
		"products of a router beside its softmax": {run: func(m *machine, _ bool) { // no scores
			m.steps(6, func(int) {
				for range 20 {
					m.layers(1, 200*us)
					m.operator("aten::_softmax", work{name: "softmax_warp_forward", length: m.about(150 * us), stream: 7, args: fullGrid})
					m.layers(1, 200*us)
				}
			})
		}},
		"products in single precision, by their names": {
			kind: semconv.GPUFindingKindSinglePrecision, says: "ampere_sgemm_128x64_tn", run: func(m *machine, _ bool) {
				m.style.model = "NVIDIA A100-SXM4-80GB"
				m.steps(4, func(int) {
					for range 20 {
						m.operator("aten::mm", work{name: "ampere_sgemm_128x64_tn", length: m.about(500 * us), stream: 7, args: fullGrid})
						m.layers(1, 100*us)
					}
				})
			},
			loss: func(s, _ facts.Report) time.Duration { // 19.5 TFLOP/s, and 70 % of 156
				for _, k := range s.ByKernel {
					if k.Name == "ampere_sgemm_128x64_tn" {
						return time.Duration(float64(k.Alone) * (1 - 19.5/(0.7*156)))
					}
				}
				return 0
			},
		},
		"products in double precision": {
			kind: semconv.GPUFindingKindSinglePrecision, says: "products are in double precision", run: func(m *machine, _ bool) {
				m.style.model = "NVIDIA A100-SXM4-80GB"
				m.steps(4, func(int) {
					for range 10 { // 4096³ twice is 137 GFLOP: 9 ms are 15.3 of 19.5 TFLOP/s
						m.shaped("aten::mm", "[4096,4096],[4096,4096]", `"double","double"`,
							work{name: "sm80_xmma_gemm_f64f64_f64f64_f64", length: 9000 * us, stream: 7, args: fullGrid})
					}
				})
			},
			// The rest would do at 70 % of 156 TFLOP/s: 1.26 ms.
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.Computing * (9000 - 1259) / 9000 },
		},
		"a reduction for each parameter": {kind: semconv.GPUFindingKindExposedCommunication, says: "fewer and larger messages", run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				m.layers(40, 150*us)
				if sick {
					for range 120 {
						m.free[[2]int64{0, 7}] = m.reduce("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
							"allreduce", 4096, 30*us)
					}
				}
				m.wait("")
			})
		}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.CommExposed }},
		"tensors that are copied to the device one by one": {
			kind: semconv.GPUFindingKindSynchronization, says: "the host waited for each of its copies to the device",
			run: func(m *machine, sick bool) {
				m.steps(6, func(int) {
					if sick {
						for range 200 {
							m.within(m.style.operator, "aten::copy_", func() {
								m.copies("HtoD (Pageable -> Device)", 4096, 2*us, 7)
								m.wait("")
								m.now += 10 * us
							})
						}
					}
					m.layers(60, 150*us)
					m.wait("aten::item")
				})
			},
			loss: func(s, _ facts.Report) time.Duration { // all idle time except launch latency
				for _, c := range s.Idle {
					if c.Cause == timeline.CauseSynchronization {
						return c.Time
					}
				}
				return 0
			},
		},
		"a kernel for each of many parameters": {run: func(m *machine, _ bool) { // consecutive, and independent of each other
			m.steps(4, func(int) {
				m.layers(20, 150*us)
				for range 60 {
					m.operator("aten::add_", work{
						name: "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>", length: 60 * us, stream: 7,
						args: fullGrid,
					})
				}
			})
		}},
		"decoding that moves the weights": {run: func(m *machine, _ bool) {
			m.style.model = "NVIDIA A100-SXM4-80GB"
			for range 40 {
				for range 20 { // 8192 x 8192 of bf16 are 134 MB: 80 µs at 82 % of 2.04 TB/s
					m.shaped("aten::mm", `[1,8192],[8192,8192]`, `"c10::BFloat16","c10::BFloat16"`, work{
						name: "gemv2T_kernel_val", length: 80 * us, stream: 7, args: `,"grid":[2048,1,1],"block":[128,1,1]`,
					})
				}
			}
		}},
		"a profiler that gets in the way": {kind: semconv.GPUFindingKindProfilerOverhead, says: "Activity Buffer Request", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				for k := range 10 {
					m.layers(5, 150*us)
					if sick && (i == 0 || k == 9) {
						m.now = max(m.now, m.busy(0))
						m.own("Activity Buffer Request", m.about(2*ms))
					}
				}
				m.wait("aten::item")
			})
		}},
		"checkpoint in one call without frames": {kind: semconv.GPUFindingKindHostWork, says: "then did something in no named range", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				m.layers(50, 200*us)
				m.wait("")
				if sick && i == 4 {
					for range 30 {
						m.within(m.style.operator, "aten::copy_", func() {
							m.copies("DtoH (Device -> Pageable)", 4_000_000, 300*us, 7)
							m.wait("")
						})
					}
					m.now += 200 * ms
				}
			})
		}},
	}
}

// A profile without a device states that, and where the host's time went.
func TestProfileWithoutADeviceStatesWhereTheHostWas(t *testing.T) {
	for _, s := range styles() {
		m := newMachine(7, s)
		m.steps(5, func(int) {
			m.load(3_000_000)
			m.within(m.style.operator, "aten::addmm", func() { m.now += 2_000_000 })
			m.beside(99, func() { m.within("user_annotation", "gloo:all_reduce", func() { m.now += 4_000_000 }) })
			m.within(m.style.operator, "aten::gelu", func() {
				m.now += 1_000_000
				m.within(m.style.operator, "aten::empty", func() { m.now += 500_000 })
			})
		})
		batches, st := convert(t, m.text(0), Options{})
		require.Empty(t, st.Devices)
		require.NotNil(t, st.Host, s.name)
		window := find(t, batches, "pytorch profile")
		require.Equal(t, 1, window.Events().Len(), "the span of the window states it, too")
		v, ok := profiletracetest.FindingOf("host", window.Events().At(0))
		require.True(t, ok)
		assert.Equal(t, st.Host.Kind, v.Kind)
		assert.Equal(t, st.Host.Chain, v.Chain)
		assert.Equal(t, semconv.GPUFindingKindNoDevice, st.Host.Kind)
		text := st.Host.String()
		assert.Contains(t, text, "no activity of a device")
		assert.Contains(t, text, "the host waited for data for 15", s.name) // ms
		assert.Contains(t, text, "aten::addmm (10.01ms)", s.name)
		assert.Contains(t, text, "aten::gelu (5.01ms)", s.name)
		assert.Contains(t, text, "on another thread gloo:all_reduce (20", s.name)
		_, st = convert(t, strings.TrimSuffix(m.text(0), "]}"), Options{Partial: true})
		require.NotNil(t, st.Host, s.name)
		assert.Equal(t, finding.Low, st.Host.Certainty)
		assert.Contains(t, st.Host.String(), "the part of the profile that could be read has no activity of a device")
		assert.Contains(t, st.Host.String(), "try: convert the whole file")
	}
	_, st := read(t, recorded.Path(t, "kineto", "hta/cpu_only/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz"), Options{})
	assert.Contains(t, st.Host.String(), "## backward ## (1.07s), aten::mm (48.13ms), aten::addmm (30.03ms)")
	assert.Contains(t, st.Host.String(), "on another thread gloo:all_reduce (1.07s)")
	_, st = read(t, recorded.Path(t, "kineto", "tracelens/b200/eager_trace.json.gz"), Options{})
	assert.Nil(t, st.Host)
}
