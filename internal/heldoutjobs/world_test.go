// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
)

// Durations in ns.
const (
	us int64 = 1_000
	ms int64 = 1_000_000
)

// Style is the kind of file that records a job.
type Style string

// Styles.
const (
	Full   Style = "PyTorch with frames and shapes"
	Sparse Style = "older PyTorch"
	Nsight Style = "Nsight Systems"
	// Rocprof has jobs on AMD devices only.
	Rocprof Style = "rocprofv3"
)

// Styles returns all styles.
func Styles() []Style { return []Style{Full, Sparse, Nsight, Rocprof} }

// device is a model with the rates of its data sheet: dense FLOP/s and bytes/s.
type device struct {
	name, gemm                   string
	bf16, tf32, fp32, fp64, rate float64
	processors                   int64
	major, minor                 int
	memory                       int64
	amd                          bool
}

func devices() []device {
	return []device{
		{
			"NVIDIA A100-SXM4-80GB", "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
			312e12, 156e12, 19.5e12, 9.7e12, 2.039e12, 108, 8, 0, 85_051_572_224, false,
		},
		{
			"NVIDIA H100 80GB HBM3", "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
			989.4e12, 494.7e12, 66.9e12, 33.5e12, 3.35e12, 132, 9, 0, 85_045_411_840, false,
		},
	}
}

// world is one run of a job.
type world struct {
	style  Style
	seed   uint64
	draw   *rand.Rand // source of parameters, the same for both runs
	sick   bool
	dev    device
	ranks  []*process
	model  model
	steps  int
	waits  bool  // each step ends with a wait for its loss
	opCost int64 // host time of an operator
	launch int64 // host time of a launch
}

func seedOf(seed uint64, text string) uint64 {
	h := fnv.New64a()
	fmt.Fprint(h, seed, text)
	return h.Sum64()
}

func newWorld(name string, style Style, seed uint64, ranks []int, watch int, sick bool) *world {
	w := &world{style: style, seed: seed, draw: rand.New(rand.NewPCG(seedOf(seed, name), 1)), sick: sick}
	n := 1
	if len(ranks) > 0 {
		n = ranks[w.draw.IntN(len(ranks))]
	}
	list := devices()
	w.dev = list[w.draw.IntN(len(list))]
	w.model = model{
		layers: 4 + w.draw.IntN(6), hidden: []int64{2048, 4096, 5120}[w.draw.IntN(3)],
		tokens: []int64{2048, 4096, 8192}[w.draw.IntN(3)], product: w.between(0.62, 0.76), memory: w.between(0.74, 0.9),
		attention: w.between(0.56, 0.68),
	}
	w.steps = 8 + w.draw.IntN(6)
	w.waits = true
	w.opCost, w.launch = w.duration(3*us, 7*us), w.duration(3*us, 6*us)
	for i := range n {
		w.ranks = append(w.ranks, &process{
			w: w, number: i, recorded: i == watch%n, random: rand.New(rand.NewPCG(seedOf(seed, name), 100+uint64(i))),
			streams: map[int]int64{}, now: 50 * ms, sequence: map[string]int{},
		})
	}
	return w
}

func (w *world) between(a, b float64) float64 { return a + (b-a)*w.draw.Float64() }

func (w *world) duration(a, b int64) int64 { return a + int64(float64(b-a)*w.draw.Float64()) }

func (w *world) one(of ...string) string { return of[w.draw.IntN(len(of))] }

// share draws a fraction of the healthy step's device time.
func (w *world) share(a, b float64) int64 { return int64(w.between(a, b) * float64(w.stepTime())) }

func (w *world) each(f func(p *process)) {
	for _, p := range w.ranks {
		f(p)
	}
}

// watched returns the rank whose profile is written.
func (w *world) watched() *process {
	for _, p := range w.ranks {
		if p.recorded {
			return p
		}
	}
	panic("no rank is recorded")
}

type kind string

const (
	frame      kind = "python_function"
	operator   kind = "cpu_op"
	annotation kind = "user_annotation"
	call       kind = "cuda_runtime"
	overhead   kind = "overhead"
	kernel     kind = "kernel"
	memcpy     kind = "gpu_memcpy"
	memset     kind = "gpu_memset"
)

// Threads.
const (
	mainThread = 31_001
	autograd   = 31_077
	helper     = 31_090
	processID  = 31_001
)

// Streams.
const (
	computing = 7
	copying   = 20
	talking   = 28
	migrating = 0
)

// event is what a profiler records.
type event struct {
	kind        kind
	name        string
	thread      int
	start, end  int64
	correlation int
	operation   *operation
	work        *work
	external    int
	frameID     int
	parentID    int
}

// operation is an operator of the framework.
type operation struct {
	name         string
	dims, types  string // as JSON
	concrete     string
	outer, inner []string
}

// work is an activity of a device.
type work struct {
	kind            kind
	name            string
	length          int64
	stream          int
	blocks, threads int64
	registers       int64
	bytes           int64
	from, to        string // memory of copies
	collective      *meeting
	pace            bool // slows down with the clock
	managed         bool // pages that the driver moves
	node            int
}

// meeting is PyTorch's record of a collective.
type meeting struct {
	operation, group, description string
	elements                      int64
	ranks                         []int
	sequence                      int
	old                           string // kernel name of older libraries
}

type open struct {
	kind     kind
	name     string
	start    int64
	thread   int
	o        *operation
	external int
	id       int
}

// process is one rank.
type process struct {
	w           *world
	number      int
	recorded    bool
	random      *rand.Rand
	now         int64
	onAutograd  bool
	streams     map[int]int64
	stack       []open
	events      []event
	correlation int
	external    int
	frames      int
	graph       int // correlation of the launch under construction
	nodes       int
	slow        float64 // factor of kernel times; 0: normal
	first, last int64
	sequence    map[string]int
}

func (p *process) thread() int {
	if p.onAutograd {
		return autograd
	}
	return mainThread
}

// about returns a duration varied by a few percent.
func (p *process) about(d int64) int64 {
	return max(1, int64(float64(d)*(1+0.015*p.random.NormFloat64())))
}

func (p *process) spend(d int64) { p.now += p.about(d) }

func (p *process) emit(e event) {
	if p.recorded {
		p.events = append(p.events, e)
	}
}

func (p *process) begin(k kind, name string, o *operation) {
	x := open{kind: k, name: name, start: p.now, thread: p.thread(), o: o}
	switch k {
	case operator:
		p.external++
		x.external = p.external
	case frame:
		p.frames++
		x.id = p.frames
	}
	p.stack = append(p.stack, x)
}

func (p *process) end() {
	x := p.stack[len(p.stack)-1]
	p.stack = p.stack[:len(p.stack)-1]
	parent := 0
	for i := len(p.stack) - 1; i >= 0 && parent == 0; i-- {
		parent = p.stack[i].id
	}
	p.emit(event{
		kind: x.kind, name: x.name, thread: x.thread, start: x.start, end: p.now, operation: x.o, external: x.external,
		frameID: x.id, parentID: parent,
	})
}

// in runs f in a host range.
func (p *process) in(k kind, name string, f func()) {
	p.begin(k, name, nil)
	f()
	p.end()
}

// inFrames runs f in nested Python frames.
func (p *process) inFrames(names []string, f func()) {
	for _, n := range names {
		p.begin(frame, n, nil)
		p.now += 300
	}
	f()
	for range names {
		p.now += 200
		p.end()
	}
}

func (p *process) call(name string, d int64) int {
	p.correlation++
	start := p.now
	p.spend(d)
	p.emit(event{kind: call, name: name, thread: p.thread(), start: start, end: p.now, correlation: p.correlation})
	return p.correlation
}

// launched enqueues work on its stream.
func (p *process) launched(x work, correlation int, at int64) (end int64) {
	length := p.about(x.length)
	if p.slow > 0 && x.pace {
		length = int64(float64(length) * p.slow)
	}
	start := max(at+p.about(3500), p.streams[x.stream]+p.about(900))
	p.schedule(x, correlation, start, start+length)
	return start + length
}

func (p *process) schedule(x work, correlation int, start, end int64) {
	if p.first == 0 || start < p.first {
		p.first = start
	}
	p.last = max(p.last, end)
	p.streams[x.stream] = max(p.streams[x.stream], end)
	p.emit(event{
		kind: x.kind, name: x.name, start: start, end: end, correlation: correlation, work: &x, external: p.external,
	})
}

// run launches work with a call, or adds it to the graph under construction.
func (p *process) run(x work) {
	if p.graph != 0 {
		p.nodes++
		x.node = p.nodes
		p.launched(x, p.graph, p.now)
		return
	}
	c := p.call("cudaLaunchKernel", p.w.launch)
	p.launched(x, c, p.now)
}

// op runs an operator with its kernels.
func (p *process) op(o operation, list ...work) {
	if p.graph != 0 {
		for _, x := range list {
			p.run(x)
		}
		return
	}
	names := append([]string{}, o.outer...)
	names = append(names, o.name)
	names = append(names, o.inner...)
	for i, n := range names {
		part := &operation{}
		if i == len(o.outer) {
			part = &o
		}
		p.begin(operator, n, part)
		p.spend(p.w.opCost / int64(len(names)))
	}
	for _, x := range list {
		p.run(x)
	}
	for range names {
		p.now += 400
		p.end()
	}
}

// replay launches the work that f adds as a captured graph.
func (p *process) replay(f func()) {
	p.graph = p.call("cudaGraphLaunch", 12*us)
	p.nodes = 0
	f()
	p.graph = 0
}

// wait blocks the host until a stream, or with 0 the device, is done.
func (p *process) wait(name string, stream int) {
	end := p.now + 2*us
	for s, t := range p.streams {
		if stream == 0 || s == stream {
			end = max(end, t+p.about(4*us))
		}
	}
	p.correlation++
	start := p.now
	p.now = end
	p.emit(event{kind: call, name: name, thread: p.thread(), start: start, end: end, correlation: p.correlation})
}

// copy transfers bytes at a rate in bytes per second; the host waits if necessary.
func (p *process) copy(from, to string, bytes int64, rate float64, stream int, blocking bool) (end int64) {
	direction := map[bool]string{true: "DtoH", false: "HtoD"}[from == "Device"]
	x := work{
		kind: memcpy, name: fmt.Sprintf("Memcpy %s (%s -> %s)", direction, from, to), bytes: bytes, stream: stream,
		length: 1500 + int64(float64(bytes)/rate*1e9), from: from, to: to,
	}
	p.begin(operator, "aten::to", &operation{})
	p.begin(operator, "aten::_to_copy", &operation{})
	p.begin(operator, "aten::copy_", &operation{})
	p.spend(p.w.opCost)
	start := p.now
	p.correlation++
	c := p.correlation
	end = p.launched(x, c, p.now)
	p.now += p.about(5 * us)
	if from == "Pageable" || to == "Pageable" {
		p.now = max(p.now, end+2*us)
	}
	p.emit(event{kind: call, name: "cudaMemcpyAsync", thread: p.thread(), start: start, end: p.now, correlation: c})
	if blocking {
		p.wait("cudaStreamSynchronize", stream)
	}
	for range 3 {
		p.now += 400
		p.end()
	}
	return end
}

// item reads a number from the device.
func (p *process) item() {
	p.begin(operator, "aten::item", &operation{})
	p.begin(operator, "aten::_local_scalar_dense", &operation{})
	p.spend(2 * us)
	c := p.call("cudaMemcpyAsync", 5*us)
	p.launched(work{
		kind: memcpy, name: "Memcpy DtoH (Device -> Pinned)", bytes: 4, length: 1800, stream: computing, from: "Device",
		to: "Pinned",
	}, c, p.now)
	p.wait("cudaStreamSynchronize", computing)
	p.end()
	p.end()
}

// after makes one stream wait for a time of another, through an event.
func (p *process) after(stream int, t int64) {
	p.call("cudaEventRecord", 1500)
	p.call("cudaStreamWaitEvent", 1200)
	p.streams[stream] = max(p.streams[stream], t)
}

// collective runs a collective of ranks: it starts on each rank when that arrives, and ends once
// the last rank has arrived and the bytes are transferred.
func (w *world) collective(operation string, bytes int64, moving int64, members []int) {
	kernels := map[string][2]string{
		"allreduce":            {"ncclDevKernel_AllReduce_Sum_bf16_RING_LL", "ncclKernel_AllReduce_RING_LL_Sum_half"},
		"_allgather_base":      {"ncclDevKernel_AllGather_RING_LL", "ncclKernel_AllGather_RING_LL_Sum_int8_t"},
		"_reduce_scatter_base": {"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "ncclKernel_ReduceScatter_RING_LL_Sum_half"},
		"all_to_allv":          {"ncclDevKernel_SendRecv", "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t"},
	}
	starts := make([]int64, len(members))
	correlations := make([]int, len(members))
	last := int64(0)
	for i, m := range members {
		p := w.ranks[m]
		p.begin(operator, "c10d::"+operation+"_", nil)
		p.begin(operator, "record_param_comms", nil)
		p.spend(w.opCost + 6*us)
		p.call("cudaStreamWaitEvent", 1200)
		p.streams[talking] = max(p.streams[talking], p.streams[computing])
		correlations[i] = p.call("cudaLaunchKernelExC", w.launch)
		starts[i] = max(p.now+p.about(3500), p.streams[talking]+p.about(900))
		last = max(last, starts[i])
		p.end()
		p.end()
	}
	end := last + w.ranks[members[0]].about(moving)
	for i, m := range members {
		p := w.ranks[m]
		group := "0"
		if len(members) < len(w.ranks) {
			group = fmt.Sprint(10 + members[0])
		}
		p.sequence[group]++
		names := kernels[operation]
		p.schedule(work{
			kind: kernel, name: names[0], stream: talking, blocks: 24, threads: 544, registers: 96,
			collective: &meeting{
				operation: operation, group: group, description: "default_pg", elements: bytes / 2, ranks: members,
				sequence: p.sequence[group], old: names[1],
			},
		}, correlations[i], starts[i], end+p.random.Int64N(900))
	}
}

// join makes computation wait for communication.
func (w *world) join(members []int) {
	for _, m := range members {
		p := w.ranks[m]
		p.after(computing, p.streams[talking])
	}
}

func (w *world) all() (list []int) {
	for i := range w.ranks {
		list = append(list, i)
	}
	return list
}
