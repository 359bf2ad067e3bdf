// Copyright The otelgpu Authors
// SPDX-License-Identifier: Apache-2.0

package stepcsv

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/otelgpu/otelgpu/gpuspan/internal/options"
	"github.com/otelgpu/otelgpu/gpuspan/rank"
	"github.com/otelgpu/otelgpu/semconv"
)

// Builder builds a [Row] from the attributes of a span, for any span API. The zero Builder is ready
// to use.
type Builder struct {
	row     Row
	step    bool
	length  bool
	overlap bool
	other   bool
}

// String adds a string attribute.
func (b *Builder) String(key, value string) {
	if key == string(semconv.GPUOperationTypeKey) {
		b.step = value == semconv.GPUOperationTypeStep
	}
}

// Int adds an integer attribute.
func (b *Builder) Int(key string, value int64) {
	switch key {
	case string(semconv.GPUStepIndexKey):
		b.row.Step = value
	case string(semconv.GPUStepEpochKey):
		b.row.Epoch, b.row.HasEpoch = value, true
	case string(semconv.GPUStepItemsKey):
		b.row.Items = value
	default:
		b.Float(key, float64(value)) // a duration without fraction
	}
}

// Float adds a floating-point attribute. Invalid durations (negative, NaN) are ignored.
func (b *Builder) Float(key string, value float64) {
	d, ok := duration(value)
	if !ok {
		return
	}
	switch key {
	case string(semconv.GPUStepDurationKey):
		b.row.Duration, b.length = d, true
	case string(semconv.GPUStepOverlapDurationKey):
		b.row.Overlap, b.overlap = d, true
	case string(semconv.GPUStepOtherDurationKey):
		b.row.Other, b.other = d, true
	default:
		if name, ok := semconv.GPUStepPhaseDurationOf(key); ok {
			b.row.Phases = append(b.row.Phases, Phase{name, d})
		}
	}
}

// Row returns the row, and false if the span is not a step or its duration is unknown.
func (b *Builder) Row() (Row, bool) {
	b.row.HasSplit = b.overlap && b.other
	slices.SortStableFunc(b.row.Phases, func(x, y Phase) int { return cmp.Compare(x.Name, y.Name) })
	return b.row, b.step && b.length
}

// duration reads seconds. A double holds nanoseconds exactly up to 104 days.
func duration(seconds float64) (time.Duration, bool) {
	ns := math.Round(seconds * 1e9)
	if !(ns >= 0 && ns < math.MaxInt64/2) { // not for NaN either
		return 0, false
	}
	return time.Duration(ns), true
}

// Exporter is an sdktrace.SpanExporter for programs without a Collector that writes a row for each
// step span. Register it with a batching span processor.
type Exporter struct {
	w        *Writer
	allRanks bool
	loop     string
	rank     int64 // of this process, where its spans do not say; 0 outside of a job
	reported atomic.Bool
}

var _ sdktrace.SpanExporter = (*Exporter)(nil)

// ExporterOption configures an Exporter.
type ExporterOption interface{ apply(*Exporter) }

type exporterOption func(*Exporter)

func (f exporterOption) apply(e *Exporter) { f(e) }

// WithAllRanks writes rows on every rank. By default only rank 0 and processes without a rank write
// rows. The rank is read from the spans' resource, otherwise from the launcher's environment
// variables (see package rank).
func WithAllRanks() ExporterOption {
	return exporterOption(func(e *Exporter) { e.allRanks = true })
}

// WithLoop writes only steps of the loop with this name; by default of all.
func WithLoop(name string) ExporterOption {
	return exporterOption(func(e *Exporter) { e.loop = name })
}

// NewExporter returns an Exporter that owns the writer and closes it at Shutdown.
func NewExporter(w *Writer, opts ...ExporterOption) *Exporter {
	e := &Exporter{w: w}
	// Errors report contradictions to the code that makes the resource; the remaining attributes
	// are valid.
	if r, _ := (rank.Detector{}).Detect(context.Background()); r != nil {
		if v, ok := r.Set().Value(semconv.GPUJobRankKey); ok {
			e.rank = v.AsInt64()
		}
	}
	options.All(opts, ExporterOption.apply)(e)
	return e
}

// ExportSpans implements sdktrace.SpanExporter. It returns the errors of [Writer.Write].
func (e *Exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	// Steps end as they are read back: one with work on another stream may end after the next.
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var rows []Row
	var phases []string
	for _, s := range spans {
		if e.loop != "" && s.Name() != e.loop {
			continue
		}
		rank := e.rank
		if v, ok := s.Resource().Set().Value(semconv.GPUJobRankKey); ok {
			rank = v.AsInt64()
		}
		if rank != 0 && !e.allRanks {
			continue
		}
		var b Builder
		for _, a := range s.Attributes() {
			switch a.Value.Type() {
			case attribute.STRING:
				b.String(string(a.Key), a.Value.AsString())
			case attribute.INT64:
				b.Int(string(a.Key), a.Value.AsInt64())
			case attribute.FLOAT64:
				b.Float(string(a.Key), a.Value.AsFloat64())
				if name, ok := semconv.GPUStepPhaseDurationOf(string(a.Key)); ok {
					phases = append(phases, name) // in the order of their declaration
				}
			}
		}
		if row, ok := b.Row(); ok {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil
	}
	if err := e.w.Declare(phases...); err != nil {
		return err
	}
	err := e.w.Write(rows...)
	if d := e.w.Stats().Undeclared; d > 0 && !e.reported.Swap(true) {
		otel.Handle(fmt.Errorf("step CSV: %s of phases without a column is in t_misc_ms: one of %q (a file keeps the "+
			"columns of its first rows: move it away, or declare the phases)", d, phases))
	}
	return err
}

// Shutdown implements sdktrace.SpanExporter. It closes the writer and returns its error.
func (e *Exporter) Shutdown(context.Context) error { return e.w.Close() }
