// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"fmt"
	"strings"
)

// hip makes the job run on an AMD device under ROCm, with the rates of its data sheet.
func (w *world) hip() {
	w.dev = device{
		name: "AMD Instinct MI300X",
		gemm: "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_ISA942_WS64_WG64_4_1",
		bf16: 1307.4e12, tf32: 653.7e12, fp32: 163.4e12, fp64: 163.4e12, rate: 5.3e12, processors: 304, major: 9, minor: 4,
		memory: 206_141_652_992, amd: true,
	}
}

// laterKinds are kinds that were written after the rules had been adjusted to the others, from the
// documentation of PyTorch, Nsight Systems and ROCm.
func laterKinds() []Kind {
	well := []string{Healthy}
	blind := unnamed(Healthy, "not_judged")
	blindly := unnamed("not_judged")
	nsightOnly := map[Style][]string{Full: {}, Sparse: {}}
	return []Kind{
		{
			Name: "workers of the loader started for each epoch", Gain: true, want: []string{"loader"},
			other: unnamed("host_work"), run: func(w *world) {
				d, every := w.share(0.8, 2), 3+w.draw.IntN(2)
				w.train(hooks{between: func(p *process, step int) {
					if w.sick && step%every == every-1 {
						p.inFrames([]string{
							"torch/utils/data/dataloader.py(491): __iter__", "torch/utils/data/dataloader.py(424): _get_iterator",
							"torch/utils/data/dataloader.py(1150): __init__",
						}, func() {
							for range 8 {
								p.inFrames([]string{
									"multiprocessing/process.py(110): start", "multiprocessing/context.py(222): _Popen",
									"multiprocessing/popen_spawn_posix.py(53): _launch",
								}, func() { p.spend(d / 8) })
							}
						})
					}
				}})
			},
		},
		{
			Name: "distributed checkpoint with gathered tensors", Gain: true, want: []string{"checkpoint"},
			other: unnamed("host_work"), ranks: []int{4, 8}, run: func(w *world) {
				d, every := w.share(1, 3), 3+w.draw.IntN(2)
				w.train(hooks{
					backward: func(int) { w.collective("allreduce", 50<<20, 300*us, w.all()); w.join(w.all()) },
					between: func(p *process, step int) {
						if w.sick && step%every == 1 {
							p.inFrames([]string{
								"torch/distributed/checkpoint/logger.py(83): wrapper",
								"torch/distributed/checkpoint/state_dict_saver.py(169): save",
								"torch/distributed/checkpoint/filesystem.py(675): write_data",
							}, func() {
								for range 4 {
									p.copy("Device", "Pinned", 20_000_000, 2e10, computing, true)
									p.spend(d / 4)
								}
							})
						}
					},
				})
			},
		},
		{Name: "garbage collected by hand in each step", Gain: true, want: []string{"host_work"}, run: delayed(0.15, 0.5,
			func(p *process, d int64) {
				p.inFrames([]string{"train.py(140): cleanup", "<built-in function collect>"}, func() { p.spend(d) })
			})},
		{Name: "Triton kernels compiled in the window", Gain: true, want: []string{"compilation"}, other: map[Style][]string{
			Sparse: {"host_work"}, Nsight: {"host_work"},
		}, run: func(w *world) {
			d, every := w.share(1, 3), 3+w.draw.IntN(2)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step%every == 1 {
					p.inFrames([]string{
						"triton/runtime/jit.py(336): <lambda>", "triton/runtime/jit.py(615): run", "triton/compiler/compiler.py(226): compile",
					}, func() { p.spend(d) })
					p.call("cuModuleLoadData", d/20)
					p.pointwise("triton_fused_rope", "triton_rope", w.model.tokens*w.model.hidden, 1, w.model.memory)
				}
			}})
		}},
		{Name: "recurrent cells one by one", Gain: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.tiny()
			w.waits = false
			opCost, launch := w.duration(9*us, 16*us), w.duration(4*us, 7*us)
			if !w.sick {
				opCost, launch = 200, 200
			}
			w.opCost, w.launch = opCost, launch
			cells := 150 + w.draw.IntN(100)
			w.train(hooks{start: func(p *process, _ int) {
				p.in(frame, "nn.Module: LSTMCell_0", func() {
					for range cells {
						p.linear(512, 4*512, 512)
						p.op(operation{name: "aten::_thnn_fused_lstm_cell", outer: []string{"aten::lstm_cell"}}, work{
							kind:   kernel,
							name:   "void at::native::(anonymous namespace)::kernel::lstm_cell_forward<c10::BFloat16, float, int, 1>",
							length: 2200, stream: computing, blocks: 256, threads: 512, registers: 32, pace: true,
						})
					}
				})
			}})
		}},
		{Name: "operators on the CPU", Gain: true, want: []string{"host_work"}, run: func(w *world) {
			d := w.share(0.2, 0.6)
			name := w.one("aten::embedding_bag", "aten::sort", "aten::cumsum", "torchvision::nms")
			w.train(hooks{forward: func(int) {
				w.each(func(p *process) {
					if w.sick {
						p.copy("Device", "Pinned", 2_000_000, 2e10, computing, true)
						p.begin(operator, name, &operation{dims: "[[50000,64],[80000],[4096]]", types: types(3, "float")})
						p.spend(d)
						p.end()
						p.copy("Pinned", "Device", 2_000_000, 2e10, computing, false)
					}
				})
			}})
		}},
		{Name: "pages of managed memory", Gain: true, want: []string{"page_migrations"}, other: nsightOnly, run: func(w *world) {
			const page, rate = 2 << 20, 12e9
			pages := max(8, int64(w.between(0.2, 0.6)*float64(w.stepTime())/1e9*rate/page))
			w.train(hooks{start: func(p *process, _ int) {
				x := work{
					kind: kernel, name: "preprocess(float*, unsigned char const*, int)", length: 900 * us, stream: computing,
					blocks: 8192, threads: 256, registers: 32, pace: true,
				}
				if !w.sick {
					p.op(operation{}, x)
					return
				}
				one := ns(page / rate)
				x.length += pages * one
				c := p.call("cudaLaunchKernel", w.launch)
				start := p.launched(x, c, p.now) - x.length
				for i := range pages {
					at := start + i*(one+900*us/pages) + 5*us
					p.schedule(work{
						kind: memcpy, bytes: page, stream: migrating, from: "Managed", to: "Device", managed: true,
					}, 0, at, at+one)
				}
			}})
		}},
		{
			Name: "a few blocks more than the device has processors", Gain: true, want: []string{"tail_wave"},
			other: blindly, run: func(w *world) {
				rows := w.dev.processors/4 + 2 // of tiles, four in each; 2 rows are in the second wave
				if !w.sick {
					rows -= 2
				}
				// A block takes as long beside fewer others, so the second wave takes as long as
				// the first.
				part := w.between(0.55, 0.68) // of the peak, in full waves
				n := max(4, int(w.share(0.4, 0.9)/int64(w.model.layers)/(600*us)))
				layers(func(p *process) {
					for range n {
						o, x := w.product(128*rows, 4*256, 8192, part)
						x.blocks, x.registers = 4*rows, 240
						x.length = ns(2 * 128 * float64(w.dev.processors) * 256 * 8192 / (part * w.dev.bf16))
						if w.sick {
							x.length *= 2
						}
						p.op(o, x)
					}
				})(w)
			},
		},
		{Name: "gradients accumulated without reductions", want: well, other: blind, ranks: []int{4, 8}, run: func(w *world) {
			w.train(hooks{start: func(p *process, _ int) {
				for range 2 {
					for range w.model.layers {
						p.layer(false)
					}
					p.onAutograd = true
					for range w.model.layers {
						p.layer(true)
					}
					p.onAutograd = false
				}
			}, backward: func(int) { w.collective("allreduce", 20<<20, 150*us, w.all()); w.join(w.all()) }})
		}},
		{Name: "validation between steps", want: well, other: blind, run: func(w *world) {
			w.train(hooks{between: func(p *process, step int) {
				if step%4 == 3 {
					p.in(annotation, "validation", func() {
						load(p, multi, 20*us)
						for range 2 * w.model.layers {
							p.layer(false)
						}
						p.item()
					})
				}
			}})
		}},
		{Name: "ROCm: too few loader workers", Gain: true, rocm: true, want: []string{"loader"}, run: func(w *world) {
			w.hip()
			delayed(0.2, 0.8, func(p *process, d int64) { load(p, multi, d) })(w)
		}},
		{Name: "ROCm: memory allocated in each step", Gain: true, rocm: true, want: []string{"allocation"}, run: func(w *world) {
			w.hip()
			delayed(0.2, 0.6, func(p *process, d int64) {
				p.call("cudaFree", d/2)
				p.call("cudaMalloc", d/2)
			})(w)
		}},
		{
			Name: "ROCm: gradients reduced after the backward pass", Gain: true, rocm: true, want: []string{"exposed_communication"},
			ranks: []int{2, 8}, run: func(w *world) {
				w.hip()
				n := 2 + w.draw.IntN(6)
				d := w.share(0.15, 0.5) / int64(n)
				w.train(hooks{backward: func(int) {
					for range n {
						if w.sick {
							w.collective("allreduce", 100<<20, d, w.all())
						}
					}
					w.join(w.all())
				}})
			},
		},
		{Name: "ROCm: small model without compilation", Gain: true, rocm: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.hip()
			w.tiny()
			w.waits = false
			w.opCost = w.duration(25*us, 45*us)
			if !w.sick {
				w.opCost, w.launch = 300, 300
			}
			w.train(hooks{})
		}},
		{Name: "ROCm: code objects loaded in the window", Gain: true, rocm: true, want: []string{"slow_runtime_calls"}, run: func(w *world) {
			w.hip()
			d := w.share(0.4, 1)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step < 5 {
					p.call("cuModuleLoadData", d)
				}
			}})
		}},
		{
			Name: "ROCm: training that reads its loss", rocm: true, want: well, other: map[Style][]string{Rocprof: {Healthy, "not_judged"}},
			run: func(w *world) {
				w.hip()
				w.train(hooks{})
			},
		},
	}
}

func join(list []string) string { return strings.Join(list, ",\n") }

// hipCalls are ROCm's names of calls.
var hipCalls = map[string]string{
	"cudaLaunchKernel": "hipLaunchKernel", "cudaLaunchKernelExC": "hipExtLaunchKernel", "cudaMemcpyAsync": "hipMemcpyAsync",
	"cudaStreamSynchronize": "hipStreamSynchronize", "cudaDeviceSynchronize": "hipDeviceSynchronize",
	"cudaStreamWaitEvent": "hipStreamWaitEvent", "cudaEventRecord": "hipEventRecord", "cudaMalloc": "hipMalloc",
	"cudaFree": "hipFree", "cuModuleLoadData": "hipModuleLoadData",
}

// name returns the name of an event in the files of the job's device.
func (p *process) name(e *event) string {
	if !p.w.dev.amd {
		return e.name
	}
	if e.kind == call {
		return cmp.Or(hipCalls[e.name], strings.Replace(e.name, "cu", "hip", 1))
	}
	if e.work != nil && e.work.collective != nil {
		return "ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)"
	}
	if e.kind == memcpy {
		return map[bool]string{true: "Memcpy DtoH (Device -> Host)", false: "Memcpy HtoD (Host -> Device)"}[e.work.from == "Device"]
	}
	return e.name
}

// rocprofv3 writes the file of rocprofv3 --hip-trace --kernel-trace --memory-copy-trace
// --marker-trace --output-format json.
func (p *process) rocprofv3() string {
	calls, callIDs := []string{}, map[string]int{}
	symbols, symbolIDs := []string{}, map[string]int{}
	texts := []string{}
	id := func(list *[]string, ids map[string]int, s string) int {
		if _, ok := ids[s]; !ok {
			ids[s] = len(*list)
			*list = append(*list, fmt.Sprintf("%q", s))
		}
		return ids[s]
	}
	records := map[string][]string{}
	const base = 7_332_972_000_000
	marker := 1 << 30
	for i := range p.events {
		e := &p.events[i]
		x := e.work
		common := func(kind, operation, correlation int) string {
			return fmt.Sprintf(`"size":80,"kind":%d,"operation":%d,"thread_id":%d,"correlation_id":{"internal":%d,"external":0},`+
				`"start_timestamp":%d,"end_timestamp":%d`, kind, operation, e.thread, correlation, base+e.start, base+e.end)
		}
		add := func(part, text string) { records[part] = append(records[part], "{"+text+"}") }
		switch e.kind {
		case call:
			add("hip_api", common(0, id(&calls, callIDs, p.name(e)), e.correlation))
		case annotation:
			marker++
			texts = append(texts, fmt.Sprintf(`{"key":%d,"value":%q}`, marker, e.name))
			add("marker_api", common(3, 0, marker))
		case kernel:
			k := id(&symbols, symbolIDs, p.name(e))
			add("kernel_dispatch", common(1, 0, e.correlation)+fmt.Sprintf(`,"dispatch_info":{"size":64,"agent_id":{"handle":2},`+
				`"queue_id":{"handle":1},"kernel_id":%d,"dispatch_id":%d,"private_segment_size":0,"group_segment_size":0,`+
				`"workgroup_size":{"x":%d,"y":1,"z":1},"grid_size":{"x":%d,"y":1,"z":1}},"stream_id":{"handle":%d}`,
				k+1, i, x.threads, x.threads*x.blocks, x.stream))
		case memcpy:
			to, from := 2, 1
			if x.from == "Device" {
				to, from = 1, 2
			}
			add("memory_copy", common(2, map[bool]int{true: 2, false: 1}[to == 2], e.correlation)+fmt.Sprintf(
				`,"dst_agent_id":{"handle":%d},"src_agent_id":{"handle":%d},"bytes":%d,"stream_id":{"handle":%d}`, to, from, x.bytes,
				x.stream))
		}
	}
	kernels := []string{}
	for i, s := range symbols {
		kernels = append(kernels, fmt.Sprintf(`{"kernel_id":%d,"formatted_kernel_name":%s,"kernel_name":%s}`, i+1, s, s))
	}
	return fmt.Sprintf(`{"rocprofiler-sdk-tool":[{"metadata":{"pid":%d,"node":{"hostname":"node"}},`+
		`"agents":[{"id":{"handle":1},"type":1,"name":"AMD EPYC 9534","product_name":"AMD EPYC 9534","logical_node_type_id":0},`+
		`{"id":{"handle":2},"type":2,"name":"gfx942","product_name":%q,"logical_node_type_id":0,"cu_count":304,`+
		`"simd_per_cu":4,"max_waves_per_simd":8,"wave_front_size":64,"lds_size_in_kb":64}],`+
		`"strings":{"buffer_records":[{"kind":"HIP_RUNTIME_API","operations":[%s]},{"kind":"KERNEL_DISPATCH","operations":["NONE"]},`+
		`{"kind":"MEMORY_COPY","operations":["MEMORY_COPY_NONE","MEMORY_COPY_DEVICE_TO_HOST","MEMORY_COPY_HOST_TO_DEVICE"]},`+
		`{"kind":"MARKER_CORE_API","operations":["roctxThreadRangeA"]}],"marker_api":[%s]},"kernel_symbols":[%s],`+
		`"buffer_records":{"kernel_dispatch":[%s],"hip_api":[%s],"memory_copy":[%s],"marker_api":[%s]}}]}`,
		processID, p.w.dev.name, join(calls), join(texts), join(kernels), join(records["kernel_dispatch"]), join(records["hip_api"]),
		join(records["memory_copy"]), join(records["marker_api"]))
}
