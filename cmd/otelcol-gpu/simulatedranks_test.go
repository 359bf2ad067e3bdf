// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

// This file simulates GPU jobs and writes PyTorch profiles of them, with losses of known
// cause, location and size, because they were planted. Tests compare the findings on a profile with
// them.
//
// The simulation knows hosts that launch work, streams that run it in order, and collectives that
// end on all ranks when the last rank has arrived. It is written from the public documentation of
// PyTorch and CUDA and must stay independent of the rules that it tests: never adjust a job to a
// rule.
package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// Durations in ns.
const (
	us int64 = 1_000
	ms int64 = 1_000_000
)

// Style is how a framework launches work.
type Style string

// Styles.
const (
	Eager    Style = "eager"
	Compiled Style = "compiled"
	Captured Style = "captured"
)

// Styles returns all styles.
func Styles() []Style { return []Style{Eager, Compiled, Captured} }

// sim is one run of a job.
type sim struct {
	style Style
	ranks []*rank
}

// rank is one process with one device.
type rank struct {
	r           *rand.Rand
	number      int
	style       Style
	now         int64 // host
	streams     map[int]int64
	events      []string
	correlation int
	graph       int // correlation of the graph launch under construction
	sequences   map[string]int64
	offset      int64
	drift       float64
	slow        float64 // factor on the duration of kernels, 0: 1
	first, last int64   // of the device's activities
	waited      int64   // in collectives, for the last rank
	held        int64   // that others together waited for this one
	external    int
}

// Streams.
const (
	computing = 7
	copying   = 16
	talking   = 20
)

// epoch is when jobs begin, in ns on the hosts' clocks.
const epoch = 1_000_000 * us

func newSim(style Style, ranks int, seed uint64) *sim {
	s := &sim{style: style}
	for n := range ranks {
		r := &rank{
			r: rand.New(rand.NewPCG(seed, uint64(n))), number: n, style: style, now: epoch,
			streams: map[int]int64{}, sequences: map[string]int64{},
		}
		s.ranks = append(s.ranks, r)
	}
	return s
}

// each runs f for every rank.
func (s *sim) each(f func(r *rank)) {
	for _, r := range s.ranks {
		f(r)
	}
}

// about varies a duration by 2 %, as real ones do.
func (r *rank) about(d int64) int64 { return d + int64(0.02*float64(d)*(r.r.Float64()-0.5)) }

// stamp converts a time to the rank's clock, in ns since its base.
func (r *rank) stamp(t int64) int64 { return t + r.offset + int64(r.drift*float64(t-epoch)) }

func (r *rank) emit(category, name string, pid, tid int, start, end int64, args string) {
	a, b := r.stamp(start), r.stamp(end)
	r.events = append(r.events, fmt.Sprintf(
		`{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%d.%03d,"dur":%d.%03d,"args":{%s}}`,
		category, name, pid, tid, a/us, a%us, (b-a)/us, (b-a)%us, args))
}

const hostPID, mainThread = 4000, 4001

// host records a range of the main thread around f.
func (r *rank) host(category, name, args string, f func()) {
	start := r.now
	f()
	r.emit(category, name, hostPID, mainThread, start, r.now, args)
}

func (r *rank) annotate(name string, f func()) { r.host("user_annotation", name, "", f) }
func (r *rank) frame(name string, f func())    { r.host("python_function", name, "", f) }

// call records a call of the CUDA runtime.
func (r *rank) call(name string, duration int64) int {
	r.correlation++
	start := r.now
	r.now += duration
	r.emit("cuda_runtime", name, hostPID, mainThread, start, r.now, fmt.Sprintf(`"correlation":%d`, r.correlation))
	return r.correlation
}

// kernel is work of a stream.
type kernel struct {
	name     string
	duration int64
	blocks   int64
	stream   int
	args     string
	category string
}

// overheads returns the host time of an operator and of a launch.
func (r *rank) overheads() (operator, launch int64) {
	if r.style == Eager {
		return 7 * us, 5 * us
	}
	return 1 * us, 4 * us
}

// operator runs an operator of the framework that launches a kernel.
func (r *rank) operator(name, args string, k kernel) {
	if r.graph != 0 {
		r.run(k, r.graph, r.now)
		return
	}
	overhead, launch := r.overheads()
	r.external++
	if args != "" {
		args = "," + args
	}
	r.host("cpu_op", name, fmt.Sprintf(`"External id":%d%s`, r.external, args), func() {
		r.now += overhead
		c := r.call("cudaLaunchKernel", launch)
		r.run(k, c, r.now)
	})
}

// run puts work on a stream: it starts when it has been launched and the work before it has ended.
func (r *rank) run(k kernel, correlation int, launched int64) (start, end int64) {
	if k.stream == 0 {
		k.stream = computing
	}
	latency := int64(4_000)
	gap := int64(1_000)
	start = max(launched+latency, r.streams[k.stream]+gap)
	length := r.about(k.duration)
	if r.slow > 0 && k.category == "" {
		length = int64(float64(length) * r.slow)
	}
	end = start + length
	r.activity(k, correlation, start, end)
	return start, end
}

func (r *rank) activity(k kernel, correlation int, start, end int64) {
	if r.first == 0 || start < r.first {
		r.first = start
	}
	r.last = max(r.last, end)
	r.streams[k.stream] = max(r.streams[k.stream], end)
	if k.blocks == 0 {
		k.blocks = 864
	}
	if k.category == "" {
		k.category = "kernel"
	}
	args := fmt.Sprintf(`"device":%d,"stream":%d,"correlation":%d,"External id":%d`, r.number%8, k.stream, correlation,
		r.external)
	if k.category == "kernel" {
		args += fmt.Sprintf(`,"grid":[%d,1,1],"block":[256,1,1],"registers per thread":128,"shared memory":49152,`+
			`"blocks per SM":%.3f,"warps per SM":%.3f`, k.blocks, float64(k.blocks)/108, float64(k.blocks)*8/108)
	}
	if k.args != "" {
		args += "," + k.args
	}
	r.emit(k.category, k.name, r.number%8, k.stream, start, end, args)
}

// replay runs f as one launch of a captured graph, where the style has graphs; else as it is.
func (r *rank) replay(f func()) {
	switch {
	case r.style == Captured && r.graph == 0:
		r.graph = r.call("cudaGraphLaunch", 15*us)
		f()
		r.graph = 0
	case r.style == Compiled:
		r.host("cpu_op", "Torch-Compiled Region: 0/0", "", f)
	default:
		f()
	}
}

// wait lets the host wait for the device.
func (r *rank) wait(call string) {
	end := r.now + 3*us
	for _, t := range r.streams {
		end = max(end, t+2*us)
	}
	r.call(call, end-r.now)
}

// item reads one number from the device, as loss.item() does.
func (r *rank) item() {
	r.host("cpu_op", "aten::item", "", func() {
		r.host("cpu_op", "aten::_local_scalar_dense", "", func() {
			r.now += 3 * us
			c := r.call("cudaMemcpyAsync", 6*us)
			r.run(kernel{name: "Memcpy DtoH (Device -> Pinned)", duration: 2 * us, category: "gpu_memcpy", args: `"bytes":4`},
				c, r.now)
			r.wait("cudaStreamSynchronize")
		})
	})
}

// copyIn copies bytes to the device at a rate in GB/s; from pageable memory the call returns when
// it is done.
func (r *rank) copyIn(bytes int64, rate float64, pageable bool, stream int) (end int64) {
	memory := "Pinned"
	if pageable {
		memory = "Pageable"
	}
	r.host("cpu_op", "aten::copy_", "", func() {
		r.now += 5 * us
		k := kernel{
			name: fmt.Sprintf("Memcpy HtoD (%s -> Device)", memory), duration: int64(float64(bytes) / rate), stream: stream,
			category: "gpu_memcpy", args: fmt.Sprintf(`"bytes":%d`, bytes),
		}
		start := r.now
		r.correlation++
		c := r.correlation
		_, end = r.run(k, c, r.now)
		if pageable {
			r.now = end
		} else {
			r.now += 6 * us
		}
		r.emit("cuda_runtime", "cudaMemcpyAsync", hostPID, mainThread, start, r.now, fmt.Sprintf(`"correlation":%d`, c))
	})
	return end
}

// after lets a stream wait until a time, like cudaStreamWaitEvent.
func (r *rank) after(stream int, t int64) {
	r.call("cudaStreamWaitEvent", 2*us)
	r.streams[stream] = max(r.streams[stream], t)
}

// group is a process group as PyTorch records it.
type group struct {
	name, description string
	members           []int
}

func (g *group) ranks() string { return strings.Join(strings.Fields(fmt.Sprint(g.members)), ", ") }

// collective runs a collective of a group: it starts on each rank when that one arrives, and ends
// on all when the last has arrived and the bytes have moved.
func (s *sim) collective(g group, operation string, elements, moving int64, stream int) {
	names := map[string]string{
		"allreduce": "AllReduce_Sum_bf16_RING_LL", "_allgather_base": "AllGather_RING_LL",
		"_reduce_scatter_base": "ReduceScatter_Sum_bf16_RING_LL", "all_to_allv": "SendRecv", "send": "SendRecv",
		"recv": "SendRecv",
	}
	type arrival struct {
		at          int64
		correlation int
	}
	arrivals := make([]arrival, len(g.members))
	last := 0
	for i, m := range g.members {
		r := s.ranks[m]
		overhead, launch := r.overheads()
		r.host("cpu_op", "c10d::"+operation+"_", "", func() {
			r.now += overhead
			// The communication stream waits for earlier computation.
			r.streams[stream] = max(r.streams[stream], r.streams[computing])
			c := r.graph
			if c == 0 {
				c = r.call("cudaLaunchKernelExC", launch)
			}
			arrivals[i] = arrival{max(r.now+4*us, r.streams[stream]+us), c}
		})
		if arrivals[i].at > arrivals[last].at {
			last = i
		}
	}
	end := arrivals[last].at + s.ranks[g.members[last]].about(moving)
	for i, m := range g.members {
		r := s.ranks[m]
		own := operation
		if operation == "send" && i == 1 {
			own = "recv"
		}
		args := fmt.Sprintf(`"Collective name":%q,"In msg nelems":%d,"Out msg nelems":%d,"Group size":%d,"dtype":"BFloat16",`+
			`"Process Group Name":%q,"Process Group Description":%q,"Process Group Ranks":%q`, own, elements, elements,
			len(g.members), g.name, g.description, g.ranks())
		switch own {
		case "send":
			args += fmt.Sprintf(`,"Dst Rank":%d`, g.members[1])
		case "recv":
			args += fmt.Sprintf(`,"Src Rank":%d`, g.members[0])
		default:
			r.sequences[g.name]++
			args += fmt.Sprintf(`,"Seq":%d`, r.sequences[g.name])
		}
		stop := end + r.r.Int64N(1_500)
		r.activity(kernel{name: "ncclDevKernel_" + names[operation], stream: stream, blocks: 24, args: args},
			arrivals[i].correlation, arrivals[i].at, stop)
		r.waited += arrivals[last].at - arrivals[i].at
		s.ranks[g.members[last]].held += arrivals[last].at - arrivals[i].at
	}
}

// join makes computation of the members wait for their communication.
func (s *sim) join(members []int, stream int) {
	for _, m := range members {
		r := s.ranks[m]
		r.streams[computing] = max(r.streams[computing], r.streams[stream])
	}
}

// file returns the rank's profile.
func (r *rank) file(world int) string {
	return fmt.Sprintf(`{"schemaVersion":1,"deviceProperties":[{"id":%d,"name":"NVIDIA A100-SXM4-80GB",`+
		`"totalGlobalMem":85051572224,"computeMajor":8,"computeMinor":0,"numSms":108}],`+
		`"distributedInfo":{"backend":"nccl","rank":%d,"world_size":%d},`+
		`"baseTimeNanoseconds":1727000000000000000,"traceEvents":[%s]}`, r.number%8, r.number, world,
		"\n"+strings.Join(r.events, ",\n")+"\n")
}
