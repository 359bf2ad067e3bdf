// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/gputrace"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
)

// deviceArgs reads the arguments of a kernel, copy or memset. Numbers that are none are as if they were absent.
func deviceArgs(e *gputrace.Event, args []byte, hasDevice, hasStream *bool) {
	d := &e.Detail
	var grid, block, registers, shared bool
	chromejson.Fields(args, func(k, v []byte) bool {
		switch string(k) {
		case "device":
			*hasDevice = setInt(&e.Device, v)
		case "stream":
			*hasStream = setInt(&e.Stream, v)
		case "correlation":
			setInt(&e.Correlation, v)
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

func runtimeArgs(e *gputrace.Event, args []byte) {
	chromejson.Fields(args, func(k, v []byte) bool {
		if string(k) == "correlation" {
			setInt(&e.Correlation, v)
			return false
		}
		return true
	})
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
	if d.FLOPs == 0 && count != nil {
		if w, ok := c.inputs.work(count, types, dims, values); ok {
			d.FLOPs, d.Precision = w.FLOPs, w.Precision.String()
		}
	}
}

// recorded reports whether the profiler wrote FLOPs on an operator. Few files have any, and looking costs a tenth of the
// reading: it ends where the first operators have none.
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
