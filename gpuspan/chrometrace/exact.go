// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package chrometrace

import (
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/semconv"
)

// A span can be restored from its event. Most of it follows from name, times and args, by the rules of Attribute; the
// rest is in the argument "otel", an object with
//
//	name        the span's name, where the event has another; a kernel's event has gpu.kernel.name
//	start, end  the span's unix nanoseconds, where the slice is drawn otherwise
//	absent      true: the span has no gpu.device.ordinal, and device is made up
//	origin      index into the file's otelgpuOrigins; 0 where absent
//	attributes  values that args cannot have: {"double":"NaN"}, {"bytes":"<base64>"}, {"map":{…}}, and names that args
//	            have another use for
//
// "otel":"again" marks the second drawing of a step, which is not a span.

// FormatVersion is the value of otelgpuFormat at the top level of files from which the original spans can be
// restored.
const FormatVersion = 1

// argNames are the arguments that represent an attribute under another name; empty: arguments that are derived from
// others.
var argNames = func() map[string]string {
	m := map[string]string{
		"device": string(semconv.GPUDeviceOrdinalKey), "stream": string(semconv.GPUStreamIDKey),
		"correlation": string(semconv.GPUCorrelationIDKey), "bytes": string(semconv.GPUIOSizeKey),
		"flops": string(semconv.GPUFLOPCountKey), occupancyPercent: string(semconv.GPUKernelOccupancyEstimateKey),
		"In msg nelems": "", "Out msg nelems": "",
	}
	for key, name := range torchNames {
		m[name] = key
	}
	return m
}()

// reserved reports whether an argument of the name has another meaning than the attribute of that name, which is kept
// apart then.
func reserved(name string) bool {
	switch name {
	case "", "loop", "trace_id", "span_id", "parent_span_id", "span.kind", "otel.status_code", "otel.status_description",
		"links", "otel":
		return true
	}
	_, ok := argNames[name]
	return ok
}

const occupancyPercent = "est. achieved occupancy %"

// Attribute returns the attribute that an argument represents, and false for arguments that are derived from others.
// The argument of a percentage is 100 times the attribute.
func Attribute(arg string) (key string, percent, ok bool) {
	if key, ok := argNames[arg]; ok {
		return key, arg == occupancyPercent, key != ""
	}
	return arg, false, true
}

// tells reports whether the value can be read back from JSON: NaN, infinities and bytes cannot.
func (v *Value) tells() bool {
	switch v.kind {
	case kindFloat:
		f := math.Float64frombits(v.num)
		return !math.IsNaN(f) && !math.IsInf(f, 0)
	case kindBytes:
		return false
	case kindList, kindMap:
		for i := range v.list {
			if !v.list[i].tells() {
				return false
			}
		}
	}
	return true
}

// taken are the indices of arguments that become fields; −1: there is none.
type taken struct{ device, stream, correlation int }

// settle removes the arguments that are also fields of the event, and records what the fields cannot represent.
func (e *Event) settle(t taken) {
	device := e.Track.Kind >= DeviceSteps
	e.blank(t.device, device)
	e.blank(t.stream, device && e.Track.ID >= 0)
	e.blank(t.correlation, e.Correlation != 0)
	e.absent = device && t.device < 0
}

func (e *Event) blank(i int, field bool) {
	if i >= 0 && field && e.Args[i].Value.kind == kindInt {
		e.Args[i].Key = ""
	}
}

// maxLinks of a span become an argument; a batch of thousands of requests would drown the others.
const maxLinks = 64

// Link adds a link to a span. At most 64 links are kept; further ones are dropped.
func (e *Event) Link(trace [16]byte, span [8]byte) {
	if len(e.Links) < maxLinks {
		e.Links = append(e.Links, String(hex.EncodeToString(trace[:])+":"+hex.EncodeToString(span[:])))
	}
}

// exact writes the argument "otel" if there is something to record.
func (w *Writer) exact(e *Event, origin int, start, end int64) {
	before := len(w.buf)
	b := append(appendKey(w.buf, "otel"), '{')
	empty := len(b)
	if e.renamed {
		b = appendString(appendKey(b, "name"), e.name)
	}
	if e.Start != start {
		b = strconv.AppendInt(appendKey(b, "start"), e.Start, 10)
	}
	at := e.End
	if e.ended {
		at = e.end
	}
	if at != end {
		b = strconv.AppendInt(appendKey(b, "end"), at, 10)
	}
	if e.absent {
		b = append(appendKey(b, "absent"), "true"...)
	}
	if origin != 0 {
		b = strconv.AppendInt(appendKey(b, "origin"), int64(origin), 10)
	}
	if len(e.kept) > 0 {
		b = appendExactArgs(b, "attributes", e.kept)
	}
	if w.buf = b; len(b) == empty {
		w.buf = b[:before]
		return
	}
	w.buf = append(w.buf, '}')
}

func appendExactArgs(b []byte, key string, args []Arg) []byte {
	b = append(appendKey(b, key), '{')
	for i := range args {
		b = appendExact(appendKey(b, args[i].Key), args[i].Value)
	}
	return append(b, '}')
}

// appendExact writes a value such that its type can be read back.
func appendExact(b []byte, v Value) []byte {
	switch v.kind {
	case kindFloat:
		if !v.tells() {
			return append(appendValue(append(b, `{"double":`...), v), '}')
		}
	case kindBytes:
		return append(appendValue(append(b, `{"bytes":`...), v), '}')
	case kindList:
		return appendElements(b, &v, appendExact)
	case kindMap:
		return append(appendElements(append(b, `{"map":`...), &v, appendExact), '}')
	}
	return appendValue(b, v)
}

// Origin is the resource and the instrumentation scope of spans, kept in a file for readers that restore the spans.
// Viewers do not show it.
type Origin struct {
	Resource       []Arg  // attributes
	ResourceSchema string // schema URL; may be empty
	Scope          string // name; may be empty
	ScopeVersion   string // may be empty
	ScopeArgs      []Arg  // attributes
	ScopeSchema    string // schema URL; may be empty
}

// Bounds of one file. Spans of further origins are read back without resource and scope.
const (
	maxOrigins     = 1 << 12
	maxOriginBytes = 1 << 20
	noOrigin       = -1
)

// origins are the different origins of a file, numbered in order of appearance.
type origins struct {
	number map[string]int // by JSON
	list   []json.RawMessage
	size   int
	buf    []byte
	last   *Origin // of the batch being written
	lastAt int
}

// of returns the number of an event's origin.
func (o *origins) of(e *Event, p *process) int {
	if e.Origin == nil {
		if !p.hasOrigin {
			p.hasOrigin, p.origin = true, o.add(&Origin{Resource: e.Process.resource()})
		}
		return p.origin
	}
	if e.Origin != o.last { // spans arrive by resource and scope
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
	b = appendExactArgs(b, "resource", o.Resource)
	text("resource_schema", o.ResourceSchema)
	text("scope", o.Scope)
	text("version", o.ScopeVersion)
	if len(o.ScopeArgs) > 0 {
		b = appendExactArgs(b, "attributes", o.ScopeArgs)
	}
	text("scope_schema", o.ScopeSchema)
	return append(b, '}')
}

// resource returns the attributes from which a process was derived, for events without an origin.
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

// top holds what PyTorch's files state once for all events: models of devices by ordinal; job, rank, host and service
// if all processes agree. The origins are this project's own.
type top struct {
	Devices     []deviceModel     `json:"deviceProperties,omitempty"`
	Distributed *distributed      `json:"distributedInfo,omitempty"`
	Service     string            `json:"service.name,omitempty"`
	Job         string            `json:"gpu.job.id,omitempty"`
	Host        string            `json:"host_name,omitempty"`
	Origins     []json.RawMessage `json:"otelgpuOrigins,omitempty"`
}

type deviceModel struct {
	ID   int64  `json:"id"`
	Name string `json:"name"`
}

type distributed struct {
	Rank      int64  `json:"rank"`
	LocalRank *int64 `json:"local_rank,omitempty"`
	WorldSize int64  `json:"world_size,omitempty"`
}

// top writes it after the events, and ends the file.
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
		t.Distributed = &distributed{Rank: p.Rank, WorldSize: p.WorldSize}
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

// common returns the value that all processes have, the zero value if they differ.
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
