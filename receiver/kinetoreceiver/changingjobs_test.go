// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/internal/profiletrace/timeline"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestCausesAndLossesOfChangingJobs(t *testing.T) { testPrograms(t, troubles()) }

// graphLaunch returns the name of the call that replays a graph.
func (m *machine) graphLaunch() string {
	if strings.HasPrefix(m.style.launch, "hip") {
		return "hipGraphLaunch"
	}
	return "cudaGraphLaunch"
}

// tiny launches n kernels that are shorter than their launches.
func (m *machine) tiny(n int, length int64) {
	for i := range n {
		m.operator("aten::add_", work{name: fmt.Sprintf("vectorized_elementwise_kernel<%d>", i%5), length: m.about(length), stream: 7})
		m.now += m.about(length * 4)
	}
}

// capture records the launches of f as a graph: with calls, but without device activities.
func (m *machine) capture(f func()) {
	prefix := strings.TrimSuffix(m.graphLaunch(), "GraphLaunch")
	m.call(prefix+"StreamBeginCapture_v2", 8000)
	f()
	m.call(prefix+"StreamEndCapture", 60_000)
	m.call(prefix+"GraphInstantiate", 900_000)
}

// recorded runs n operators whose kernels are captured into a graph.
func (m *machine) recorded(n int, pause int64) {
	for range n {
		m.within(m.style.operator, "aten::mul", func() {
			m.now += m.about(pause)
			m.corr++
			m.host(m.style.runtime, m.style.launch, m.now, m.now+4000, fmt.Sprintf(`"correlation":%d`, m.corr))
			m.now += 4000
		})
	}
}

// warmUp runs the part before the graph replays: eager steps and the capture.
func (m *machine) warmUp() {
	m.steps(3, func(int) {
		m.tiny(250, 4000)
		m.wait("aten::item")
	})
	m.capture(func() { m.recorded(250, 30_000) })
}

// troubles returns jobs that change over time, and shapes of files that are missing in the other
// lists.
func troubles() map[string]program {
	const us, ms = int64(1000), int64(1_000_000)
	idle := func(s, _ facts.Report) time.Duration { return s.Parts.Idle }
	return map[string]program{
		"eager steps before graphs, healthy": {also: semconv.GPUFindingKindWarmUp, run: func(m *machine, _ bool) {
			m.warmUp()
			m.steps(20, func(int) {
				m.graph(120, 25*us, us)
				m.copies("DtoH (Device -> Pinned)", 256, 2*us, 7)
			})
		}},
		"eager steps before graphs with a scheduler between": {
			kind: semconv.GPUFindingKindHostWork, says: "schedule", also: semconv.GPUFindingKindWarmUp, clean: true, run: func(m *machine, sick bool) {
				m.warmUp()
				m.steps(20, func(int) {
					m.graph(120, 25*us, us)
					m.copies("DtoH (Device -> Pinned)", 256, 2*us, 7)
					m.wait("")
					if sick {
						m.frame("engine/scheduler.py(155): schedule", func() { m.now += m.about(1500 * us) })
					}
				})
			},
		},
		"graphs that are captured again and again": {kind: semconv.GPUFindingKindGraphCapture, says: "captured graphs", run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				m.now = max(m.now, m.busy(0))
				if sick {
					m.capture(func() { m.recorded(150, 20*us) })
				}
				m.graph(120, 25*us, us)
				m.layers(4, 100*us)
				m.wait("")
			})
		}, loss: func(s, _ facts.Report) time.Duration {
			for _, c := range s.Idle {
				if c.Cause == timeline.CauseCapture { // the call that instantiates them is concurrent
					return c.Time
				}
			}
			return 0
		}},
		"memory that is taken at the start": {kind: semconv.GPUFindingKindSlowRuntimeCalls, says: "lloc in aten::empty", clean: true, run: func(m *machine, sick bool) {
			m.steps(4, func(i int) {
				if sick && i == 0 {
					m.within(m.style.operator, "aten::empty", func() { m.call(m.style.malloc, 40*ms) })
					m.call(m.style.malloc, 3*ms)
				}
				m.layers(60, 150*us)
				m.wait("aten::item")
			})
		}, loss: func(_, _ facts.Report) time.Duration { return 43 * time.Millisecond }},
		"a capture that ended before the profile began": {kind: semconv.GPUFindingKindLoader, clean: true, run: func(m *machine, sick bool) {
			m.call("cudaStreamEndCapture", 60*us)
			m.steps(8, func(int) {
				if sick {
					m.load(4 * ms)
				}
				m.layers(60, 150*us)
				m.wait("aten::item")
			})
		}},
		"a second process that is starved": {kind: semconv.GPUFindingKindLoader, devices: 2, clean: true, run: func(m *machine, sick bool) {
			for range 10 {
				m.device = 0
				now := m.now
				m.layers(40, 300*us)
				m.wait("")
				end := m.now
				m.now, m.device = now, 1
				m.of("801", 4811, func() {
					m.load(20 * us)
					if sick {
						m.load(4 * ms)
					}
					m.layers(40, 300*us)
					m.wait("")
				})
				m.now = max(m.now, end)
			}
		}, loss: idle},
		"gradient hooks on the backward thread": {kind: semconv.GPUFindingKindHostWork, says: "hook", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(30, 150*us)
				m.within(m.style.operator, "autograd::engine::evaluate_function: MeanBackward0", func() {})
				start := m.now
				m.on(4812, func() {
					for range 10 {
						m.layers(3, 150*us)
						if sick {
							m.now = max(m.now, m.busy(0))
							m.within("user_annotation", "post_accumulate_grad_hook", func() { m.now += m.about(800 * us) })
						}
					}
				})
				m.host("user_annotation", "backward", start, m.now, "")
				m.layers(5, 400*us)
			})
		}},
		"one loader batch of six is slow": {kind: semconv.GPUFindingKindLoader, clean: true, run: func(m *machine, sick bool) {
			m.steps(18, func(i int) {
				m.load(20 * us)
				if sick && i%6 == 5 {
					m.load(25 * ms)
				}
				m.layers(40, 200*us)
				m.wait("aten::item")
			})
		}},
		"thousands of tiny graphs": {kind: semconv.GPUFindingKindLaunchBound, says: "launches graphs slower than the device works them off", run: func(m *machine, _ bool) {
			for range 1500 {
				m.corr++
				start := m.now
				m.now += m.about(24 * us)
				m.host(m.style.runtime, m.graphLaunch(), start, m.now, fmt.Sprintf(`"correlation":%d`, m.corr))
				at := max(m.now+2*us, m.free[[2]int64{0, 7}]+us)
				for i := range 3 {
					m.event(m.style.kernel, fmt.Sprintf("triton_poi_fused_%d", i), "0", "7", at, at+2*us,
						fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, m.corr))
					at += 3 * us
				}
				m.free[[2]int64{0, 7}] = at - us
			}
		}, loss: idle},
		"one kernel of one block": {kind: semconv.GPUFindingKindLowParallelism, run: func(m *machine, sick bool) {
			m.steps(4, func(int) {
				m.operator("my::scan", work{
					name: "serial_scan", length: 300 * ms, stream: 7, args: `,"grid":[1,1,1],"block":[256,1,1],"blocks per SM":0.009259`,
				})
			})
		}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.Computing * 107 / 108 }},
		"modules that are loaded at the first step": {kind: semconv.GPUFindingKindSlowRuntimeCalls, says: "Module", clean: true, run: func(m *machine, sick bool) {
			call := "cuModuleLoadData"
			if strings.HasPrefix(m.style.launch, "hip") {
				call = "hipModuleLoadData"
			}
			m.steps(6, func(i int) {
				for range 5 {
					m.layers(8, 150*us)
					if sick && i == 0 {
						m.within(m.style.operator, "aten::linear", func() {
							m.call(call, max(0, m.busy(0)-m.now)+15*ms)
							m.operator("aten::addmm", work{name: "gemm", length: 100 * us, stream: 7})
						})
					}
				}
				m.wait("")
			})
		}, loss: func(_, _ facts.Report) time.Duration { return 5 * 15 * time.Millisecond }},
		"an event that the optimizer waits for": {kind: semconv.GPUFindingKindSynchronization, says: "EventSynchronize", clean: true, run: func(m *machine, sick bool) {
			call := "cudaEventSynchronize"
			if strings.HasPrefix(m.style.launch, "hip") {
				call = "hipEventSynchronize"
			}
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				m.within("user_annotation", "Optimizer.step#AdamW.step", func() {
					for range 6 {
						if sick {
							start := m.now
							m.now = max(m.now+2000, m.busy(0)+3000)
							m.host(m.style.runtime, call, start, m.now, "")
							m.now += m.about(180 * us)
						}
						m.layers(2, 250*us)
					}
				})
			})
		}, loss: idle},
		"a collector of garbage that is called": {kind: semconv.GPUFindingKindHostWork, says: "gc.collect", clean: true, run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				m.layers(50, 150*us)
				if sick {
					m.frame("train.py(70): step", func() {
						m.frame("<built-in method gc.collect of module object>", func() { m.now = max(m.now, m.busy(0)) + 6*ms })
					})
				}
			})
		}, loss: func(_, _ facts.Report) time.Duration { return 9 * 6 * time.Millisecond }},
		"clocks that go up and down": {kind: semconv.GPUFindingKindThrottle, clean: true, run: func(m *machine, sick bool) {
			m.steps(20, func(i int) {
				for k := range 40 {
					length := int64(100+100*(k%4)) * us
					if sick && i/4%2 == 1 {
						length = length * 14 / 10
					}
					m.operator("aten::mm", work{
						name: fmt.Sprintf("gemm%d", k%4), length: length, stream: 7, args: `,"grid":[64,8,2],"block":[256,1,1]`,
					})
				}
			})
		}},
		"sequences by length, healthy": {run: func(m *machine, _ bool) {
			m.style.model = "NVIDIA A100-SXM4-80GB"
			m.steps(16, func(i int) {
				for k := range 40 { // persistent kernels: the grid has the size of the device for any shape
					m.shaped("aten::mm", fmt.Sprintf("[%d,8192],[8192,8192]", 256*(i+3)), `"c10::BFloat16","c10::BFloat16"`, work{
						name: fmt.Sprintf("persistent_gemm%d", k%4), length: int64(i+3) * 160 * us, stream: 7,
						args: `,"grid":[108,1,1],"block":[256,1,1]`,
					})
				}
			})
		}},
		"micro-steps of uneven length, healthy": {run: func(m *machine, _ bool) {
			m.style.step = "ProfilerStep#%d" // without steps, longer inputs look like a slower device
			m.steps(6, func(int) {
				for k := range 4 {
					m.within("user_annotation", "micro_batch", func() { m.layers(20+15*k, 100*us+50*us*int64(k)) })
				}
				m.layers(4, 500*us)
			})
		}},
		"results that go to the host beside computing": {run: func(m *machine, _ bool) {
			m.steps(8, func(int) {
				for range 10 {
					m.layers(6, 200*us)
					m.copies("DtoH (Device -> Pinned)", 20_000_000, 900*us, 22)
					m.copies("HtoD (Pinned -> Device)", 20_000_000, 900*us, 23)
				}
			})
		}},
		"steps on two threads that overlap": {kind: semconv.GPUFindingKindLoader, clean: true, run: func(m *machine, sick bool) {
			at := [2]int64{m.now, m.now + 3*ms}
			for range 8 {
				for k := range 2 {
					m.now = at[k]
					m.on(4711+int64(k), func() {
						m.steps(1, func(int) {
							if sick {
								m.load(14 * ms)
							}
							for range 40 {
								m.operator("aten::mm", work{name: "gemm", length: m.about(150 * us), stream: int64(7 + k)})
							}
							m.now = max(m.now, m.free[[2]int64{0, int64(7 + k)}]) // spins like a program that polls
						})
					})
					at[k] = m.now
				}
			}
		}, loss: idle},
		"a link that is slow": {kind: semconv.GPUFindingKindExposedCommunication, says: "at 1.67 GB/s at best", run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				m.layers(40, 150*us)
				for range 4 {
					length := 6 * ms
					if !sick {
						length = 600 * us
					}
					m.free[[2]int64{0, 7}] = m.launch(work{
						name: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", length: length, stream: 20,
						after: m.free[[2]int64{0, 7}],
						args:  `,"Collective name":"allreduce","In msg nelems":5000000,"Out msg nelems":5000000,"dtype":"BFloat16","Group size":2`,
					})
				}
				m.wait("")
			})
		}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.CommExposed }},
		"environments that step behind pipes": {kind: semconv.GPUFindingKindHostWork, says: "the host was in rl/subproc.py(130): step_wait", run: func(m *machine, sick bool) {
			m.steps(40, func(int) {
				m.frame("rl/policy.py(20): forward", func() { m.layers(12, 150*us) })
				m.wait("aten::item")
				m.frame("rl/subproc.py(130): step_wait", func() {
					for range 8 {
						m.frame("multiprocessing/connection.py(246): recv", func() {
							m.frame("multiprocessing/connection.py(374): _recv", func() {
								m.frame("<built-in function read>", func() {
									if sick {
										m.now += m.about(300 * us)
									}
								})
							})
						})
					}
				})
			})
		}},
		"hooks of Python around each layer": {kind: semconv.GPUFindingKindHostWork, says: "hooks.py", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 20 {
					m.layers(1, 300*us)
					if sick {
						m.frame("hooks.py(12): log_activation", func() { m.now = max(m.now, m.busy(0)) + m.about(600*us) })
					}
				}
			})
		}},
		"the cache is emptied in every step": {kind: semconv.GPUFindingKindAllocation, says: "empty_cache", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				if sick {
					m.within(m.style.operator, "torch::empty_cache", func() {
						m.now = max(m.now, m.busy(0))
						for range 12 {
							m.call(m.style.free, m.about(300*us))
						}
					})
					for range 12 {
						m.within(m.style.operator, "aten::empty", func() { m.call(m.style.malloc, m.about(200*us)) })
					}
				}
			})
		}},
		"a callback of the host in the stream": {kind: semconv.GPUFindingKindDependency, clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 4 {
					m.layers(10, 150*us)
					if sick {
						m.call("cudaLaunchHostFunc", 5*us)
						m.free[[2]int64{0, 7}] += 2 * ms
					}
				}
			})
		}},
		"graphs with a tail of small kernels": {kind: semconv.GPUFindingKindLaunchBound, says: "sample", clean: true, run: func(m *machine, sick bool) {
			for range 40 {
				m.graph(100, 20*us, us)
				m.within("user_annotation", "sample_tokens", func() {
					if sick {
						m.now = max(m.now, m.busy(0))
						m.tiny(40, 4*us)
					}
				})
				m.copies("DtoH (Device -> Pinned)", 4096, 3*us, 7)
			}
		}, loss: idle},
		"a slow function within an annotation": {kind: semconv.GPUFindingKindHostWork, says: "most in text.py(9): normalize in tokenize", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				m.wait("aten::item")
				if sick {
					m.within("user_annotation", "tokenize", func() {
						m.frame("text.py(9): normalize", func() { m.now += m.about(5 * ms) })
					})
				}
			})
		}},
		"a limiter of the rate": {kind: semconv.GPUFindingKindHostWork, says: "sleep", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				m.wait("aten::item")
				if sick {
					m.frame("client.py(8): throttle", func() {
						m.frame("<built-in function sleep>", func() { m.now += m.about(5 * ms) })
					})
				}
			})
		}},
		"workers that are started for each epoch": {kind: semconv.GPUFindingKindLoader, clean: true, run: func(m *machine, sick bool) {
			for e := range 3 {
				if sick && e > 0 {
					if m.style.loader != "" {
						m.within("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__init__", func() { m.now += 60 * ms })
					} else {
						m.frame("torch/utils/data/dataloader.py(479): __iter__", func() {
							m.frame("multiprocessing/popen_fork.py(15): __init__", func() { m.now += 60 * ms })
						})
					}
				}
				m.steps(4, func(int) {
					m.load(20 * us)
					m.layers(50, 200*us)
					m.wait("aten::item")
				})
			}
		}},
		"zeros that are written again": {kind: semconv.GPUFindingKindExposedCopies, says: "memset", clean: true, run: func(m *machine, sick bool) {
			set := "gpu_memset"
			if m.style.name == "2021" {
				set = "Memset"
			}
			m.steps(8, func(int) {
				for range 10 {
					m.layers(4, 150*us)
					length := 3 * us
					if sick {
						length = m.about(400 * us)
					}
					m.operator("aten::zeros", work{name: "Memset (Device)", length: length, stream: 7, category: set, args: `,"bytes":800000000`})
				}
			})
		}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.CopyExposed }},
		"a launcher that the system puts to sleep": {kind: semconv.GPUFindingKindHostWork, says: "no named range", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 3 {
					m.layers(12, 150*us)
					if sick {
						m.now = max(m.now, m.busy(0)) + 4*ms
					}
				}
			})
		}, loss: func(_, _ facts.Report) time.Duration { return (8*3 - 1) * 4 * time.Millisecond }},
		"kernels of Triton that Python launches": {kind: semconv.GPUFindingKindLaunchBound, run: func(m *machine, _ bool) {
			for range 400 {
				m.frame("triton/runtime/jit.py(600): run", func() {
					m.now += m.about(70 * us)
					m.launch(work{name: "_layer_norm_fwd", length: m.about(12 * us), stream: 7})
				})
			}
		}, loss: idle},
		"every weight gathered just before it is used": {kind: semconv.GPUFindingKindExposedCommunication, says: "all_gather", clean: true, run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				for range 12 {
					length := 700 * us
					if !sick {
						length = 10 * us
					}
					m.within("user_annotation", "FSDP.pre_forward", func() {
						m.free[[2]int64{0, 7}] = m.reduce("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allgather", 6_000_000, length)
					})
					m.layers(5, 200*us)
				}
			})
		}},
		"metrics read back one by one": {kind: semconv.GPUFindingKindSynchronization, says: "item", clean: true, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				if sick {
					m.within("user_annotation", "log_metrics", func() {
						for range 30 {
							m.within(m.style.operator, "aten::item", func() {
								m.within(m.style.operator, "aten::_local_scalar_dense", func() {
									m.copies("DtoH (Device -> Pinned)", 4, 2*us, 7)
									m.wait("")
								})
							})
							m.now += m.about(120 * us)
						}
					})
				}
			})
		}, loss: idle},
		"host memory that is pinned for each batch": {kind: semconv.GPUFindingKindAllocation, says: "pin_memory", clean: true, run: func(m *machine, sick bool) {
			call := "cudaHostAlloc"
			if strings.HasPrefix(m.style.launch, "hip") {
				call = "hipHostMalloc"
			}
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				m.wait("")
				if sick {
					m.within(m.style.operator, "aten::pin_memory", func() { m.call(call, m.about(4*ms)) })
				}
				m.copies("HtoD (Pinned -> Device)", 1_000_000, 60*us, 7)
			})
		}},
	}
}
