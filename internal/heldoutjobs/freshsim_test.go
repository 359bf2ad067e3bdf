// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// session is a process of a fresh kind: host threads, streams and what a profiler records of them.
// It is the third simulation and shares only types and the tables of Nsight Systems with the
// first. Times are nanoseconds.
type session struct {
	*rand.Rand
	style       Style
	sick        bool
	rank, ranks int
	thread      int
	now         int64
	free        map[int]int64 // when a stream becomes idle
	slow        float64
	salt        uint64 // draws names
	unranged    bool   // ranges are not recorded
	graph       int    // correlation of the graph's launch
	unlinked    bool
	last        int
	parents     []int
	ops         []int
	notes       []*deviceRange
	ranges      []*deviceRange
	events      []event
	lost        func(correlation int) bool // kernels that the profiler does not record
	truncated   bool
}

type deviceRange struct {
	name       string
	start, end int64
}

// Unstacked is a recent PyTorch without Python frames.
const Unstacked Style = "PyTorch with shapes"

const (
	deviceDone = 5   // offset of a wait's end
	comm       = 24  // stream of collectives
	side       = 17  // stream of copies
	backThread = 512 // offset of autograd's thread
)

func newSession(style Style, seed uint64, sick bool, rank, ranks int) *session {
	return &session{
		Rand: rand.New(rand.NewPCG(seed, 1009+uint64(rank))), style: style, sick: sick, rank: rank, ranks: ranks, thread: 8800 + 11*rank,
		now: 9*ms + int64(rank)*90*us, free: map[int]int64{}, slow: 1,
	}
}

func (p *session) id() int { p.last++; return p.last }

func (p *session) vary(micros, spread float64) int64 {
	return max(200, int64(micros*1000*max(0.4, 1+spread*p.NormFloat64())))
}

// cpu lets the host work; sometimes the operating system takes the core away.
func (p *session) cpu(micros float64) {
	if p.IntN(150) == 0 {
		micros += 15
	}
	p.now += p.vary(micros, 0.06)
}

func (p *session) emit(e event) { p.events = append(p.events, e) }

// py runs f in Python frames, from the outside.
func (p *session) py(f func(), frames ...string) {
	if len(frames) == 0 || p.style != Full {
		f()
		return
	}
	e := event{kind: frame, name: frames[0], thread: p.thread, start: p.now, frameID: p.id()}
	if n := len(p.parents); n > 0 {
		e.parentID = p.parents[n-1]
	}
	p.parents = append(p.parents, e.frameID)
	p.cpu(0.5)
	p.py(f, frames[1:]...)
	p.cpu(0.4)
	p.parents = p.parents[:len(p.parents)-1]
	e.end = p.now
	p.emit(e)
}

// spend is a leaf of Python frames that takes a time.
func (p *session) spend(micros float64, frames ...string) {
	p.py(func() { p.cpu(micros) }, frames...)
}

// note runs f in an annotation or an NVTX range.
func (p *session) note(name string, f func()) {
	if p.unranged {
		f()
		return
	}
	r := &deviceRange{name: name}
	p.notes = append(p.notes, r)
	e := event{kind: annotation, name: name, thread: p.thread, start: p.now}
	p.cpu(1)
	f()
	e.end = p.now
	p.emit(e)
	p.notes = p.notes[:len(p.notes)-1]
	if r.end > 0 {
		p.ranges = append(p.ranges, r)
	}
}

func (p *session) op(name, dims, kinds string, f func()) {
	e := event{kind: operator, name: name, thread: p.thread, start: p.now, external: p.id()}
	if dims != "" {
		e.operation = &operation{name: name, dims: dims, types: kinds}
	}
	p.ops = append(p.ops, e.external)
	p.cpu(2.2)
	f()
	p.cpu(0.8)
	p.ops = p.ops[:len(p.ops)-1]
	e.end = p.now
	if p.style != Nsight {
		p.emit(e)
	}
}

func (p *session) runtime(name string, took int64) int {
	c := p.id()
	p.emit(event{kind: call, name: name, thread: p.thread, start: p.now, end: p.now + took, correlation: c})
	p.now += took
	return c
}

func (p *session) place(x work, c int, start, end int64) {
	p.free[x.stream] = max(p.free[x.stream], end)
	if p.lost != nil && p.lost(c) {
		return
	}
	for _, r := range p.notes {
		if r.start == 0 {
			r.start = start
		}
		r.end = max(r.end, end)
	}
	external := 0
	if n := len(p.ops); n > 0 {
		external = p.ops[n-1]
	}
	p.emit(event{kind: x.kind, name: x.name, start: start, end: end, correlation: c, work: &x, external: external})
}

// k launches a kernel.
func (p *session) k(name string, micros float64, set ...func(*work)) {
	x := work{kind: kernel, name: name, stream: 7, blocks: 1320, threads: 256, registers: 64}
	for _, f := range set {
		f(&x)
	}
	c := p.graph
	switch {
	case p.unlinked:
		c = 0
	case c == 0:
		c = p.runtime("cudaLaunchKernel", p.vary(3.8, 0.15))
	default:
		x.node = p.id()
	}
	start := max(p.now+1800, p.free[x.stream]+p.vary(0.8, 0.1))
	p.place(x, c, start, start+int64(float64(p.vary(micros, 0.012))*p.slow))
}

func grid(blocks, threads int64) func(*work) {
	return func(x *work) { x.blocks, x.threads = blocks, threads }
}

const (
	bf16s = `["c10::BFloat16","c10::BFloat16"]`
	gemm  = "nvjet_tst_256x128_64x4_1x2_h_bz_coopB_TNN"
)

// mm is a product of an H100 at two thirds of its peak.
func (p *session) mm(micros float64) {
	p.op("aten::mm", mmDims(micros, 0.66*989e12), bf16s, func() { p.k(gemm, micros) })
}

func mmDims(micros, rate float64) string {
	return fmt.Sprintf("[[%d,4096],[4096,4096]]", int(micros*1e-6*rate/(2*4096*4096)))
}

// map1 is an elementwise operator of one tensor.
func (p *session) map1(name, functor string, micros float64) {
	p.op(name, fmt.Sprintf("[[%d]]", int(micros*0.8*3.35e6/4)), `["c10::BFloat16"]`, func() {
		p.k("void at::native::vectorized_elementwise_kernel<8, at::native::"+functor+", std::array<char*, 2ul> >(int, at::native::"+
			functor+", std::array<char*, 2ul>)", micros, grid(int64(micros*400), 128))
	})
}

func (p *session) flash(micros float64) {
	d := fmt.Sprintf("[4,32,%d,128]", int(29.3*sqrt(micros*1.06)))
	p.op("aten::_flash_attention_forward", "["+d+","+d+","+d+"]", `["c10::BFloat16","c10::BFloat16","c10::BFloat16"]`, func() {
		p.k("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 32, 4, false, false, "+
			"cutlass::bfloat16_t, pytorch_flash::Flash_kernel_traits<128, 128, 32, 4, cutlass::bfloat16_t> >, false, true>"+
			"(pytorch_flash::Flash_fwd_params)", micros, grid(1024, 128))
	})
}

func sqrt(x float64) float64 {
	y := x
	for range 40 {
		y = (y + x/y) / 2
	}
	return y
}

// copy moves bytes at GB/s. Pageable memory blocks the host.
func (p *session) copy(name, from, to string, bytes int64, rate float64, stream int) {
	direction := "HtoD"
	if from == "Device" {
		direction = "DtoH"
	}
	x := work{kind: memcpy, name: fmt.Sprintf("Memcpy %s (%s -> %s)", direction, from, to), bytes: bytes, stream: stream, from: from, to: to}
	c, called := p.id(), p.now
	p.now += p.vary(4.5, 0.1)
	start := max(p.now+1500, p.free[stream]+700)
	end := start + 1200 + int64(float64(bytes)/rate)
	p.place(x, c, start, end)
	if from == "Pageable" || to == "Pageable" {
		p.now = max(p.now, end+3000)
	}
	p.emit(event{kind: call, name: name, thread: p.thread, start: called, end: p.now, correlation: c})
}

// sync waits for a stream, or for all with 0.
func (p *session) sync(name string, stream int) {
	end := p.now + 1500
	for s, t := range p.free {
		if stream == 0 || s == stream {
			end = max(end, t+deviceDone*us)
		}
	}
	p.runtime(name, end-p.now)
}

func (p *session) item() {
	p.op("aten::item", "", "", func() {
		p.op("aten::_local_scalar_dense", "", "", func() {
			p.copy("cudaMemcpyAsync", "Device", "Pinned", 4, 0.01, 7)
			p.sync("cudaStreamSynchronize", 7)
		})
	})
}

// follow makes a stream wait for another one.
func (p *session) follow(stream, other int) {
	p.runtime("cudaEventRecord", p.vary(1.4, 0.1))
	p.runtime("cudaStreamWaitEvent", p.vary(1.1, 0.1))
	p.free[stream] = max(p.free[stream], p.free[other])
}

// collective runs on all ranks and ends when the last one has arrived and the bytes have moved.
func collective(ps []*session, name, kernelName string, bytes []int64, rate float64, block bool) {
	starts, calls, last, most := make([]int64, len(ps)), make([]int, len(ps)), int64(0), int64(0)
	for i, p := range ps {
		p.op("record_param_comms", "", "", func() {
			p.follow(comm, 7)
			calls[i] = p.runtime("cudaLaunchKernelExC", p.vary(6, 0.1))
		})
		starts[i] = max(p.now+2000, p.free[comm]+900)
		last, most = max(last, starts[i]), max(most, bytes[i%len(bytes)])
	}
	end := last + 14*us + int64(float64(most)/rate)
	members := make([]int, len(ps))
	for i := range members {
		members[i] = i
	}
	for i, p := range ps {
		p.place(work{
			kind: kernel, name: kernelName, stream: comm, blocks: 16, threads: 512, registers: 96,
			collective: &meeting{
				operation: name, group: "0", description: "default_pg", elements: bytes[i%len(bytes)] / 2, ranks: members, sequence: p.id(),
			},
		}, calls[i], starts[i], end+p.Int64N(1200))
		if block {
			p.follow(7, comm)
		}
	}
}

// write writes a profile as Kineto 2.6 and later or Nsight Systems do.
func (p *session) write(ctx context.Context, dir, name string) (string, error) {
	slices.SortStableFunc(p.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	if p.style == Nsight {
		path := filepath.Join(dir, name+".sqlite")
		w := &world{dev: devices()[1], style: Nsight}
		q := process{w: w, number: p.rank, events: p.events}
		return path, q.nsight(ctx, path)
	}
	text := p.kineto("")
	if p.truncated {
		text = text[:len(text)*7/10]
	}
	path := filepath.Join(dir, name+".pt.trace.json")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

func (p *session) kineto(prefix string) string {
	return p.head() + strings.Join(p.lines(prefix), ",\n") + "\n  ],\n" + fmt.Sprintf(
		`  "traceName": "/scratch/run/rank%d.pt.trace.json"`+"\n}\n", p.rank)
}

func (p *session) head() string {
	distributed := ""
	if p.ranks > 1 {
		var list []string
		for i := range p.ranks {
			list = append(list, fmt.Sprint(i))
		}
		distributed = fmt.Sprintf(`"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": %d, "pg_count": 1, "pg_config": `+
			`[{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": %d, "ranks": [%s]}], "nccl_version": "2.26.2"},`,
			p.rank, p.ranks, p.ranks, strings.Join(list, ", "))
	}
	return `{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,
 "computeMajor": 9, "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536,
 "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
 "sharedMemPerMultiprocessor": 233472}], "cupti_version": 26, "cuda_runtime_version": 12080, "cuda_driver_version": 12080,
 "trace_id": "A77B0F", "displayTimeUnit": "ms", "baseTimeNanoseconds": 1759000000000000000, ` + distributed + ` "traceEvents": [
`
}

// lines returns the events; a prefix marks the processes of merged files.
func (p *session) lines(prefix string) (list []string) {
	pid := func(n int) string {
		if prefix == "" {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%q", fmt.Sprintf("[%s] %d", prefix, n))
	}
	const base = 4_011_230_000_000
	host := 8800 + 11*p.rank
	list = append(list, fmt.Sprintf(`{"name": "process_name", "ph": "M", "ts": %s, "pid": %s, "tid": 0, "args": {"name": "python"}}`,
		micro(base), pid(host)))
	list = append(list, fmt.Sprintf(`{"name": "process_labels", "ph": "M", "ts": %s, "pid": %s, "tid": 0, "args": {"labels": "CPU"}}`,
		micro(base), pid(host)))
	list = append(list, fmt.Sprintf(`{"name": "process_labels", "ph": "M", "ts": %s, "pid": %s, "tid": 0, "args": {"labels": "GPU 0"}}`,
		micro(base), pid(0)))
	for i := range p.events {
		e := &p.events[i]
		at, tid, args := host, e.thread, ""
		switch e.kind {
		case frame:
			args = fmt.Sprintf(`"Python id": %d`, e.frameID)
			if e.parentID > 0 {
				args = fmt.Sprintf(`"Python parent id": %d, %s`, e.parentID, args)
			}
			if _, n, ok := strings.Cut(e.name, "_"); ok && strings.HasPrefix(e.name, "nn.Module: ") {
				args += `, "Python module id": ` + n
			}
		case operator:
			args = fmt.Sprintf(`"External id": %d, "Record function id": 0, "Ev Idx": %d`, e.external, i)
			if o := e.operation; o != nil {
				args += fmt.Sprintf(`, "Input type": %s, "Input Dims": %s`, o.types, o.dims)
			}
		case call:
			args = fmt.Sprintf(`"cbid": 211, "correlation": %d`, e.correlation)
		case kernel, memcpy, memset:
			at, tid, args = 0, e.work.stream, kinetoWork(e)
		default:
			args = fmt.Sprintf(`"External id": %d, "Record function id": 0`, p.id())
		}
		list = append(list, fmt.Sprintf(`{"ph": "X", "cat": %q, "name": %q, "pid": %s, "tid": %d, "ts": %s, "dur": %s, "args": {%s}}`,
			string(e.kind), e.name, pid(at), tid, micro(base+e.start), micro(e.end-e.start), args))
		if e.kind == call {
			list = append(list, fmt.Sprintf(`{"ph": "s", "id": %d, "pid": %s, "tid": %d, "ts": %s, "cat": "ac2g", "name": "ac2g"}`,
				e.correlation, pid(at), tid, micro(base+e.start)))
		}
	}
	for _, r := range p.ranges {
		list = append(list, fmt.Sprintf(`{"ph": "X", "cat": "gpu_user_annotation", "name": %q, "pid": %s, "tid": 7, "ts": %s, "dur": %s, `+
			`"args": {"External id": %d}}`, r.name, pid(0), micro(base+r.start), micro(r.end-r.start), p.id()))
	}
	return append(list, fmt.Sprintf(`{"ph": "i", "cat": "Trace", "s": "t", "name": "Iteration Start: PyTorch Profiler", "pid": "Traces", `+
		`"tid": "Trace PyTorch Profiler", "ts": %s}`, micro(base)))
}

func kinetoWork(e *event) string {
	x := e.work
	args := fmt.Sprintf(`"External id": %d, "device": 0, "context": 1, "stream": %d, "correlation": %d`, e.external, x.stream, e.correlation)
	if x.kind != kernel {
		return args + fmt.Sprintf(`, "bytes": %d, "memory bandwidth (GB/s)": %.4f`, x.bytes, float64(x.bytes)/float64(e.end-e.start))
	}
	args += fmt.Sprintf(`, "registers per thread": %d, "shared memory": 0, "blocks per SM": %.4f, "warps per SM": %.4f, "grid": [%d, 1, 1], `+
		`"block": [%d, 1, 1], "est. achieved occupancy %%": 37`, x.registers, float64(x.blocks)/132, float64(x.blocks*x.threads)/132/32, x.blocks,
		x.threads)
	if x.node > 0 {
		args += fmt.Sprintf(`, "graph node id": %d`, x.node)
	}
	if c := x.collective; c != nil {
		args += fmt.Sprintf(`, "Collective name": %q, "In msg nelems": %d, "Out msg nelems": %d, "Group size": %d, "dtype": "BFloat16", `+
			`"Process Group Name": %q, "Process Group Description": %q, "Process Group Ranks": %q`, c.operation, c.elements, c.elements, len(c.ranks),
			c.group, c.description, strings.ReplaceAll(fmt.Sprint(c.ranks), " ", ", "))
	}
	return args
}

// busy returns the window of the device and the part in which it works.
func (p *session) busy() (window int64, part float64) {
	var list [][2]int64
	for i := range p.events {
		if p.events[i].work != nil {
			list = append(list, [2]int64{p.events[i].start, p.events[i].end})
		}
	}
	slices.SortFunc(list, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	end, covered := list[0][0], int64(0)
	for _, w := range list {
		covered += max(0, w[1]-max(w[0], end))
		end = max(end, w[1])
	}
	window = end - list[0][0]
	return window, float64(covered) / float64(window)
}
