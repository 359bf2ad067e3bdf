// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// program is one run of an unseen kind: a host thread, a thread for backward passes, and streams.
// It shares nothing with world, so that an error of one simulation is not in both. Times are
// nanoseconds.
type program struct {
	*rand.Rand
	frames  bool // the profile has Python frames
	caused  bool
	thread  int
	now     int64         // of the host
	free    map[int]int64 // when a stream becomes idle
	slow    float64       // factor of kernel times
	gemm    string
	lines   []line
	busy    [][2]int64
	parents []int
	opIDs   []int
	last    int // the last ID of a frame, an operator or a correlation
	wait    func(step int) int64
	groups  bool
}

type line struct {
	start int64
	text  string
}

func newProgram(style Style, seed uint64, caused bool) *program {
	return &program{
		Rand: rand.New(rand.NewPCG(seed, 77)), frames: style == Full, caused: caused, thread: 4711, now: 3_000_000,
		free: map[int]int64{}, slow: 1, gemm: "nvjet_tst_192x192_64x4_2x1_v_bz_coopB_TNT",
	}
}

func (p *program) id() int { p.last++; return p.last }

// about draws a time near one in microseconds.
func (p *program) about(micros float64, spread float64) int64 {
	return int64(micros * 1000 * max(0.5, 1+spread*p.NormFloat64()))
}

func (p *program) emit(cat, name string, pid, tid any, start, end int64, args string) {
	p.lines = append(p.lines, line{start, fmt.Sprintf(
		`{"ph":"X","cat":%q,"name":%q,"pid":%v,"tid":%v,"ts":%.3f,"dur":%.3f,"args":{%s}}`, cat, name, pid, tid,
		6.1e9+float64(start)/1000, float64(end-start)/1000, args)})
}

// host lets the host work for about a time in microseconds.
func (p *program) host(micros float64) { p.now += p.about(micros, 0.03) }

// in runs f in a chain of Python frames.
func (p *program) in(f func(), frames ...string) {
	if len(frames) == 0 || !p.frames {
		f()
		return
	}
	id, parent, start := p.id(), "null", p.now
	if n := len(p.parents); n > 0 {
		parent = fmt.Sprint(p.parents[n-1])
	}
	p.parents = append(p.parents, id)
	p.host(0.6)
	p.in(f, frames[1:]...)
	p.host(0.6)
	p.parents = p.parents[:len(p.parents)-1]
	module := ""
	if _, number, ok := strings.Cut(frames[0], "_"); ok && strings.HasPrefix(frames[0], "nn.Module: ") {
		module = `,"Python module id":` + number
	}
	p.emit("python_function", frames[0], 4000, p.thread, start, p.now,
		fmt.Sprintf(`"Python parent id":%s,"Python id":%d%s`, parent, id, module))
}

// note runs f in a record_function.
func (p *program) note(name string, f func()) {
	start := p.now
	p.host(1)
	f()
	p.emit("user_annotation", name, 4000, p.thread, start, p.now, `"Record function id":0`)
}

// op runs f in an operator.
func (p *program) op(name, dims string, f func()) {
	id, start := p.id(), p.now
	p.opIDs = append(p.opIDs, id)
	p.host(2.5)
	f()
	p.host(1)
	p.opIDs = p.opIDs[:len(p.opIDs)-1]
	args := fmt.Sprintf(`"External id":%d,"Record function id":0`, id)
	if dims != "" {
		args += `,"Input Dims":` + dims + `,"Input type":["c10::BFloat16","c10::BFloat16"]`
	}
	p.emit("cpu_op", name, 4000, p.thread, start, p.now, args)
}

// call is a runtime call that takes a time.
func (p *program) call(name string, took int64) (correlation int) {
	correlation = p.id()
	p.emit("cuda_runtime", name, 4000, p.thread, p.now, p.now+took, fmt.Sprintf(`"cbid":211,"correlation":%d`, correlation))
	p.now += took
	return correlation
}

func (p *program) work(cat, name string, stream int, took int64, correlation int, args string) {
	start := max(p.now+1500, p.free[stream]+700)
	p.free[stream] = start + took
	p.busy = append(p.busy, [2]int64{start, start + took})
	external := 0
	if n := len(p.opIDs); n > 0 {
		external = p.opIDs[n-1]
	}
	p.emit(cat, name, 0, stream, start, start+took, fmt.Sprintf(
		`"External id":%d,"device":0,"context":1,"stream":%d,"correlation":%d%s`, external, stream, correlation, args))
}

// kernel launches a kernel of about a time in microseconds.
func (p *program) kernel(name string, micros float64) {
	took := int64(float64(p.about(micros, 0.01)) * p.slow)
	p.work("kernel", name, 7, took, p.call("cudaLaunchKernel", p.about(3.4, 0.12)),
		`,"grid":[1056,1,1],"block":[256,1,1],"registers per thread":64,"shared memory":0,"blocks per SM":8,"warps per SM":64`)
}

// mm launches a matrix product of shapes whose rate is about two thirds of the peak of an H100.
func (p *program) mm(micros float64) {
	n := int(micros * 1e-6 * 0.66 * 989e12 / (2 * 4096 * 4096))
	p.op("aten::mm", fmt.Sprintf("[[%d,4096],[4096,4096]]", n), func() { p.kernel(p.gemm, micros) })
}

// copy moves bytes; a pageable copy blocks the host.
func (p *program) copy(kind string, bytes int64, rate float64, stream int) {
	took := int64(float64(bytes) / rate)
	c := p.call("cudaMemcpyAsync", p.about(5, 0.1))
	p.work("gpu_memcpy", "Memcpy "+kind, stream, took, c,
		fmt.Sprintf(`,"bytes":%d,"memory bandwidth (GB/s)":%.3f`, bytes, float64(bytes)/float64(took)))
	if strings.Contains(kind, "Pageable") {
		p.now = max(p.now, p.free[stream]+4000)
	}
}

// idle waits for a stream on the host.
func (p *program) idle(name string) {
	c := max(p.now+3000, p.free[7]+2500) - p.now
	p.call(name, c)
}

// item reads one number.
func (p *program) item() {
	p.op("aten::item", "", func() {
		p.op("aten::_local_scalar_dense", "", func() {
			p.copy("DtoH (Device -> Pinned)", 4, 0.004, 7)
			p.idle("cudaStreamSynchronize")
		})
	})
}

// reduce launches a collective after the work so far; it ends when the last of four ranks arrived
// and the bytes moved.
func (p *program) reduce(what string, bytes int64, late int64, block bool) {
	c := p.call("cudaLaunchKernelExC", p.about(5, 0.1))
	p.free[20] = max(p.free[20], p.free[7])
	took := late + int64(float64(bytes)*1.5/220) + p.about(9, 0.1)
	p.work("kernel", "ncclDevKernel_"+what+"_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 20, took, c, fmt.Sprintf(
		`,"grid":[24,1,1],"block":[512,1,1],"Collective name":%q,"In msg nelems":%d,"Out msg nelems":%d,"Group size":4,`+
			`"dtype":"BFloat16","Process Group Name":"0","Process Group Description":"default_pg","Process Group Ranks":"[0, 1, 2, 3]"`,
		map[string]string{"AllReduce_Sum_bf16": "allreduce", "AllGather": "_allgather_base"}[what], bytes/2, bytes/2))
	if block {
		p.free[7] = max(p.free[7], p.free[20])
	}
}

// text returns the profile, its window and the fraction of the window in which the device works.
func (p *program) text() (text string, window int64, busy float64) {
	slices.SortStableFunc(p.lines, func(a, b line) int { return cmp.Compare(a.start, b.start) })
	var b strings.Builder
	b.WriteString(`{"schemaVersion":1,"deviceProperties":[{"id":0,"name":"NVIDIA H100 80GB HBM3","totalGlobalMem":85024112640,` +
		`"computeMajor":9,"computeMinor":0,"maxThreadsPerBlock":1024,"maxThreadsPerMultiprocessor":2048,` +
		`"regsPerBlock":65536,"warpSize":32,"sharedMemPerBlock":49152,"numSms":132,"regsPerMultiprocessor":65536,` +
		`"sharedMemPerBlockOptin":232448,"sharedMemPerMultiprocessor":233472}],`)
	if p.groups {
		b.WriteString(`"distributedInfo":{"backend":"nccl","rank":0,"world_size":4},`)
	}
	b.WriteString("\"traceEvents\":[\n")
	for i := range p.lines {
		if i > 0 {
			b.WriteString(",\n")
		}
		b.WriteString(p.lines[i].text)
	}
	b.WriteString("\n]}\n")
	slices.SortFunc(p.busy, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	end, covered := p.busy[0][0], int64(0)
	for _, w := range p.busy {
		covered += max(0, w[1]-max(w[0], end))
		end = max(end, w[1])
	}
	window = end - p.busy[0][0]
	return b.String(), window, float64(covered) / float64(window)
}
