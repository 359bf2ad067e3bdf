// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package freshjobs

import (
	"bytes"
	"fmt"
	"slices"
)

const pid = 4211

// kineto returns the Chrome trace that PyTorch 2.5 and later write.
func (s *sim) kineto() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": %q, "totalGlobalMem": %d, "computeMajor": %d, "computeMinor": %d, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048, "regsPerBlock": 65536, "warpSize": %d, "sharedMemPerBlock": 49152, "numSms": %d, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472}],`,
		s.dev.name, s.dev.memory, s.dev.major, s.dev.minor, s.dev.warp, s.dev.sms)
	if s.dev.amd {
		b.WriteString(`"roctracer_version": 4.1, "hip_runtime_version": 70051831,`)
	} else {
		b.WriteString(`"cupti_version": 26, "cuda_runtime_version": 12080, "cuda_driver_version": 12080,`)
	}
	if s.world > 1 {
		fmt.Fprintf(&b, `"distributedInfo": {"backend": "nccl", "rank": %d, "world_size": %d, "pg_count": 1, "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": %d, "ranks": %s}], "nccl_version": "2.26.2"},`,
			s.rank, s.world, s.world, s.allRanks())
	}
	if s.shapes {
		b.WriteString(`"record_shapes": 1,`)
	}
	if s.stacks {
		b.WriteString(`"with_stack": 1,`)
	}
	fmt.Fprintf(&b, "\"trace_id\": \"7BD2A0C1E0F84C00A1B37F%010d\", \"displayTimeUnit\": \"ms\", \"baseTimeNanoseconds\": 1751410836000000000, \"traceEvents\": [\n", s.corr)
	ordered := s.ordered()
	for i := range ordered {
		s.kinetoEvent(&b, &ordered[i], i)
	}
	for _, m := range []struct {
		pid         int
		name, label string
	}{{pid, "python3", "CPU"}, {0, "python3", "GPU 0"}} {
		fmt.Fprintf(&b, `{"name": "process_name", "ph": "M", "ts": %.3f, "pid": %d, "tid": 0, "args": {"name": %q}},`+"\n", s.start, m.pid, m.name)
		fmt.Fprintf(&b, `{"name": "process_labels", "ph": "M", "ts": %.3f, "pid": %d, "tid": 0, "args": {"labels": %q}},`+"\n", s.start, m.pid, m.label)
	}
	fmt.Fprintf(&b, `{"name": "thread_name", "ph": "M", "ts": %.3f, "pid": %d, "tid": %d, "args": {"name": "thread %d (python3)"}},`+"\n", s.start, pid, pid, pid)
	fmt.Fprintf(&b, `{"ph": "X", "cat": "Trace", "ts": %.3f, "dur": %.3f, "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}},`+"\n", s.start-20, s.span()+60)
	fmt.Fprintf(&b, `{"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", "ts": %.3f},`+"\n", s.start-20)
	fmt.Fprintf(&b, `{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", "ts": %.3f}`+"\n], \"traceName\": \"/tmp/rank%d.pt.trace.json\"}\n", s.start+s.span()+40, s.rank)
	return b.Bytes()
}

// ordered returns the events in the order in which Kineto writes them: operators, then activities.
func (s *sim) ordered() []record {
	rs := slices.Clone(s.records)
	class := func(k recordKind) int {
		switch k {
		case cpuOp, annotation:
			return 0
		case pyFunc:
			return 1
		}
		return 2
	}
	slices.SortStableFunc(rs, func(a, b record) int { return class(a.kind) - class(b.kind) })
	return rs
}

func (s *sim) allRanks() string {
	text := "["
	for r := range s.world {
		if r > 0 {
			text += ", "
		}
		text += fmt.Sprint(r)
	}
	return text + "]"
}

func (s *sim) kinetoEvent(b *bytes.Buffer, r *record, i int) {
	start := func(cat, name string, p, tid int) {
		fmt.Fprintf(b, `{"ph": "X", "cat": %q, "name": %q, "pid": %d, "tid": %d, "ts": %.3f, "dur": %.3f, "args": {`, cat, name, p, tid, r.ts, r.dur)
	}
	flow := func(ph, end string, p, tid int) {
		if r.corr > 0 && !s.noFlow {
			fmt.Fprintf(b, `{"ph": %q, "id": %d, "pid": %d, "tid": %d, "ts": %.3f, "cat": "ac2g", "name": "ac2g"%s},`+"\n", ph, r.corr, p, tid, r.ts, end)
		}
	}
	external := ""
	if r.ext > 0 {
		external = fmt.Sprintf(`"External id": %d, `, r.ext)
	}
	device := fmt.Sprintf(`"device": 0, "context": 1, "stream": %d, "correlation": %d`, r.stream, r.corr)
	switch r.kind {
	case cpuOp:
		start("cpu_op", r.name, pid, r.tid)
		fmt.Fprintf(b, `"External id": %d, "Record function id": 0, `, r.ext)
		if r.members != "" {
			b.WriteString(r.members + ", ")
		}
		fmt.Fprintf(b, `"Ev Idx": %d}},`+"\n", i)
	case annotation:
		start("user_annotation", r.name, pid, r.tid)
		fmt.Fprintf(b, `"External id": %d, "Record function id": 0, "Ev Idx": %d}},`+"\n", r.ext, i)
	case deviceAnnotation:
		start("gpu_user_annotation", r.name, 0, r.stream)
		fmt.Fprintf(b, `"External id": %d}},`+"\n", r.ext)
	case pyFunc:
		start("python_function", r.name, pid, r.tid)
		parent := "null"
		if r.pyParent > 0 {
			parent = fmt.Sprint(r.pyParent)
		}
		fmt.Fprintf(b, `"Python parent id": %s, "Python id": %d, "Ev Idx": %d}},`+"\n", parent, r.pyID, i)
	case runtime, driver:
		cat := map[recordKind]string{runtime: "cuda_runtime", driver: "cuda_driver"}[r.kind]
		start(cat, r.name, pid, r.tid)
		fmt.Fprintf(b, `%s"cbid": 211, "correlation": %d}},`+"\n", external, r.corr)
		flow("s", "", pid, r.tid)
	case overhead:
		fmt.Fprintf(b, `{"ph": "X", "cat": "overhead", "name": %q, "pid": -1, "tid": 0, "ts": %.3f, "dur": %.3f},`+"\n", r.name, r.ts, r.dur)
	case kernelRun:
		start("kernel", r.name, 0, r.stream)
		threads := r.block[0] * r.block[1] * r.block[2]
		blocks := float64(r.grid[0]*r.grid[1]*r.grid[2]) / float64(s.dev.sms)
		b.WriteString(external)
		if s.dev.amd {
			fmt.Fprintf(b, `"device": 0, "stream": %d, "correlation": %d, "kind": "Dispatch Kernel", "grid": [%d, %d, %d], "block": [%d, %d, %d]}},`+"\n",
				r.stream, r.corr, r.grid[0], r.grid[1], r.grid[2], r.block[0], r.block[1], r.block[2])
		} else {
			fmt.Fprintf(b, `"queued": 0, %s, "registers per thread": %d, "shared memory": %d, "blocks per SM": %.6f, "warps per SM": %.6f, "grid": [%d, %d, %d], "block": [%d, %d, %d], "est. achieved occupancy %%": %d`,
				device, r.regs, r.smem, blocks, blocks*float64(threads)/32, r.grid[0], r.grid[1], r.grid[2], r.block[0], r.block[1], r.block[2],
				min(100, int(blocks*float64(threads)/32/64*100)))
			if r.collective != "" {
				b.WriteString(", " + r.collective)
			}
			b.WriteString("}},\n")
		}
		flow("f", `, "bp": "e"`, 0, r.stream)
	case memcpy, memset:
		cat := map[recordKind]string{memcpy: "gpu_memcpy", memset: "gpu_memset"}[r.kind]
		start(cat, r.name, 0, r.stream)
		fmt.Fprintf(b, `%s%s, "bytes": %d, "memory bandwidth (GB/s)": %.4f}},`+"\n", external, device, r.bytes, float64(r.bytes)/max(r.dur, 0.1)/1e3)
		flow("f", `, "bp": "e"`, 0, r.stream)
	case migration:
	}
}

// kineto2021 returns the form of PyTorch 1.8: whole microseconds, capitalized categories, threads
// as text, no links by flow.
func (s *sim) kineto2021() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": %q, "totalGlobalMem": %d, "major": %d, "minor": %d, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiProcessor": 2048, "regsPerBlock": 65536, "regsPerMultiprocessor": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "sharedMemPerMultiprocessor": 98304, "multiProcessorCount": %d}], "traceEvents": [`+"\n",
		s.dev.name, s.dev.memory, s.dev.major, s.dev.minor, s.dev.sms)
	for i := range s.records {
		r := &s.records[i]
		ts, dur := int64(r.ts), int64(r.ts+r.dur)-int64(r.ts)
		host := func(cat string) {
			fmt.Fprintf(&b, `{"ph": "X", "cat": %q, "name": %q, "pid": %d, "tid": "%d", "ts": %d, "dur": %d, "args": {`, cat, r.name, pid, r.tid, ts, dur)
		}
		device := func(cat string) {
			fmt.Fprintf(&b, `{"ph": "X", "cat": %q, "name": %q, "pid": 0, "tid": "stream %d", "ts": %d, "dur": %d, "args": {"device": 0, "context": 1, "stream": %d, "correlation": %d, "external id": %d`,
				cat, r.name, r.stream, ts, dur, r.stream, r.corr, r.ext)
		}
		switch r.kind {
		case cpuOp, annotation:
			host("Operator")
			fmt.Fprintf(&b, `"Device": %d, "External id": %d, "Trace name": "PyTorch Profiler", "Trace iteration": 0`, pid, r.ext)
			if r.members != "" {
				b.WriteString(", " + r.members)
			}
			b.WriteString("}},\n")
		case runtime, driver:
			host("Runtime")
			fmt.Fprintf(&b, `"cbid": 211, "correlation": %d, "external id": %d, "external ts": %d}},`+"\n", r.corr, r.ext, ts)
		case kernelRun:
			device("Kernel")
			blocks := float64(r.grid[0]) / float64(s.dev.sms)
			fmt.Fprintf(&b, `, "queued": 0, "registers per thread": %d, "shared memory": %d, "blocks per SM": %.4f, "warps per SM": %.4f, "grid": [%d, 1, 1], "block": [%d, 1, 1], "est. achieved occupancy %%": %d}},`+"\n",
				r.regs, r.smem, blocks, blocks*float64(r.block[0])/32, r.grid[0], r.block[0], min(100, int(blocks*float64(r.block[0])/32/64*100)))
		case memcpy, memset:
			device(map[recordKind]string{memcpy: "Memcpy", memset: "Memset"}[r.kind])
			fmt.Fprintf(&b, `, "bytes": %d, "memory bandwidth (GB/s)": %.4f}},`+"\n", r.bytes, float64(r.bytes)/max(r.dur, 0.1)/1e3)
		}
	}
	fmt.Fprintf(&b, `{"name": "process_labels", "ph": "M", "ts": %d, "pid": 0, "tid": 0, "args": {"labels": "GPU 0"}}`+"\n]}\n", int64(s.start))
	return b.Bytes()
}
