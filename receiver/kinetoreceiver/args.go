// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package kinetoreceiver

import (
	"bytes"
	"cmp"
	"strconv"

	"github.com/otelgpu/otelgpu/internal/profiletrace/emit"
	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
	"github.com/otelgpu/otelgpu/internal/profiletrace/vocabulary"
	"github.com/otelgpu/otelgpu/receiver/kinetoreceiver/internal/chromejson"
	"github.com/otelgpu/otelgpu/semconv"
)

// Arguments that are read, by their numbers in a Layout.
const (
	argDevice = iota + 1
	argStream
	argCorrelation
	argExternal
	argBytes
	argGrid
	argBlock
	argRegisters
	argShared
	argBlocksPerSM
	argWarpsPerSM
	argOccupancy
	argGraph
	argGraphNode
	argKind
	argKernel
	argCollective
	argGroupSize
	argElementType
	argInElements
	argOutElements
	argGroupDescription
	argGroupName
	argGroupRanks
	argSequence
	argSource
	argDestination
	argDims
	argTypes
	argValues
	argFLOPs
)

func argument(key []byte) int { return arguments[string(key)] }

var arguments = map[string]int{
	"device": argDevice, "stream": argStream, "correlation": argCorrelation, "External id": argExternal,
	"bytes": argBytes, "grid": argGrid, "block": argBlock, "registers per thread": argRegisters,
	"shared memory": argShared, "blocks per SM": argBlocksPerSM, "warps per SM": argWarpsPerSM,
	"est. achieved occupancy %": argOccupancy, "graph id": argGraph, "graph node id": argGraphNode, "kind": argKind,
	"kernel": argKernel,
	// of MTIA
	"direction": argKind, "size": argBytes,
	// from NCCL's record
	"Collective name": argCollective, "Group size": argGroupSize, "dtype": argElementType,
	"In msg nelems": argInElements, "Out msg nelems": argOutElements,
	"Process Group Description": argGroupDescription, "Process Group Name": argGroupName,
	"Process Group Ranks": argGroupRanks, "Seq": argSequence, "Src Rank": argSource, "Dst Rank": argDestination,
	// operators; the last one is Inductor's
	"Input Dims": argDims, "Input dims": argDims, "Input type": argTypes, "Concrete Inputs": argValues,
	"flops": argFLOPs, "Flops": argFLOPs, "kernel_flop": argFLOPs,
}

// deviceArgs reads the arguments of a kernel, copy or memset. Invalid numbers count as absent.
func (c *collect) deviceArgs(e *event.Event, args []byte, hasDevice, hasStream *bool) {
	d := &e.Detail
	var grid, block, registers, shared bool
	var external int64
	var group, members []byte
	var source, destination int64
	var hasSource, hasDestination bool
	c.layouts[e.Kind].Fields(args, argument, func(id int, v []byte) bool {
		switch id {
		case argDevice:
			*hasDevice = setInt(&e.Device, v)
		case argStream:
			if *hasStream = setInt(&e.Stream, v); !*hasStream && string(v) != "null" {
				e.Stream, *hasStream = c.id(v), true // as an address: work of another stream stays apart
			}
		case argCorrelation:
			c.correlates = setInt(&e.Correlation, v) || c.correlates
		case argExternal:
			setInt(&external, v)
		case argBytes:
			d.HasBytes = setInt(&d.Bytes, v)
		case argGrid:
			grid = setInts(&d.Grid, v)
		case argBlock:
			block = setInts(&d.Block, v)
		case argRegisters:
			registers = setInt(&d.Registers, v)
		case argShared:
			shared = setInt(&d.SharedMemory, v)
		case argBlocksPerSM:
			setFloat(&d.BlocksPerSM, v)
		case argWarpsPerSM:
			setFloat(&d.WarpsPerSM, v)
		case argOccupancy:
			if d.HasOccupancy = setFloat(&d.Occupancy, v); d.HasOccupancy {
				d.Occupancy /= 100
			}
		case argGraph:
			setInt(&d.Graph, v)
		case argGraphNode:
			setInt(&d.GraphNode, v)
		case argKind:
			if d.Direction == "" && e.Kind == event.KindCopy {
				d.Direction, _ = vocabulary.CopyKind(text(v))
			}
		case argCollective:
			d.Collective = cmp.Or(vocabulary.CollectiveName(text(v)), text(v))
		case argGroupSize:
			setInt(&d.GroupSize, v)
		case argElementType:
			d.ElementType = text(v)
		case argInElements:
			setInt(&d.InElements, v)
		case argOutElements:
			setInt(&d.OutElements, v)
		case argGroupDescription:
			d.Group = cmp.Or(text(v), d.Group)
		case argGroupName:
			d.Group = cmp.Or(d.Group, text(v))
			group = v
		case argGroupRanks:
			members = v
		case argSequence:
			d.HasSequence = setInt(&d.Sequence, v)
		case argSource:
			hasSource = setInt(&source, v)
		case argDestination:
			hasDestination = setInt(&destination, v)
		}
		return true
	})
	switch { // PyTorch states the peer only; others both ranks
	case hasDestination && (!hasSource || d.Collective != semconv.GPUCollectiveNameRecv):
		d.Peer, d.HasPeer = destination, true
	case hasSource:
		d.Peer, d.HasPeer = source, true
	}
	if len(group) > 0 {
		c.group = append(append(append(c.group[:0], unquote(group)...), ' '), unquote(members)...)
		d.GroupID = c.p.Names.Bytes(bytes.TrimSpace(c.group))
	}
	c.correlate(e, external)
	d.HasGrid = grid && block
	d.HasResources = registers && shared
}

func (c *collect) runtimeArgs(e *event.Event, args []byte) {
	var external int64
	c.layouts[e.Kind].Fields(args, argument, func(id int, v []byte) bool {
		switch id {
		case argCorrelation:
			c.correlates = setInt(&e.Correlation, v) || c.correlates
			return false
		case argExternal:
			setInt(&external, v)
		case argKernel: // HIP's calls name it, before the correlation
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

// correlate takes the external id for the correlation in files that have no correlations, as ROCm's
// of before 2025.
func (c *collect) correlate(e *event.Event, external int64) {
	if e.Correlation == 0 && !c.correlates {
		e.Correlation = external
	}
}

// operatorArgs reads FLOPs where the profiler wrote them or the inputs give them, and shapes where
// they are wanted.
func (c *collect) operatorArgs(e *event.Event, name, args []byte) {
	e.Gradient = gradientKey.number(args, &c.gradientAt)
	count := c.operator(e.Name, name)
	if count == nil && !c.shapes && !c.recorded(args) {
		return
	}
	d := &e.Detail
	var types, dims, values []byte
	c.layouts[e.Kind].Fields(args, argument, func(id int, v []byte) bool {
		switch id {
		case argDims:
			dims = v
		case argTypes:
			types = v
		case argValues:
			values = v
		case argFLOPs:
			setFloat(&d.FLOPs, v)
		}
		return true
	})
	if c.shapes {
		d.Shapes, d.Types = string(dims), string(types)
	}
	if count != nil && len(dims) > 0 {
		c.works.of(c, count, d, name, types, dims, values)
	}
}

// operator returns how to count the work of an operator, nil if that is unknown. It is looked up
// once for each name.
func (c *collect) operator(id uint32, name []byte) rule {
	for uint32(len(c.counts)) <= id {
		c.counts = append(c.counts, counting{})
	}
	o := &c.counts[id]
	if !o.known || id == 0 {
		*o = counting{operators[string(name)], true}
	}
	return o.count
}

type counting struct {
	count rule
	known bool
}

// works caches the work of operators by the text of their inputs: a training step is like the
// previous one.
type works struct {
	known map[string]operatorWork
	key   []byte
	bytes int
}

type operatorWork struct {
	flops, traffic float64
	elements       float64
	precision      string
	signature      uint32 // shapes, by the profile's names
}

// Limits of works. Beyond them an operator is computed again each time.
const maxWorks, maxWorkBytes = 1 << 14, 4 << 20

func (w *works) of(c *collect, count rule, d *event.Detail, name, types, dims, values []byte) {
	w.key = append(append(append(append(w.key[:0], name...), types...), dims...), values...)
	o, ok := w.known[string(w.key)]
	if !ok {
		if work, known := c.inputs.work(count, types, dims, values); known {
			o.flops, o.traffic, o.precision = work.FLOPs, float64(work.Read+work.Written), work.Precision.String()
			o.elements = float64(c.inputs.untyped)
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
	d.Traffic, d.Elements, d.Signature = o.traffic, o.elements, o.signature
	if d.FLOPs == 0 {
		d.FLOPs, d.Precision = o.flops, o.precision
	}
}

// recorded reports whether the profiler wrote FLOPs on an operator. Few files have any, and
// searching costs a tenth of the reading: it ends if the first operators have none.
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

// searchKey is a key that is searched in arguments which need no parsing otherwise. It is in two
// parts, so that the search can start at a letter that is rare in arguments: from the quotation
// mark, it takes 8 % of the time of reading.
type searchKey struct {
	before string
	key    []byte
}

var (
	// the number by which PyTorch connects an operator with the function that computes its gradient
	gradientKey = searchKey{`"Se`, []byte(`quence number":`)}
	// the number of a frame
	pythonID = searchKey{`"`, []byte(`Python id":`)}
)

// number returns the whole number of the key, 0 if the arguments do not have it. It tries the
// position of the previous one first, which is in last: profilers rarely change it.
func (s *searchKey) number(args []byte, last *int) (n int64) {
	at, end := *last, *last+len(s.key)
	if end > len(args) || string(args[at:end]) != string(s.key) {
		if at = bytes.Index(args, s.key); at < 0 {
			return 0
		}
		*last, end = at, at+len(s.key)
	}
	if at < len(s.before) || string(args[at-len(s.before):at]) != s.before {
		return 0
	}
	for end < len(args) && args[end] == ' ' {
		end++
	}
	for i, c := range args[end:] {
		if c < '0' || c > '9' || i == 18 {
			break
		}
		n = 10*n + int64(c-'0')
	}
	return n
}

func annotationArgs(d *event.Detail, args []byte) {
	chromejson.Fields(args, func(k, v []byte) bool {
		if string(k) == "traceparent" {
			if t := text(v); emit.ParseTraceParent(t) == nil {
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
