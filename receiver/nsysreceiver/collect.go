// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package nsysreceiver

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/otelgpu/otelgpu/internal/gputrace"
)

// Tables of an export.
const (
	tableKernel   = "CUPTI_ACTIVITY_KIND_KERNEL"
	tableCopy     = "CUPTI_ACTIVITY_KIND_MEMCPY"
	tableMemset   = "CUPTI_ACTIVITY_KIND_MEMSET"
	tableRuntime  = "CUPTI_ACTIVITY_KIND_RUNTIME"
	tableNVTX     = "NVTX_EVENTS"
	tableStrings  = "StringIds"
	tableSession  = "TARGET_INFO_SESSION_START_TIME"
	tableGPU      = "TARGET_INFO_GPU"
	tableCUDA     = "TARGET_INFO_CUDA_DEVICE"
	tableOverhead = "PROFILER_OVERHEAD"
)

// collect hands the rows of an export to a profile.
type collect struct {
	db      *database
	p       *gputrace.Profile
	strings map[int64]string
	rows    int64
	skipped map[string]int64
	faults  []string
}

func (c *collect) skip(why string) { c.skipped[why]++ }

func (c *collect) all(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		c.names, c.session, c.devices, c.kernels, c.copies, c.memsets, c.calls, c.ranges, c.overhead,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (c *collect) names(ctx context.Context) error {
	c.strings = map[int64]string{}
	return c.db.each(ctx, tableStrings, []string{"id", "value"}, func(r []any) error {
		if id, ok := number(r[0]); ok {
			c.strings[id] = word(r[1])
		}
		return nil
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
		c.faults = append(c.faults, "no session start: times count from 1970")
	}
	return err
}

func (c *collect) devices(ctx context.Context) error {
	ordinals := map[int64]int64{} // CUDA's by Nsight's number
	if err := c.db.each(ctx, tableCUDA, []string{"gpuId", "cudaId"}, func(r []any) error {
		gpu, ok := number(r[0])
		if cuda, is := number(r[1]); ok && is {
			ordinals[gpu] = cuda
		}
		return nil
	}); err != nil {
		return err
	}
	return c.db.each(ctx, tableGPU, []string{"id", "name", "uuid", "cuDevice"}, func(r []any) error {
		id, ok := number(r[0])
		if !ok {
			return nil
		}
		d := gputrace.Device{Ordinal: or(r[3], id), Model: word(r[1])}
		if o, ok := ordinals[id]; ok {
			d.Ordinal = o
		}
		if u := word(r[2]); len(u) == 36 {
			d.ID = "GPU-" + strings.ToLower(u)
		} else if strings.HasPrefix(u, "GPU-") {
			d.ID = u
		}
		c.p.Meta.Devices = append(c.p.Meta.Devices, d)
		return nil
	})
}

// process and thread of a global id: 8 bits of hardware, 8 of the virtual machine, 24 of the process, 24 of the thread.
func process(global int64) int64 { return global >> 24 & 0xffffff }
func thread(global int64) int64  { return global & 0xffffff }

// correlation is unique within a process only; gputrace writes the low bits.
func correlation(id, pid int64) int64 {
	if id <= 0 || id >= 1<<gputrace.CorrelationBits {
		return 0
	}
	return pid<<gputrace.CorrelationBits | id
}

// times sets start and duration of a row; rows without are counted.
func (c *collect) times(e *gputrace.Event, start, end any) bool {
	s, ok := number(start)
	t, is := number(end)
	if !ok || !is {
		c.skip("start or end missing")
		return false
	}
	e.Start, e.Duration = s, t-s
	return true
}

func (c *collect) add(e *gputrace.Event, name string) error {
	e.Name = c.p.Names.ID(name)
	switch err := c.p.Add(e); {
	case errors.Is(err, gputrace.ErrNegativeDuration), errors.Is(err, gputrace.ErrTimeRange):
		c.skip(err.Error())
		return nil
	default:
		return err
	}
}

// device reads what rows of the device have in common: r begins with start, end, deviceId, streamId, correlationId,
// globalPid, graphNodeId.
func (c *collect) device(e *gputrace.Event, r []any) bool {
	c.rows++
	if !c.times(e, r[0], r[1]) {
		return false
	}
	e.Device, e.Stream = or(r[2], 0), or(r[3], 0)
	if global, ok := number(r[5]); ok {
		e.Process, e.HasProcess = process(global), true
	}
	e.Correlation = correlation(or(r[4], 0), e.Process)
	e.Detail.GraphNode = or(r[6], 0)
	return true
}

var deviceColumns = []string{"start", "end", "deviceId", "streamId", "correlationId", "globalPid", "graphNodeId"}

func columns(more ...string) []string { return append(append([]string{}, deviceColumns...), more...) }

func (c *collect) kernels(ctx context.Context) error {
	return c.db.each(ctx, tableKernel, columns("demangledName", "shortName", "mangledName", "gridX", "gridY", "gridZ",
		"blockX", "blockY", "blockZ", "registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphId"), func(r []any) error {
		e := gputrace.Event{Kind: gputrace.KindKernel}
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
		return c.add(&e, c.kernelName(more[:3]))
	})
}

func (c *collect) kernelName(ids []any) string {
	for _, v := range ids {
		if id, ok := number(v); ok {
			if s := c.strings[id]; s != "" {
				return s
			}
		}
	}
	return "kernel"
}

func (c *collect) copies(ctx context.Context) error {
	return c.db.each(ctx, tableCopy, columns("bytes", "copyKind", "srcKind", "dstKind"), func(r []any) error {
		e := gputrace.Event{Kind: gputrace.KindCopy}
		if !c.device(&e, r) {
			return nil
		}
		more := r[len(deviceColumns):]
		d := &e.Detail
		d.Bytes, d.HasBytes = number(more[0])
		var source, destination bool
		d.Direction, source, destination = direction(or(more[1], 0))
		switch {
		case source:
			d.HostMemory = memory(or(more[2], -1))
		case destination:
			d.HostMemory = memory(or(more[3], -1))
		}
		return c.add(&e, copyName(d.Direction, d.HostMemory))
	})
}

func (c *collect) memsets(ctx context.Context) error {
	return c.db.each(ctx, tableMemset, columns("bytes"), func(r []any) error {
		e := gputrace.Event{Kind: gputrace.KindMemset}
		if !c.device(&e, r) {
			return nil
		}
		e.Detail.Bytes, e.Detail.HasBytes = number(r[len(deviceColumns)])
		return c.add(&e, "Memset (Device)")
	})
}

func (c *collect) calls(ctx context.Context) error {
	names := map[int64]string{}
	return c.db.each(ctx, tableRuntime, []string{"start", "end", "globalTid", "correlationId", "nameId"}, func(r []any) error {
		c.rows++
		e := gputrace.Event{Kind: gputrace.KindRuntime}
		if !c.times(&e, r[0], r[1]) {
			return nil
		}
		global := or(r[2], 0)
		e.Process, e.Thread = process(global), thread(global)
		e.Correlation = correlation(or(r[3], 0), e.Process)
		id := or(r[4], 0)
		name, ok := names[id]
		if !ok {
			if name = callName(c.strings[id]); name == "" {
				name = "CUDA call"
			}
			names[id] = name
		}
		return c.add(&e, name)
	})
}

// ranges reads NVTX: push-pop ranges nest on their thread; start-end ranges may cross others, so they have a row of their
// own beside it. Marks and the names of domains have no end.
func (c *collect) ranges(ctx context.Context) error {
	domains := map[[2]int64]string{}
	const domainCreate = 75
	if err := c.db.each(ctx, tableNVTX, []string{"eventType", "text", "textId", "domainId", "globalTid"}, func(r []any) error {
		if t, _ := number(r[0]); t == domainCreate {
			domains[[2]int64{process(or(r[4], 0)), or(r[3], 0)}] = c.text(r[1], r[2])
		}
		return nil
	}); err != nil {
		return err
	}
	const startEnd, startEndPayload = 60, 71
	return c.db.each(ctx, tableNVTX, []string{
		"start", "end", "eventType", "text", "textId", "globalTid", "domainId",
		"uint64Value", "int64Value", "doubleValue", "uint32Value", "int32Value", "floatValue", "jsonText",
	}, func(r []any) error {
		c.rows++
		if r[1] == nil {
			if t, _ := number(r[2]); t != domainCreate {
				c.skip("NVTX mark or range without an end")
			}
			return nil
		}
		var e gputrace.Event
		if !c.times(&e, r[0], r[1]) {
			return nil
		}
		global := or(r[5], 0)
		e.Process, e.Thread = process(global), thread(global)
		if t, _ := number(r[2]); t == startEnd || t == startEndPayload {
			e.Thread = -1 - e.Thread
		}
		e.Detail.Domain = domains[[2]int64{e.Process, or(r[6], 0)}]
		e.Detail.Payload = payload(r[7:13])
		if s := word(r[13]); s != "" {
			e.Detail.PayloadText = s
		}
		name := rangeOf(&e, c.text(r[3], r[4]))
		if name == "" {
			name = "NVTX range"
		}
		return c.add(&e, name)
	})
}

func (c *collect) text(text, id any) string {
	if s := word(text); s != "" {
		return s
	}
	if n, ok := number(id); ok {
		return c.strings[n]
	}
	return ""
}

// payload is the number that a range carries, as text.
func payload(columns []any) string {
	for _, v := range columns {
		switch n := v.(type) {
		case int64:
			return strconv.FormatInt(n, 10)
		case float64:
			return strconv.FormatFloat(n, 'g', -1, 64)
		}
	}
	return ""
}

func (c *collect) overhead(ctx context.Context) error {
	var n int64
	err := c.db.each(ctx, tableOverhead, []string{"start"}, func([]any) error { n++; return nil })
	c.rows += n
	if n > 0 {
		c.skipped["overhead of the profiler"] += n
	}
	return err
}
