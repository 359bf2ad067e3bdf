// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/json"
	"maps"
	"slices"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// Origin is the resource and the instrumentation scope of spans, as a file keeps them for readers that make spans of it
// again. Viewers do not show it.
type Origin struct {
	Resource       []Arg  // attributes
	ResourceSchema string // schema URL; may be empty
	Scope          string // name; may be empty
	ScopeVersion   string // may be empty
	ScopeArgs      []Arg  // attributes
	ScopeSchema    string // schema URL; may be empty
}

// Bounds of what one file keeps. Spans of further origins come back without resource and scope.
const (
	maxOrigins     = 1 << 12
	maxOriginBytes = 1 << 20
	noOrigin       = -1
)

// origins are the different ones of a file, numbered in order of appearance.
type origins struct {
	number map[string]int // by JSON
	list   []json.RawMessage
	size   int
	buf    []byte
	last   *Origin // of the batch being written
	lastAt int
}

// of is the number of an event's origin.
func (o *origins) of(e *Event, p *process) int {
	if e.Origin == nil {
		if !p.hasOrigin {
			p.hasOrigin, p.origin = true, o.add(&Origin{Resource: e.Process.resource()})
		}
		return p.origin
	}
	if e.Origin != o.last { // spans come by resource and scope
		o.last, o.lastAt = e.Origin, o.add(e.Origin)
	}
	return o.lastAt
}

func (o *origins) add(from *Origin) int {
	o.buf = from.append(o.buf[:0])
	if n, ok := o.number[string(o.buf)]; ok {
		return n
	}
	if len(o.list) == maxOrigins || o.size+len(o.buf) > maxOriginBytes {
		return noOrigin
	}
	if o.number == nil {
		o.number = map[string]int{}
	}
	n := len(o.list)
	o.number[string(o.buf)], o.list, o.size = n, append(o.list, slices.Clone(o.buf)), o.size+len(o.buf)
	return n
}

func (o *Origin) append(b []byte) []byte {
	b = append(b, '{')
	text := func(key, v string) {
		if v != "" {
			b = appendString(appendKey(b, key), v)
		}
	}
	b = append(appendKey(b, "resource"), '{')
	b = append(appendExactArgs(b, o.Resource), '}')
	text("resource_schema", o.ResourceSchema)
	text("scope", o.Scope)
	text("version", o.ScopeVersion)
	if len(o.ScopeArgs) > 0 {
		b = append(appendKey(b, "attributes"), '{')
		b = append(appendExactArgs(b, o.ScopeArgs), '}')
	}
	text("scope_schema", o.ScopeSchema)
	return append(b, '}')
}

// resource are the attributes that a process was made of, for events without an origin.
func (k Process) resource() []Arg {
	var args []Arg
	add := func(key attribute.Key, v Value, has bool) {
		if has {
			args = append(args, Arg{string(key), v})
		}
	}
	add(semconv.ServiceNameKey, String(k.Service), k.Service != "")
	add(semconv.ServiceInstanceIDKey, String(k.Instance), k.Instance != "")
	add(semconv.HostNameKey, String(k.Host), k.Host != "")
	add(semconv.GPUJobIDKey, String(k.Job), k.Job != "")
	add(semconv.GPUJobRankKey, Int(k.Rank), k.HasRank)
	add(semconv.GPUJobLocalRankKey, Int(k.LocalRank), k.HasLocalRank)
	add(semconv.GPUJobWorldSizeKey, Int(k.WorldSize), k.WorldSize > 0)
	add(semconv.ProcessPidKey, Int(k.PID), k.PID > 0)
	return args
}

// top is what PyTorch's files say once for all events, as far as it is one: models of devices by ordinal, and job,
// rank, host and service when all processes agree. The origins are of this project.
type top struct {
	Devices     []deviceModel     `json:"deviceProperties,omitempty"`
	Distributed *place            `json:"distributedInfo,omitempty"`
	Service     string            `json:"service.name,omitempty"`
	Job         string            `json:"gpu.job.id,omitempty"`
	Host        string            `json:"host_name,omitempty"`
	Origins     []json.RawMessage `json:"otelgpuOrigins,omitempty"`
}

type deviceModel struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type place struct {
	Rank      int64  `json:"rank"`
	LocalRank *int64 `json:"local_rank,omitempty"`
	WorldSize int64  `json:"world_size,omitempty"`
}

// top writes it behind the events, and ends the file.
func (w *Writer) top() error {
	t := top{
		Service: common(w, func(p Process) string { return p.Service }),
		Job:     common(w, func(p Process) string { return p.Job }),
		Host:    common(w, func(p Process) string { return p.Host }), Origins: w.origins.list,
	}
	for _, ordinal := range slices.Sorted(maps.Keys(w.models)) {
		if m := w.models[ordinal]; m != "" {
			t.Devices = append(t.Devices, deviceModel{ordinal, m})
		}
	}
	if p := common(w, func(p Process) Process {
		if !p.HasRank {
			return Process{}
		}
		return Process{
			Rank: p.Rank, HasRank: true, LocalRank: p.LocalRank, HasLocalRank: p.HasLocalRank, WorldSize: max(p.WorldSize, 0),
		}
	}); p.HasRank {
		t.Distributed = &place{Rank: p.Rank, WorldSize: p.WorldSize}
		if p.HasLocalRank {
			t.Distributed.LocalRank = &p.LocalRank
		}
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	if len(b) > len("{}") {
		w.buf = append(append(w.buf, ",\n"...), b[1:]...)
	} else {
		w.buf = append(w.buf, '}')
	}
	w.buf = append(w.buf, '\n')
	return nil
}

// common is the value that all processes have; the zero value where there is none.
func common[T comparable](w *Writer, of func(Process) T) (value T) {
	first := true
	for p := range w.procs {
		if v := of(p); first {
			value, first = v, false
		} else if v != value {
			var none T
			return none
		}
	}
	return value
}
