// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

func TestCausesAndLossesOfSimulatedServices(t *testing.T) { testPrograms(t, services()) }

// services returns jobs whose obvious explanation is wrong: low utilization without a fault, and
// faults during part of the time.
func services() map[string]program {
	const us, ms = int64(1000), int64(1_000_000)
	const allReduce = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
	return map[string]program{
		"prefill-heavy serving": {run: func(m *machine, _ bool) {
			for i := range 12 {
				m.within("user_annotation", fmt.Sprintf("execute_context_%d(%d)_generation_0(0)", 1+i%3, 2048+i), func() {
					m.layers(80, 400*us)
				})
				m.copies("DtoH (Device -> Pinned)", 256, 2*us, 7)
			}
		}},
		"sparse requests of a server": {kind: semconv.GPUFindingKindNoLoad, says: "poll", run: func(m *machine, sick bool) {
			for range 12 {
				wait := func() { m.now += m.about(40 * ms) }
				serve := func() {
					m.within("user_annotation", "infer", func() {
						if sick {
							m.within("user_annotation", "tokenize", func() { m.now += 3 * ms })
						}
						m.layers(10, 200*us)
						m.wait("aten::item")
					})
				}
				if m.style.loader != "" { // not as Python frames
					m.within("user_annotation", "poll_requests", wait)
					serve()
					continue
				}
				m.frame("asyncio/base_events.py(1922): _run_once", func() {
					m.frame("selectors.py(451): select", func() {
						m.frame("<method 'poll' of 'select.epoll' objects>", wait)
					})
					m.frame("asyncio/events.py(82): _run", serve)
				})
			}
		}, loss: func(sick, _ facts.Report) time.Duration {
			if v := sick.Findings[1]; v.Kind != semconv.GPUFindingKindHostWork || !strings.Contains(v.String(), "tokenize") || v.Share < 0.5 {
				return v.Gain // slowness under load is the second finding
			}
			return 0
		}},
		"accumulated gradients": {kind: semconv.GPUFindingKindExposedCommunication, run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				for range 4 {
					m.within("user_annotation", "micro_batch", func() { m.layers(30, 150*us) })
				}
				length := 100 * us
				if sick {
					length = 6 * ms
				}
				m.free[[2]int64{0, 7}] = m.reduce(allReduce, "allreduce", 25_000_000, length)
				m.within("user_annotation", "Optimizer.step#AdamW.step", func() { m.layers(4, 300*us) })
			})
		}},
		"checkpoint every few steps": {kind: semconv.GPUFindingKindCheckpoint, says: "save_checkpoint", run: func(m *machine, sick bool) {
			m.steps(12, func(i int) {
				m.layers(40, 200*us)
				m.wait("aten::item")
				if sick && i%4 == 3 {
					m.within("user_annotation", "save_checkpoint", func() { m.now += m.about(30 * ms) })
				}
			})
		}},
		"checkpoint that copies the state first": {kind: semconv.GPUFindingKindCheckpoint, says: "save_checkpoint", run: func(m *machine, sick bool) {
			m.steps(12, func(i int) {
				m.layers(40, 200*us)
				m.wait("aten::item")
				if sick && i%4 == 3 {
					m.within("user_annotation", "save_checkpoint", func() {
						m.within(m.style.operator, "aten::copy_", func() {
							m.copies("DtoH (Device -> Pinned)", 4_000_000, 300*us, 7)
							m.wait("")
						})
						m.now += m.about(30 * ms)
					})
				}
			})
		}},
		"a decision that depends on data, in a loop": {kind: semconv.GPUFindingKindSynchronization, says: "item", run: func(m *machine, sick bool) {
			for range 80 {
				m.layers(3, 120*us)
				if sick {
					m.within(m.style.operator, "aten::is_nonzero", func() {
						m.within(m.style.operator, "aten::item", func() { m.wait("aten::_local_scalar_dense") })
					})
					m.now += m.about(150 * us)
				}
			}
		}},
		"embeddings on the host": {kind: semconv.GPUFindingKindHostWork, says: "embedding_bag", run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				if sick {
					m.within(m.style.operator, "aten::embedding_bag", func() {
						m.within(m.style.operator, "aten::_embedding_bag", func() { m.now += m.about(5 * ms) })
					})
				}
				m.copies("HtoD (Pinned -> Device)", 4_000_000, 200*us, 7)
				m.layers(50, 150*us)
				m.wait("aten::item")
			})
		}},
		"two streams that compete": {run: func(m *machine, _ bool) {
			m.steps(10, func(int) {
				for range 30 {
					m.operator("aten::mm", work{name: "gemm", length: m.about(400 * us), stream: 7})
					m.operator("aten::conv2d", work{name: "implicit_convolve", length: m.about(400 * us), stream: 13})
				}
			})
		}},
		"communication that is hidden": {run: func(m *machine, _ bool) {
			m.steps(10, func(int) {
				m.layers(60, 200*us)
				m.launch(work{
					name: allReduce, length: 6 * ms, stream: 20, after: m.free[[2]int64{0, 7}] - 10*ms,
					args: `,"Collective name":"allreduce","In msg nelems":9000,"Out msg nelems":9000,"dtype":"Float","Group size":8`,
				})
			})
		}},
		"compilation in the first steps": {kind: semconv.GPUFindingKindCompilation, says: "compiled", run: func(m *machine, sick bool) {
			m.steps(10, func(i int) {
				if sick && i < 2 {
					m.within("user_annotation", "Torch-Compiled Region: 0/0", func() {
						m.within(m.style.operator, "CachingAutotuner.benchmark_all_configs (dynamo_timed)", func() {
							m.now = max(m.now, m.busy(0)) + 40*ms
						})
					})
				}
				m.layers(60, 150*us)
				m.wait("")
			})
		}},
		"pipeline with bubbles": {kind: semconv.GPUFindingKindLateRank, says: "recv", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for k := range 8 {
					length := 60 * us
					if sick && (k == 0 || k == 4) {
						length = m.about(5 * ms)
					}
					m.within("user_annotation", "recv_forward", func() {
						m.free[[2]int64{0, 7}] = m.reduce("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "recv", 4_000_000, length)
					})
					m.layers(12, 150*us)
				}
			})
		}},
		"decoding of tiny batches, with sampling on the host": {kind: semconv.GPUFindingKindHostWork, says: "sample", run: func(m *machine, sick bool) {
			for range 60 {
				m.graph(60, 20*us, us)
				m.copies("DtoH (Device -> Pinned)", 4096, 3*us, 7)
				m.wait("")
				if sick {
					m.frame("sglang/srt/layers/sampler.py(40): sample_on_host", func() { m.now += m.about(900 * us) })
				}
			}
		}},
		"logging of a histogram of all weights": {kind: semconv.GPUFindingKindPageableCopies, says: "add_histogram", run: func(m *machine, sick bool) {
			m.steps(6, func(int) {
				m.layers(60, 200*us)
				if sick {
					m.within("user_annotation", "add_histogram", func() {
						m.now = max(m.now, m.busy(0))
						for range 6 {
							m.within(m.style.operator, "aten::copy_", func() {
								end := m.copies("DtoH (Device -> Pageable)", 16_000_000, 2*ms, 7)
								m.now = max(m.now, end)
							})
						}
					})
				}
			})
		}, loss: func(_, _ facts.Report) time.Duration { return 6 * 6 * 2 * time.Millisecond }},
	}
}
