// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"strconv"

	"github.com/otelgpu/otelgpu/gpuspan"
	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// deviceArgs reads the arguments of a kernel, copy or memset. Numbers that are none are as if they were absent.
func (c *collect) deviceArgs(e *gputrace.Event, args []byte, hasDevice, hasStream *bool) {
	d := &e.Detail
	var grid, block, registers, shared bool
	var external int64
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "device":
			*hasDevice = setInt(&e.Device, v)
		case "stream":
			*hasStream = setInt(&e.Stream, v)
		case "correlation":
			c.correlates = setInt(&e.Correlation, v) || c.correlates
		case "External id":
			setInt(&external, v)
		case "bytes":
			d.HasBytes = setInt(&d.Bytes, v)
		case "grid":
			grid = setInts(&d.Grid, v)
		case "block":
			block = setInts(&d.Block, v)
		case "registers per thread":
			registers = setInt(&d.Registers, v)
		case "shared memory":
			shared = setInt(&d.SharedMemory, v)
		case "blocks per SM":
			setFloat(&d.BlocksPerSM, v)
		case "warps per SM":
			setFloat(&d.WarpsPerSM, v)
		case "est. achieved occupancy %":
			if d.HasOccupancy = setFloat(&d.Occupancy, v); d.HasOccupancy {
				d.Occupancy /= 100
			}
		case "graph id":
			setInt(&d.Graph, v)
		case "graph node id":
			setInt(&d.GraphNode, v)
		case "kind":
			if d.Direction == "" && e.Kind == gputrace.KindCopy {
				d.Direction, _ = gputrace.CopyKind(text(v))
			}
		default:
			collectiveArg(d, k, v)
		}
		return true
	})
	c.correlate(e, external)
	d.HasGrid = grid && block
	d.HasResources = registers && shared
}

// collectiveArg reads what NCCL's record says, on kernels and on record_param_comms operators.
func collectiveArg(d *gputrace.Detail, k, v []byte) {
	switch string(k) {
	case "Collective name":
		if d.Collective = gputrace.CollectiveName(text(v)); d.Collective == "" {
			d.Collective = text(v)
		}
	case "Group size":
		setInt(&d.GroupSize, v)
	case "dtype":
		d.ElementType = text(v)
	case "In msg nelems":
		setInt(&d.InElements, v)
	case "Out msg nelems":
		setInt(&d.OutElements, v)
	case "Process Group Description":
		if t := text(v); t != "" {
			d.Group = t
		}
	case "Process Group Name":
		if d.Group == "" {
			d.Group = text(v)
		}
	}
}

func (c *collect) runtimeArgs(e *gputrace.Event, args []byte) {
	var external int64
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "correlation":
			c.correlates = setInt(&e.Correlation, v) || c.correlates
			return false
		case "External id":
			setInt(&external, v)
		case "kernel": // HIP's calls name it, before the correlation
			if name := unquote(v); len(name) > 0 {
				if bytes.IndexByte(name, '\\') >= 0 {
					name = chromejson.Text(name)
				}
				e.Detail.Launches = c.p.Names.Bytes(name)
			}
		}
		return true
	})
	c.correlate(e, external)
}

// correlate takes the external id for the correlation in files that have no correlations, as ROCm's of before 2025.
func (c *collect) correlate(e *gputrace.Event, external int64) {
	if e.Correlation == 0 && !c.correlates {
		e.Correlation = external
	}
}

// operatorArgs reads FLOPs where the profiler wrote them or the inputs give them, and shapes where they are wanted.
func (c *collect) operatorArgs(d *gputrace.Detail, name, args []byte) {
	count := operators[string(name)]
	if count == nil && !c.shapes && !c.recorded(args) {
		return
	}
	var types, dims, values []byte
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "Input Dims", "Input dims":
			dims = v
		case "Input type":
			types = v
		case "Concrete Inputs":
			values = v
		case "flops", "Flops", "kernel_flop": // the last one by Inductor
			setFloat(&d.FLOPs, v)
		}
		return true
	})
	if c.shapes {
		d.Shapes, d.Types = string(dims), string(types)
	}
	if count != nil {
		c.works.of(c, count, d, name, types, dims, values)
	}
}

// works remembers what operators compute by the text of their inputs: a training step is like the one before.
type works struct {
	known map[string]operatorWork
	key   []byte
	bytes int
}

type operatorWork struct {
	flops, traffic float64
	precision      string
	signature      uint32 // shapes, by the profile's names
}

// Bounds of works. Beyond them an operator is computed anew each time.
const maxWorks, maxWorkBytes = 1 << 14, 4 << 20

func (w *works) of(c *collect, count func(*inputs) gpuspan.Work, d *gputrace.Detail, name, types, dims, values []byte) {
	w.key = append(append(append(append(w.key[:0], name...), types...), dims...), values...)
	o, ok := w.known[string(w.key)]
	if !ok {
		if work, known := c.inputs.work(count, types, dims, values); known {
			o.flops, o.traffic, o.precision = work.FLOPs, float64(work.Read+work.Written), work.Precision.String()
			w.key = c.inputs.signature(w.key[:0])
			o.signature = c.p.Names.Bytes(w.key)
			w.key = append(append(append(append(w.key[:0], name...), types...), dims...), values...)
		}
		if w.known == nil {
			w.known = map[string]operatorWork{}
		}
		if len(w.known) < maxWorks && w.bytes+len(w.key) <= maxWorkBytes {
			w.bytes += len(w.key)
			w.known[string(w.key)] = o
		}
	}
	d.Traffic, d.Signature = o.traffic, o.signature
	if d.FLOPs == 0 {
		d.FLOPs, d.Precision = o.flops, o.precision
	}
}

// recorded reports whether the profiler wrote FLOPs on an operator. Few files have any, and looking costs a tenth of
// the reading: it ends where the first operators have none.
func (c *collect) recorded(args []byte) bool {
	const first = 2000
	if c.withoutFLOPs == first {
		return false
	}
	if bytes.Contains(args, []byte(`lop`)) {
		return true
	}
	c.withoutFLOPs++
	return false
}

func annotationArgs(d *gputrace.Detail, args []byte) {
	chromejson.Fields(args, func(k, v []byte) bool {
		if string(k) == "traceparent" {
			if t := text(v); gputrace.ParseTraceParent(t) == nil {
				d.TraceParent = t
			}
		}
		return true
	})
}

func setInt(to *int64, v []byte) bool {
	n, ok := chromejson.Int(v)
	if ok {
		*to = n
	}
	return ok
}

func setFloat(to *float64, v []byte) bool {
	f, err := strconv.ParseFloat(string(unquote(v)), 64)
	if err != nil || f < 0 || f > 1e300 {
		return false
	}
	*to = f
	return true
}

// setInts reads [x, y, z]; fewer than three are filled with 1.
func setInts(to *[3]int64, v []byte) bool {
	v = bytes.TrimSpace(unquote(v))
	if len(v) < 2 || v[0] != '[' || v[len(v)-1] != ']' {
		return false
	}
	v = v[1 : len(v)-1]
	out := [3]int64{1, 1, 1}
	for i := 0; ; i++ {
		end := bytes.IndexByte(v, ',')
		word := v
		if end >= 0 {
			word = v[:end]
		}
		n, ok := chromejson.Int(bytes.TrimSpace(word))
		if !ok || i == len(out) {
			return false
		}
		if out[i] = n; end < 0 {
			*to = out
			return true
		}
		v = v[end+1:]
	}
}

func unquote(v []byte) []byte {
	if len(v) >= 2 && v[0] == '"' {
		return v[1 : len(v)-1]
	}
	return v
}

func text(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	return string(chromejson.Text(v[1 : len(v)-1]))
}
