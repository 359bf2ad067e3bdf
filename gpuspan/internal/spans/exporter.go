// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package spans

import (
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/section"
	"github.com/otelgpu/otelgpu/gpuspan/internal/sink"
	"github.com/otelgpu/otelgpu/gpuspan/internal/work"
	"github.com/otelgpu/otelgpu/gpuspan/internal/worker"
)

// Exporter builds the trees of placed sections and steps, ends their spans, for a TracerProvider or
// a sink, and updates metrics and statistics. It has its own goroutine, because all of this runs
// the application's code: a slow span processor delays neither the polling of the driver nor the
// clocks.
type Exporter struct {
	worker.Worker
	p       *section.Core
	metrics *Metrics
	spare   *section.SpareNests // for the polling thread
	sealed  []*Step             // ended steps that wait for their sections

	// of the nest in work
	list  []finished
	order []*section.Record
	byID  map[uint64]*section.Record

	linkLimit int // links that the tracer provider keeps; 0: it has kept all so far,
	linksKept int // whose maximum this was

	one       section.Record // of a plain section
	sink      sink.Span      // reused for each span
	facts     sink.Facts
	attrs     []attribute.KeyValue
	start     []trace.SpanStartOption
	end       []trace.SpanEndOption
	constants map[*section.OpState][]streamConstant // for a sink
	share     []attribute.KeyValue                  // of the links of a span for the sink

	line          []byte // of the log of outputs
	outputsFailed bool
}

// finished is a section that is ready to become a span: placed on the wall clock, with its parent
// and the sums of what it contains.
type finished struct {
	record *section.Record
	stream *section.Stream
	parent *section.Record // nil: the section is outermost
}

type streamConstant struct {
	stream    *section.Stream
	precision work.Precision
	constant  *sink.Constant
}

// usualLinks is the default link limit of SDKs.
const usualLinks = 128

func NewExporter(p *section.Core, m *Metrics, spare *section.SpareNests) *Exporter {
	return &Exporter{
		Worker: p.NewExportWorker(), p: p, metrics: m, spare: spare, linksKept: usualLinks,
		byID: map[uint64]*section.Record{}, constants: map[*section.OpState][]streamConstant{},
	}
}
