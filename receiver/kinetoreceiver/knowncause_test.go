// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace/facts"
	"github.com/otelgpu/otelgpu/semconv"
)

// program is a training or serving loop with one fault. With sick false, it is the same program
// without the fault, so that the true cost of the fault is the difference, independent of the code
// under test.
type program struct {
	kind    string
	says    string // in the chain or evidence of the first finding
	also    string // a later finding without a gain
	devices int
	clean   bool // the healthy twin is healthy
	run     func(m *machine, sick bool)
	loss    func(sick, healthy facts.Report) time.Duration // default: the difference of the windows
}

func windows(sick, healthy facts.Report) time.Duration { return sick.Window - healthy.Window }

// layers launches kernels that keep the device busier than the host, so that the queue never
// becomes empty.
func (m *machine) layers(n int, length int64) {
	for i := range n {
		m.operator("aten::addmm", work{
			name: fmt.Sprintf("ampere_bf16_s16816gemm_bf16_128x%d_ldg8_f2f_stages_32x5_tn", 64<<(i%3)), length: m.about(length),
			stream: 7,
			args:   `,"grid":[16,27,2],"block":[256,1,1],"blocks per SM":8.0`,
		})
	}
}

func (m *machine) load(length int64) {
	if m.style.loader != "" {
		m.within("user_annotation", m.style.loader, func() {
			m.within(m.style.operator, "aten::stack", func() { m.now += length / 3 })
			m.now += length * 2 / 3
		})
		return
	}
	m.within("python_function", "train.py(31): epoch", func() {
		m.within("python_function", "torch/utils/data/dataloader.py(631): __next__", func() {
			m.within("python_function", "torch/utils/data/dataloader.py(1329): _next_data", func() { m.now += length })
		})
	})
}

func programs() map[string]program {
	const us, ms = int64(1000), int64(1_000_000)
	return map[string]program{
		"loader": {kind: semconv.GPUFindingKindLoader, run: func(m *machine, sick bool) {
			m.steps(12, func(int) {
				m.load(20 * us)
				if sick {
					m.load(3 * ms)
				}
				m.layers(60, 200*us)
				m.wait("aten::item")
			})
		}},
		"synchronization in every layer": {kind: semconv.GPUFindingKindSynchronization, says: "item", run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 20 {
					m.layers(4, 150*us)
					if sick {
						m.within(m.style.operator, "aten::item", func() { m.wait("aten::_local_scalar_dense") })
						m.now += m.about(300 * us)
					}
				}
			})
		}},
		"synchronization within one annotation": {kind: semconv.GPUFindingKindSynchronization, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.within("user_annotation", "train_step", func() {
					for range 12 {
						m.layers(4, 150*us)
						if sick {
							m.wait("aten::nonzero")
							m.now += m.about(250 * us)
						}
					}
				})
			})
		}},
		"launch-bound": {
			kind: semconv.GPUFindingKindLaunchBound, says: "shorter than 10µs",
			run: func(m *machine, sick bool) {
				m.steps(6, func(int) {
					for range 300 {
						m.operator("aten::add_", work{name: "vectorized_elementwise_kernel", length: m.about(5 * us), stream: 7})
						m.now += m.about(20 * us)
					}
				})
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Window - s.Parts.Computing },
		},
		"slow eager framework": {
			kind: semconv.GPUFindingKindLaunchBound,
			run: func(m *machine, sick bool) {
				m.steps(6, func(int) {
					m.within("user_annotation", "forward", func() {
						for range 120 {
							m.within(m.style.operator, "aten::linear", func() {
								m.now += m.about(40 * us)
								m.operator("aten::addmm", work{
									name: "gemm", length: m.about(60 * us), stream: 7,
									args: `,"grid":[64,4,1],"block":[256,1,1]`,
								})
								m.now += m.about(40 * us)
							})
						}
					})
				})
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Window - s.Parts.Computing },
		},
		"pageable copies": {
			kind: semconv.GPUFindingKindPageableCopies, says: "pageable",
			run: func(m *machine, sick bool) {
				m.steps(10, func(int) {
					m.within("user_annotation", "to_device", func() {
						w := work{
							name: "Memcpy HtoD (Pageable -> Device)", length: m.about(4 * ms), stream: 7, category: m.style.copying,
							args: `,"bytes":24000000`,
						}
						if !sick {
							w.length = 5 * us
						}
						end := m.launch(w)
						m.now = max(m.now, end)
					})
					m.layers(60, 150*us)
				})
			},
		},
		"copies that nothing hides": {
			kind: semconv.GPUFindingKindExposedCopies,
			run: func(m *machine, sick bool) {
				m.steps(10, func(int) {
					w := work{
						name: "Memcpy HtoD (Pinned -> Device)", length: m.about(3 * ms), stream: 21, category: m.style.copying,
						args: `,"bytes":64000000`,
					}
					if sick {
						w.stream = 7
					}
					m.operator("aten::copy_", w)
					m.layers(60, 150*us)
				})
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.CopyExposed },
		},
		"late rank": {
			kind: semconv.GPUFindingKindLateRank,
			run: func(m *machine, sick bool) {
				m.steps(10, func(i int) {
					m.layers(40, 150*us)
					for k := range 4 {
						length := int64(300*(k+1)) * us
						if sick && k == 0 {
							if i%5 != 2 {
								length += m.about(8 * ms)
							}
						}
						end := m.launch(work{
							name: "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", length: length, stream: 20,
							after: m.free[[2]int64{0, 7}],
							args: fmt.Sprintf(
								`,"Collective name":"allreduce","In msg nelems":%d,"Out msg nelems":%d,"dtype":"BFloat16","Group size":8`,
								1000*(k+1), 1000*(k+1)),
						})
						m.free[[2]int64{0, 7}] = end
					}
					m.layers(10, 100*us)
				})
			},
		},
		"exposed communication": {
			kind: semconv.GPUFindingKindExposedCommunication,
			run: func(m *machine, sick bool) {
				m.steps(10, func(int) {
					m.layers(40, 150*us)
					end := m.launch(work{
						name: "ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)", length: 3 * ms,
						stream: 20, after: m.free[[2]int64{0, 7}],
						args: `,"Collective name":"allgather","In msg nelems":500,"Out msg nelems":4000,"dtype":"Half","Group size":8`,
					})
					if sick {
						m.free[[2]int64{0, 7}] = end
					}
					m.layers(40, 150*us)
				})
			},
			loss: func(s, _ facts.Report) time.Duration { return s.Parts.CommExposed },
		},
		"allocator": {kind: semconv.GPUFindingKindAllocation, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				for range 5 {
					m.layers(8, 120*us)
					if sick {
						m.within(m.style.operator, "aten::empty", func() {
							start := m.now // waits for the device, as freeing memory does
							m.now = max(m.now, m.busy(0)) + m.about(1500*us)
							m.host(m.style.runtime, m.style.free, start, m.now, "")
							m.call(m.style.malloc, m.about(700*us))
						})
					}
				}
			})
		}},
		"work of the host between steps": {kind: semconv.GPUFindingKindHostWork, says: "log_metrics", run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				m.layers(50, 150*us)
				m.wait("aten::item")
				if sick {
					m.within("user_annotation", "log_metrics", func() { m.now += m.about(4 * ms) })
				}
			})
		}},
		"first runs": {kind: semconv.GPUFindingKindSlowRuntimeCalls, run: func(m *machine, sick bool) {
			m.steps(6, func(i int) {
				m.layers(30, 100*us)
				if sick && i < 3 {
					m.within(m.style.operator, "aten::bmm", func() {
						m.corr++
						start := m.now
						m.now += m.about(20 * ms)
						m.host(m.style.runtime, m.style.launch, start, m.now, fmt.Sprintf(`"correlation":%d`, m.corr))
						begin := max(m.now+3000, m.free[[2]int64{0, 7}]+1000)
						m.free[[2]int64{0, 7}] = begin + 50*us
						m.event(m.style.kernel, "Cijk_Alik_Bljk", "0", "7", begin, begin+50*us,
							fmt.Sprintf(`"device":0,"stream":7,"correlation":%d`, m.corr))
					})
				}
				m.wait("")
			})
		}},
		"another rank on the host": {kind: semconv.GPUFindingKindWaitingForRank, run: func(m *machine, sick bool) {
			m.steps(8, func(int) {
				m.layers(40, 150*us)
				m.wait("")
				if sick {
					m.within("user_annotation", "gloo:barrier", func() { m.now += m.about(4 * ms) })
				}
			})
		}},
		"two devices, one starved": {kind: semconv.GPUFindingKindLoader, devices: 2, run: func(m *machine, sick bool) {
			m.steps(10, func(int) {
				for d := range int64(2) {
					m.device = d
					m.load(20 * us)
					if sick && d == 1 {
						m.load(3 * ms)
					}
					m.layers(30, 400*us)
				}
				m.device = 0
				m.wait("")
				m.device = 1
				m.wait("")
			})
		}},
		"throttled clocks": {
			kind: semconv.GPUFindingKindThrottle, says: "times as long from",
			run: func(m *machine, sick bool) {
				m.steps(12, func(i int) {
					for k := range 40 {
						length := m.about(int64(100+100*(k%4)) * us)
						if sick && i >= 5 {
							length = length * 3 / 2 / 1000 * 1000
						}
						m.operator("aten::mm", work{
							name: fmt.Sprintf("gemm%d", k%4), length: length, stream: 7,
							args: `,"grid":[64,8,2],"block":[256,1,1]`,
						})
					}
				})
			},
		},
		"overlapping streams, healthy": {run: func(m *machine, _ bool) {
			m.steps(10, func(int) {
				for range 20 {
					m.layers(3, 200*us)
					m.operator("aten::relu", work{name: "elementwise", length: m.about(150 * us), stream: 13})
					m.operator("aten::copy_", work{
						name: "Memcpy HtoD (Pinned -> Device)", length: m.about(100 * us), stream: 21,
						category: m.style.copying, args: `,"bytes":2000000`,
					})
				}
			})
		}},
		"healthy with a loader that hides": {run: func(m *machine, _ bool) {
			m.steps(10, func(int) {
				m.layers(100, 250*us)
				m.load(2 * ms)
			})
		}},
	}
}

func TestCausesAndLossesOfSimulatedPrograms(t *testing.T) { testPrograms(t, programs()) }

func TestCausesAndLossesOfSimulatedJobs(t *testing.T) { testPrograms(t, shapes()) }

func TestCausesAndLossesOfSimulatedFaults(t *testing.T) { testPrograms(t, faults()) }

// otherMode reports whether the n-th run of a simulated job is left to the other of make test,
// which takes the first of two runs, and make test-integration, which takes the second.
func otherMode(n int) bool { return (n%2 == 0) == (os.Getenv("OTELGPU_INTEGRATION") != "") }

// otherJob reports whether all runs of the n-th simulated job are left to the other of make test,
// which takes every fifth job and so each style, and make test-integration, which takes the rest.
func otherJob(n int) bool { return (n%5 == 0) == (os.Getenv("OTELGPU_INTEGRATION") != "") }

func testPrograms(t *testing.T, list map[string]program) {
	seed := uint64(0)
	for n, name := range slices.Sorted(maps.Keys(list)) {
		p := list[name]
		for i, s := range styles() {
			for k := range 2 {
				seed++
				if testing.Short() && i != n%len(styles()) { // as under the race detector; each style is still tested
					continue
				}
				if otherMode(k) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, s.name, seed), func(t *testing.T) {
					report := func(sick bool) facts.Report {
						m := newMachine(seed, s)
						p.run(m, sick)
						_, st := convert(t, m.text(max(1, p.devices)), Options{Detail: DetailSteps})
						require.Len(t, st.Devices, max(1, p.devices))
						for _, d := range st.Devices {
							checkReport(t, d)
						}
						return st.Devices[len(st.Devices)-1]
					}
					sick := report(true)
					first := sick.Findings[0]
					if p.also != "" {
						assert.True(t, slices.ContainsFunc(sick.Findings, func(v finding.Finding) bool {
							return v.Kind == p.also && v.Gain == 0
						}), "%s", sick.Findings)
					}
					if p.kind == "" {
						assert.True(t, nothingToGain(sick), "%s", first)
						return
					}
					assert.Equal(t, p.kind, first.Kind, "%s", sick.Findings)
					assert.Contains(t, first.String(), p.says)
					loss := p.loss
					if loss == nil {
						loss = windows
					}
					healthy := report(false)
					if p.clean {
						assert.True(t, nothingToGain(healthy), "%s", healthy.Findings)
					}
					want := loss(sick, healthy)
					if want == 0 {
						assert.Zero(t, first.Gain, "%s", sick.Findings)
						return
					}
					assert.InEpsilon(t, want, first.Gain, 0.1, "planted %s, found %s", want, first)
				})
			}
		}
	}
}

// A comparison is per step, for any number of steps, and renamed kernels do not change their
// operator.
func TestComparisonOfProgramsWithOtherNumbersOfSteps(t *testing.T) {
	run := func(steps int, load int64, kernel string) facts.Report {
		m := newMachine(99, styles()[0])
		m.steps(steps, func(int) {
			m.load(load)
			for range 40 {
				m.operator("aten::mm", work{name: kernel, length: 200_000, stream: 7})
			}
			m.wait("aten::item")
		})
		_, st := convert(t, m.text(1), Options{Detail: DetailSteps})
		return st.Devices[0]
	}
	c := facts.Compare([]facts.Report{run(6, 4_000_000, "cutlass_80_gemm")},
		[]facts.Report{run(20, 100_000, "nvjet_tst_gemm")})
	change := func(list []facts.Change, name string) facts.Change {
		for _, x := range list {
			if x.Name == name {
				return x
			}
		}
		require.Fail(t, "no row", name)
		return facts.Change{}
	}
	assert.Equal(t, [2]int64{6, 20}, c.StepCounts)
	assert.Equal(t, "idle: loader", c.Parts[0].Name)
	assert.InDelta(t, -3.9, float64(c.Parts[0].Delta())/1e6, 0.001)
	assert.InDelta(t, 0, float64(change(c.Operators, "aten::mm").Delta())/1e6, 0.001)
	assert.InDelta(t, -8, float64(change(c.Kernels, "cutlass_80_gemm").Delta())/1e6, 0.001)
	assert.InDelta(t, 8, float64(change(c.Kernels, "nvjet_tst_gemm").Delta())/1e6, 0.001)
}

// In a profile of one step, the loader precedes the first kernel, outside the device's window; the
// comparison uses complete steps.
func TestComparisonOfOneStepEachNamesTheLoaderBeforeTheFirstKernel(t *testing.T) {
	for _, s := range styles() {
		run := func(load int64) facts.Report {
			m := newMachine(5, s)
			m.steps(1, func(int) {
				m.load(load)
				m.layers(20, 200_000)
				m.wait("aten::item")
			})
			_, st := convert(t, m.text(1), Options{Detail: DetailSteps})
			return st.Devices[0]
		}
		c := facts.Compare([]facts.Report{run(60_000_000)}, []facts.Report{run(1_000_000)})
		require.Equal(t, "idle: loader", c.Parts[0].Name, s.name)
		assert.InDelta(t, -59, float64(c.Parts[0].Delta())/1e6, 0.001, s.name)
		assert.InDelta(t, -59, float64(c.After-c.Before)/1e6, 0.001, s.name)
		var sum time.Duration
		for _, p := range c.Parts {
			sum += p.Delta()
		}
		assert.Equal(t, c.After-c.Before, sum, "parts add up to the step")
	}
}
