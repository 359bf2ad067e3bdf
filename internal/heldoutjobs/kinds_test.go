// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
)

// Kind is one kind of job with its true cause.
type Kind struct {
	Name string
	// Gain reports whether the healthy twin shows what the cause costs in wall time.
	Gain  bool
	rocm  bool // the job runs on an AMD device
	want  []string
	other map[Style][]string // findings for styles that do not record the cause
	ranks []int
	watch int
	run   func(w *world)
	// unseen runs the job in the other simulation.
	unseen func(style Style, seed uint64, caused bool) *program
}

// Job is a profile and its true cause.
type Job struct {
	Path  string
	Want  []string // accepted kinds of the first finding, best first
	Ranks int
	Loss  time.Duration
	Busy  float64 // fraction of the healthy twin's window in which its device works
}

// In reports whether a style records the job.
func (k *Kind) In(s Style) bool {
	if k.rocm != (s == Rocprof) && (k.rocm || s == Rocprof) {
		return k.rocm && s == Full
	}
	return k.other[s] == nil || len(k.other[s]) > 0
}

// Run simulates the job and its twin and writes the profile into a directory.
func (k *Kind) Run(ctx context.Context, dir string, style Style, seed uint64) (Job, error) {
	if k.unseen != nil {
		return k.runUnseen(dir, style, seed)
	}
	twin := newWorld(k.Name, style, seed, k.ranks, k.watch, false)
	k.run(twin)
	w := newWorld(k.Name, style, seed, k.ranks, k.watch, true)
	k.run(w)
	j := Job{Want: k.want, Ranks: len(w.ranks), Loss: time.Duration(w.window() - twin.window()), Busy: twin.busy()}
	if o := k.other[style]; o != nil {
		j.Want = o
	}
	var err error
	j.Path, err = w.write(ctx, dir, fmt.Sprintf("job%d", seedOf(seed, k.Name+string(style))))
	return j, err
}

func (w *world) window() int64 { p := w.watched(); return p.last - p.first }

// busy is the part of the window that activities cover.
func (w *world) busy() float64 {
	p := w.watched()
	list := slices.Clone(p.events)
	slices.SortFunc(list, func(a, b event) int { return cmp.Compare(a.start, b.start) })
	covered, end := int64(0), int64(0)
	for i := range list {
		if e := &list[i]; e.work != nil && e.end > end {
			covered += e.end - max(e.start, end)
			end = e.end
		}
	}
	return float64(covered) / float64(w.window())
}

// Healthy jobs have nothing to gain.
const Healthy = "healthy"

// Kinds returns all kinds of jobs.
func Kinds() (list []Kind) {
	for _, part := range [][]Kind{
		hostKinds(), launchKinds(), memoryKinds(), rankKinds(), kernelKinds(), otherKinds(), mixedKinds(), healthyKinds(),
		laterKinds(), unseenKinds(),
	} {
		list = append(list, part...)
	}
	return list
}

// unnamed are styles that do not record Python frames.
func unnamed(finding ...string) map[Style][]string {
	return map[Style][]string{Sparse: finding, Nsight: finding}
}

// delayed is a job that waits for its loss in each step and then for host work.
func delayed(least, most float64, f func(p *process, d int64)) func(w *world) {
	return func(w *world) {
		d := w.share(least, most)
		w.train(hooks{after: func(p *process, _ int) {
			if w.sick {
				f(p, d)
			}
		}})
	}
}

func load(p *process, name string, d int64) { p.in(annotation, name, func() { p.spend(d) }) }

const multi = "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"

func hostKinds() []Kind {
	return []Kind{
		{Name: "too few loader workers", Gain: true, want: []string{"loader"}, run: delayed(0.2, 0.8, func(p *process, d int64) {
			load(p, multi, d)
		})},
		{Name: "loader in the training process", Gain: true, want: []string{"loader"}, run: delayed(0.2, 0.8,
			func(p *process, d int64) {
				p.in(annotation, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", func() {
					p.inFrames([]string{"torch/utils/data/_utils/fetch.py(47): fetch", "dataset.py(31): __getitem__"}, func() {
						for range 4 {
							p.in(frame, "PIL/Image.py(3437): open", func() { p.spend(d / 8) })
							p.in(frame, "torchvision/transforms/functional.py(142): to_tensor", func() { p.spend(d / 8) })
						}
					})
				})
			})},
		{Name: "loader that stalls now and then", Gain: true, want: []string{"loader"}, run: func(w *world) {
			d, every := w.share(0.8, 2), 2+w.draw.IntN(3)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step%every == 0 {
					load(p, multi, d)
				}
			}})
		}},
		{Name: "batches named by the user", Gain: true, want: []string{"loader"}, run: func(w *world) {
			name := w.one("get_batch", "load_batch", "data_loading", "next_batch", "fetch batch", "load data", "dataloader.next")
			d := w.share(0.2, 0.6)
			w.train(hooks{after: func(p *process, _ int) {
				if w.sick {
					load(p, name, d)
				}
			}})
		}},
		{
			Name: "batches from a queue of threads", Gain: true, want: []string{"loader"}, other: unnamed("host_work"),
			run: delayed(0.2, 0.6, func(p *process, d int64) {
				p.inFrames([]string{"feed.py(58): next_batch", "queue.py(154): get", "threading.py(327): wait"}, func() { p.spend(d) })
			}),
		},
		{
			Name: "loader in frames of Accelerate", Gain: true, want: []string{"loader"}, other: unnamed("host_work"),
			run: delayed(0.2, 0.6, func(p *process, d int64) {
				p.inFrames([]string{"accelerate/data_loader.py(552): __iter__", "torch/utils/data/dataloader.py(701): __next__"},
					func() { p.spend(d) })
			}),
		},
		{Name: "loader slower than a device without waits", Gain: true, want: []string{"loader"}, run: func(w *world) {
			w.waits = false
			d := w.stepTime() + w.share(0.25, 0.8)
			w.train(hooks{start: func(p *process, _ int) {
				if w.sick {
					load(p, multi, d)
				} else {
					load(p, multi, w.stepTime()/4)
				}
			}})
		}},
		{Name: "metrics on the host", Gain: true, want: []string{"host_work"}, run: delayed(0.15, 0.6,
			func(p *process, d int64) {
				p.inFrames([]string{"metrics.py(41): update", "sklearn/metrics/_classification.py(1110): f1_score"}, func() { p.spend(d) })
			})},
		{Name: "text prepared on the host", Gain: true, want: []string{"host_work"}, run: delayed(0.15, 0.6,
			func(p *process, d int64) {
				p.inFrames([]string{"prompts.py(19): render", "json/__init__.py(183): dumps", "json/encoder.py(183): encode"},
					func() { p.spend(d) })
			})},
		{Name: "logging in an annotation", Gain: true, want: []string{"host_work"}, run: func(w *world) {
			name, d := w.one("log_metrics", "write summary", "wandb.log", "render images"), w.share(0.15, 0.6)
			w.train(hooks{after: func(p *process, _ int) {
				if w.sick {
					p.in(annotation, name, func() { p.spend(d) })
				}
			}})
		}},
		{
			Name: "unnamed host work after the loss", Gain: true, want: []string{"host_work"},
			run: delayed(0.2, 0.6, func(p *process, d int64) { p.spend(d) }),
		},
		{Name: "host work between forward and backward", Gain: true, want: []string{"host_work"}, run: func(w *world) {
			d := w.share(0.2, 0.6)
			w.train(hooks{forward: func(int) {
				w.each(func(p *process) {
					if w.sick {
						p.in(annotation, "match targets", func() {
							p.copy("Device", "Pinned", 400_000, 2e10, computing, true)
							p.inFrames([]string{"matcher.py(77): hungarian", "scipy/optimize/_lsap.py(12): linear_sum_assignment"},
								func() { p.spend(d) })
						})
					}
				})
			}})
		}},
		{Name: "compilation in the window", Gain: true, want: []string{"compilation"}, run: func(w *world) {
			d := w.share(1.5, 4)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step%4 == 1 {
					p.in(annotation, "compile_inner (dynamo_timed)", func() {
						p.inFrames([]string{"torch/_dynamo/convert_frame.py(715): _compile"}, func() { p.spend(d) })
					})
				}
			}})
		}},
		{Name: "another thread holds the interpreter", Gain: true, want: []string{"host_work"}, run: delayed(0.2, 0.6,
			func(p *process, d int64) {
				start := p.now
				p.spend(d)
				p.frames++
				p.emit(event{
					kind: frame, name: "telemetry.py(30): flush", thread: helper, start: start - 50*us, end: p.now + 20*us, frameID: p.frames,
				})
			})},
		{Name: "sampling of tokens on the host", Gain: true, want: []string{"host_work"}, run: delayed(0.2, 0.6,
			func(p *process, d int64) {
				p.copy("Device", "Pinned", 512_000, 2e10, computing, true)
				p.in(annotation, "sample tokens", func() {
					p.inFrames([]string{"sampler.py(22): top_p", "numpy/core/fromnumeric.py(1038): argsort"}, func() { p.spend(d) })
				})
			})},
		{Name: "checkpoint saved in the loop", Gain: true, want: []string{"checkpoint"}, other: unnamed("host_work"), run: func(w *world) {
			d, every := w.share(1, 3), 3+w.draw.IntN(2)
			w.train(hooks{between: func(p *process, step int) {
				if w.sick && step%every == 1 {
					p.inFrames([]string{"train.py(120): save", "torch/serialization.py(850): save", "torch/serialization.py(1105): _save"},
						func() { p.spend(d) })
				}
			}})
		}},
		{Name: "checkpoint in an annotation", Gain: true, want: []string{"checkpoint"}, run: func(w *world) {
			d, every := w.share(1, 3), 3+w.draw.IntN(2)
			name := w.one("save_checkpoint", "checkpoint", "saving checkpoint", "dcp.save")
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step%every == 1 {
					p.in(annotation, name, func() {
						p.copy("Device", "Pinned", 50_000_000, 2e10, computing, true)
						p.spend(d)
					})
				}
			}})
		}},
	}
}

// small is a model whose layers take less than a millisecond and still keep the device busy.
func (w *world) small() {
	w.model.layers, w.model.hidden, w.model.tokens = 8+w.draw.IntN(8), 2048, 2048
	w.steps = 6
}

// tiny is a model whose kernels take a few microseconds.
func (w *world) tiny() {
	w.model.layers, w.model.hidden, w.model.tokens = 8+w.draw.IntN(8), 1024, 1024
	w.steps = 6
}

func launchKinds() []Kind {
	return []Kind{
		{Name: "numbers read in each layer", Gain: true, want: []string{"synchronization"}, run: func(w *world) {
			w.small()
			host := w.share(0.15, 0.4) / int64(w.model.layers)
			w.train(hooks{layer: func(p *process, _, _ int) {
				if w.sick {
					p.item()
				}
				p.spend(host)
			}})
		}},
		{Name: "masks in each layer", Gain: true, want: []string{"synchronization"}, run: func(w *world) {
			w.small()
			host := w.share(0.15, 0.4) / int64(w.model.layers)
			w.train(hooks{layer: func(p *process, _, _ int) {
				if w.sick {
					p.begin(operator, "aten::nonzero", &operation{})
					p.call("cudaMemcpyAsync", 5*us)
					p.wait("cudaStreamSynchronize", computing)
					p.end()
				}
				p.spend(host)
			}})
		}},
		{Name: "the device synchronized around each layer", Gain: true, want: []string{"synchronization"}, run: func(w *world) {
			w.small()
			host := w.share(0.15, 0.4) / int64(w.model.layers)
			w.train(hooks{layer: func(p *process, _, _ int) {
				if w.sick {
					p.wait("cudaDeviceSynchronize", 0)
				}
				p.spend(host)
			}})
		}},
		{Name: "small model without compilation", Gain: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.tiny()
			w.waits = false
			w.opCost = w.duration(25*us, 45*us)
			if !w.sick {
				w.opCost, w.launch = 300, 300
			}
			w.train(hooks{})
		}},
		{Name: "optimizer with a kernel for each tensor", Gain: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.small()
			n, cost := 300+w.draw.IntN(300), w.duration(9*us, 16*us)
			w.train(hooks{finish: func(p *process, _ int) {
				p.item() // the norm of the gradients
				was := w.opCost
				w.opCost = cost
				if !w.sick {
					w.opCost = 200
				}
				launch := w.launch
				if !w.sick {
					w.launch = 200
				}
				for range n {
					p.pointwise("aten::addcmul_", "pointwise_op_impl<addcmul>", 4096, 3, 0.01)
				}
				w.opCost, w.launch = was, launch
			}})
		}},
		{Name: "operators that cost the host too much", Gain: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.tiny()
			w.waits = false
			w.opCost = w.duration(40*us, 80*us)
			if !w.sick {
				w.opCost, w.launch = 300, 300
			}
			w.train(hooks{})
		}},
		{Name: "decoding token by token", Gain: true, want: []string{"launch_bound"}, run: func(w *world) {
			w.tiny()
			w.opCost = w.duration(9*us, 18*us)
			if !w.sick {
				w.opCost, w.launch = 300, 300
			}
			w.decode(60, func(p *process) {
				for range w.model.layers {
					p.layer(false)
				}
			}, nil)
		}},
		{Name: "replays of graphs that wait for the loader", Gain: true, want: []string{"loader"}, run: func(w *world) {
			d := w.share(0.2, 0.6)
			w.decode(12, func(p *process) {
				p.replay(func() {
					for range w.model.layers {
						p.layer(false)
						p.layer(true)
					}
				})
				p.item()
			}, func(p *process, _ int) {
				if w.sick {
					load(p, multi, d)
				}
			})
		}},
		{Name: "graphs captured in the window", Gain: true, want: []string{"graph_capture"}, run: func(w *world) {
			d := w.share(0.6, 1.5)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step%3 == 1 {
					p.in(annotation, "capture", func() {
						p.call("cudaStreamBeginCapture", 10*us)
						p.spend(d)
						p.call("cudaStreamEndCapture", 200*us)
						p.call("cudaGraphInstantiate", 900*us)
					})
				}
			}})
		}},
		{Name: "modules loaded in the window", Gain: true, want: []string{"slow_runtime_calls"}, run: func(w *world) {
			name, d := w.one("cuModuleLoadData", "cuLibraryLoadData", "cudaFuncGetAttributes"), w.share(0.4, 1)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step < 5 {
					p.call(name, d)
				}
			}})
		}},
		{Name: "first launches that are slow", Gain: true, want: []string{"slow_runtime_calls"}, run: func(w *world) {
			d := w.share(0.3, 0.8)
			w.train(hooks{after: func(p *process, step int) {
				if w.sick && step < 6 {
					o, x := w.product(1024, 1024, 1024, 0.6)
					p.begin(operator, o.name, &o)
					c := p.call("cudaLaunchKernel", d)
					p.launched(x, c, p.now)
					p.end()
				}
			}})
		}},
	}
}

// decode runs a loop that generates one token at a time.
func (w *world) decode(n int, f func(p *process), after func(p *process, i int)) {
	w.each(func(p *process) {
		p.begin(frame, "serve.py(90): <module>", nil)
		p.begin(frame, "serve.py(44): generate", nil)
		for i := range n {
			f(p)
			if after != nil {
				after(p, i)
			}
		}
		p.wait("cudaDeviceSynchronize", 0)
		p.end()
		p.end()
	})
}

func memoryKinds() []Kind {
	return []Kind{
		{Name: "memory allocated in each step", Gain: true, want: []string{"allocation"}, run: delayed(0.2, 0.6,
			func(p *process, d int64) {
				p.call("cudaMalloc", d/2)
				p.call("cudaFree", d/2)
			})},
		{Name: "cache emptied in each step", Gain: true, want: []string{"allocation"}, run: delayed(0.2, 0.6,
			func(p *process, d int64) {
				p.inFrames([]string{"torch/cuda/memory.py(162): empty_cache"}, func() {
					for range 12 {
						p.call("cudaFree", d/24)
					}
				})
				for range 12 {
					p.begin(operator, "aten::empty", &operation{})
					p.call("cudaMalloc", d/24)
					p.end()
				}
			})},
		{Name: "pinned memory allocated for each batch", Gain: true, want: []string{"allocation"}, run: delayed(0.2, 0.6,
			func(p *process, d int64) {
				p.begin(operator, "aten::pin_memory", &operation{})
				p.call("cudaHostAlloc", d)
				p.end()
			})},
		{Name: "batches from pageable memory", Gain: true, want: []string{"pageable_copies"}, run: func(w *world) {
			rate := w.between(3e9, 9e9)
			bytes := int64(w.between(0.15, 0.5) * float64(w.stepTime()) / 1e9 * rate)
			w.train(hooks{start: func(p *process, _ int) {
				if w.sick {
					p.copy("Pageable", "Device", bytes, rate, computing, false)
				}
			}})
		}},
		{Name: "results to pageable memory", Gain: true, want: []string{"pageable_copies"}, run: func(w *world) {
			rate := w.between(3e9, 9e9)
			bytes := int64(w.between(0.15, 0.5) * float64(w.stepTime()) / 1e9 * rate)
			w.train(hooks{finish: func(p *process, _ int) {
				if w.sick {
					p.copy("Device", "Pageable", bytes, rate, computing, true)
				}
			}})
		}},
		{Name: "pinned batches on the stream that computes", Gain: true, want: []string{"exposed_copies"}, run: func(w *world) {
			bytes := int64(w.between(0.12, 0.4) * float64(w.stepTime()) / 1e9 * 2.2e10)
			w.train(hooks{start: func(p *process, _ int) {
				if w.sick {
					p.copy("Pinned", "Device", bytes, 2.2e10, computing, false)
				}
			}})
		}},
		{Name: "optimizer states offloaded to the host", Gain: true, want: []string{"exposed_copies"}, run: func(w *world) {
			bytes := int64(w.between(0.12, 0.4) * float64(w.stepTime()) / 2e9 * 2.2e10)
			w.train(hooks{finish: func(p *process, _ int) {
				if w.sick {
					p.copy("Pinned", "Device", bytes, 2.2e10, computing, false)
					p.optimizer()
					p.copy("Device", "Pinned", bytes, 2.2e10, computing, false)
				} else {
					p.optimizer()
				}
			}})
		}},
		{Name: "activations fetched from the host by events", Gain: true, want: []string{"exposed_copies"}, run: func(w *world) {
			bytes := int64(w.between(0.2, 0.5) * float64(w.stepTime()) / 1e9 * 2.2e10)
			w.train(hooks{after: func(p *process, _ int) {
				if w.sick {
					p.after(computing, p.copy("Pinned", "Device", bytes, 2.2e10, copying, false))
				}
			}})
		}},
		{Name: "many small pageable copies", Gain: true, want: []string{"pageable_copies", "synchronization"}, run: func(w *world) {
			n := 40 + w.draw.IntN(60)
			bytes := int64(w.between(0.15, 0.4) * float64(w.stepTime()) / float64(n) / 1e9 * 5e9)
			w.train(hooks{after: func(p *process, _ int) {
				for range n {
					if w.sick {
						p.copy("Pageable", "Device", bytes, 5e9, computing, false)
					}
				}
			}})
		}},
	}
}

func rankKinds() []Kind {
	late := []string{"late_rank"}
	// Without sizes and groups of collectives, transfers and waits may be indistinguishable.
	lateOr := unnamed("late_rank", "exposed_communication")
	moving := func(w *world, share float64, n int) int64 { return int64(share * float64(w.stepTime()) / float64(n)) }
	return []Kind{
		{
			Name: "gradients reduced after the backward pass", Gain: true, want: []string{"exposed_communication"}, ranks: []int{2, 4, 8},
			run: func(w *world) {
				n := 2 + w.draw.IntN(6)
				d := moving(w, w.between(0.15, 0.5), n)
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
		{
			Name: "parameters gathered when they are needed", Gain: true, want: []string{"exposed_communication"}, ranks: []int{4, 8, 16},
			run: func(w *world) {
				d := moving(w, w.between(0.2, 0.5), w.model.layers)
				w.train(hooks{gradient: func(int, int) {
					if w.sick {
						w.collective("_allgather_base", 64<<20, d, w.all())
						w.join(w.all())
					}
				}})
			},
		},
		{Name: "tensor parallel layers", Gain: true, want: []string{"exposed_communication"}, ranks: []int{2, 4, 8}, run: func(w *world) {
			d := moving(w, w.between(0.15, 0.4), w.model.layers)
			w.train(hooks{gradient: func(int, int) {
				if w.sick {
					w.collective("allreduce", 16<<20, d, w.all())
					w.join(w.all())
				}
			}})
		}},
		{Name: "tokens sent to experts", Gain: true, want: []string{"exposed_communication"}, ranks: []int{8, 16, 64}, run: func(w *world) {
			d := moving(w, w.between(0.15, 0.4), 2*w.model.layers)
			w.train(hooks{gradient: func(int, int) {
				for range 2 {
					if w.sick {
						w.collective("all_to_allv", 32<<20, d, w.all())
						w.join(w.all())
					}
				}
			}})
		}},
		{Name: "slow network", Gain: true, want: []string{"exposed_communication"}, ranks: []int{16, 32, 64}, run: func(w *world) {
			d := moving(w, w.between(0.5, 1.2), 4)
			w.train(hooks{backward: func(int) {
				for range 4 {
					if w.sick {
						w.collective("_reduce_scatter_base", 200<<20, d, w.all())
					}
				}
				w.join(w.all())
			}})
		}},
		{Name: "small reductions, many of them", Gain: true, want: []string{"exposed_communication"}, ranks: []int{8, 32}, run: func(w *world) {
			n := 30 + w.draw.IntN(30)
			d := moving(w, w.between(0.15, 0.4), n)
			w.train(hooks{backward: func(int) {
				for range n {
					if w.sick {
						w.collective("allreduce", 64<<10, d, w.all())
					}
				}
				w.join(w.all())
			}})
		}},
		{Name: "another rank waits for its loader", Gain: true, want: late, other: lateOr, ranks: []int{4, 8}, run: func(w *world) {
			d := w.share(0.4, 1)
			w.train(hooks{
				after: func(p *process, step int) {
					if w.sick && p.number == 2 && step%3 != 0 {
						load(p, multi, d)
					}
				},
				backward: func(int) { w.collective("allreduce", 50<<20, 300*us, w.all()); w.join(w.all()) },
			})
		}},
		{Name: "another rank has a slower device", Gain: true, want: late, other: lateOr, ranks: []int{4, 8, 64}, run: func(w *world) {
			slow := w.between(1.3, 1.6)
			w.train(hooks{
				start: func(p *process, step int) {
					p.slow = 1
					if w.sick && p.number == 1 && step%3 != 1 {
						p.slow = slow
					}
				},
				backward: func(int) { w.collective("allreduce", 50<<20, 300*us, w.all()); w.join(w.all()) },
			})
		}},
		{Name: "experts with more tokens on changing ranks", Gain: true, want: late, other: lateOr, ranks: []int{8, 16}, run: func(w *world) {
			extra := 4 + w.draw.IntN(5)
			w.train(hooks{gradient: func(step, l int) {
				w.each(func(p *process) {
					if w.sick && p.number == (step*7+l*3)%len(w.ranks) {
						for range extra {
							p.mm(w.model.tokens, 4*w.model.hidden, w.model.hidden)
						}
					}
				})
				w.collective("all_to_allv", 8<<20, 120*us, w.all())
				w.join(w.all())
			}})
		}},
		{Name: "another rank logs", Gain: true, want: late, other: lateOr, ranks: []int{2, 8, 32}, watch: 1, run: func(w *world) {
			d, every := w.share(0.8, 2), 2+w.draw.IntN(2)
			w.train(hooks{
				after: func(p *process, step int) {
					if w.sick && p.number == 0 && step%every == 0 {
						p.in(annotation, "log_metrics", func() { p.spend(d) })
					}
				},
				backward: func(int) { w.collective("allreduce", 50<<20, 300*us, w.all()); w.join(w.all()) },
			})
		}},
		{Name: "this rank's own loader in a job of ranks", Gain: true, want: []string{"loader"}, ranks: []int{4, 8, 64}, run: func(w *world) {
			d := w.share(0.3, 0.8)
			w.train(hooks{
				after: func(p *process, _ int) {
					if w.sick && p.number == 0 {
						load(p, multi, d)
					}
				},
				backward: func(int) { w.collective("allreduce", 50<<20, 300*us, w.all()); w.join(w.all()) },
			})
		}},
		{
			Name: "stages of a pipeline", Gain: true, want: []string{"exposed_communication"}, ranks: []int{4, 8}, watch: 1,
			run: func(w *world) {
				d := moving(w, w.between(0.2, 0.5), 4)
				w.train(hooks{backward: func(int) {
					for range 4 {
						if w.sick {
							w.collective("all_to_allv", 48<<20, d, []int{0, 1})
							w.join([]int{0, 1})
						}
					}
				}})
			},
		},
		{Name: "communication before loading", want: []string{"exposed_communication"}, ranks: []int{2, 8}, run: func(w *world) {
			d := moving(w, w.between(0.4, 0.7), 4)
			w.train(hooks{
				backward: func(int) {
					for range 4 {
						if w.sick {
							w.collective("allreduce", 100<<20, d, w.all())
						}
					}
					w.join(w.all())
				},
				after: func(p *process, _ int) {
					if w.sick {
						load(p, multi, 2*d)
					}
				},
			})
		}},
		{Name: "loading before communication", want: []string{"loader"}, ranks: []int{2, 8}, run: func(w *world) {
			d := moving(w, w.between(0.1, 0.2), 4)
			w.train(hooks{
				backward: func(int) {
					for range 4 {
						if w.sick {
							w.collective("allreduce", 100<<20, d, w.all())
						}
					}
					w.join(w.all())
				},
				after: func(p *process, _ int) {
					if w.sick {
						load(p, multi, 8*d)
					}
				},
			})
		}},
		{
			Name: "barrier of the host", Gain: true, want: []string{"waiting_for_rank"},
			other: map[Style][]string{Nsight: {"host_work"}}, ranks: []int{2, 8},
			run: delayed(0.2, 0.6, func(p *process, d int64) {
				p.inFrames([]string{"torch/distributed/distributed_c10d.py(4550): barrier"}, func() {
					p.begin(operator, "c10d::barrier", &operation{})
					p.begin(operator, "gloo:barrier", &operation{})
					p.spend(d)
					p.end()
					p.end()
				})
			}),
		},
		{
			Name: "barrier in an annotation", Gain: true, want: []string{"waiting_for_rank"}, ranks: []int{2, 8},
			run: delayed(0.2, 0.6, func(p *process, d int64) { p.in(annotation, "barrier", func() { p.spend(d) }) }),
		},
	}
}
