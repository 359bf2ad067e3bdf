// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package heldoutjobs

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// write writes the profile of the watched rank and returns its path.
func (w *world) write(ctx context.Context, dir, name string) (string, error) {
	p := w.watched()
	slices.SortStableFunc(p.events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(b.end, a.end))
	})
	switch w.style {
	case Nsight:
		path := filepath.Join(dir, name+".sqlite")
		return path, p.nsight(ctx, path)
	case Rocprof:
		path := filepath.Join(dir, name+"_results.json")
		return path, os.WriteFile(path, []byte(p.rocprofv3()), 0o600)
	case Sparse:
		path := filepath.Join(dir, name+".pt.trace.json")
		return path, os.WriteFile(path, []byte(p.sparse()), 0o600)
	default:
		path := filepath.Join(dir, name+".json")
		return path, os.WriteFile(path, []byte(p.full()), 0o600)
	}
}

func micro(t int64) string { return fmt.Sprintf("%d.%03d", t/us, t%us) }

func (p *process) properties() string {
	d := p.w.dev
	if d.amd {
		return fmt.Sprintf(`"deviceProperties":[{"id":%d,"name":%q,"totalGlobalMem":%d,"computeMajor":%d,"computeMinor":%d,`+
			`"maxThreadsPerBlock":1024,"maxThreadsPerMultiprocessor":2048,"regsPerBlock":131072,"warpSize":64,`+
			`"sharedMemPerBlock":65536,"numSms":%d,"maxSharedMemoryPerMultiProcessor":65536}]`, p.number%8, d.name, d.memory, d.major,
			d.minor, d.processors)
	}
	return fmt.Sprintf(`"deviceProperties":[{"id":%d,"name":%q,"totalGlobalMem":%d,"computeMajor":%d,"computeMinor":%d,`+
		`"maxThreadsPerBlock":1024,"maxThreadsPerMultiprocessor":2048,"regsPerBlock":65536,"regsPerMultiprocessor":65536,`+
		`"warpSize":32,"sharedMemPerBlock":49152,"sharedMemPerMultiprocessor":%d,"numSms":%d}]`, p.number%8, d.name, d.memory, d.major,
		d.minor, map[int]int{8: 167_936, 9: 233_472}[d.major], d.processors)
}

// full writes the file of a recent PyTorch with with_stack and record_shapes.
func (p *process) full() string {
	var b strings.Builder
	w := p.w
	fmt.Fprintf(&b, `{"schemaVersion":1,%s,"cupti_version":24,"record_shapes":1,"with_stack":1,"cuda_runtime_version":12040,`,
		p.properties())
	if len(w.ranks) > 1 {
		fmt.Fprintf(&b, `"distributedInfo":{"backend":"nccl","rank":%d,"world_size":%d},`, p.number, len(w.ranks))
	}
	b.WriteString(`"trace_id":"5E7D1B0C","displayTimeUnit":"ms","baseTimeNanoseconds":1751410836000000000,"traceEvents":[` + "\n")
	base := int64(7_332_972_000_000)
	fmt.Fprintf(&b, `{"name":"process_name","ph":"M","ts":%s,"pid":%d,"tid":0,"args":{"name":"python3"}}`, micro(base), processID)
	device := p.number % 8
	for i := range p.events {
		e := &p.events[i]
		var args string
		pid, tid := processID, e.thread
		switch e.kind {
		case frame:
			parent := "null"
			if e.parentID != 0 {
				parent = fmt.Sprint(e.parentID)
			}
			args = fmt.Sprintf(`"Python parent id":%s,"Python id":%d,"Ev Idx":%d`, parent, e.frameID, i)
			if module, ok := strings.CutPrefix(e.name, "nn.Module: "); ok {
				args += fmt.Sprintf(`,"Python module id":%s`, module[strings.LastIndex(module, "_")+1:])
			}
		case operator:
			args = fmt.Sprintf(`"External id":%d,"Record function id":0,"Ev Idx":%d`, e.external, i)
			if o := e.operation; o != nil && o.dims != "" {
				args += fmt.Sprintf(`,"Input Dims":%s,"Input type":%s`, o.dims, o.types)
				if o.concrete != "" {
					args += `,"Concrete Inputs":` + o.concrete
				}
			}
		case annotation:
			args = fmt.Sprintf(`"Record function id":0,"Ev Idx":%d`, i)
		case call:
			args = fmt.Sprintf(`"cbid":211,"correlation":%d`, e.correlation)
		case kernel, memcpy, memset:
			pid, tid = device, e.work.stream
			args = p.activity(e, true)
		}
		fmt.Fprintf(&b, ",\n"+`{"ph":"X","cat":%q,"name":%q,"pid":%d,"tid":%d,"ts":%s,"dur":%s,"args":{%s}}`, string(e.kind), p.name(e),
			pid, tid, micro(base+e.start), micro(e.end-e.start), args)
		if e.work != nil {
			fmt.Fprintf(&b, ",\n"+`{"ph":"f","id":%d,"pid":%d,"tid":%d,"ts":%s,"cat":"ac2g","name":"ac2g","bp":"e"}`, e.correlation,
				pid, tid, micro(base+e.start))
		}
	}
	b.WriteString("\n]}\n")
	return b.String()
}

// activity returns the arguments of device work.
func (p *process) activity(e *event, recent bool) string {
	x := e.work
	external, registers := "External id", fmt.Sprintf(`,"registers per thread":%d,"shared memory":%d`, x.registers, 0)
	if !recent {
		external = "external id"
	}
	args := fmt.Sprintf(`%q:%d,"device":%d,"context":1,"stream":%d,"correlation":%d`, external, e.external, p.number%8, x.stream,
		e.correlation)
	if x.kind != kernel {
		return args + fmt.Sprintf(`,"bytes":%d,"memory bandwidth (GB/s)":%.6f`, x.bytes,
			float64(x.bytes)/float64(max(1, e.end-e.start)))
	}
	processors := float64(p.w.dev.processors)
	if p.w.dev.amd {
		args += fmt.Sprintf(`,"kind":"Dispatch Kernel","grid":[%d,1,1],"block":[%d,1,1]`, x.blocks, x.threads)
	} else {
		args += registers + fmt.Sprintf(`,"blocks per SM":%.6f,"warps per SM":%.6f,"grid":[%d,1,1],"block":[%d,1,1]`+
			`,"est. achieved occupancy %%":25`, float64(x.blocks)/processors, float64(x.blocks*x.threads/32)/processors, x.blocks,
			x.threads)
	}
	if c := x.collective; c != nil && recent {
		args += fmt.Sprintf(`,"Collective name":%q,"In msg nelems":%d,"Out msg nelems":%d,"Group size":%d,"dtype":"BFloat16",`+
			`"In split size":"[]","Out split size":"[]","Process Group Name":%q,"Process Group Description":%q,`+
			`"Process Group Ranks":%q,"Rank":%d,"Seq":%d`, c.operation, c.elements, c.elements, len(c.ranks), c.group,
			c.description, strings.Join(strings.Fields(fmt.Sprint(c.ranks)), ", "), p.number, c.sequence)
	}
	return args
}

// sparse writes the file of PyTorch 1.x: whole microseconds, old names of categories, no frames, no
// shapes.
func (p *process) sparse() string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"schemaVersion":1,%s,`, p.properties())
	if len(p.w.ranks) > 1 {
		fmt.Fprintf(&b, `"distributedInfo":{"backend":"nccl","rank":%d,"world_size":%d},`, p.number, len(p.w.ranks))
	}
	base := int64(1_623_142_623_460_111)
	fmt.Fprintf(&b, `"traceEvents":[`+"\n"+
		`{"name":"process_name","ph":"M","ts":%d,"pid":%d,"tid":0,"args":{"name":"python"}}`, base, processID)
	categories := map[kind]string{
		operator: "Operator", annotation: "user_annotation", call: "Runtime", kernel: "Kernel", memcpy: "Memcpy", memset: "Memset",
	}
	for i := range p.events {
		e := &p.events[i]
		category, known := categories[e.kind]
		if !known {
			continue
		}
		name := e.name
		pid, tid := fmt.Sprint(processID), fmt.Sprintf(`"%d"`, e.thread)
		args := fmt.Sprintf(`"External id":%d`, e.external)
		switch {
		case e.work != nil:
			pid, tid, args = fmt.Sprint(p.number%8), fmt.Sprintf(`"stream %d"`, e.work.stream), p.activity(e, false)
			if e.work.collective != nil {
				name = e.work.collective.old + "(ncclWorkElem)"
			}
		case e.kind == call:
			args = fmt.Sprintf(`"cbid":211,"correlation":%d`, e.correlation)
		}
		start, end := base+e.start/us, base+e.end/us
		fmt.Fprintf(&b, ",\n"+`{"ph":"X","cat":%q,"name":%q,"pid":%s,"tid":%s,"ts":%d,"dur":%d,"args":{%s}}`, category, name, pid,
			tid, start, end-start, args)
	}
	b.WriteString("\n]}\n")
	return b.String()
}

const nsightTables = `
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE META_DATA_EXPORT (name TEXT NOT NULL, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT, localTime TEXT);
CREATE TABLE TARGET_INFO_GPU (vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT, busLocation TEXT, totalMemory INTEGER,
 smCount INTEGER, uuid TEXT, cuDevice INTEGER);
CREATE TABLE PROCESSES (globalPid INTEGER, pid INTEGER, name TEXT);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
 demangledName INTEGER NOT NULL, shortName INTEGER NOT NULL, mangledName INTEGER, launchType INTEGER, cacheConfig INTEGER,
 registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL, gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL,
 blockX INTEGER NOT NULL, blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
 dynamicSharedMemory INTEGER NOT NULL, localMemoryPerThread INTEGER NOT NULL, localMemoryTotal INTEGER NOT NULL,
 gridId INTEGER NOT NULL, sharedMemoryExecuted INTEGER, graphNodeId INTEGER, sharedMemoryLimitConfig INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
 contextId INTEGER NOT NULL, greenContextId INTEGER, streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
 bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL, deprecatedSrcId INTEGER, srcKind INTEGER, dstKind INTEGER,
 srcDeviceId INTEGER, srcContextId INTEGER, dstDeviceId INTEGER, dstContextId INTEGER, migrationCause INTEGER,
 graphNodeId INTEGER, virtualAddress INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, end INTEGER NOT NULL, eventClass INTEGER NOT NULL,
 globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL, returnValue INTEGER NOT NULL, callchainId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, rangeId INTEGER, category INTEGER,
 color INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE PROFILER_OVERHEAD (start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER, nameId INTEGER NOT NULL,
 overheadType INTEGER NOT NULL);
`

// nsight writes the export of Nsight Systems: calls, device work, NVTX ranges, no operators.
func (p *process) nsight(ctx context.Context, path string) (err error) {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, db.Close()) }()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // no effect after a commit
	insert := map[string]*sql.Stmt{}
	do := func(table string, values ...any) {
		if err != nil {
			return
		}
		s := insert[table]
		if s == nil {
			marks := strings.TrimSuffix(strings.Repeat("?,", len(values)), ",")
			if s, err = tx.PrepareContext(ctx, "INSERT INTO "+table+" VALUES ("+marks+")"); err != nil {
				return
			}
			insert[table] = s
		}
		_, err = s.ExecContext(ctx, values...)
	}
	texts := map[string]int{}
	text := func(s string) int {
		if _, ok := texts[s]; !ok {
			texts[s] = len(texts) + 1
			do("StringIds", texts[s], s)
		}
		return texts[s]
	}
	if _, err = tx.ExecContext(ctx, nsightTables); err != nil {
		return err
	}
	const vm = int64(1) << 48
	pid := vm | int64(processID)<<24
	device, d := p.number%8, p.w.dev
	do("META_DATA_EXPORT", "EXPORT_PRODUCT_NAME", "NVIDIA Nsight Systems")
	do("META_DATA_EXPORT", "EXPORT_SCHEMA_VERSION", "3.22.1")
	do("TARGET_INFO_SESSION_START_TIME", int64(1_779_782_330_176_752_435), "2026-05-26T07:58:50", "2026-05-26T07:58:50")
	do("TARGET_INFO_GPU", vm, device, d.name, "0000:03:00.0", d.memory, d.processors, "74e128b2-90b6-b409-07c8-33bee5ff6f88", device)
	do("PROCESSES", pid, processID, "python3")
	memory := map[string]int{"Pageable": 0, "Pinned": 1, "Device": 2, "Managed": 4}
	for i := range p.events {
		e := &p.events[i]
		thread := pid | int64(e.thread)
		x := e.work
		switch e.kind {
		case annotation:
			do("NVTX_EVENTS", e.start, e.end, 59, nil, nil, nil, e.name, thread, nil, nil, 0)
		case call:
			do("CUPTI_ACTIVITY_KIND_RUNTIME", e.start, e.end, 0, thread, e.correlation, text(e.name+"_v7000"), 0, nil)
		case overhead:
			do("PROFILER_OVERHEAD", e.start, e.end, thread, text(e.name), 131072)
		case kernel:
			short, _, _ := strings.Cut(strings.TrimPrefix(x.name, "void "), "<")
			short = short[strings.LastIndex(short, ":")+1:]
			var node any
			if x.node != 0 {
				node = x.node
			}
			do("CUPTI_ACTIVITY_KIND_KERNEL", e.start, e.end, device, 1, nil, x.stream, e.correlation, pid, text(x.name), text(short),
				nil, 0, 0, x.registers, x.blocks, 1, 1, x.threads, 1, 1, 0, 0, 0, 0, i, nil, node, nil)
		case memcpy:
			operation := 1
			if x.from == "Device" {
				operation = 2
			}
			if x.managed {
				operation = 11
			}
			do("CUPTI_ACTIVITY_KIND_MEMCPY", e.start, e.end, device, 1, nil, x.stream, e.correlation, pid, x.bytes, operation, nil,
				memory[x.from], memory[x.to], nil, nil, nil, nil, nil, nil, nil)
		}
	}
	return cmp.Or(err, tx.Commit())
}
