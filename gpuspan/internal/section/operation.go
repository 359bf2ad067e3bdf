// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package section

import (
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/internal/spanattr"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// public holds the type of package gpuspan for a value of this package, created once.
type public struct {
	once  sync.Once
	value any
}

// Get returns what create made at the first call.
func (p *public) Get(create func() any) any {
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

// Operation is something that can be timed. It holds no measurements and works with any number of
// Profilers. A nil Operation does nothing.
type Operation struct {
	Public public // of package gpuspan
	id     uint32 // index into a Profiler's states
	Cfg    OperationConfig
	Attrs  []attribute.KeyValue // all that are on each span
	host   bool                 // work on the host: no events

	launch struct { // the operation's launches of graphs are a separate operation of the same name
		once sync.Once
		op   *Operation
	}
}

// operationIDs numbers operations, so that a Profiler finds its state of one by index instead of by
// hash.
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

const overflowName = "(other)" // of an operation that replaces those beyond a limit

func newOperation(c OperationConfig) *Operation {
	o := &Operation{id: operationIDs.Add(1) - 1, Cfg: c, host: c.Info.Type == semconv.GPUOperationTypeHost}
	o.Attrs = o.build()
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

// graph returns the operation as a launch of a graph: the type is an attribute of metrics, so it
// cannot differ from run to run.
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

// names holds operations that are found by name: a bounded number, then one for all others.
type names struct {
	mu       sync.RWMutex
	byName   map[string]*Operation
	limit    int
	create   func(string) *Operation
	overflow *Operation
	dropped  atomic.Int64 // how often there were too many names
}

// maxNameLength bounds a name, in bytes, so that a bounded number of them takes bounded memory.
// Mangled names of kernels stay below it.
const maxNameLength = 4096

func (n *names) init(limit int, create func(string) *Operation) {
	n.byName, n.limit, n.create = make(map[string]*Operation), limit, create
	n.overflow = create(overflowName)
}

func (n *names) operation(name string) *Operation {
	name = name[:min(len(name), maxNameLength)]
	n.mu.RLock()
	o := n.byName[name]
	n.mu.RUnlock()
	if o != nil {
		return o
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if o := n.byName[name]; o != nil {
		return o
	}
	if len(n.byName) >= n.limit {
		n.dropped.Add(1)
		return n.overflow
	}
	name = strings.Clone(name) // it may be part of a large string
	o = n.create(name)
	n.byName[name] = o
	return o
}

func newPhaseOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Category = name })
}

func newStepOperation(name string) *Operation {
	return NewOperation(name, func(c *OperationConfig) { c.Info.Type = semconv.GPUOperationTypeStep })
}
