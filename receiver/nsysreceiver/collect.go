// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/finding"
	"github.com/otelgpu/otelgpu/internal/profiletrace"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
)

// Tables of an export.
const (
	tableKernel   = "CUPTI_ACTIVITY_KIND_KERNEL"
	tableCopy     = "CUPTI_ACTIVITY_KIND_MEMCPY"
	tableMemset   = "CUPTI_ACTIVITY_KIND_MEMSET"
	tableGraph    = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
	tableRuntime  = "CUPTI_ACTIVITY_KIND_RUNTIME"
	tableNVTX     = "NVTX_EVENTS"
	tableStrings  = "StringIds"
	tableSession  = "TARGET_INFO_SESSION_START_TIME"
	tableGPU      = "TARGET_INFO_GPU"
	tableCUDA     = "TARGET_INFO_CUDA_DEVICE"
	tableOverhead = "PROFILER_OVERHEAD"
	tableCUPTI    = "CUPTI_ACTIVITY_KIND_OVERHEAD"
	tableSystem   = "TARGET_INFO_SYSTEM_ENV"
	tableCapture  = "META_DATA_CAPTURE"
	tableExport   = "META_DATA_EXPORT"
	tableProblems = "DIAGNOSTIC_EVENT"

	tableSystemCalls = "OSRT_API"
)

// tablesMPI have the calls of MPI that may wait for other ranks.
var tablesMPI = []string{"MPI_COLLECTIVES_EVENTS", "MPI_P2P_EVENTS", "MPI_START_WAIT_EVENTS"}

// collect passes the rows of an export to a profile.
type collect struct {
	db        *database
	p         *profiletrace.Profile
	texts     texts
	visible   map[seen]int64    // Nsight's numbers of devices, where processes disagree
	numbers   map[int64]int64   // ordinals of devices by Nsight's numbers
	variables map[string]string // of the environment
	processes map[int64]bool    // that use a device; at most two are kept
	rows      int64
}

func (c *collect) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.session, c.environment, c.devices, c.kernels, c.copies, c.memsets, c.graphs, c.calls, c.ranges, c.clocks,
		c.overhead, c.diagnostics,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// diagnostics reads what Nsight Systems itself reports on the recording. Messages of severity 1 are
// information.
func (c *collect) diagnostics(ctx context.Context) error {
	return c.db.each(ctx, tableProblems, []string{"severity", "text"}, func(r []any) error {
		if severity, ok := number(r[0]); ok && severity < 2 || c.p.Meta.Dropped != "" {
			return nil
		}
		text, err := c.first(r[1:], "")
		if err == nil && vocabulary.LosesRecords(text) {
			c.p.Meta.Dropped = finding.Clip(strings.TrimSpace(text))
			c.p.Faults = append(c.p.Faults, "Nsight Systems: "+c.p.Meta.Dropped)
		}
		return err
	})
}

func (c *collect) session(ctx context.Context) error {
	found := false
	err := c.db.each(ctx, tableSession, []string{"utcEpochNs"}, func(r []any) error {
		if n, ok := number(r[0]); ok {
			c.p.Meta.Base, found = n, true
		}
		return nil
	})
	if !found {
		c.p.Faults = append(c.p.Faults, "no session start: times count from 1970")
	}
	return err
}

// process and thread of a global id: 8 bits of hardware, 8 of the virtual machine, 24 of the
// process, 24 of the thread.
func process(global int64) int64 { return global >> 24 & 0xffffff }
func thread(global int64) int64  { return global & 0xffffff }

// correlation returns a number that is unique within a process only; profiletrace writes the low
// bits.
func correlation(id, pid int64) int64 {
	if id <= 0 || id >= 1<<event.CorrelationBits {
		return 0
	}
	return pid<<event.CorrelationBits | id
}

// times sets start and duration of a row; rows without are counted.
func (c *collect) times(e *event.Event, start, end any) bool {
	s, ok := number(start)
	t, is := number(end)
	if !ok || !is {
		c.p.Skip("start or end missing")
		return false
	}
	e.Start, e.Duration = s, t-s
	return true
}

func (c *collect) add(e *event.Event, name string) error {
	e.Name = c.p.Names.ID(name)
	return c.p.Add(e)
}

// device reads what rows of the device have in common: r begins with start, end, deviceId,
// streamId, correlationId, globalPid, graphNodeId.
func (c *collect) device(e *event.Event, r []any) bool {
	c.rows++
	if !c.times(e, r[0], r[1]) {
		return false
	}
	if e.Start == 0 && e.Duration == 0 { // CUPTI could not collect the times
		c.p.Skip("start or end missing")
		return false
	}
	e.Device, e.Stream = or(r[2], 0), or(r[3], 0)
	if global, ok := number(r[5]); ok {
		e.Process, e.HasProcess = process(global), true
		e.Device = c.ordinal(e.Process, e.Device)
		c.uses(e.Process)
	}
	e.Correlation = correlation(or(r[4], 0), e.Process)
	e.Detail.GraphNode = or(r[6], 0)
	return true
}

func (c *collect) uses(process int64) {
	if len(c.processes) < 2 {
		c.processes[process] = true
	}
}

var deviceColumns = []string{"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId"}

func columns(more ...string) []string { return slices.Concat(deviceColumns, more) }

func (c *collect) kernels(ctx context.Context) error {
	return c.db.each(ctx, tableKernel, columns("demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ",
		"blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphId"),
		func(r []any) error {
			e := event.Event{Kind: event.KindKernel}
			if !c.device(&e, r) {
				return nil
			}
			more := r[len(deviceColumns):]
			d := &e.Detail
			if x, ok := number(more[3]); ok {
				d.HasGrid = true
				d.Grid = [3]int64{x, or(more[4], 1), or(more[5], 1)}
				d.Block = [3]int64{or(more[6], 1), or(more[7], 1), or(more[8], 1)}
			}
			if n, ok := number(more[9]); ok {
				d.HasResources, d.Registers = true, n
				d.SharedMemory = or(more[10], 0) + or(more[11], 0)
			}
			d.Graph = or(more[12], 0)
			name, err := c.first(more[:3], "kernel")
			if err != nil {
				return err
			}
			return c.add(&e, name)
		})
}

// first returns the first text that there is: of a text itself, or of the id of one.
func (c *collect) first(values []any, otherwise string) (string, error) {
	for _, v := range values {
		s := word(v)
		if id, ok := number(v); ok {
			var err error
			if s, err = c.texts.text(id); err != nil {
				return "", err
			}
		}
		if s != "" {
			return s, nil
		}
	}
	return otherwise, nil
}

func (c *collect) copies(ctx context.Context) error {
	names := columns("bytes", "copyKind", "srcKind", "dstKind", "migrationCause")
	return c.db.each(ctx, tableCopy, names, func(r []any) error {
		e := event.Event{Kind: event.KindCopy}
		if !c.device(&e, r) {
			return nil
		}
		more := r[len(deviceColumns):]
		d := &e.Detail
		d.Bytes, d.HasBytes = number(more[0])
		kind := or(more[1], 0)
		name := vocabulary.CopyName(kind, or(more[2], -1)+1, or(more[3], -1)+1) // the exporter numbers memories from 0
		moved, migrated := migrations[kind]
		prefetched := or(more[4], 0) == userPrefetch
		switch {
		case migrated && prefetched:
			name = "Prefetch " + moved
		case migrated:
			name = "Page migration " + moved
		}
		if d.Direction, d.HostMemory = vocabulary.CopyKind(name); migrated && !prefetched {
			d.HostMemory = "managed"
		}
		return c.add(&e, name)
	})
}

func (c *collect) memsets(ctx context.Context) error {
	return c.db.each(ctx, tableMemset, columns("bytes"), func(r []any) error {
		e := event.Event{Kind: event.KindMemset}
		if !c.device(&e, r) {
			return nil
		}
		e.Detail.Bytes, e.Detail.HasBytes = number(r[len(deviceColumns)])
		return c.add(&e, "Memset (Device)")
	})
}

// graphs reads launches of graphs that are one row each: by default Nsight Systems records no
// kernels, copies and memsets of a graph (--cuda-graph-trace=graph).
func (c *collect) graphs(ctx context.Context) error {
	const onTheHost = math.MaxInt32 // device of a graph whose first node is no work of a device
	return c.db.each(ctx, tableGraph, columns("graphId"), func(r []any) error {
		e := event.Event{Kind: event.KindKernel}
		if or(r[2], 0) == onTheHost {
			c.rows++
			c.p.Skip("graph that begins on the host")
			return nil
		}
		if !c.device(&e, r) {
			return nil
		}
		e.Detail.WholeGraph, e.Detail.Graph = true, or(r[len(deviceColumns)], 0)
		name := "CUDAGraph"
		if e.Detail.Graph != 0 {
			name += "#" + strconv.FormatInt(e.Detail.Graph, 10)
		}
		return c.add(&e, name)
	})
}

// maxCalls bounds the names of calls that are kept; CUDA has about a thousand.
const maxCalls = 1 << 16

// calls reads the calls of CUDA, of the operating system (--trace=osrt), and of MPI that may wait
// for other ranks.
func (c *collect) calls(ctx context.Context) error {
	err := c.callsOf(ctx, tableRuntime, "nameId", event.KindRuntime, vocabulary.CallName)
	if err == nil {
		err = c.callsOf(ctx, tableSystemCalls, "nameId", event.KindFrame, vocabulary.SystemCall)
	}
	for _, table := range tablesMPI {
		if err == nil {
			err = c.callsOf(ctx, table, "textId", event.KindAnnotation, vocabulary.CallName)
		}
	}
	return err
}

func (c *collect) callsOf(ctx context.Context, table, column string, kind event.Kind,
	nameOf func(string) string,
) error {
	names := map[int64]string{}
	return c.db.each(ctx, table, []string{"start", "end", "globalTid", "correlationId", column},
		func(r []any) error {
			c.rows++
			e := event.Event{Kind: kind}
			if !c.times(&e, r[0], r[1]) {
				return nil
			}
			global := or(r[2], 0)
			e.Process, e.Thread = process(global), thread(global)
			if kind == event.KindRuntime {
				c.uses(e.Process)
				e.Correlation = correlation(or(r[3], 0), e.Process)
			}
			id := or(r[4], 0)
			name, ok := names[id]
			if !ok {
				text, err := c.first(r[4:5], "call")
				if err != nil {
					return err
				}
				if name = nameOf(text); len(names) < maxCalls {
					names[id] = name
				}
			}
			return c.add(&e, name)
		})
}

// overhead reads the profiler's own time, which is not work of the program and may delay it.
func (c *collect) overhead(ctx context.Context) error {
	for _, table := range []string{tableOverhead, tableCUPTI} {
		if err := c.db.each(ctx, table, []string{"start", "end", "nameId"}, func(r []any) error {
			c.rows++
			e := event.Event{Kind: event.KindFrame, Process: event.ProfilerProcess}
			if !c.times(&e, r[0], r[1]) {
				return nil
			}
			name, err := c.first(r[2:3], "overhead")
			if err != nil {
				return err
			}
			if vocabulary.OfProgram(name) {
				c.p.Skip("overhead that calls show, too")
				return nil
			}
			return c.add(&e, event.ProfilerFrame+name)
		}); err != nil {
			return err
		}
	}
	return nil
}
