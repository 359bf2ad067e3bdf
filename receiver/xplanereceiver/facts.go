// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package xplanereceiver

import (
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/otelgpu/otelgpu/internal/profiletrace/event"
)

// value is a statistic.
type value struct {
	number float64
	exact  int64 // of integers
	text   string
}

// decode reads a statistic of a plane: its name and value. Texts may be the name of another
// statistic.
func (p *plane) decode(b []byte) (name string, v value, err error) {
	err = each(b, func(num protowire.Number, n uint64, b []byte) {
		switch num {
		case 1:
			name = p.names[int64(n)]
		case 2: // double
			v.number = math.Float64frombits(n)
		case 3: // uint64
			v.number, v.exact = float64(n), int64(min(n, math.MaxInt64))
		case 4: // int64
			v.number, v.exact = float64(int64(n)), int64(n)
		case 5: // text
			v.text = string(b)
		case 7: // reference
			v.text = p.names[int64(n)]
		}
	})
	return name, v, err
}

// facts is what the statistics of an event state.
type facts struct {
	event.Detail
	kind        event.Kind // of an activity that moves bytes
	operator    string     // of XLA
	module      string     // of XLA: the program that the operator is in
	path        string     // of the framework: jit(step)/layer0/dot_general
	category    string     // of the operator
	correlation int64
	allocator   string
}

// add takes a statistic by its name (xla/tsl/profiler/utils/xplane_schema.cc).
func (f *facts) add(name string, v value) {
	switch name {
	case "hlo_op":
		f.operator = v.text
	case "hlo_module":
		f.module = v.text
	case "tf_op":
		f.path = v.text
	case "hlo_category":
		f.category = v.text
	case "flops":
		f.FLOPs = max(0, v.number)
	case "bytes_accessed":
		f.Traffic = max(0, v.number)
	case "correlation_id":
		f.correlation = v.exact
	case "step_num":
		f.Step, f.HasStep = v.exact, true
	case "kernel_details":
		f.launch(v.text)
	case "memcpy_details":
		f.kind = event.KindCopy
		f.moved(v.text)
	case "memset_details":
		f.kind = event.KindMemset
		f.moved(v.text)
	case "theoretical_occupancy_pct":
		f.occupied(v.number)
	case "cuda_graph_id":
		f.Graph = v.exact
	case "cuda_graph_node_id":
		f.GraphNode = v.exact
	case "allocator_name":
		f.allocator = v.text
	case "allocation_bytes":
		f.Bytes, f.HasBytes = v.exact, true
	case "bytes_allocated":
		f.MemoryUsage, f.HasMemoryUsage = v.exact, true
	}
}

// pairs calls f for the parts of a text as "regs:128 grid:64,8,1".
func pairs(s string, f func(key, value string)) {
	for part := range strings.FieldsSeq(s) {
		if key, value, ok := strings.Cut(part, ":"); ok {
			f(key, value)
		}
	}
}

func integer(s string) int64 {
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

// launch reads how a kernel was launched.
func (f *facts) launch(s string) {
	triple := func(s string) (t [3]int64) {
		t = [3]int64{1, 1, 1}
		i := 0
		for n := range strings.SplitSeq(s, ",") {
			if i < 3 {
				t[i] = integer(n)
			}
			i++
		}
		return t
	}
	pairs(s, func(key, value string) {
		switch key {
		case "regs":
			f.Registers, f.HasResources = integer(value), true
		case "static_shared", "dynamic_shared":
			f.SharedMemory += integer(value)
		case "grid":
			f.Grid, f.HasGrid = triple(value), true
		case "block":
			f.Block = triple(value)
		case "occ_pct":
			pct, _ := strconv.ParseFloat(value, 64)
			f.occupied(pct)
		}
	})
}

// occupied sets the occupancy. XLA writes 0 if it does not know it, as on ROCm.
func (f *facts) occupied(pct float64) {
	if pct > 0 {
		f.Occupancy, f.HasOccupancy = pct/100, true
	}
}

// moved reads what a copy or memset moved.
func (f *facts) moved(s string) {
	var from, to string
	pairs(s, func(key, value string) {
		switch key {
		case "kind_src":
			from = value
		case "kind_dst", "kind":
			to = value
		case "size", "num_bytes":
			f.Bytes, f.HasBytes = integer(value), true
		}
	})
	onHost := func(kind string) bool { return kind == "pageable" || kind == "pinned" }
	switch {
	case from == "" || to == "":
	case onHost(from) && onHost(to):
		f.Direction = "host_to_host"
	case onHost(from):
		f.Direction, f.HostMemory = "host_to_device", from
	case onHost(to):
		f.Direction, f.HostMemory = "device_to_host", to
	default:
		f.Direction = "device_to_device"
	}
	if from == "managed" || to == "managed" {
		f.HostMemory = "managed"
	}
}
