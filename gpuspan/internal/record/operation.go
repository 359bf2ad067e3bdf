// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"context"
	"io"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// Public holds the type of package gpuspan for a value of this package, created once.
type Public struct {
	once  sync.Once
	value any
}

// Get returns what create made at the first call.
func (p *Public) Get(create func() any) any {
	p.once.Do(func() { p.value = create() })
	return p.value
}

// OperationConfig holds what is the same in each run of an operation.
type OperationConfig struct {
	Info       report.Info
	Direction  work.Direction
	Verbosity  settings.Verbosity
	Sync       settings.SyncMode    // zero: as the Profiler
	NoSpan     bool                 // in metrics and reports only
	Batch      bool                 // timed whether or not the span around it is sampled
	Print      io.Writer            // receives the report when an outermost section resolves
	PrintOnly  []string             // categories to print; none: all
	Attributes []attribute.KeyValue // on each span
}

// Operation is something that can be timed. It holds no measurements and works with any number of Profilers. A nil
// Operation does nothing.
type Operation struct {
	Public Public // of package gpuspan
	id     uint32 // index into a Profiler's states
	Cfg    OperationConfig
	Attrs  []attribute.KeyValue // all that are on each span
	host   bool                 // work on the host: no events

	launch struct { // the operation's launches of graphs are a separate operation of the same name
		once sync.Once
		op   *Operation
	}
}

// operationIDs numbers operations, so that a Profiler finds its state of one by index instead of by hash.
var operationIDs atomic.Uint32

// NewOperation creates an operation of type section, unless an option sets another type.
func NewOperation(name string, opts ...func(*OperationConfig)) *Operation {
	if name = spanattr.ValidText(name); name == "" {
		name = "unnamed"
	}
	c := OperationConfig{
		Info:      report.Info{Name: name, Type: semconv.GPUOperationTypeSection},
		Verbosity: settings.VerbosityDefault,
	}
	for _, o := range opts {
		o(&c)
	}
	c.Info.Category, c.Info.ItemType = spanattr.ValidText(c.Info.Category), spanattr.ValidText(c.Info.ItemType)
	return newOperation(c)
}

func newOperation(c OperationConfig) *Operation {
	o := &Operation{id: operationIDs.Add(1) - 1, Cfg: c, host: c.Info.Type == semconv.GPUOperationTypeHost}
	o.Attrs = o.build()
	return o
}

// Real returns o, or nil if NewOperation did not create it: a zero value behaves like nil.
func (o *Operation) Real() *Operation {
	if o == nil || o.Attrs == nil {
		return nil
	}
	return o
}

func (o *Operation) Name() string {
	if o == nil {
		return ""
	}
	return o.Cfg.Info.Name
}

func (o *Operation) Info() report.Info {
	if o == nil {
		return report.Info{}
	}
	return o.Cfg.Info
}

// build creates the attributes that every span of the operation has. The name is the span's.
func (o *Operation) build() []attribute.KeyValue {
	kv := []attribute.KeyValue{semconv.GPUOperationTypeKey.String(o.Cfg.Info.Type)}
	kv = spanattr.AppendStated(kv, semconv.GPUOperationCategoryKey, o.Cfg.Info.Category)
	kv = spanattr.AppendStated(kv, semconv.GPUOperationItemTypeKey, o.Cfg.Info.ItemType)
	kv = spanattr.AppendStated(kv, semconv.GPUCopyDirectionKey, o.Cfg.Info.Direction)
	kv = spanattr.AppendStated(kv, semconv.GPUCopyHostMemoryKey, o.Cfg.Info.HostMemory)
	return spanattr.AppendValid(kv, o.Cfg.Attributes)
}

func (o *Operation) Start(ctx context.Context, s *Stream) Section { return s.Begin(ctx, o, FlagNone) }

func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	x := o.graph().Start(ctx, s)
	defer x.End()
	if f != nil {
		f()
	}
}

// graph returns the operation as a launch of a graph: the type is an attribute of metrics, so it cannot differ from
// run to run.
func (o *Operation) graph() *Operation {
	if o == nil || o.Cfg.Info.Type == semconv.GPUOperationTypeGraph {
		return o
	}
	o.launch.once.Do(func() {
		c := o.Cfg
		c.Info.Type = semconv.GPUOperationTypeGraph
		o.launch.op = newOperation(c)
	})
	return o.launch.op
}
