// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/otelgpu/otelgpu/gpuspan/report"
	"github.com/otelgpu/otelgpu/gpuspan/settings"
	"github.com/otelgpu/otelgpu/semconv"
)

// OperationConfig is what is the same each time an operation runs.
type OperationConfig struct {
	Info       report.Info
	Direction  Direction
	Verbosity  settings.Verbosity
	Sync       settings.SyncMode    // zero: as the Profiler
	NoSpan     bool                 // in metrics and reports only
	Batch      bool                 // timed whether or not the span around it is sampled
	Print      io.Writer            // the report goes here when an outermost section resolves
	Attributes []attribute.KeyValue // on each span
}

// Operation is something that can be timed. It holds no measurements and works with any number of Profilers. A nil
// Operation does nothing.
type Operation struct {
	id    uint32 // index into a Profiler's states
	cfg   OperationConfig
	attrs []attribute.KeyValue // all that are on each span
	host  bool                 // work on the host: no events

	launch struct { // the operation's launches of graphs are an operation of their own, of the same name
		once sync.Once
		op   *Operation
	}
}

// operationIDs numbers operations, so that a Profiler finds its state of one by index instead of by hash.
var operationIDs atomic.Uint32

// NewOperation makes an operation of type section, unless an option says otherwise.
func NewOperation(name string, opts ...func(*OperationConfig)) *Operation {
	if name = ValidText(name); name == "" {
		name = "unnamed"
	}
	c := OperationConfig{
		Info:      report.Info{Name: name, Type: semconv.GPUOperationTypeSection},
		Verbosity: settings.VerbosityDefault,
	}
	for _, o := range opts {
		o(&c)
	}
	c.Info.Category, c.Info.ItemType = ValidText(c.Info.Category), ValidText(c.Info.ItemType)
	return newOperation(c)
}

func newOperation(c OperationConfig) *Operation {
	o := &Operation{id: operationIDs.Add(1) - 1, cfg: c, host: c.Info.Type == semconv.GPUOperationTypeHost}
	o.attrs = o.build()
	return o
}

// ValidText replaces what is no UTF-8: OTLP cannot encode it, and a batch with such a span would be lost whole, with
// the spans of others.
func ValidText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// Real is o, or nil for one that NewOperation did not make: a zero value does what nil does.
func (o *Operation) Real() *Operation {
	if o == nil || o.attrs == nil {
		return nil
	}
	return o
}

func (o *Operation) Name() string {
	if o == nil {
		return ""
	}
	return o.cfg.Info.Name
}

func (o *Operation) Info() report.Info {
	if o == nil {
		return report.Info{}
	}
	return o.cfg.Info
}

// build makes the attributes that every span of the operation has. The name is the span's.
func (o *Operation) build() []attribute.KeyValue {
	kv := []attribute.KeyValue{semconv.GPUOperationTypeKey.String(o.cfg.Info.Type)}
	kv = appendStated(kv, semconv.GPUOperationCategoryKey, o.cfg.Info.Category)
	kv = appendStated(kv, semconv.GPUOperationItemTypeKey, o.cfg.Info.ItemType)
	kv = appendStated(kv, semconv.GPUCopyDirectionKey, o.cfg.Info.Direction)
	kv = appendStated(kv, semconv.GPUCopyHostMemoryKey, o.cfg.Info.HostMemory)
	return AppendValid(kv, o.cfg.Attributes)
}

// appendStated appends an attribute unless its value is empty.
func appendStated(kv []attribute.KeyValue, k attribute.Key, v string) []attribute.KeyValue {
	if v == "" {
		return kv
	}
	return append(kv, k.String(ValidText(v)))
}

func (o *Operation) Start(ctx context.Context, s *Stream) (x Section) {
	if s != nil { // small enough to be inlined into callers
		x = s.begin(ctx, o, flagNone)
	}
	return
}

func (o *Operation) Launch(ctx context.Context, s *Stream, f func()) {
	x := o.graph().Start(ctx, s)
	defer x.End()
	if f != nil {
		f()
	}
}

// graph is the operation as a launch of a graph: the type is an attribute of metrics, so it cannot differ from run to
// run.
func (o *Operation) graph() *Operation {
	if o == nil || o.cfg.Info.Type == semconv.GPUOperationTypeGraph {
		return o
	}
	o.launch.once.Do(func() {
		c := o.cfg
		c.Info.Type = semconv.GPUOperationTypeGraph
		o.launch.op = newOperation(c)
	})
	return o.launch.op
}
