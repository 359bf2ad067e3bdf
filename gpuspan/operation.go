// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package gpuspan

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/semconv"
)

// Operation is something that can be timed: a name, a category and what else is the same each time it runs. Make each
// once, usually as a package variable; it holds no measurements and works with any number of Profilers. A nil Operation
// does nothing.
type Operation struct {
	id        uint32 // index into a Profiler's states
	info      report.Info
	direction Direction
	verbosity Verbosity
	sync      SyncMode // zero: as the Profiler
	noSpan    bool
	print     io.Writer            // the report goes here when an outermost section resolves
	own       []attribute.KeyValue // from options
	attrs     []attribute.KeyValue // all that are on each span

	launch struct { // the operation's launches of graphs are an operation of their own, of the same name
		once sync.Once
		op   *Operation
	}
}

// operationIDs numbers operations, so that a Profiler finds its state of one by index instead of by hash.
var operationIDs atomic.Uint32

// NewOperation makes an operation. The name is the span's name and gpu.operation.name, so it should come from a small
// set: `prefill`, not `prefill batch 17`. For names that are only known at run time see [Stream.StartNamed].
func NewOperation(name string, opts ...OperationOption) *Operation {
	if name = validText(name); name == "" {
		name = "unnamed"
	}
	o := &Operation{
		id:        operationIDs.Add(1) - 1,
		info:      report.Info{Name: name, Type: semconv.GPUOperationTypeSection},
		verbosity: VerbosityDefault,
	}
	for _, opt := range opts {
		if opt != nil {
			opt.applyOperation(o)
		}
	}
	o.attrs = o.build()
	return o
}

// validText replaces what is no UTF-8: OTLP cannot encode it, and a batch with such a span would be lost whole, with the spans of others.
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Name is the operation's name.
func (o *Operation) Name() string {
	if o == nil {
		return ""
	}
	return o.info.Name
}

// Info describes the operation as reports do.
func (o *Operation) Info() report.Info {
	if o == nil {
		return report.Info{}
	}
	return o.info
}

// build makes the attributes that every span of the operation has.
func (o *Operation) build() []attribute.KeyValue {
	kv := []attribute.KeyValue{
		semconv.GPUOperationTypeKey.String(o.info.Type),
		semconv.GPUOperationNameKey.String(o.info.Name),
	}
	add := func(k attribute.Key, v string) {
		if v != "" {
			kv = append(kv, k.String(v))
		}
	}
	add(semconv.GPUOperationCategoryKey, o.info.Category)
	add(semconv.GPUOperationItemTypeKey, o.info.ItemType)
	add(semconv.GPUCopyDirectionKey, o.info.Direction)
	add(semconv.GPUCopyHostMemoryKey, o.info.HostMemory)
	return append(kv, o.own...)
}

// Start begins a section of the operation on a stream, below the span of ctx. It records an event and returns; it
// never waits for the device. The result does nothing when o or s is nil, when profiling is off, or when the
// operation's verbosity is above the profiler's.
//
// A section below a span that is not sampled is counted with its work but not timed, unless [MetricsAll] is set.
func (o *Operation) Start(ctx context.Context, s *Stream) (x Section) {
	if s != nil { // small enough to be inlined into callers
		x = s.begin(ctx, o, flagNone)
	}
	return
}

// Launch runs f between Start and End of a section of type `graph`. Use it around the launch of a CUDA graph: events are
// recorded before and after the launch, outside of the graph. f always runs, also when nothing is timed.
func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	o.LaunchWith(ctx, s, Work{}, f)
}

// LaunchWith is Launch with the work of one launch.
func (o *Operation) LaunchWith(ctx context.Context, s *Stream, w Work, f func()) {
	x := o.graph().Start(ctx, s)
	defer x.EndWith(w)
	if f != nil {
		f()
	}
}

// graph is the operation as a launch of a graph: the type is an attribute of metrics, so it cannot differ from run to run.
func (o *Operation) graph() *Operation {
	if o == nil || o.info.Type == semconv.GPUOperationTypeGraph {
		return o
	}
	o.launch.once.Do(func() {
		g := &Operation{
			id: operationIDs.Add(1) - 1, info: o.info, direction: o.direction, verbosity: o.verbosity, sync: o.sync,
			noSpan: o.noSpan, print: o.print, own: o.own,
		}
		g.info.Type = semconv.GPUOperationTypeGraph
		g.attrs = g.build()
		o.launch.op = g
	})
	return o.launch.op
}
