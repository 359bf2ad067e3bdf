// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// beside runs f on another host thread, from now on; the current thread continues concurrently.
func (m *machine) beside(thread int64, f func()) {
	now, old := m.now, m.thread
	m.thread = thread
	f()
	m.now, m.thread = now, old
}

// on runs f on another host thread, while the current one waits for it.
func (m *machine) on(thread int64, f func()) {
	old := m.thread
	m.thread = thread
	f()
	m.thread = old
}

// of runs f in another process.
func (m *machine) of(pid string, thread int64, f func()) {
	old := m.pid
	m.pid = pid
	m.on(thread, f)
	m.pid = old
}

// graph replays n kernels of one graph with one launch; gap is between them.
func (m *machine) graph(n int, length, gap int64) {
	m.corr++
	start := m.now
	m.now += m.about(8000)
	key := [2]int64{m.device, 7}
	at := max(m.now+m.about(6000), m.free[key]+gap)
	m.host(m.style.runtime, m.graphLaunch(), start, m.now, fmt.Sprintf(`"correlation":%d`, m.corr))
	for i := range n {
		m.event(m.style.kernel, fmt.Sprintf("triton_poi_fused_%d", i%7), fmt.Sprint(m.device), "7", at, at+length,
			fmt.Sprintf(`"device":%d,"stream":7,"correlation":%d`, m.device, m.corr))
		m.free[key] = at + length
		at += length + gap
	}
}

func (m *machine) frame(name string, f func()) { m.within("python_function", name, f) }

// reduce launches a collective after all work of stream 7.
func (m *machine) reduce(kernel, collective string, elements int, length int64) (end int64) {
	return m.launch(work{
		name: kernel, length: length, stream: 20, after: m.free[[2]int64{m.device, 7}],
		args: fmt.Sprintf(
			`,"Collective name":%q,"In msg nelems":%d,"Out msg nelems":%d,"dtype":"BFloat16","Group size":8`,
			collective, elements, elements),
	})
}

func (m *machine) copies(direction string, bytes, length, stream int64) (end int64) {
	return m.launch(work{
		name: "Memcpy " + direction, length: length, stream: stream, category: m.style.copying,
		args: fmt.Sprintf(`,"bytes":%d`, bytes),
	})
}

// shapes returns realistic jobs: several threads, processes and devices, and several causes.
func shapes() map[string]program {
	const us, ms = int64(1000), int64(1_000_000)
	const allReduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
	stall := func(d int64) func(_, _ facts.Report) time.Duration {
		return func(_, _ facts.Report) time.Duration { return time.Duration(d) }
	}
	return map[string]program{
		"loader with workers and a thread that pins memory": {kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				m.beside(4900, func() {
					m.within(m.style.operator, "aten::pin_memory", func() {
						m.call("cudaHostAlloc", 900*us)
						m.now += 500 * us
					})
				})
				m.load(20 * us)
				if sick {
					m.load(4 * ms)
				}
				m.copies("HtoD (Pinned -> Device)", 600_000, 40*us, 7)
				m.layers(60, 150*us)
				m.wait("aten::item")
			})
		}},
		"one profiled step that begins with the loader": {
			kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
				m.steps(1, func(int) {
					if sick {
						m.load(30 * ms)
					}
					m.layers(100, 300*us)
					m.wait("aten::item")
				})
			}, loss: stall(30 * ms),
		},
		"one request with a slow tokenizer": {
			kind: semconv.GPUFindingKindHostWork, says: "tokenize", run: func(m *machine, sick bool) {
				m.within("user_annotation", "generate", func() {
					if sick {
						m.within("user_annotation", "tokenize", func() { m.now += 25 * ms })
					}
					m.layers(100, 300*us)
					m.wait("aten::item")
				})
			}, loss: stall(25 * ms),
		},
		"queue that a thread of the program fills": {
			kind: semconv.GPUFindingKindLoader, says: "queue", run: func(m *machine, sick bool) {
				m.steps(10, func(int) {
					if sick {
						m.frame("train.py(88): train", func() {
							m.frame("queue.py(154): get", func() {
								m.frame("threading.py(323): wait", func() {
									m.frame("<method 'acquire' of '_thread.lock' objects>", func() { m.now += m.about(4 * ms) })
								})
							})
						})
					}
					m.layers(60, 150*us)
					m.wait("aten::item")
				})
			},
		},
		"gradients in buckets, the last ones exposed": {kind: semconv.GPUFindingKindExposedCommunication, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.within("user_annotation", "DistributedDataParallel.forward", func() { m.layers(40, 150*us) })
				m.on(4812, func() { // autograd
					for range 4 {
						m.layers(10, 200*us)
						length := 200 * us
						if sick {
							length = 3 * ms
						}
						m.within(m.style.operator, "nccl:all_reduce", func() { m.reduce(allReduce, "allreduce", 25_000_000, length) })
					}
				})
				m.free[[2]int64{0, 7}] = max(m.free[[2]int64{0, 7}], m.free[[2]int64{0, 20}])
				m.within("user_annotation", "Optimizer.step#AdamW.step", func() { m.layers(5, 400*us) })
			})
		}},
		"pipeline that fills and drains": {kind: semconv.GPUFindingKindLateRank, says: "recv", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for k := range 4 {
					length := 100 * us
					if sick && k == 0 {
						length = m.about(9 * ms)
					}
					m.free[[2]int64{0, 7}] = m.reduce("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "recv", 8_000_000,
						length)
					m.layers(25, 150*us)
				}
			})
		}},
		"layers on two devices that work in turn": {
			kind: semconv.GPUFindingKindDependency, says: "GPU 0", devices: 2, run: func(m *machine, _ bool) {
				m.steps(10, func(int) {
					m.device = 0
					m.free[[2]int64{0, 7}] = max(m.free[[2]int64{0, 7}], m.free[[2]int64{1, 7}])
					m.layers(20, 300*us)
					m.device = 1
					m.free[[2]int64{1, 7}] = max(m.free[[2]int64{1, 7}], m.free[[2]int64{0, 7}])
					m.layers(20, 300*us)
				})
			}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.Idle },
		},
		"graphs with a scheduler between replays": {
			kind: semconv.GPUFindingKindHostWork, says: "schedule", run: func(m *machine, sick bool) {
				for range 40 {
					if sick {
						m.frame("vllm/v1/engine/core.py(301): step", func() {
							m.frame("vllm/v1/core/sched/scheduler.py(155): schedule", func() { m.now += m.about(2 * ms) })
						})
					}
					m.graph(120, 25*us, 1*us)
					m.copies("DtoH (Device -> Pinned)", 256, 2*us, 7)
					m.wait("")
				}
			},
		},
		"graphs of kernels that are too short": {
			kind: semconv.GPUFindingKindLaunchBound, says: "launched by graphs already", run: func(m *machine, _ bool) {
				for range 20 {
					m.graph(300, 2*us, 2*us)
				}
			}, loss: func(s, _ facts.Report) time.Duration { return s.Window - s.Parts.Computing },
		},
		"optimizer on the host": {kind: semconv.GPUFindingKindHostWork, says: "adam", run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				m.layers(80, 200*us)
				m.copies("DtoH (Device -> Pinned)", 20_000_000, 900*us, 22)
				m.wait("")
				if sick {
					m.frame("deepspeed/ops/adam/cpu_adam.py(152): step", func() {
						m.frame("<built-in method adam_update of PyCapsule object>", func() { m.now += m.about(12 * ms) })
					})
				}
				m.copies("HtoD (Pinned -> Device)", 20_000_000, 900*us, 7)
			})
		}},
		"checkpoint in the middle": {kind: semconv.GPUFindingKindCheckpoint, says: "write", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				m.layers(50, 200*us)
				m.wait("aten::item")
				if sick && i == 4 {
					m.frame("torch/serialization.py(944): save", func() {
						for range 20 {
							m.within(m.style.operator, "aten::copy_", func() {
								m.copies("DtoH (Device -> Pageable)", 400_000, 40*us, 7)
								m.wait("")
							})
							m.frame("<method 'write' of '_io.BufferedWriter' objects>", func() { m.now += m.about(8 * ms) })
						}
					})
				}
			})
		}},
		"checkpoint deep in a library": {kind: semconv.GPUFindingKindCheckpoint, says: "save_checkpoint", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				m.layers(50, 200*us)
				m.wait("aten::item")
				if !sick || i != 4 {
					return
				}
				m.frame("train.py(80): save_checkpoint", func() {
					m.frame("torch/serialization.py(944): save", func() {
						m.frame("torch/serialization.py(1150): _save", func() {
							m.frame("<built-in method dump of _pickle.Pickler object at 0x7f>", func() { m.now += m.about(30 * ms) })
							for range 100 {
								m.frame("<built-in method write_record of PyCapsule object at 0x7f>", func() { m.now += 150 * us })
								m.copies("DtoH (Device -> Pinned)", 400_000, 10*us, 7)
							}
						})
						m.frame("torch/serialization.py(773): __exit__", func() {
							m.frame("<built-in method write_end_of_file of PyCapsule object at 0x7f>", func() { m.now += m.about(60 * ms) })
						})
					})
				})
			})
		}},
		"another thread that holds the interpreter for 0.6 ms": {kind: semconv.GPUFindingKindHostWork, says: "another thread of the process was in augment.py(12): jitter", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 20 {
					m.layers(4, 200*us)
					m.wait("aten::item")
					if sick {
						m.beside(5000, func() { m.frame("augment.py(12): jitter", func() { m.now += 600 * us }) })
						m.frame("train.py(40): step", func() { m.now += 600 * us })
					}
				}
			})
		}},
		"checkpoint written by another thread": {run: func(m *machine, _ bool) {
			m.steps(8, func(int) {
				m.beside(5000, func() {
					m.frame("<method 'write' of '_io.BufferedWriter' objects>", func() { m.now += 8 * ms })
				})
				m.layers(80, 200*us)
			})
		}},
		"collections of garbage": {kind: semconv.GPUFindingKindHostWork, says: "Python GC", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 4 {
					m.layers(12, 150*us)
					if sick {
						m.frame("model.py(40): forward", func() {
							m.within("python_function", "Python GC", func() { m.now += m.busy(0) - m.now + 2*ms })
						})
					}
				}
			})
		}, loss: stall(8 * 4 * 2 * ms)},
		"figures that are logged": {kind: semconv.GPUFindingKindHostWork, says: "logging", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(60, 150*us)
				m.within(m.style.operator, "aten::to", func() {
					m.copies("DtoH (Device -> Pageable)", 4, 2*us, 7)
					m.wait("")
				})
				if sick {
					m.frame("logging/__init__.py(1477): info", func() { m.now += m.about(3 * ms) })
				}
			})
		}},
		"compilation in the window": {kind: semconv.GPUFindingKindCompilation, says: "the host compiled", run: func(m *machine, sick bool) {
			m.steps(8, func(i int) {
				m.layers(50, 200*us)
				if sick && i < 2 {
					m.within(m.style.operator, "_compile.compile_inner (dynamo_timed)", func() {
						m.within(m.style.operator, "inductor_codecache (dynamo_timed)", func() { m.now += m.busy(0) - m.now + 70*ms })
					})
				}
				m.wait("")
			})
		}, loss: stall(140 * ms)},
		"copies on a separate stream that computing waits for": {
			kind: semconv.GPUFindingKindExposedCopies, says: "host to device",
			run: func(m *machine, sick bool) {
				m.steps(10, func(int) {
					length := 5 * us
					if sick {
						length = 4 * ms
					}
					m.free[[2]int64{0, 21}] = max(m.free[[2]int64{0, 21}], m.free[[2]int64{0, 7}])
					m.free[[2]int64{0, 7}] = m.copies("HtoD (Pinned -> Device)", 90_000_000, length, 21)
					m.layers(60, 150*us)
				})
			},
		},
		"logits that go to the host": {kind: semconv.GPUFindingKindPageableCopies, says: "device to host", run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				m.layers(60, 150*us)
				m.within(m.style.operator, "aten::_to_copy", func() {
					length := 5 * us
					if sick {
						length = 6 * ms
					}
					end := m.copies("DtoH (Device -> Pageable)", 40_000_000, length, 7)
					m.now = max(m.now, end+3000)
				})
			})
		}},
		"two processes on one device, both starved": {kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
			for range 10 {
				for _, thread := range []int64{4711, 7711} {
					m.on(thread, func() {
						m.load(20 * us)
						if sick {
							m.load(3 * ms)
						}
						m.layers(40, 150*us)
						m.wait("")
					})
				}
			}
		}},
		"streams that wait for each other": {run: func(m *machine, _ bool) {
			m.steps(10, func(int) {
				for range 30 {
					for _, stream := range []int64{7, 13} {
						m.operator("aten::mm", work{
							name: "gemm", length: m.about(300 * us), stream: stream, after: m.busy(0) + 4*us,
							args: `,"grid":[64,8,1],"block":[256,1,1]`,
						})
					}
				}
			})
		}},
		"activities without anything of the host": {kind: semconv.GPUFindingKindUnexplainedIdle, run: func(m *machine, _ bool) {
			at := int64(1_000_000)
			for i := range 400 {
				m.event(m.style.kernel, "k", "0", "7", at, at+20*us, `"device":0,"stream":7`)
				at += 20*us + int64(i%3)*40*us
			}
		}, loss: func(s, _ facts.Report) time.Duration { return s.Window - s.Parts.Computing }},
		"window that begins amid the device's work": {kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
			at := m.now - 700*us // launched before the profiler began
			for range 10 {
				m.event(m.style.kernel, "k", "0", "7", at, at+150*us, `"device":0,"stream":7,"correlation":9999999`)
				at += 152 * us
			}
			m.free[[2]int64{0, 7}] = at
			m.steps(8, func(int) {
				if sick {
					m.load(4 * ms)
				}
				m.layers(60, 150*us)
				m.wait("aten::item")
			})
		}, loss: func(s, h facts.Report) time.Duration { return s.Window - h.Window }},
		"replicas on threads of one process": {
			kind: semconv.GPUFindingKindLaunchBound, devices: 4, run: func(m *machine, _ bool) {
				m.steps(6, func(int) {
					for k := range 60 { // one lock for all threads
						for d := range int64(4) {
							m.device = d
							m.on(4800+d, func() {
								m.operator("aten::linear", work{name: fmt.Sprint("gemm", k%3), length: m.about(15 * us), stream: 7})
							})
						}
					}
				})
			}, loss: func(s, _ facts.Report) time.Duration { return s.Window - s.Parts.Computing },
		},
		"optimizer with a kernel for each tensor": {
			kind: semconv.GPUFindingKindLaunchBound, says: "Optimizer.step", run: func(m *machine, sick bool) {
				m.steps(6, func(int) {
					m.layers(40, 150*us)
					m.wait("")
					m.within("user_annotation", "Optimizer.step#Adam.step", func() {
						for range 600 {
							m.operator("aten::mul_", work{name: "vectorized_elementwise_kernel", length: m.about(3 * us), stream: 7})
							m.now += m.about(12 * us)
						}
					})
				})
			}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.Idle },
		},
		"products without tensor cores": {
			kind: semconv.GPUFindingKindSinglePrecision, says: "aten::mm", run: func(m *machine, _ bool) {
				m.style.model = "NVIDIA A100-SXM4-80GB"
				m.steps(6, func(int) {
					for range 10 { // 4096³ twice is 137 GFLOP: 8 ms are 17 of 19.5 TFLOP/s
						start := m.now
						m.launch(work{name: "ampere_sgemm_128x128_nn", length: 8 * ms, stream: 7, args: `,"grid":[32,32,1]`})
						m.host(m.style.operator, "aten::mm", start, m.now,
							`"Input Dims":[[4096,4096],[4096,4096]],"Input type":["float","float"]`)
					}
				})
			},
			// The rest would do at 70 % of 156 TFLOP/s: 1.26 ms.
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.Computing * (8000 - 1259) / 8000 },
		},
		"products whose last wave is a fifth full": {
			kind: semconv.GPUFindingKindTailWave, says: "aten::mm", run: func(m *machine, sick bool) {
				m.style.model = "NVIDIA A100-SXM4-80GB"
				grid := "[27,16,1]" // 432 blocks are 4 waves on 108 multiprocessors
				if sick {
					grid = "[23,15,1]"
				}
				m.steps(6, func(int) {
					for range 100 { // 4096³ twice is 137 GFLOP: 831 µs are 165 of 312 TFLOP/s
						start := m.now
						m.launch(work{
							name: "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_nn", length: 831 * us, stream: 7,
							args: `,"grid":` + grid + `,"block":[256,1,1],"registers per thread":234,"shared memory":73728`,
						})
						m.host(m.style.operator, "aten::mm", start, m.now,
							`"Input Dims":[[4096,4096],[4096,4096]],"Input type":["c10::BFloat16","c10::BFloat16"]`)
					}
				})
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.Computing * (432 - 345) / 432 },
		},
		"barrier of all ranks": {kind: semconv.GPUFindingKindWaitingForRank, says: "barrier", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(60, 150*us)
				m.wait("")
				if sick {
					m.within(m.style.operator, "c10d::barrier", func() {
						m.now += m.about(3 * ms)
						m.call(m.style.sync, m.about(300*us))
					})
				}
			})
		}},
		"segments that grow": {kind: semconv.GPUFindingKindAllocation, says: "cuMem", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(30, 150*us)
				if sick {
					m.wait("")
					m.within(m.style.operator, "aten::empty_strided", func() {
						for range 10 {
							m.call("cuMemCreate", m.about(250*us))
							m.call("cuMemMap", m.about(10*us))
							m.call("cuMemSetAccess", m.about(40*us))
						}
					})
				}
			})
		}},
		"many small copies": {kind: semconv.GPUFindingKindLaunchBound, says: "aten::copy_", run: func(m *machine, _ bool) {
			m.style.copyCall = strings.Replace(m.style.copyCall, "WithStream", "Async", 1) // the other function waits for the copy
			m.steps(6, func(int) {
				m.layers(10, 100*us)
				m.wait("")
				for range 400 {
					m.within(m.style.operator, "aten::copy_", func() {
						m.now += m.about(15 * us)
						m.copies("HtoD (Pinned -> Device)", 8, 1200, 7)
					})
				}
			})
		}, loss: func(s, _ facts.Report) time.Duration { return s.Parts.Idle }},
	}
}
